//! The load of a replay: its arguments, and the workload that they ask for.

use std::path::PathBuf;

use clap::{ArgGroup, Args, value_parser};
use ridgepoint_lab::simulate::GeneratedLoad;
use ridgepoint_replay::export::BenchRun;
use ridgepoint_replay::workload::Load;
use ridgepoint_replay::workload::ReplicaShare;
use ridgepoint_replay::workload::requests::Format;

use crate::common::{above_zero, at_least_zero};

const LOAD: &str = "Load (one of --profile, --requests, --concurrency, --request-rate)";

/// The load that clients send.
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("load").required(true).args(["profile", "requests", "concurrency", "request_rate"]))]
#[command(group = ArgGroup::new("number").args(["num_requests", "num_sessions"]))]
pub struct LoadArgs {
    /// Load profile of the load generator inference-perf (YAML or JSON)
    #[arg(long, value_name = "FILE", help_heading = LOAD)]
    profile: Option<PathBuf>,
    /// List of requests: csv or jsonl with arrival, input and output length, a published trace, or the turns of sessions (with session_id)
    #[arg(long, value_name = "FILE", help_heading = LOAD)]
    requests: Option<PathBuf>,
    /// Format of --requests: csv, jsonl, mooncake, azure, vllm-bench or llmservingsim [default: detected from the content]
    #[arg(long, value_name = "KIND", requires = "requests", help_heading = LOAD)]
    #[arg(conflicts_with_all = ["profile", "concurrency", "request_rate"])]
    requests_format: Option<Format>,
    #[command(flatten)]
    generated: GeneratedArgs,
    /// Seed of random arrival and think times and of --noise; the same seed gives the same result
    #[arg(long, value_name = "N", allow_negative_numbers = true, default_value_t = 0, help_heading = LOAD)]
    pub seed: u64,
}

/// Requests or sessions of a few numbers. One of `request_rate` and `concurrency` is given, with lengths.
#[derive(Debug, Args)]
pub struct GeneratedArgs {
    /// Closed loop: keep N requests in flight; a new one starts when one finishes. With --turns, N sessions at once
    #[arg(long, visible_alias = "max-concurrency", value_name = "N", value_parser = value_parser!(u32).range(1..))]
    #[arg(allow_negative_numbers = true, help_heading = LOAD, requires_all = ["input_len", "output_len"])]
    pub concurrency: Option<u32>,
    /// Open loop: send R requests per second on average, at random times. With --turns, start R sessions per second
    #[arg(long, value_name = "R", value_parser = above_zero, allow_negative_numbers = true, help_heading = LOAD)]
    #[arg(requires_all = ["input_len", "output_len", "number"])]
    pub request_rate: Option<f64>,
    /// Prompt tokens of each request. With --turns, new tokens of each turn, behind the turns before
    #[arg(long, visible_alias = "random-input-len", value_name = "N", value_parser = value_parser!(u32).range(1..))]
    #[arg(allow_negative_numbers = true, help_heading = LOAD, conflicts_with_all = ["profile", "requests"])]
    pub input_len: Option<u32>,
    /// Output tokens of each request; with --turns, of each turn
    #[arg(long, visible_alias = "random-output-len", value_name = "N", value_parser = value_parser!(u32).range(1..))]
    #[arg(allow_negative_numbers = true, help_heading = LOAD, conflicts_with_all = ["profile", "requests"])]
    pub output_len: Option<u32>,
    /// Number of requests; with --turns give --num-sessions [default with --concurrency: 10 for each in flight]
    #[arg(long, visible_alias = "num-prompts", value_name = "N", value_parser = value_parser!(u32).range(1..))]
    #[arg(allow_negative_numbers = true, help_heading = LOAD, conflicts_with_all = ["profile", "requests"])]
    pub num_requests: Option<u32>,
    /// Shape of the gamma distribution of the gaps between requests, or between the starts of sessions: 1 is Poisson, less is burstier
    /// [default: 1]
    #[arg(long, value_name = "B", value_parser = above_zero, allow_negative_numbers = true, help_heading = LOAD)]
    #[arg(conflicts_with_all = ["profile", "requests", "concurrency"])]
    pub burstiness: Option<f64>,
    /// Send sessions of N turns instead of single requests. The prompt of a turn is the turn before with its output, then --input-len new
    /// tokens. It is sent when the turn before has finished
    #[arg(long, value_name = "N", value_parser = value_parser!(u32).range(1..), allow_negative_numbers = true)]
    #[arg(help_heading = LOAD, conflicts_with_all = ["profile", "requests", "num_requests"])]
    pub turns: Option<u32>,
    /// Number of sessions, each of --turns requests [default with --concurrency: 10 for each at once]
    #[arg(long, value_name = "N", value_parser = value_parser!(u32).range(1..), allow_negative_numbers = true)]
    #[arg(help_heading = LOAD, requires = "turns", conflicts_with_all = ["profile", "requests"])]
    pub num_sessions: Option<u32>,
    /// Tokens at the beginning of every prompt, before --input-len, that all requests and sessions share, such as a system prompt
    /// [default: 0]
    #[arg(long, visible_alias = "random-prefix-len", alias = "shared-prefix-len", value_name = "N")]
    #[arg(allow_negative_numbers = true, help_heading = LOAD, conflicts_with_all = ["profile", "requests"])]
    pub prefix_len: Option<u32>,
    /// Mean time from the end of a turn to the next, as the client thinks or a tool runs, s. Times are exponential [default: 0]
    #[arg(long, value_name = "S", value_parser = at_least_zero, allow_negative_numbers = true, help_heading = LOAD)]
    #[arg(requires = "turns", conflicts_with_all = ["profile", "requests", "num_requests"])]
    pub think_time_s: Option<f64>,
}

impl GeneratedArgs {
    fn numbers(&self) -> GeneratedLoad {
        let GeneratedArgs { concurrency, request_rate, input_len, output_len, num_requests, burstiness, .. } = *self;
        let GeneratedArgs { turns, num_sessions, prefix_len, think_time_s, .. } = *self;
        GeneratedLoad {
            concurrency,
            request_rate,
            input_len,
            output_len,
            num_requests,
            burstiness,
            turns,
            num_sessions,
            prefix_len,
            think_time_s,
        }
    }
}

impl LoadArgs {
    /// The load that the arguments ask for. The argument parser requires those that a kind of load needs.
    pub fn load(&self) -> Load {
        if let Some(path) = &self.profile {
            return Load::Profile { path: path.clone() };
        }
        if let Some(path) = &self.requests {
            return Load::RequestFile { path: path.clone(), format: self.requests_format };
        }
        self.generated.numbers().load()
    }

    /// The benchmark's arguments in vLLM's result file, for one of `replicas` replicas.
    pub fn bench_run<'a>(&self, model: &'a str, replicas: u32) -> BenchRun<'a> {
        let share = ReplicaShare::new(replicas);
        let load = &self.generated;
        let burstiness = load.request_rate.map(|_| load.burstiness.unwrap_or(1.0));
        let turns = f64::from(load.turns.unwrap_or(1));
        let request_rate = load.request_rate.map(|rate| share.rate_per_s(rate) * turns);
        let max_concurrency = load.concurrency.map(|concurrency| share.concurrency(concurrency));
        BenchRun { model_id: model, request_rate, burstiness, max_concurrency, ..BenchRun::default() }
    }
}
