//! Pools of prefill and decode replicas: their flags, and their lines on a page.

use std::ffi::OsString;

use clap::{Arg, Args, Command, FromArgMatches};
use ridgepoint::latency::CalibratedRoofline;
use ridgepoint_lab::served::Served;
use ridgepoint_lab::simulate::{KvWay, Pools, PoolsReport};
use ridgepoint_lab::words::quantity;
use ridgepoint_replay::server_config::{ServedEngine, launch_words};
use ridgepoint_replay::{EngineRules, Router, RouterKind};
use serde_json::{Map, Value};

use super::replicas::router;
use crate::common::{above_zero, at_least_zero};
use crate::flags::with_two_dashes;
use crate::outcome::Failure;
use crate::server::ServerArgs;
use crate::text::{Page, Rows, count, number, percent, shown};

const HEADING: &str = "Prefill and decode apart";

/// Replicas that compute prompts, and replicas that decode.
#[derive(Debug, Args)]
pub struct PoolArgs {
    /// Replicas that only compute prompts, whose KV cache then moves to those of --decode-replicas
    #[arg(long, value_name = "P", help_heading = HEADING, requires = "decode_replicas", conflicts_with = "replicas")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=4096))]
    prefill_replicas: Option<u32>,
    /// Replicas that only decode; --router chooses among them
    #[arg(long, value_name = "D", help_heading = HEADING, requires = "prefill_replicas", conflicts_with = "replicas")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=4096))]
    decode_replicas: Option<u32>,
    /// Server arguments in which prefill replicas differ from the others, as in "--tensor-parallel-size 2 --max-num-batched-tokens 16384"
    #[arg(long, value_name = "FLAGS", help_heading = HEADING, requires = "prefill_replicas", allow_hyphen_values = true)]
    prefill_args: Option<String>,
    /// Server arguments in which decode replicas differ from the others
    #[arg(long, value_name = "FLAGS", help_heading = HEADING, requires = "decode_replicas", allow_hyphen_values = true)]
    decode_args: Option<String>,
    /// Rule by which a request's prefill replica is chosen [default: round-robin]
    #[arg(long, value_name = "RULE", help_heading = HEADING, requires = "prefill_replicas", value_parser = router())]
    prefill_router: Option<RouterKind>,
    /// GB/s in one direction of each GPU between the pools [default: NVLink if it joins all GPUs, else the GPU's network]
    #[arg(long, value_name = "GB/S", help_heading = HEADING, requires = "prefill_replicas", value_parser = above_zero)]
    kv_transfer_bandwidth: Option<f64>,
    /// Time before the first byte of each KV transfer moves, ms
    #[arg(long, value_name = "MS", help_heading = HEADING, requires = "prefill_replicas", value_parser = at_least_zero)]
    #[arg(default_value = "0")]
    kv_transfer_latency_ms: f64,
}

/// Pools as the command line asks for them.
pub struct OpenedPools {
    num_prefill: u32,
    num_decode: u32,
    prefill_title: String,
    prefill_engine: ServedEngine,
    prefill_latency: CalibratedRoofline,
    way: KvWay,
}

impl OpenedPools {
    /// The number of engines.
    pub fn num_engines(&self) -> u32 {
        self.num_prefill.saturating_add(self.num_decode)
    }

    /// The pools with a router each.
    pub fn of(&self, (prefill_router, decode_router): (Router, Router)) -> Pools<'_> {
        Pools {
            num_prefill: self.num_prefill,
            num_decode: self.num_decode,
            prefill_router,
            decode_router,
            prefill_engine: &self.prefill_engine,
            prefill_latency: &self.prefill_latency,
            way: self.way,
        }
    }

    /// Both pools in words, of decode replicas of this title.
    pub fn title(&self, of_decode: &str) -> String {
        let OpenedPools { num_prefill, num_decode, prefill_title, .. } = self;
        format!(
            "prefill on {} of {prefill_title}; decode on {} of {of_decode}",
            count(*num_prefill),
            count(*num_decode)
        )
    }
}

impl PoolArgs {
    /// Whether prefill and decode are apart.
    pub fn is_given(&self) -> bool {
        self.prefill_replicas.is_some()
    }

    /// The rule of prefill replicas that is given.
    pub fn prefill_router(&self) -> Option<RouterKind> {
        self.prefill_router
    }

    /// The arguments of a decode replica's server; those of the only one if there are no pools.
    ///
    /// # Errors
    /// A flag in --decode-args that servers do not have.
    pub fn of_decode(&self, all: &ServerArgs) -> Result<ServerArgs, Failure> {
        Ok(all.with(flags_of("--decode-args", self.decode_args.as_deref())?))
    }

