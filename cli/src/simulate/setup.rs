//! From the arguments of `simulate` to what a replay runs on: the load that was asked for, the model, the server with its
//! engine, and remarks.

use std::path::PathBuf;

use ridgepoint::Options;
use ridgepoint::internals::efficiency::EfficiencyMode;
use ridgepoint::kv_capacity::KvCapacity;
use ridgepoint::replay::{EngineConfig, SchedulingPolicy};
use ridgepoint::server_config::ServerConfig;
use ridgepoint::workload::MAX_REQUESTS;
use ridgepoint::{Deployment, Hardware, Model, StepModel};

use super::args::{Blocks, Policy, RequestsFormat, Simulate};
use crate::args::{Common, Efficiency};
use crate::output::{Failure, both};

/// Requests of a closed loop whose number is not given, per request in flight.
const ROUNDS: u32 = 10;

/// What clients send, as asked for.
#[derive(Debug, Clone, PartialEq)]
pub enum Load {
    /// A profile of inference-perf.
    Profile(PathBuf),
    /// Requests one by one; `None` leaves it to the file what kind it is.
    Requests(PathBuf, Option<RequestsFormat>),
    /// So many in flight.
    Closed {
        /// Requests in flight.
        concurrency: u32,
        /// Requests in all.
        num_requests: u32,
        /// Lengths of each.
        lengths: Lengths,
    },
    /// So many per second.
    Open {
        /// Mean rate.
        requests_per_s: f64,
        /// Shape of the gamma distribution of gaps.
        burstiness: f64,
        /// Requests in all.
        num_requests: u32,
        /// Lengths of each.
        lengths: Lengths,
    },
}

/// Tokens of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lengths {
    /// Of the prompt.
    pub input: u32,
    /// To generate.
    pub output: u32,
}

/// A load and the server it goes to, checked.
pub struct Setup {
    /// The model.
    pub model: Model,
    /// The GPU.
    pub hardware: Hardware,
    /// The engine arguments that a step depends on.
    pub deployment: Deployment,
    /// Predicts steps.
    pub steps: StepModel,
    /// `tables` or `ideal`.
    pub efficiency: &'static str,
    /// Scheduler and cache.
    pub engine: EngineConfig,
    /// The memory equation.
    pub capacity: KvCapacity,
    /// The engine's blocks are not those of the equation but given.
    pub blocks_are_given: bool,
    /// What clients send.
    pub load: Load,
    /// Remarks for stderr.
    pub notes: Vec<String>,
}

/// Everything before the replay.
///
/// # Errors
/// Input that can't be read, or a server that can't be.
pub fn setup(args: &Simulate, common: &Common) -> Result<Setup, Failure> {
    let load = load(args)?;
    let (server, mut notes) = server(args)?;
    let data_dir = common.data_dir.as_deref();
    let ((model, precision_notes), hardware) = both(server.find_model(data_dir), server.find_hardware(data_dir))?;
    let (mode, efficiency) = match args.efficiency {
        Efficiency::Tables => (EfficiencyMode::Tables, "tables"),
        Efficiency::Ideal => (EfficiencyMode::Ideal, "ideal"),
    };
    let correction = args.correction.as_str().into();
    let options = Options { efficiency: mode, data_dir: common.data_dir.clone(), correction, ..Options::default() };
    let engine = server.engine_config(&model, &hardware)?;
    let steps = StepModel::with_options(&model, &hardware, &server.deployment, &options)?;
    notes.extend(precision_notes);
    notes.extend(steps.notes().iter().cloned());
    notes.extend(steps.carried_over());
    notes.extend(engine.notes);
    Ok(Setup {
        model,
        hardware,
        deployment: server.deployment,
        steps,
        efficiency,
        engine: engine.config,
        capacity: engine.capacity,
        blocks_are_given: engine.blocks_are_given,
        load,
        notes,
    })
}

/// The memory equation, for people.
pub fn capacity_text(capacity: &KvCapacity, engine: &EngineConfig, blocks_are_given: bool) -> String {
    let mut text = capacity.to_string();
    if blocks_are_given {
        text.push_str(&format!("\nnot used: num_gpu_blocks = {} was given", engine.num_gpu_blocks));
    }
    text.push('\n');
    text
}

