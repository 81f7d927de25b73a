//! The arguments of `simulate` and the help text beside them: a load, a server, what to predict with and where to write.

use std::path::PathBuf;

use clap::{ArgGroup, Args, ValueEnum};
use ridgepoint::workload::requests::Format;

use crate::args::Efficiency;
use crate::deployment::DeploymentArgs;

const LOAD: &str = "Load (one of --profile, --requests, --concurrency, --request-rate)";
const SERVER: &str = "Server";
const SCHEDULER: &str = "Scheduler and KV cache (vLLM's engine arguments)";
const PREDICTION: &str = "Prediction";
const OUTPUT: &str = "Output";

#[derive(Debug, Args)]
#[command(group = ArgGroup::new("load").required(true).args(["profile", "requests", "concurrency", "request_rate"]))]
pub struct Simulate {
    /// Load profile as the load generator inference-perf reads it (YAML or JSON)
    #[arg(long, value_name = "FILE", help_heading = LOAD)]
    pub profile: Option<PathBuf>,
    /// Requests one by one: csv or jsonl with arrival, input and output length, or a published trace
    #[arg(long, value_name = "FILE", help_heading = LOAD)]
    pub requests: Option<PathBuf>,
    /// What kind of file --requests is
    #[arg(long, value_enum, value_name = "KIND", requires = "requests", help_heading = LOAD)]
    #[arg(conflicts_with_all = ["profile", "concurrency", "request_rate"])]
    pub requests_format: Option<RequestsFormat>,
    /// Closed loop: keep N requests in flight, each replaced as soon as it is done
    #[arg(long, value_name = "N", value_parser = at_least_one(), allow_negative_numbers = true, help_heading = LOAD)]
    #[arg(requires_all = ["input_len", "output_len"])]
    pub concurrency: Option<u32>,
    /// Open loop: send R requests per second on average, at random times
    #[arg(long, value_name = "R", value_parser = above_zero, allow_negative_numbers = true, help_heading = LOAD)]
    #[arg(requires_all = ["input_len", "output_len", "num_requests"])]
    pub request_rate: Option<f64>,
    /// Prompt tokens of each request
    #[arg(long, value_name = "N", value_parser = at_least_one(), allow_negative_numbers = true, help_heading = LOAD)]
    #[arg(conflicts_with_all = ["profile", "requests"])]
    pub input_len: Option<u32>,
    /// Tokens that each request generates
    #[arg(long, value_name = "N", value_parser = at_least_one(), allow_negative_numbers = true, help_heading = LOAD)]
    #[arg(conflicts_with_all = ["profile", "requests"])]
    pub output_len: Option<u32>,
    /// Requests to send [default with --concurrency: 10 times as many as are in flight]
    #[arg(long, value_name = "N", value_parser = at_least_one(), allow_negative_numbers = true, help_heading = LOAD)]
    #[arg(conflicts_with_all = ["profile", "requests"])]
    pub num_requests: Option<u32>,
    /// Shape of the gamma distribution of the times between requests: 1 is Poisson, less is burstier [default: 1]
    #[arg(long, value_name = "B", value_parser = above_zero, allow_negative_numbers = true, help_heading = LOAD)]
    #[arg(conflicts_with_all = ["profile", "requests", "concurrency"])]
    pub burstiness: Option<f64>,
    /// Seed of arrival times and lengths: the same one gives the same bytes
    #[arg(long, value_name = "N", allow_negative_numbers = true, default_value_t = 0, help_heading = LOAD)]
    pub seed: u64,

    /// Server of an experiment: flat YAML or JSON with vLLM's engine arguments, `model` and `hardware`; flags override it
    #[arg(long, value_name = "FILE", help_heading = SERVER)]
    pub config: Option<PathBuf>,
    /// Built-in name (`ridgepoint models`), Hugging Face id, or path of a config.json or its folder
    #[arg(long, value_name = "NAME|PATH", required_unless_present = "config", help_heading = SERVER)]
    pub model: Option<String>,
    /// Built-in name (`ridgepoint hardware`) or path of a TOML file
    #[arg(long, value_name = "NAME|PATH", required_unless_present = "config", help_heading = SERVER)]
    pub hardware: Option<String>,

    #[command(flatten)]
    pub deployment: DeploymentArgs,
    #[command(flatten)]
    pub scheduler: SchedulerArgs,

    /// Kernel efficiencies as measured, or the textbook roofline
    #[arg(long, value_enum, default_value_t = Efficiency::Tables, value_name = "KIND", help_heading = PREDICTION)]
    pub efficiency: Efficiency,
    /// Correction learned from real steps, host times included: none, global, auto (the best there is) or a file
    #[arg(long, value_name = "none|global|auto|FILE", default_value = "auto", help_heading = PREDICTION)]
    pub correction: String,

    /// Print how the memory is shared out: weights, activations, KV blocks
    #[arg(long, help_heading = OUTPUT)]
    pub print_kv_capacity: bool,
    /// Write the result as JSON with the field names of vLLM's benchmark
    #[arg(long, value_name = "FILE", help_heading = OUTPUT)]
    pub output_json: Option<PathBuf>,
    /// Put every request's lengths and times into --output-json as well
    #[arg(long, requires = "output_json", help_heading = OUTPUT)]
    pub save_detailed: bool,
    /// Write a row per request
    #[arg(long, value_name = "FILE", help_heading = OUTPUT)]
    pub output_csv: Option<PathBuf>,
    /// Write a trace of steps and requests that Perfetto and chrome://tracing open
    #[arg(long, value_name = "FILE", help_heading = OUTPUT)]
    pub trace: Option<PathBuf>,
}

