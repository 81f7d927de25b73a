//! The rows of traces that are judged and those that are learned from.

use super::case::{StepCase, missing_labels};
use crate::evaluate::fold::{Fold, GroupBy, Part, leave_one_out};
use ridgepoint::{Correction, Result};

/// Usual share of a run's time from which rows are judged.
pub const USUAL_JUDGE_FROM: f64 = 0.8;

/// Share of a run, in the order of time, that is fitted when the rest judges a fit.
pub const FIRST: f64 = 0.6;

/// How rows are held back.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum StepSplit {
    /// All rows are judged, and none is learned from.
    All,
    /// Each run is cut in time: later rows are judged, earlier ones are learned from.
    Temporal {
        /// Share of the run's time before the cut, above 0 and below 1.
        judge_from: f64,
    },
    /// All runs of a group are judged; those of the other groups are learned from.
    LeaveOneOut(GroupBy),
}

impl StepSplit {
    /// The judged rows and those that are learned from, in words.
    pub fn in_words(self) -> String {
        match self {
            StepSplit::All => "all rows are judged, none is learned from".to_owned(),
            StepSplit::Temporal { judge_from } => {
                let percent = (1000.0 * (1.0 - judge_from)).round() / 10.0;
                format!("the last {percent} % of each run's time is judged; what comes before is learned from")
            }
            StepSplit::LeaveOneOut(by) => {
                format!("all rows of a {by} are judged; those of the others are learned from")
            }
        }
    }
}

/// Rows of traces to judge, and rows to learn from.
pub type StepFold<'a> = Fold<'a, StepCase>;

/// Fits a correction to a fold's training rows.
pub type Fitter<'a> = dyn Fn(&StepFold<'_>) -> Result<Correction> + Sync + 'a;

/// A fold per run, in the order of runs. A temporal split may leave a run without rows to judge.
///
/// # Errors
/// `ErrorKind::Invalid` with the runs that do not name the workload that is left out; as [`leave_one_out`].
pub fn folds(cases: &[StepCase], split: StepSplit) -> Result<Vec<StepFold<'_>>> {
    match split {
        StepSplit::All => {
            Ok(cases.iter().map(|case| Fold { judged: Part::whole(case), training: Vec::new() }).collect())
        }
        StepSplit::Temporal { judge_from } => {
            let training = || cases.iter().map(|case| Part { case, rows: 0..rows_before(case, judge_from) }).collect();
            let judged = |case| Part { case, rows: rows_before(case, judge_from)..case.rows.len() };
            Ok(cases.iter().map(|case| Fold { judged: judged(case), training: training() }).collect())
        }
        StepSplit::LeaveOneOut(by) => {
            let silent = cases.iter().filter(|case| by == GroupBy::Workload && case.labels.workload.is_none());
            let silent: Vec<String> =
                silent.map(|case| format!("{} does not name its workload", case.labels.name)).collect();
            if !silent.is_empty() {
                return Err(missing_labels(silent, &["workload"]));
            }
            leave_one_out(cases, by)
        }
    }
}

/// The number of rows that begin before a share of a run's time. Time is what its rows cover, one after the other, so that
/// idling does not count and traces without a clock have it too.
fn rows_before(case: &StepCase, share: f64) -> usize {
    // A row that begins at the cut comes after it, however shares and sums were rounded.
    const ROUNDING: f64 = 1e-9;
    let all_us: f64 = case.rows.iter().map(|row| row.span_us).sum();
    let mut begins_us = 0.0;
    let begins_before = |span_us: f64| {
        let is_before = begins_us < (share - ROUNDING) * all_us;
        begins_us += span_us;
        is_before
    };
    case.rows.iter().map(|row| row.span_us).map(begins_before).take_while(|is_before| *is_before).count()
}
