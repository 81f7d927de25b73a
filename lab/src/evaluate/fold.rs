//! Labels of measured runs, and folds: the runs that are judged and those that may be learned from. Serving runs, closed loops
//! and traces of steps share them.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fmt;
use std::ops::Range;

use serde::Serialize;

use ridgepoint::unstable::efficiency::ENGINES;
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
    /// The serving engine, the GPU and the model.
    Server,
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
    ///
    /// ```
    /// use ridgepoint_lab::evaluate::fold::{GroupBy, Labels};
    /// let run = Labels { model: "qwen3-32b".into(), hardware: "h100_sxm".into(), ..Labels::default() };
    /// assert_eq!(run.group(GroupBy::Server), "vllm, h100_sxm, qwen3-32b");
    /// let run = Labels { backend_version: Some("sglang 0.5.9".into()), ..run };
    /// assert_eq!(run.group(GroupBy::Server), "sglang, h100_sxm, qwen3-32b");
    /// ```
    pub fn group(&self, by: GroupBy) -> Cow<'_, str> {
        let known = match by {
            GroupBy::Model => Some(&self.model),
            GroupBy::Workload => self.workload.as_ref(),
            GroupBy::Hardware => Some(&self.hardware),
            GroupBy::BackendVersion => self.backend_version.as_ref(),
            GroupBy::Server => return Cow::Owned([self.engine(), &self.hardware, &self.model].join(", ")),
            GroupBy::Experiment => Some(&self.name),
        };
        Cow::Borrowed(known.map_or("not stated", String::as_str))
    }

    /// The serving engine, which versions of others than vLLM begin with.
    fn engine(&self) -> &str {
        let first = self.backend_version.as_deref().and_then(|version| version.split(' ').next());
        first.filter(|name| ENGINES.contains(name)).unwrap_or("vllm")
    }
}

/// Sorted names of the groups of runs.
///
/// # Errors
/// `ErrorKind::InvalidArgument` if there are fewer than two: leaving out the only one leaves nothing to fit on.
pub fn groups_to_leave_out<'a>(runs: impl Iterator<Item = &'a Labels>, by: GroupBy) -> Result<Vec<String>> {
    let groups: BTreeSet<Cow<'_, str>> = runs.map(|run| run.group(by)).collect();
    let groups: Vec<String> = groups.into_iter().map(Cow::into_owned).collect();
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

impl<'a, C: Judged> Fold<'a, C> {
    /// The training runs that are closest to the judged one, and which these are in words: those of the same model, GPU and
    /// tensor parallelism, else those on the same GPU, else all. `None` without training rows.
    pub fn closest_training_runs(&self) -> Option<(Vec<&Part<'a, C>>, String)> {
        let Labels { model, hardware, tensor_parallel_size, .. } = self.judged.case.labels();
        let distance = |part: &Part<'a, C>| match part.case.labels() {
            of if of.hardware != *hardware => 2,
            of if of.model != *model || of.tensor_parallel_size != *tensor_parallel_size => 1,
            _ => 0,
        };
        let usable = || self.training.iter().filter(|part| !part.rows.is_empty());
        let least = usable().map(distance).min()?;
        let in_words = match least {
            0 => format!("{model} at tensor_parallel_size = {tensor_parallel_size}"),
            1 => format!("other models or sizes on {hardware}"),
            _ => "other models on other GPUs".to_owned(),
        };
        Some((usable().filter(|part| distance(part) == least).collect(), in_words))
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
