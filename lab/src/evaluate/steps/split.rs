//! Which rows are held back to be judged, and which may be learned from. Uses `case`.

use std::fmt;
use std::ops::Range;

use serde::Serialize;

use super::case::StepCase;
use ridgepoint::internals::correction::Correction;
use ridgepoint::{Error, Result};

/// Share of a run's time at which the rows to judge begin, where nothing else is asked for: 60 % to fit, 20 % to tune.
pub const USUAL_JUDGE_FROM: f64 = 0.8;
/// Share of the rows to learn from that are fitted on; the later ones are for tuning.
const FIT_SHARE: f64 = 0.75;

/// How rows are held back.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum StepSplit {
    /// They are not: everything is judged and nothing can be learned from.
    All,
    /// Each run by its time: what comes from this share on is judged; of what comes before it three quarters are to fit and the
    /// last one is to tune.
    Temporal {
        /// Above 0 and below 1.
        judge_from: f64,
    },
    /// All runs of a model are judged with what other models teach.
    LeaveOneModelOut,
    /// All runs of a workload are judged with what other workloads teach.
    LeaveOneWorkloadOut,
}

impl StepSplit {
    /// Its name on the command line and in JSON.
    pub fn name(self) -> &'static str {
        match self {
            StepSplit::All => "all",
            StepSplit::Temporal { .. } => "temporal",
            StepSplit::LeaveOneModelOut => "leave-one-model-out",
            StepSplit::LeaveOneWorkloadOut => "leave-one-workload-out",
        }
    }

    /// Which rows are judged and which are learned from, in words.
    pub fn in_words(self) -> String {
        let percent = |share: f64| format!("{} %", (1000.0 * share).round() / 10.0);
        match self {
            StepSplit::All => "all rows are judged, none is learned from".to_owned(),
            StepSplit::Temporal { judge_from } => format!(
                "the last {} of each run's time is judged; the first {} is to fit, {} after it to tune",
                percent(1.0 - judge_from),
                percent(judge_from * FIT_SHARE),
                percent(judge_from * (1.0 - FIT_SHARE))
            ),
            StepSplit::LeaveOneModelOut => {
                "all rows of a model are judged; those of other models are learned from".to_owned()
            }
            StepSplit::LeaveOneWorkloadOut => {
                "all rows of a workload are judged; those of other workloads are learned from".to_owned()
            }
        }
    }
}

impl fmt::Display for StepSplit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Serialize for StepSplit {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

/// Rows of a run that may be learned from, as ranges of [`StepCase::rows`].
#[derive(Debug, Clone)]
pub struct Training<'a> {
    /// The run.
    pub case: &'a StepCase,
    /// Rows to fit on.
    pub fit: Range<usize>,
    /// Later rows, to choose between fits.
    pub tune: Range<usize>,
}

/// A run to be judged, and what may be learned from for it.
#[derive(Debug, Clone)]
pub struct Fold<'a> {
    /// The run.
    pub judged: &'a StepCase,
    /// Its rows that are judged.
    pub rows: Range<usize>,
    /// Runs to learn from; none of the judged rows is among their rows.
    pub training: Vec<Training<'a>>,
}

/// Fits a correction on a fold's training rows.
pub type Fitter<'a> = dyn Fn(&Fold<'_>) -> Result<Correction> + Sync + 'a;

/// Whose rows a regression is fitted on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Whose {
    /// Of the judged run's model, GPU and tensor parallelism.
    Alike,
    /// Of any model on the judged run's GPU.
    SameHardware,
    /// Of all runs.
    All,
}

impl<'a> Fold<'a> {
    /// The training runs that are most like the judged one; `None` where there is nothing to learn from.
    pub fn alike(&self) -> Option<(Vec<&Training<'a>>, Whose)> {
        let judged = self.judged;
        let on_same = |of: &StepCase| of.hardware == judged.hardware;
        let is_alike = |of: &StepCase| {
            on_same(of) && of.model == judged.model && of.tensor_parallel_size == judged.tensor_parallel_size
        };
        let chosen = |keep: &dyn Fn(&StepCase) -> bool| -> Vec<&Training<'a>> {
            self.training.iter().filter(|of| !of.fit.is_empty() && keep(of.case)).collect()
        };
        let by_likeness = [
            (chosen(&is_alike), Whose::Alike),
            (chosen(&on_same), Whose::SameHardware),
            (chosen(&|_| true), Whose::All),
        ];
        by_likeness.into_iter().find(|(training, _)| !training.is_empty())
    }
}

