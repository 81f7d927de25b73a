//! How often the intervals of predictions held on public runs, by engine, GPU and metric. Every output takes its words on intervals
//! from here. Uses `engine`.

use std::sync::LazyLock;

use serde::{Deserialize, Serialize};

use crate::engine::Engine;
use crate::error::each_once;

/// An interval that held less often than this, in percent, is not given: it would mislead.
const LEAST_HELD_PCT: f64 = 40.0;

/// Derived by `docs/coverage.py`.
static ROWS: LazyLock<Vec<FoundRow>> = LazyLock::new(|| {
    // A test reads the file, so that it is never empty here.
    serde_json::from_str(include_str!("coverage.json")).map(|file: FoundFile| file.rows).unwrap_or_default()
});

#[derive(Deserialize)]
struct FoundFile {
    rows: Vec<FoundRow>,
}

/// How a load sends its requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LoadKind {
    /// At times of their own.
    Open,
    /// One when another ends.
    Closed,
}

#[derive(Deserialize)]
struct FoundRow {
    engine: String,
    hardware: String,
    load: LoadKind,
    metric: String,
    corrected: bool,
    rows: u32,
    held: u32,
    /// Half width, in logarithms, that an interval's own lacks for nine in ten of the runs to be within; the two add as independent errors do.
    added: f64,
    bias_pct: f64,
}

/// How often the intervals of one metric held.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Held {
    /// Share of measured means that were within the interval, percent. Those of each model are judged by the width that the other models'
    /// runs ask for.
    pub held_pct: f64,
    /// Half width, in logarithms, that is added to an interval's own as independent errors add, since narrower intervals did not hold;
    /// at least 0.
    pub added: f64,
    /// Number of measured means.
    pub runs: u32,
    /// Their GPUs by short name. A GPU that was never measured takes the figures of all others.
    pub hardware: Vec<String>,
}

/// How often the intervals of an engine's metrics held on public runs. `None` is a metric that has no interval: nothing was measured, or
/// its interval did not hold.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct IntervalCoverage {
    /// Time to first token.
    pub ttft: Option<Held>,
    /// Inter-token latency, as TPOT.
    pub itl: Option<Held>,
    /// Time per output token. A step's interval is as wide.
    pub tpot: Option<Held>,
    /// End-to-end latency.
    pub e2e: Option<Held>,
    /// The same in sentences, with the reason of each interval that is missing.
    pub remark: String,
}

impl IntervalCoverage {
    /// What was found for predictions of `engine` on a GPU under a kind of load, with a correction or without. Of `None`, a single step, it
    /// is what was found under any load. Where no run is of the kind of load, it is that of the other kind.
    ///
    /// ```
    /// use ridgepoint::{Engine, coverage::{IntervalCoverage, LoadKind}};
    /// let vllm = IntervalCoverage::of(&Engine::default(), "h100_sxm", Some(LoadKind::Open), true);
    /// assert_eq!(vllm.e2e.map(|of| of.runs), Some(31));
    /// // First tokens of SGLang on B200 are far off, and so are the bounds of their interval.
    /// let sglang = IntervalCoverage::of(&Engine::parse("sglang", None).unwrap(), "b200_sxm", None, true).ttft.unwrap();
    /// assert!(sglang.added > 0.3 && sglang.held_pct > 70.0);
    /// ```
    pub fn of(engine: &Engine, hardware: &str, load: Option<LoadKind>, corrected: bool) -> Self {
        let [(ttft, first), (tpot, tokens), (e2e, whole)] =
            [("ttft", "TTFT"), ("tpot", "TPOT and ITL"), ("e2e", "E2E")].map(|(metric, name)| {
                let of_metric =
                    |row: &&FoundRow| row.engine == engine.name() && row.metric == metric && row.corrected == corrected;
                found(ROWS.iter().filter(of_metric).collect(), hardware, load, name)
            });
        let remark = format!("public runs of {}, means: {first}; {tokens}; {whole}", engine.name());
        IntervalCoverage { ttft, itl: tpot.clone(), tpot, e2e, remark }
    }

    /// What the interval of a step is known by, in words.
    pub fn of_step(&self) -> String {
        match &self.tpot {
            Some(of) => {
                format!("held for the TPOT of {:.0} % of {} public runs on {}", of.held_pct, of.runs, of.places())
            }
            None => self.remark.clone(),
        }
    }
}

impl LoadKind {
    fn words(self) -> &'static str {
        match self {
            LoadKind::Open => "open loops",
            LoadKind::Closed => "closed loops",
        }
    }
}

impl Held {
    fn places(&self) -> String {
        self.hardware.join(", ")
    }
}

