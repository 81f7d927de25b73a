//! What is known of measured rows that tables must not take: read from a file, each with its reason and source.

use std::collections::BTreeMap;
use std::path::Path;

use ridgepoint::input::{FileKind, Keys, Log, NumberRange, parse_toml, read_text};
use ridgepoint::unstable::efficiency::family::FAMILIES;
use ridgepoint::{Hardware, Result};
use serde_json::Value;

use super::source::RowSource;

/// Place of the file in a data directory.
const PLACE: &str = "bench_data/exclusions.toml";

/// The file that applies where the data directory has none.
const BUILT_IN: &str = include_str!("../../../bench_data/exclusions.toml");

/// The exclusions of a file, in its order.
#[derive(Debug, Clone)]
pub struct Exclusions(Vec<Exclusion>);

/// Rows of one kernel that are known to be bad.
#[derive(Debug, Clone)]
pub struct Exclusion {
    operator: String,
    /// Engine and minor version as far as they matter, such as `vllm` or `vllm-0.14`; empty for all.
    engine: String,
    /// GPUs by name; empty for all.
    gpus: Vec<String>,
    /// Names of series, of which `*` matches any part.
    series: Vec<String>,
    /// Kernel that the source names, and another one that it does not.
    kernel: Option<String>,
    not_kernel: Option<String>,
    /// Rows of the public tables alone.
    is_public: bool,
    /// Least and most value on an axis of the series.
    points: BTreeMap<String, [f64; 2]>,
    /// What is left out.
    pub(super) effect: Effect,
    /// Why, as reports have it.
    pub(super) reason: String,
}

/// What an exclusion leaves out.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Effect {
    /// The rows: nothing is learnt from them.
    Rows,
    /// The series: trees learn from its rows, and no table holds it.
    Series,
    /// Nothing: the table marks the series with this distance where another engine's kernel is looked for.
    StandIn(f64),
}

impl Exclusions {
    /// Reads the exclusions of a data directory; the built-in ones if it has none.
    ///
    /// # Errors
    /// A file that cannot be read or is not TOML; all its problems, each with key and value.
    pub fn find(data_dir: Option<&Path>) -> Result<Self> {
        let path = data_dir.map(|dir| dir.join(PLACE)).filter(|path| path.exists());
        match path {
            Some(path) => {
                let text = read_text(FileKind::Exclusions, &path)?;
                Exclusions::parse(&path.display().to_string(), &text, data_dir)
            }
            None => Exclusions::parse(&format!("built-in {PLACE}"), BUILT_IN, None),
        }
    }

    /// Reads the text of a file, whose GPUs are built in or in the data directory.
    ///
    /// # Errors
    /// As [`Exclusions::find`].
    pub fn parse(origin: &str, text: &str, data_dir: Option<&Path>) -> Result<Self> {
        let toml = parse_toml(origin, text)?;
        let log = Log::default();
        let keys = Keys::new("", &toml, &log);
        let list = keys.read("exclusion", "a list of [[exclusion]] tables", Value::as_array);
        let list = list.into_iter().flatten().enumerate();
        let read = |(at, value)| Exclusion::read(Keys::new(&format!("exclusion[{at}]"), value, &log), data_dir);
        let found = list.map(read).collect();
        keys.finish();
        Ok(log.finish(origin, Some(Exclusions(found)))?.0)
    }

    /// The first exclusion of a row, or of its series.
    pub(super) fn of(&self, row: &MeasuredPlace<'_>) -> Option<&Exclusion> {
        self.0.iter().find(|exclusion| exclusion.is_of(row))
    }
}

/// A row as exclusions see it.
#[derive(Debug, Clone, Copy)]
pub(super) struct MeasuredPlace<'a> {
    pub(super) operator: &'a str,
    pub(super) hardware: &'a Hardware,
    pub(super) source: &'a RowSource,
    /// Name of the series.
    pub(super) series: &'a str,
    /// Names of the grid's axes, and the coordinates; none for a call that no table holds.
    pub(super) axes: &'a [&'a str],
    pub(super) point: &'a [f64],
}