/// The file's server with the flags over it, and remarks.
fn server(args: &Simulate) -> Result<(ServerConfig, Vec<String>), Failure> {
    let (model, hardware) = (args.model.as_deref(), args.hardware.as_deref());
    let of_file = match &args.config {
        Some(path) => ServerConfig::read_for(path, model, hardware)?,
        None => ServerConfig::new("the command line", model.unwrap_or_default(), hardware.unwrap_or_default()),
    };
    let mut server = of_file.clone();
    if model.is_some() {
        // The file says how its own model is stored, not another one.
        server.precision = None;
    }
    server.deployment = args.deployment.over(server.deployment);
    let given = &args.scheduler;
    let scheduler = &mut server.scheduler;
    scheduler.enable_prefix_caching = given.prefix_caching().or(scheduler.enable_prefix_caching);
    scheduler.enable_chunked_prefill = given.chunked_prefill().or(scheduler.enable_chunked_prefill);
    scheduler.async_scheduling = given.async_scheduling().or(scheduler.async_scheduling);
    scheduler.long_prefill_token_threshold =
        given.long_prefill_token_threshold.or(scheduler.long_prefill_token_threshold);
    scheduler.scheduling_policy = given
        .scheduling_policy
        .map(|policy| match policy {
            Policy::Fcfs => SchedulingPolicy::Fcfs,
            Policy::Priority => SchedulingPolicy::Priority,
        })
        .or(scheduler.scheduling_policy);
    server.cpu_offload_gb = given.cpu_offload_gb.unwrap_or(server.cpu_offload_gb);
    let mut notes = std::mem::take(&mut server.notes);
    match given.num_gpu_blocks_override {
        Some(Blocks::Auto) => server.num_gpu_blocks_override = None,
        Some(Blocks::Given(blocks)) => server.num_gpu_blocks_override = Some(blocks),
        None => {
            let is_other = server.deployment != of_file.deployment || model.is_some() || hardware.is_some();
            if let (Some(blocks), true) = (server.num_gpu_blocks_override, is_other) {
                notes.push(format!(
                    "num_gpu_blocks = {blocks} is what {} says of its own server, which flags have changed; --num-gpu-blocks-override auto takes the memory equation's",
                    server.origin
                ));
            }
        }
    }
    Ok((server, notes))
}

