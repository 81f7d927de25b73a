//! Labels of measured runs, and folds: the runs that are judged and those that may be learned from. Serving runs, closed loops
//! and traces of steps share them.

use std::fmt;
use std::ops::Range;

use serde::Serialize;

use ridgepoint::{Error, Result};

/// What was run.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Labels {
    /// Name of the run.
    pub name: String,
    /// Short name of the model.
    pub model: String,
    /// Short name of the GPU.
    pub hardware: String,
    /// GPUs that share every layer.
    pub tensor_parallel_size: u32,
    /// Name of the workload, or mean lengths of prompts and outputs in tokens, as `547 in, 248 out`.
    pub workload: Option<String>,
    /// Version of the serving engine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backend_version: Option<String>,
}

/// The label that the runs of a group share.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum GroupBy {
    /// The model.
    Model,
    /// The workload.
    Workload,
    /// The GPU.
    Hardware,
    /// Version of the serving engine.
    BackendVersion,
    /// The run itself.
    Experiment,
}

impl fmt::Display for GroupBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

impl Labels {
    /// Name of the group that the run belongs to.
    pub fn group(&self, by: GroupBy) -> &str {
        let known = match by {
            GroupBy::Model => Some(&self.model),
            GroupBy::Workload => self.workload.as_ref(),
            GroupBy::Hardware => Some(&self.hardware),
            GroupBy::BackendVersion => self.backend_version.as_ref(),
            GroupBy::Experiment => Some(&self.name),
        };
        known.map_or("not stated", String::as_str)
    }
}

/// Sorted names of the groups of runs.
///
/// # Errors
/// `ErrorKind::InvalidArgument` if there are fewer than two: leaving out the only one leaves nothing to fit on.
pub fn groups_to_leave_out<'a>(runs: impl Iterator<Item = &'a Labels>, by: GroupBy) -> Result<Vec<String>> {
    let mut groups: Vec<String> = runs.map(|run| run.group(by).to_owned()).collect();
    groups.sort();
    groups.dedup();
    if groups.len() < 2 {
        let reason = "is all there is: leaving it out leaves nothing to fit on";
        return Err(Error::invalid_argument("runs to leave out", groups.join(", "), reason));
    }
    Ok(groups)
}

/// A run that can be judged.
pub trait Judged {
    /// What was run.
    fn labels(&self) -> &Labels;
    /// Number of its rows: stages of a load, or sampled steps.
    fn rows(&self) -> usize;
}

/// Rows of a run.
#[derive(Debug, Clone)]
pub struct Part<'a, C> {
    /// The run.
    pub case: &'a C,
    /// Its rows.
    pub rows: Range<usize>,
}

impl<'a, C: Judged> Part<'a, C> {
    /// All rows of a run.
    pub fn whole(case: &'a C) -> Self {
        Part { case, rows: 0..case.rows() }
    }
}

/// Rows to judge, and rows to learn from.
#[derive(Debug, Clone)]
pub struct Fold<'a, C> {
    /// The judged rows.
    pub judged: Part<'a, C>,
    /// The training rows. No judged row is among them.
    pub training: Vec<Part<'a, C>>,
}

/// How close training runs are to the judged one, the closest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum TrainingScope {
    /// The same model, GPU and tensor parallelism.
    SameDeployment,
    /// The same GPU.
    SameHardware,
    /// Any.
    All,
}

impl TrainingScope {
    /// The training runs in words.
    pub fn in_words(self, judged: &Labels) -> String {
        match self {
            TrainingScope::SameDeployment => {
                format!("{} at tensor_parallel_size = {}", judged.model, judged.tensor_parallel_size)
            }
            TrainingScope::SameHardware => format!("other models or sizes on {}", judged.hardware),
            TrainingScope::All => "other models on other GPUs".to_owned(),
        }
    }
}

impl<'a, C: Judged> Fold<'a, C> {
    /// The training runs that are closest to the judged one; `None` without training rows.
    pub fn closest_training_runs(&self) -> Option<(Vec<&Part<'a, C>>, TrainingScope)> {
        let judged = self.judged.case.labels();
        let scope_of = |part: &Part<'a, C>| {
            let of = part.case.labels();
            if of.hardware != judged.hardware {
                TrainingScope::All
            } else if of.model != judged.model || of.tensor_parallel_size != judged.tensor_parallel_size {
                TrainingScope::SameHardware
            } else {
                TrainingScope::SameDeployment
            }
        };
        let usable = || self.training.iter().filter(|part| !part.rows.is_empty());
        let scope = usable().map(scope_of).min()?;
        Some((usable().filter(|part| scope_of(part) == scope).collect(), scope))
    }
}

/// A fold per run, in order: the runs of all other groups are its training runs.
///
/// # Errors
/// As [`groups_to_leave_out`].
pub fn leave_one_out<C: Judged>(cases: &[C], by: GroupBy) -> Result<Vec<Fold<'_, C>>> {
    groups_to_leave_out(cases.iter().map(Judged::labels), by)?;
    let fold = |judged| Fold { judged: Part::whole(judged), training: others(cases, judged, by) };
    Ok(cases.iter().map(fold).collect())
}

/// All rows of the runs that are not of the judged run's group.
pub(super) fn others<'a, C: Judged>(cases: &'a [C], judged: &C, by: GroupBy) -> Vec<Part<'a, C>> {
    let group = judged.labels().group(by);
    cases.iter().filter(|other| other.labels().group(by) != group).map(Part::whole).collect()
}