impl Exclusion {
    /// Reads one exclusion. Problems go to the log, and what lacks is empty then.
    fn read(keys: Keys<'_>, data_dir: Option<&Path>) -> Self {
        keys.require(&["operator", "reason", "source"]);
        let text = |key: &str| keys.text(key).map(str::to_owned);
        let texts =
            |key: &str| -> Vec<String> { keys.texts(key).unwrap_or_default().into_iter().map(str::to_owned).collect() };
        let operator = text("operator").unwrap_or_default();
        let axes = axes_of(&operator);
        if keys.has("operator") && axes.is_none() {
            keys.problem("operator", "is no operator with tables");
        }
        let gpus = texts("gpus");
        for name in gpus.iter().filter(|name| !Hardware::find_in(data_dir, name).is_ok_and(|gpu| gpu.name == **name)) {
            keys.problem(
                "gpus",
                format_args!("names '{name}', which is no GPU of `ridgepoint hardware` by its first name"),
            );
        }
        let engine = match (text("engine"), text("version")) {
            (Some(engine), Some(version)) => format!("{engine}-{version}"),
            (Some(engine), None) => engine,
            (None, version) => {
                if version.is_some() {
                    keys.problem("version", "needs an engine");
                }
                String::new()
            }
        };
        // The source is for people.
        keys.text("source");
        let exclusion = Exclusion {
            engine,
            gpus,
            series: texts("series"),
            kernel: text("kernel"),
            not_kernel: text("not_kernel"),
            is_public: keys.flag("is_public").unwrap_or(false),
            points: points(keys.section_or_empty("points"), axes.unwrap_or_default()),
            effect: effect(&keys),
            reason: text("reason").unwrap_or_default(),
            operator,
        };
        keys.finish();
        exclusion
    }

    fn is_of(&self, row: &MeasuredPlace<'_>) -> bool {
        let MeasuredPlace { operator, hardware, source, series, axes, point } = *row;
        let is_kernel = |pattern: &String| matches(pattern, &source.kernel);
        let is_within = |(axis, at): (&&str, &f64)| {
            self.points.get(*axis).is_none_or(|[least, most]| (*least..=*most).contains(at))
        };
        self.operator == operator
            && is_engine(&self.engine, &source.engine)
            && (!self.is_public || source.is_public)
            && (self.gpus.is_empty() || self.gpus.contains(&hardware.name))
            && self.kernel.as_ref().is_none_or(is_kernel)
            && !self.not_kernel.as_ref().is_some_and(is_kernel)
            && (self.series.is_empty() || self.series.iter().any(|pattern| matches(pattern, series)))
            && (self.points.is_empty() || !point.is_empty())
            && axes.iter().zip(point).all(is_within)
    }
}

/// Reads what an exclusion leaves out.
fn effect(keys: &Keys<'_>) -> Effect {
    let distance = keys.number("stand_in_distance", NumberRange::from_zero(1e6, ""));
    match (keys.text("leaves_out"), distance) {
        (Some("series"), None) => Effect::Series,
        (None, Some(distance)) => Effect::StandIn(distance),
        (Some("rows"), None) => Effect::Rows,
        _ => {
            if !keys.has("stand_in_distance") || keys.has("leaves_out") {
                keys.problem("leaves_out", "must be 'rows' or 'series', or a stand_in_distance replaces it");
            }
            Effect::Rows
        }
    }
}

/// Reads the ranges of a section on `axes`.
fn points(section: Keys<'_>, axes: &[&str]) -> BTreeMap<String, [f64; 2]> {
    let range = |axis: &&str| {
        let range = section.section(axis)?;
        let bound = |key: &str| range.number(key, NumberRange::from_zero(f64::MAX, ""));
        let bounds = [bound("at_least").unwrap_or(0.0), bound("at_most").unwrap_or(f64::INFINITY)];
        range.finish();
        Some(((*axis).to_owned(), bounds))
    };
    let ranges = axes.iter().filter_map(range).collect();
    section.finish();
    ranges
}

/// Whether an engine and minor version are those of an exclusion, which may name the engine alone or neither.
fn is_engine(excluded: &str, engine: &str) -> bool {
    let rest = engine.strip_prefix(excluded);
    excluded.is_empty() || rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
}