/// A fold per run, in the order of runs. A run may be left without rows to judge by a temporal split.
///
/// # Errors
/// `ErrorKind::InvalidArgument` for a share outside (0, 1), and where there is one model or workload alone, so that leaving it out leaves
/// nothing; `ErrorKind::Invalid` with the runs that don't say their workload where that is what is left out.
pub fn folds(cases: &[StepCase], split: StepSplit) -> Result<Vec<Fold<'_>>> {
    match split {
        StepSplit::All => {
            Ok(cases.iter().map(|case| Fold { judged: case, rows: 0..case.rows.len(), training: Vec::new() }).collect())
        }
        StepSplit::Temporal { judge_from } => temporal(cases, judge_from),
        StepSplit::LeaveOneModelOut => {
            let models: Vec<&str> = cases.iter().map(|case| case.model.as_str()).collect();
            leave_one_out(cases, &models, split, "models")
        }
        StepSplit::LeaveOneWorkloadOut => {
            let silent: Vec<String> = cases
                .iter()
                .filter(|case| case.workload.is_none())
                .map(|case| format!("{} does not say its workload: add --workload NAME", case.name))
                .collect();
            if !silent.is_empty() {
                return Err(Error::invalid(format!("--split {split}"), silent));
            }
            let workloads: Vec<&str> = cases.iter().map(|case| case.workload.as_deref().unwrap_or_default()).collect();
            leave_one_out(cases, &workloads, split, "workloads")
        }
    }
}

fn temporal(cases: &[StepCase], judge_from: f64) -> Result<Vec<Fold<'_>>> {
    if !(judge_from > 0.0 && judge_from < 1.0) {
        return Err(Error::invalid_argument(
            "--judge-from",
            judge_from.to_string(),
            "must be above 0 and below 1, the share of a run's time from which rows are judged",
        ));
    }
    let training: Vec<Training<'_>> = cases.iter().map(|case| parts(case, judge_from)).collect();
    let fold = |own: &Training<'_>| own.tune.end..own.case.rows.len();
    Ok(cases
        .iter()
        .zip(&training)
        .map(|(judged, own)| Fold { judged, rows: fold(own), training: training.clone() })
        .collect())
}

fn leave_one_out<'a>(cases: &'a [StepCase], groups: &[&str], split: StepSplit, what: &str) -> Result<Vec<Fold<'a>>> {
    let mut names = groups.to_vec();
    names.sort_unstable();
    names.dedup();
    if names.len() < 2 {
        return Err(Error::invalid_argument(
            "--split",
            split.name(),
            format!("needs runs of at least two {what}, all are of '{}'", names.join("")),
        ));
    }
    let fold = |(judged, group): (&'a StepCase, &&str)| {
        let others = cases.iter().zip(groups).filter(|(_, other)| *other != group);
        let training = others.map(|(case, _)| parts(case, 1.0)).collect();
        Fold { judged, rows: 0..judged.rows.len(), training }
    };
    Ok(cases.iter().zip(groups).map(fold).collect())
}

/// The rows of a run before a share of its time: those to fit and those to tune. Time is what its rows cover, one after the
/// other, so that idling does not count and traces without a clock have it too; a row belongs to the part in which it begins.
fn parts(case: &StepCase, until: f64) -> Training<'_> {
    // A row that begins at a cut comes after it, however shares and sums were rounded.
    const ROUNDING: f64 = 1e-9;
    let all_us: f64 = case.rows.iter().map(|row| row.span_us).sum();
    let mut begins_us = 0.0;
    let (mut fit, mut tune) = (0, 0);
    for (index, row) in case.rows.iter().enumerate() {
        if begins_us < (FIT_SHARE * until - ROUNDING) * all_us {
            fit = index + 1;
        }
        if begins_us < (until - ROUNDING) * all_us {
            tune = index + 1;
        }
        begins_us += row.span_us;
    }
    Training { case, fit: 0..fit, tune: fit..tune }
}