/// What was found of a metric, and the words for it.
fn found(
    of_metric: Vec<&'static FoundRow>,
    hardware: &str,
    load: Option<LoadKind>,
    name: &str,
) -> (Option<Held>, String) {
    let those = |rows: &[&'static FoundRow], is_wanted: &dyn Fn(&FoundRow) -> bool| {
        let wanted: Vec<&'static FoundRow> = rows.iter().copied().filter(|row| is_wanted(row)).collect();
        if wanted.is_empty() { rows.to_vec() } else { wanted }
    };
    let of_load = those(&of_metric, &|row| load.is_none_or(|load| row.load == load));
    let rows = those(&of_load, &|row| row.hardware == hardware);
    let runs: u32 = rows.iter().map(|row| row.rows).sum();
    if runs == 0 {
        return (None, format!("{name} never compared, so it has no interval"));
    }
    let held_pct = 100.0 * f64::from(rows.iter().map(|row| row.held).sum::<u32>()) / f64::from(runs);
    let hardware = each_once(rows.iter().map(|row| row.hardware.clone()));
    // Of several GPUs and kinds of load the mean, each run as one.
    let added = rows.iter().map(|row| row.added * f64::from(row.rows)).sum::<f64>() / f64::from(runs);
    let held = Held { held_pct, added, runs, hardware };
    let kinds = each_once(rows.iter().map(|row| row.load.words())).join(" and ");
    let mut words = format!("{name} within its interval in {held_pct:.0} % of {runs} {kinds} on {}", held.places());
    if added > 0.0 {
        words.push_str(&format!(" once {:.0} % are added to its half width", 100.0 * added.exp_m1()));
    }
    if held_pct >= LEAST_HELD_PCT {
        return (Some(held), words);
    }
    let bias = rows.iter().map(|row| format!("{:+.0} %", row.bias_pct)).collect::<Vec<_>>().join(", ");
    words.push_str(&format!(", median error {bias}, so it has no interval"));
    (None, words)
}

/// An interval around `predicted` whose half width in logarithms has `added` to it, as independent errors add. A bound at 0 or below stays,
/// and so does an interval of no width: nothing is known of it.
///
/// ```
/// let (lower, upper) = ridgepoint::coverage::wider((100.0 / 1.2, 120.0), 100.0, 0.1);
/// let half = 1.2f64.ln().hypot(0.1);
/// assert!((upper - 100.0 * half.exp()).abs() < 1e-9 && (lower * upper - 1e4).abs() < 1e-6);
/// assert_eq!(ridgepoint::coverage::wider((90.0, 110.0), 100.0, 0.0), (90.0, 110.0));
/// ```
pub fn wider((lower, upper): (f64, f64), predicted: f64, added: f64) -> (f64, f64) {
    if added <= 0.0 || predicted <= 0.0 || lower >= upper {
        return (lower, upper);
    }
    let half = |bound: f64| (bound / predicted).ln().hypot(added);
    (if lower > 0.0 { predicted * (-half(lower)).exp() } else { lower }, predicted * half(upper).exp())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(engine: &str, hardware: &str, corrected: bool) -> IntervalCoverage {
        IntervalCoverage::of(&Engine::parse(engine, None).unwrap(), hardware, None, corrected)
    }

    #[test]
    fn the_table_has_a_row_for_each_kind_of_prediction() {
        serde_json::from_str::<FoundFile>(include_str!("coverage.json")).unwrap();
        assert!(ROWS.iter().all(|row| row.held <= row.rows && row.rows > 0 && row.bias_pct.is_finite()));
        assert!(ROWS.iter().all(|row| (0.0..=1.5).contains(&row.added)));
        for corrected in [true, false] {
            let vllm = of("vllm", "h100_sxm", corrected);
            assert!(vllm.e2e.is_some_and(|of| of.runs == 31) && vllm.itl.is_some(), "{corrected}");
        }
    }

    #[test]
    fn a_part_that_was_never_measured_or_never_held_has_no_interval() {
        let found = of("trtllm", "gb200", true);
        assert!(found.tpot.is_none() && found.e2e.is_none());
        assert!(found.remark.contains("so it has no interval") && found.remark.contains("E2E never compared"));
    }

    #[test]
    fn intervals_are_as_wide_as_public_runs_ask_for() {
        for (engine, gpu, corrected) in
            [("vllm", "b200_sxm", true), ("sglang", "b200_sxm", true), ("trtllm", "h100_sxm", false)]
        {
            let found = of(engine, gpu, corrected);
            let ttft = found.ttft.unwrap();
            assert!(ttft.added > 0.1 && (75.0..=97.0).contains(&ttft.held_pct), "{engine} on {gpu}: {ttft:?}");
            assert!(found.remark.contains("% are added to its half width"), "{}", found.remark);
        }
        assert_eq!(of("vllm", "h100_sxm", true).e2e.map(|of| of.added), Some(0.0));
    }

    #[test]
    fn open_and_closed_loops_are_apart_where_both_were_measured() {
        let vllm = |hardware, load| IntervalCoverage::of(&Engine::default(), hardware, Some(load), true);
        let runs = |of: IntervalCoverage| of.ttft.map(|held| (held.runs, held.hardware.join(" ")));
        let (open, closed) = (vllm("h100_sxm", LoadKind::Open), vllm("h100_sxm", LoadKind::Closed));
        assert!(open.remark.contains("of 31 open loops on h100_sxm") && closed.remark.contains("closed loops"));
        let all = runs(of("vllm", "h100_sxm", true)).unwrap().0;
        assert_eq!(runs(open.clone()).unwrap().0 + runs(closed.clone()).unwrap().0, all);
        // E2E is of open loops alone, and B200 has closed ones alone.
        assert_eq!(closed.e2e, open.e2e);
        assert_eq!(runs(vllm("b200_sxm", LoadKind::Open)), runs(open));
    }

    #[test]
    fn another_gpu_takes_the_figures_of_all_measured_ones() {
        let found = of("vllm", "l40s", true).tpot.unwrap();
        assert!(found.hardware.len() > 1 && found.runs > of("vllm", "h100_sxm", true).tpot.unwrap().runs);
    }
}
