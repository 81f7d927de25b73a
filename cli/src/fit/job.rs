//! A fit: its input, and its result.

use std::path::{Path, PathBuf};

use clap::ValueEnum;
use ridgepoint::internals::correction::{Correction, Level};
use serde_json::Value;

/// The input of a fit.
pub struct FitJob<'a> {
    /// Sampled steps.
    pub steps: &'a [PathBuf],
    /// Serving runs; empty where `steps` are not.
    pub serving: &'a [PathBuf],
    /// For which models.
    pub level: Level,
    /// The correction to shrink towards; `None` is the operators alone.
    pub prior: Option<Correction>,
    /// The part of the data that is fitted.
    pub split: FitSplit,
    /// Description of the measurements.
    pub data: Option<&'a str>,
    /// Version of the serving engine.
    pub engine_version: Option<&'a str>,
    /// Labels of runs whose files lack them.
    pub labels: RunLabels<'a>,
    /// Seed of random loads.
    pub seed: u64,
    /// Folder whose files take precedence over the built-in ones.
    pub data_dir: Option<&'a Path>,
}

/// Labels of runs of steps.
#[derive(Debug, Clone, Copy, Default)]
pub struct RunLabels<'a> {
    /// Built-in name, id or path.
    pub model: Option<&'a str>,
    /// Built-in name or path.
    pub hardware: Option<&'a str>,
    /// GPUs that share every layer.
    pub tensor_parallel_size: Option<u32>,
    /// vLLM's flag.
    pub max_num_seqs: Option<u32>,
    /// vLLM's flag.
    pub max_num_batched_tokens: Option<u32>,
}

/// The result of a fit.
pub struct Fitted {
    /// The fitted correction.
    pub correction: Correction,
    /// The report for people.
    pub table: String,
    /// The report as JSON.
    pub json: Value,
    /// Remarks for stderr.
    pub notes: Vec<String>,
}

/// Which part of the data is fitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum FitSplit {
    /// All of it
    All,
    /// The first 60 % of each run
    First60,
}