/// Whether a text is that of a pattern, in which `*` matches any part.
fn matches(pattern: &str, text: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == text,
        Some((head, rest)) => text.strip_prefix(head).is_some_and(|text| {
            rest.is_empty() || (0..=text.len()).any(|at| text.get(at..).is_some_and(|text| matches(rest, text)))
        }),
    }
}

/// The axes of an operator's tables; `None` for an operator without tables.
fn axes_of(operator: &str) -> Option<&'static [&'static str]> {
    FAMILIES.iter().find(|family| family.operator == operator).map(|family| family.axes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(engine: &str, kernel: &str) -> RowSource {
        RowSource { engine: engine.to_owned(), is_public: true, kernel: kernel.to_owned(), name: String::new() }
    }

    /// The reason why the built-in file leaves out a row of experts with so many tokens.
    fn excluded(gpu: &str, source: &RowSource, series: &str, tokens: f64) -> Option<(Effect, String)> {
        let hardware = Hardware::find(gpu).expect("a built-in GPU");
        let exclusions = Exclusions::find(None).expect("the built-in file");
        let axes: &[&str] = &["moe_tp_size", "moe_ep_size", "num_tokens"];
        let point: &[f64] = &[1.0, 1.0, tokens];
        let row = MeasuredPlace { operator: "moe", hardware: &hardware, source, series, axes, point };
        exclusions.of(&row).map(|of| (of.effect, of.reason.clone()))
    }

    #[test]
    fn a_row_is_excluded_by_engine_gpu_kernel_series_and_size() {
        let layer = |format: &str| format!("{format}/power_law_1.01/h2048/i768/k8/e128");
        let latency = source("trtllm-1.3", "moe_torch_flow_min_latency");
        let flow = source("trtllm-1.3", "moe_torch_flow");
        let reason = |gpu, source, format: &str, tokens| excluded(gpu, source, &layer(format), tokens).map(|of| of.1);
        let by_size = reason("h100", &latency, "nvfp4", 129.0).expect("too many tokens");
        assert!(by_size.contains("so many tokens"), "{by_size}");
        assert_eq!(reason("h100", &latency, "nvfp4", 128.0), None);
        assert_eq!(reason("h100", &flow, "nvfp4", 128.0), Some(by_size));
        assert_eq!(reason("h100", &flow, "nvfp4", 129.0), None);
        let by_gpu = reason("b200", &flow, "fp8", 1.0).expect("not served");
        assert!(by_gpu.contains("does not serve"), "{by_gpu}");
        assert_eq!(reason("b200", &flow, "mxfp4_mxfp8", 1.0), None);
        assert_eq!(reason("b300", &flow, "fp8", 1.0), None);
        assert!(reason("h100", &source("sglang-0.5", "sglang_fused_moe_triton_v2"), "mxfp4", 1.0).is_some());
        let vllm = source("vllm-0.24", "fused_moe");
        let gateless = excluded("h100", &vllm, "fp8/power_law_1.01/h2048/i5120/k22/e512", 1.0).expect("no gate");
        assert_eq!(gateless.0, Effect::Series);
        assert_eq!(excluded("h100", &vllm, &layer("fp8"), 1.0), None);
    }

    #[test]
    fn every_fault_of_a_file_is_named_by_key_and_value() {
        let text = r#"
            [[exclusion]]
            operator = "moes"
            gpus = ["h1000"]
            leaves_out = "everything"
            reason = "it is slow"
            sauce = "a guess"
            [[exclusion]]
            operator = "moe"
            version = "0.14"
            points = { num_token = { at_most = 3 }, num_tokens = { at_most = "few" } }
            leaves_out = "rows"
            stand_in_distance = 9.0
            reason = "it is slow"
            source = "a guess"
        "#;
        let error = Exclusions::parse("e.toml", text, None).expect_err("faults").to_string();
        for part in [
            "exclusion[0].operator = \"moes\"",
            "'h1000'",
            "exclusion[0].leaves_out = \"everything\"",
            "exclusion[0].source is missing",
            "exclusion[0].sauce is not a known key",
            "exclusion[1].version = \"0.14\" needs an engine",
            "exclusion[1].points.num_token is not a known key",
            "exclusion[1].points.num_tokens.at_most = \"few\"",
            "exclusion[1].leaves_out = \"rows\"",
        ] {
            assert!(error.contains(part), "{part} of {error}");
        }
    }
}
