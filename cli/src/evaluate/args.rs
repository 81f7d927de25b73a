//! The arguments of `evaluate`.

use std::path::PathBuf;

use clap::builder::TypedValueParser;
use clap::{Args, Subcommand};
use ridgepoint_lab::evaluate::fold::GroupBy;
use ridgepoint_lab::evaluate::steps::split::{StepSplit, USUAL_JUDGE_FROM};
use ridgepoint_lab::evaluate::steps::window::USUAL_ROWS;

use super::bench::Bench;
use super::capture::Capture;
use super::scorecard::ScorecardArgs;
use crate::common::{CorrectionArg, at_least_zero, one_of};
use crate::examples;
use crate::fit::FitLevel;
use crate::ingest::{CleaningArgs, Labels};
use crate::plots::Plot;

/// The arguments of `evaluate`.
#[derive(Debug, Args)]
#[command(subcommand_required = true, arg_required_else_help = true)]
pub struct Evaluate {
    #[command(subcommand)]
    pub of: Of,
}

#[derive(Debug, Subcommand)]
pub enum Of {
    /// Serving runs under a load generator: folders of profile.yaml, exp-config.yaml and measured.csv
    #[command(after_help = examples::EVALUATE_SERVING)]
    Serving(Serving),
    /// Servers with a fixed number of requests in flight: rows of a csv file
    #[command(after_help = examples::EVALUATE_CLOSED_LOOP)]
    ClosedLoop(ClosedLoop),
    /// Steps of real engines: traces, or tables of `ridgepoint ingest`
    #[command(after_help = examples::EVALUATE_STEPS)]
    Steps(Steps),
    /// All serving runs by the limits of the fidelity paper, and how predictions carry over: exit code 1 where one fails
    #[command(after_help = examples::EVALUATE_SCORECARD)]
    Scorecard(ScorecardArgs),
    /// Judge one's own capture request by request: its arrivals, lengths and prefixes are replayed
    #[command(after_help = examples::EVALUATE_CAPTURE)]
    Capture(Box<Capture>),
    /// Results of a load generator on one's own server: throughput and latencies as it printed them
    #[command(after_help = examples::EVALUATE_BENCH)]
    Bench(Box<Bench>),
}

#[derive(Debug, Args)]
pub struct Serving {
    /// Experiments, or folders of experiments
    #[arg(value_name = "PATH", required = true)]
    pub paths: Vec<PathBuf>,
    /// Judge corrections on what they have not seen: for each group one is fitted on all the others
    #[arg(long, value_parser = group(), value_name = "GROUP", conflicts_with = "correction")]
    pub leave_one_out: Option<GroupBy>,
    /// Show where the error comes from: the same predictions with one component replaced at a time
    #[arg(long)]
    pub attribute: bool,
    /// Tolerance: exit with 1 where the median absolute error of E2E is above X percent
    #[arg(long, value_name = "X", value_parser = at_least_zero, allow_negative_numbers = true)]
    pub max_median_e2e_pct: Option<f64>,
    #[command(flatten)]
    pub view: View,
}

#[derive(Debug, Args)]
pub struct ClosedLoop {
    /// csv files; the columns are in the examples below
    #[arg(value_name = "FILE", required = true)]
    pub files: Vec<PathBuf>,
    /// Run the rows of these serving engines alone [default: all, each with its own scheduler]
    #[arg(long, value_name = "NAME", num_args = 1.., value_delimiter = ',')]
    pub backend: Vec<String>,
    #[command(flatten)]
    pub view: View,
}

#[derive(Debug, Args)]
pub struct View {
    /// Sum up by group too
    #[arg(long, value_name = "GROUP", value_parser = group())]
    pub split: Option<GroupBy>,
    /// Seed of arrival times and lengths that are random
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub seed: u64,
    #[command(flatten)]
    pub correction: CorrectionArg,
    #[command(flatten)]
    pub plot: Plot,
}

#[derive(Debug, Args)]
pub struct Steps {
    /// Traces of engines' steps, or step tables of `ridgepoint ingest`
    #[arg(value_name = "FILE", required = true)]
    pub files: Vec<PathBuf>,
    #[command(flatten)]
    pub correction: CorrectionArg,
    /// Rows to hold back; the black box is fitted to the others [default: all rows are judged]
    #[arg(long, value_parser = held_back(), value_name = "SPLIT")]
    pub split: Option<StepSplit>,
    /// Share of each run's time from which rows are judged [default: 0.8 with --split temporal, which this implies]
    #[arg(long, value_name = "X", value_parser = share)]
    pub judge_from: Option<f64>,
    /// Judge a correction fitted to the rows that are not held back, and compare it with the given one
    #[arg(long, value_enum, value_name = "LEVEL")]
    pub refit: Option<FitLevel>,
    /// Sampled steps that are judged together; 1 judges every interval for itself
    #[arg(long, value_name = "N", default_value_t = USUAL_ROWS as u64, value_parser = clap::value_parser!(u64).range(1..))]
    pub window: u64,
    /// Tolerance: exit with 1 where the median absolute error over all windows is above X percent
    #[arg(long, value_name = "X", value_parser = at_least_zero, allow_negative_numbers = true)]
    pub max_median_ape_pct: Option<f64>,
    #[command(flatten)]
    pub plot: Plot,
    #[command(flatten)]
    pub labels: Labels,
    #[command(flatten)]
    pub cleaning: CleaningArgs,
}

impl Steps {
    /// The judged rows, or a message about flags that contradict each other.
    pub fn split(&self) -> Result<StepSplit, &'static str> {
        match (self.split, self.judge_from) {
            (None | Some(StepSplit::Temporal { .. }), Some(judge_from)) => Ok(StepSplit::Temporal { judge_from }),
            (Some(_), Some(_)) => Err("--judge-from splits by time; leave it out, or take --split temporal"),
            (split, None) => Ok(split.unwrap_or(StepSplit::All)),
        }
    }
}

fn group() -> impl TypedValueParser<Value = GroupBy> {
    one_of([
        ("model", "Runs of the same model", GroupBy::Model),
        ("workload", "Runs with the same lengths of prompts and outputs", GroupBy::Workload),
        ("hardware", "Runs on the same GPU", GroupBy::Hardware),
        ("backend-version", "Runs of the same version of the serving engine", GroupBy::BackendVersion),
        ("server", "Runs of the same engine, GPU and model", GroupBy::Server),
        ("experiment", "Single runs", GroupBy::Experiment),
    ])
}

fn held_back() -> impl TypedValueParser<Value = StepSplit> {
    let temporal = StepSplit::Temporal { judge_from: USUAL_JUDGE_FROM };
    one_of([
        ("temporal", "The later part of each run, by time", temporal),
        ("leave-one-model-out", "All runs of a model, model by model", StepSplit::LeaveOneOut(GroupBy::Model)),
        ("leave-one-workload-out", "All runs of a workload, in turn", StepSplit::LeaveOneOut(GroupBy::Workload)),
    ])
}

fn share(text: &str) -> Result<f64, String> {
    let value = text.parse::<f64>().ok().filter(|x| *x > 0.0 && *x < 1.0);
    value.ok_or_else(|| "must be above 0 and below 1, as in 0.6 for the later 40 %".to_owned())
}
