//! Says whether a correction is worth using: its errors on rows that it has not seen, compared with those without it, and signs that the trace
//! is not of the server that it was fitted for.

use serde::Serialize;

use super::clients::Clients;
use super::fit_steps::StepRun;
use super::kind_errors::{KindErrors, LaterRows, RowKind};
use super::report::ParameterReport;
use super::residuals;
use super::simpler::Simpler;
use super::window_errors::{WindowErrors, bounds_us, points};
use crate::stats::robust_sd;
use ridgepoint::{Correction, StepModel};
use ridgepoint_replay::EngineConfig;

/// A coefficient that is further from its prior, in standard deviations, is named.
const FAR_SDS: f64 = 3.0;
/// Relative scatter of windows above which nothing is explained.
const MAX_SCATTER: f64 = 0.3;
/// Percentage points by which an error must be above another to be worse: less is not even printed.
const LEAST_WORSE_PCT: f64 = 0.05;
/// Share of windows that may be faster than the roofline: clocks are read with some noise.
const MAX_FASTER_SHARE: f64 = 0.05;

/// Whether a correction is worth using. Serialised keys are stable.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Verdict {
    /// It is better than none on held-out rows, and nothing says that the trace is of another server.
    pub use_it: bool,
    /// Errors with it, on the rows that were held out; `None` if there were none.
    pub held_out: Option<WindowErrors>,
    /// Errors of the operators alone, on the same rows.
    pub held_out_without: Option<WindowErrors>,
    /// Errors of a straight line by prompt tokens and decodes, on the same rows.
    pub held_out_line: Option<WindowErrors>,
    /// Errors on single held-out rows by kind of batch, and on the times of later requests by the replay, beside those of simpler
    /// predictions.
    pub kinds: Vec<KindErrors>,
    /// Says that the straight line is nearer by more than 2 points, where it is.
    pub nearer_line: Option<String>,
    /// What speaks against it.
    pub against: Vec<String>,
    /// What to look at.
    pub remarks: Vec<String>,
}

impl Verdict {
    /// Judges a correction by the rows of its runs, and by the requests of one server.
    pub fn of(
        runs: &[StepRun<'_>],
        correction: &Correction,
        parameters: &[ParameterReport],
        clients: Option<&Clients>,
    ) -> Verdict {
        let held_out = |by: &Correction| {
            let windows: Vec<(f64, f64)> = runs.iter().flat_map(|run| points(run, &run.held_out, by)).collect();
            let rows = runs.iter().map(|run| run.held_out.len()).sum();
            (WindowErrors::of(&windows, rows), windows)
        };
        let (with, windows) = held_out(correction);
        let without = held_out(&Correction::neutral()).0;
        let mut against = Vec::new();
        if is_worse(with.as_ref(), without.as_ref()) {
            against.push("it is worse than none on rows that it has not seen".to_owned());
        }
        against.extend(runs.iter().filter_map(faster_than_roofline));
        against.extend(runs.iter().filter_map(|run| run.case.too_large.clone()));
        let scatter = robust_sd(windows.iter().map(|(measured, predicted)| (measured / predicted).ln()).collect());
        if scatter > MAX_SCATTER {
            against.push(format!("windows scatter by {:.0} %: the steps hardly explain their times", 100.0 * scatter));
        }
        let far = parameters.iter().filter_map(|of| {
            let sds = of.parameter.sds_from_prior(of.value);
            (sds > FAR_SDS).then(|| {
                format!("{} = {:.4} is {sds:.1} standard deviations from its prior", of.parameter.name, of.value)
            })
        });
        let mut remarks: Vec<String> = far.collect();
        remarks.extend(residuals::unexplained(runs, correction));
        let simpler = Simpler::of(runs);
        let mut found = LaterRows::of(runs, correction, &simpler);
        if let Some(clients) = clients.filter(|_| with.is_some()) {
            match clients.latencies(runs, correction, &simpler) {
                Ok(latencies) => found.add_clients(&latencies),
                Err(error) => remarks.push(format!("what clients see is not judged: {error}")),
            }
        }
        Verdict {
            use_it: against.is_empty() && with.is_some(),
            nearer_line: found.nearer_line(with.as_ref()),
            held_out: with,
            held_out_without: without,
            held_out_line: found.line,
            kinds: found.kinds,
            against,
            remarks,
        }
    }

    /// Whether it is worse than none on the rows that were held out.
    pub fn is_worse(&self) -> bool {
        is_worse(self.held_out.as_ref(), self.held_out_without.as_ref())
    }

    /// The verdict in a sentence or two.
    pub fn in_words(&self) -> String {
        let line = self.held_out_line.as_ref();
        let by_a_line = line.map(|line| format!(" ({:.1} % by a straight line)", line.median_ape_pct));
        let mean_of = |kind: RowKind| self.kinds.iter().find(|of| of.kind == kind).map(|of| of.correction.mean_pct);
        let clients = mean_of(RowKind::Ttft).zip(mean_of(RowKind::E2e)).map(|(ttft_pct, e2e_pct)| {
            format!("; of later requests its mean TTFT is {ttft_pct:+.1} % off, its mean E2E {e2e_pct:+.1} %")
        });
        let errors = match (&self.held_out, &self.held_out_without) {
            (Some(with), Some(without)) => format!(
                "on {} rows that it has not seen its median error is {:.1} %, and {:.1} % without it{}{}",
                with.rows,
                with.median_ape_pct,
                without.median_ape_pct,
                by_a_line.unwrap_or_default(),
                clients.unwrap_or_default()
            ),
            _ => "no rows were held out, so that nothing judges it".to_owned(),
        };
        let said = match (self.use_it, self.against.is_empty()) {
            (true, _) => format!("Use it: {errors}."),
            (false, true) => format!("Not judged: {errors}."),
            (false, false) => format!("Do not use it: {errors}; {}.", self.against.join("; ")),
        };
        match &self.nearer_line {
            Some(line) if self.use_it => format!("{line}. {said}"),
            Some(line) => format!("{said} {line}."),
            None => said,
        }
    }
}

/// A remark if a correction's steps hold the host's share of an engine that schedules synchronously, and this one does not.
pub fn unlike_the_fitted(steps: &StepModel, engine: &EngineConfig) -> Option<String> {
    let correction =
        steps.correction().filter(|of| of.source.steps_hold_scheduling && engine.scheduler.async_scheduling)?;
    Some(format!(
        "correction {} was fitted on an engine that schedules synchronously, and this one schedules asynchronously: \
         async_scheduling = false makes them alike",
        correction.name
    ))
}

fn is_worse(with: Option<&WindowErrors>, without: Option<&WindowErrors>) -> bool {
    with.zip(without).is_some_and(|(with, without)| with.median_ape_pct > without.median_ape_pct + LEAST_WORSE_PCT)
}

/// Says that too many windows of a run are faster than the roofline.
fn faster_than_roofline(run: &StepRun<'_>) -> Option<String> {
    let all = bounds_us(run);
    let faster = all.iter().filter(|(measured_us, bound_us)| measured_us < bound_us).count();
    let labels = &run.case.labels;
    (faster as f64 > MAX_FASTER_SHARE * all.len() as f64).then(|| {
        format!(
            "{faster} of {} windows of '{}' are faster than the roofline of {} on {} x {}: it is of another model, GPU or \
             tensor_parallel_size",
            all.len(),
            labels.name,
            labels.model,
            labels.tensor_parallel_size,
            labels.hardware
        )
    })
}