    /// The arguments of a prefill replica's server; `None` if there are no pools.
    ///
    /// # Errors
    /// A flag in --prefill-args that servers do not have.
    pub fn of_prefill(&self, all: &ServerArgs) -> Result<Option<ServerArgs>, Failure> {
        let own = || Ok(all.with(flags_of("--prefill-args", self.prefill_args.as_deref())?));
        self.is_given().then(own).transpose()
    }

    /// Joins the prefill replicas' server to that of a decode replica, which SGLang runs without a prefix cache. Adds its remarks to `warnings`.
    ///
    /// # Errors
    /// Pools between which KV cannot move.
    pub fn open(
        &self,
        (prefill, prefill_engine, notes): (Served, ServedEngine, Vec<String>),
        (decode, decode_engine): (&Served, &mut ServedEngine),
        warnings: &mut Vec<String>,
    ) -> Result<OpenedPools, Failure> {
        let (num_prefill, num_decode) = (self.prefill_replicas.unwrap_or(1), self.decode_replicas.unwrap_or(1));
        if prefill.model.name != decode.model.name {
            return Err(Failure::usage(format!(
                "the pools run {} and {}: KV moves between servers of one model alone",
                prefill.model.name, decode.model.name
            )));
        }
        for note in notes {
            if !warnings.contains(&note) {
                warnings.push(format!("prefill replicas: {note}"));
            }
        }
        let given = self.kv_transfer_bandwidth.map(|gb_per_s| 1e9 * gb_per_s);
        let way = KvWay::between(
            ((&prefill).into(), num_prefill),
            (decode.into(), num_decode),
            given,
            self.kv_transfer_latency_ms,
        )?;
        if matches!(decode_engine.config.rules, EngineRules::Sglang(_)) {
            decode_engine.config.scheduler.enable_prefix_caching = false;
        }
        let (prefill_title, prefill_latency) = (prefill.title(), prefill_engine.latency(prefill.steps)?);
        Ok(OpenedPools { num_prefill, num_decode, prefill_title, prefill_engine, prefill_latency, way })
    }
}

/// Flags of a server in one text, by the names of their arguments.
fn flags_of(flag: &str, text: Option<&str>) -> Result<Map<String, Value>, Failure> {
    let words: Vec<OsString> = launch_words(text.unwrap_or_default()).into_iter().map(OsString::from).collect();
    let log = Arg::new("engine_log").long("engine-log");
    let command = Command::new("pool").arg(log).no_binary_name(true).disable_help_flag(true).disable_version_flag(true);
    // A server needs a model and a GPU, which the flags beside this text name. Another file of its own would be given twice.
    let beside = ["--config=beside", "--engine-log=beside"].map(OsString::from);
    let words = beside.into_iter().chain(with_two_dashes(&words));
    let found =
        ServerArgs::augment_args(command).try_get_matches_from(words).and_then(|of| ServerArgs::from_arg_matches(&of));
    let server = found.map_err(|error| {
        let text = error.to_string();
        let first = text.lines().next().unwrap_or_default().trim_start_matches("error: ");
        Failure::usage(format!("{flag}: {first}"))
    })?;
    Ok(server.into_flags())
}

/// Puts the pools on a page.
pub fn lay_out(of: &PoolsReport, page: &mut Page) {
    let rows = Rows::of([("prefill", &of.prefill), ("decode", &of.decode)])
        .left("pool", |(name, _)| (*name).to_owned())
        .right("replicas", |(_, of)| count(of.replicas))
        .right("GPUs each", |(_, of)| count(of.gpus_per_replica))
        .right("GPUs busy", |(_, of)| shown(of.gpu_busy_share, percent))
        .right("busiest", |(_, of)| shown(of.most_gpu_busy_share, percent))
        .right("most running", |(_, of)| count(of.max_running))
        .right("most waiting", |(_, of)| count(of.max_waiting))
        .right("most KV in use", |(_, of)| shown(of.peak_kv_share, percent));
    page.rows(&rows, &["busiest", "most waiting", "most running"]);
    page.blank();
    let rows = Rows::of([
        ("transfer", of.transfer_ms),
        ("prompt computed until it is there", of.after_prompt_ms),
        ("wait for blocks", of.wait_for_blocks_ms),
        ("wait for a place in the batch", of.wait_to_join_ms),
    ])
    .left("KV that moves, ms", |(name, _)| (*name).to_owned())
    .distribution("mean", |(_, of)| *of);
    page.rows(&rows, &["p50"]);
    let each = (of.transfers > 0).then(|| of.bytes / of.transfers as f64 / 1e6);
    page.paragraph(
        "KV moved   ",
        &format!(
            "{} of {} requests {}, {} MB each on average",
            quantity(of.bytes, "B"),
            count(of.transfers),
            of.way.in_words(),
            number(each)
        ),
    );
}