fn load(args: &Simulate) -> Result<Load, Failure> {
    let lengths = args.input_len.zip(args.output_len).map(|(input, output)| Lengths { input, output });
    let (rate, num_requests) = (args.request_rate, args.num_requests);
    match (&args.profile, &args.requests, args.concurrency, rate.zip(num_requests), lengths) {
        (Some(path), ..) => Ok(Load::Profile(path.clone())),
        (_, Some(path), ..) => Ok(Load::Requests(path.clone(), args.requests_format)),
        (_, _, Some(concurrency), _, Some(lengths)) => {
            let rounds = || concurrency.checked_mul(ROUNDS).filter(|rounds| u64::from(*rounds) <= MAX_REQUESTS);
            let Some(num_requests) = num_requests.or_else(rounds) else {
                return Err(Failure::input(format!(
                    "--concurrency {concurrency}: {ROUNDS} requests for each in flight are more than {MAX_REQUESTS}; give fewer with --num-requests"
                )));
            };
            Ok(Load::Closed { concurrency, num_requests, lengths })
        }
        (_, _, _, Some((requests_per_s, num_requests)), Some(lengths)) => {
            let burstiness = args.burstiness.unwrap_or(1.0);
            Ok(Load::Open { requests_per_s, burstiness, num_requests, lengths })
        }
        // The argument parser lets no such line through.
        _ => Err(Failure::input("no load: give --profile, --requests, --concurrency or --request-rate")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;
    use clap::error::ErrorKind;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        args: Simulate,
        #[command(flatten)]
        common: Common,
    }

    const LOOP: &str = "--concurrency 8 --input-len 512 --output-len 128";

    fn parse(line: &str) -> Result<Line, clap::Error> {
        Line::try_parse_from(std::iter::once("simulate").chain(line.split_ascii_whitespace()))
    }

    fn set_up(line: &str) -> Result<Setup, String> {
        let line = parse(&format!("{LOOP} --efficiency ideal {line}")).unwrap();
        setup(&line.args, &line.common).map_err(|failure| match failure {
            Failure::Input(problems) => problems.join("; "),
            Failure::Usage(error) => error.to_string(),
        })
    }

    fn kind(line: &str) -> ErrorKind {
        parse(line).unwrap_err().kind()
    }

    #[test]
    fn the_argument_definitions_are_consistent() {
        <Line as clap::CommandFactory>::command().debug_assert();
    }

    #[test]
    fn a_line_has_one_load_and_one_server() {
        let server = "--model llama-3.1-8b --hardware h100";
        assert!(parse(&format!("{LOOP} {server}")).is_ok());
        assert!(parse(&format!("--profile p.yaml {server}")).is_ok());
        assert!(parse("--requests r.jsonl --requests-format mooncake --config c.yaml").is_ok());
        assert!(parse(&format!("--request-rate 2.5 --num-requests 9 --input-len 1 --output-len 1 {server}")).is_ok());
        assert_eq!(kind(server), ErrorKind::MissingRequiredArgument);
        assert_eq!(kind(LOOP), ErrorKind::MissingRequiredArgument);
        assert_eq!(kind(&format!("{LOOP} --profile p.yaml {server}")), ErrorKind::ArgumentConflict);
        assert_eq!(kind(&format!("--concurrency 8 {server}")), ErrorKind::MissingRequiredArgument);
        assert_eq!(
            kind(&format!("--request-rate 1 --input-len 1 --output-len 1 {server}")),
            ErrorKind::MissingRequiredArgument
        );
        assert_eq!(kind(&format!("--profile p.yaml --input-len 4 {server}")), ErrorKind::ArgumentConflict);
        assert_eq!(kind(&format!("{LOOP} --burstiness 2 {server}")), ErrorKind::ArgumentConflict);
        assert_eq!(kind(&format!("{LOOP} --save-detailed {server}")), ErrorKind::MissingRequiredArgument);
        for wrong in ["--concurrency 0", "--concurrency -4", "--num-gpu-blocks-override 0", "--request-rate nan"] {
            let line = format!("{wrong} --input-len 1 --output-len 1 --num-requests 1 {server}");
            assert_eq!(kind(&line), ErrorKind::ValueValidation, "{wrong}");
        }
    }

    #[test]
    fn the_equation_gives_the_blocks_of_a_server_on_the_command_line() {
        let found =
            set_up("--model llama-2-7b --hardware h100 --max-num-seqs 128 --max-num-batched-tokens 2048").unwrap();
        assert_eq!((found.engine.num_gpu_blocks, found.engine.max_model_len), (7417, 4096));
        assert!(!found.blocks_are_given);
        let lengths = Lengths { input: 512, output: 128 };
        assert_eq!(found.load, Load::Closed { concurrency: 8, num_requests: 80, lengths });
        let text = capacity_text(&found.capacity, &found.engine, found.blocks_are_given);
        assert!(text.contains("weights") && text.contains("= 7417 blocks"), "{text}");
        let given = set_up("--model llama-2-7b --hardware h100 --num-gpu-blocks-override 5000").unwrap();
        assert_eq!(given.engine.num_gpu_blocks, 5000);
        assert!(
            capacity_text(&given.capacity, &given.engine, given.blocks_are_given)
                .contains("not used: num_gpu_blocks = 5000 was given")
        );
    }

    #[test]
    fn flags_override_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("server.yaml");
        let text = "model: llama-2-7b\nhardware: H100\nmax_num_seqs: 64\ntotal_kv_blocks: 7000\nenable_prefix_caching: false\nasync_scheduling: false\n";
        std::fs::write(&path, text).unwrap();
        let config = format!("--config {}", path.display());
        let file = set_up(&config).unwrap();
        assert_eq!((file.engine.max_num_seqs, file.engine.num_gpu_blocks), (64, 7000));
        assert!(!file.engine.enable_prefix_caching && !file.engine.async_scheduling);
        assert!(!file.notes.iter().any(|note| note.contains("7000")), "{:?}", file.notes);
        let flags = format!(
            "{config} --max-num-seqs 32 --enable-prefix-caching --no-enable-chunked-prefill --scheduling-policy priority"
        );
        let over = set_up(&flags).unwrap();
        assert_eq!((over.engine.max_num_seqs, over.engine.num_gpu_blocks), (32, 7000));
        assert!(
            over.engine.enable_prefix_caching && !over.engine.enable_chunked_prefill && !over.engine.async_scheduling
        );
        assert_eq!(over.engine.scheduling_policy, SchedulingPolicy::Priority);
        assert!(over.notes.iter().any(|note| note.contains("num_gpu_blocks = 7000 is what")), "{:?}", over.notes);
        let auto =
            set_up(&format!("{config} --model llama-3.1-8b --max-model-len 8192 --num-gpu-blocks-override auto"))
                .unwrap();
        assert_eq!((auto.model.name(), auto.blocks_are_given), ("llama-3.1-8b", false));
        assert_eq!(auto.engine.num_gpu_blocks, auto.capacity.num_gpu_blocks);
    }

    #[test]
    fn what_can_not_be_says_why() {
        for (line, said) in [
            ("--model llama-3.1-70b --hardware h100", "tensor_parallel_size = 4 would do"),
            ("--model no-such --hardware no-gpu", "unknown hardware 'no-gpu'"),
            ("--model llama-2-7b --hardware h100 --gpu-memory-utilization 1.5", "must be in (0, 1]"),
            ("--model llama-2-7b --hardware h100 --tp 3", "tensor_parallel_size can be 1, 2, 4"),
            ("--model llama-2-7b --hardware h100 --cpu-offload-gb -1", "at least 0"),
            ("--model llama-2-7b --hardware h100 --num-gpu-blocks-override 9", "holds 128 tokens"),
            ("--model llama-2-7b --hardware h100 --correction best", "--correction best"),
            ("--config no/such/server.yaml", "no/such/server.yaml"),
        ] {
            let message = set_up(line).err().unwrap_or_default();
            assert!(message.contains(said), "'{said}' is not in '{message}'");
        }
    }
}