/// What a file of requests can be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum RequestsFormat {
    /// Columns arrival, input and output length, optional prefix group
    Csv,
    /// The same, an object a line
    Jsonl,
    /// Mooncake's traces: hash_ids become shared prefixes
    Mooncake,
    /// Azure's public traces
    Azure,
    /// What `vllm bench serve --save-detailed` writes
    VllmBench,
    /// LLMServingSim's jsonl
    Llmservingsim,
}

impl RequestsFormat {
    /// As the library calls it.
    pub fn format(self) -> Format {
        match self {
            RequestsFormat::Csv => Format::Csv,
            RequestsFormat::Jsonl => Format::Jsonl,
            RequestsFormat::Mooncake => Format::Mooncake,
            RequestsFormat::Azure => Format::Azure,
            RequestsFormat::VllmBench => Format::VllmBench,
            RequestsFormat::Llmservingsim => Format::LlmServingSim,
        }
    }
}

/// Engine arguments that only the scheduler and the KV cache depend on.
#[derive(Debug, Args)]
pub struct SchedulerArgs {
    /// KV blocks of the server; auto takes those of the memory equation, whatever --config says
    #[arg(long, value_name = "N|auto", value_parser = Blocks::parse, allow_negative_numbers = true, help_heading = SCHEDULER)]
    pub num_gpu_blocks_override: Option<Blocks>,
    /// GiB of each GPU's weights that stay in the host's memory [default: 0]
    #[arg(long, value_name = "GIB", allow_negative_numbers = true, help_heading = SCHEDULER)]
    pub cpu_offload_gb: Option<f64>,
    /// Reuse equal beginnings of prompts (on by default)
    #[arg(long, overrides_with = "no_enable_prefix_caching", help_heading = SCHEDULER)]
    enable_prefix_caching: bool,
    /// Compute every prompt anew
    #[arg(long, overrides_with = "enable_prefix_caching", help_heading = SCHEDULER)]
    no_enable_prefix_caching: bool,
    /// Split prompts over steps (on by default)
    #[arg(long, overrides_with = "no_enable_chunked_prefill", help_heading = SCHEDULER)]
    enable_chunked_prefill: bool,
    /// Schedule prompts whole
    #[arg(long, overrides_with = "enable_chunked_prefill", help_heading = SCHEDULER)]
    no_enable_chunked_prefill: bool,
    /// Schedule a step while another runs (on by default)
    #[arg(long, overrides_with = "no_async_scheduling", help_heading = SCHEDULER)]
    async_scheduling: bool,
    /// Schedule a step after the one before has ended
    #[arg(long, overrides_with = "async_scheduling", help_heading = SCHEDULER)]
    no_async_scheduling: bool,
    /// Most tokens of a prompt in one step; 0 for no limit of its own [default: 0]
    #[arg(long, value_name = "N", allow_negative_numbers = true, help_heading = SCHEDULER)]
    pub long_prefill_token_threshold: Option<u32>,
    /// Order of waiting requests [default: fcfs]
    #[arg(long, value_enum, value_name = "POLICY", help_heading = SCHEDULER)]
    pub scheduling_policy: Option<Policy>,
}

impl SchedulerArgs {
    /// Whether prefix caching was switched, and to what.
    pub fn prefix_caching(&self) -> Option<bool> {
        switched(self.enable_prefix_caching, self.no_enable_prefix_caching)
    }

    /// Whether chunked prefill was switched, and to what.
    pub fn chunked_prefill(&self) -> Option<bool> {
        switched(self.enable_chunked_prefill, self.no_enable_chunked_prefill)
    }

    /// Whether asynchronous scheduling was switched, and to what.
    pub fn async_scheduling(&self) -> Option<bool> {
        switched(self.async_scheduling, self.no_async_scheduling)
    }
}

fn switched(on: bool, off: bool) -> Option<bool> {
    (on || off).then_some(on)
}

/// Order of waiting requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Policy {
    /// First come, first served
    Fcfs,
    /// Lowest priority value first
    Priority,
}

/// KV blocks as given on the command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Blocks {
    /// Those of the memory equation.
    Auto,
    /// So many.
    Given(u32),
}

impl Blocks {
    fn parse(text: &str) -> Result<Self, String> {
        match text.parse::<u32>() {
            Ok(blocks) if blocks > 0 => Ok(Blocks::Given(blocks)),
            _ if text == "auto" => Ok(Blocks::Auto),
            _ => Err("must be a whole number of blocks, at least 1, or auto".to_owned()),
        }
    }
}

fn at_least_one() -> clap::builder::RangedI64ValueParser<u32> {
    clap::value_parser!(u32).range(1..)
}

fn above_zero(text: &str) -> Result<f64, String> {
    let value = text.parse::<f64>().ok().filter(|x| x.is_finite() && *x > 0.0);
    value.ok_or_else(|| "must be a finite number above zero".to_owned())
}
