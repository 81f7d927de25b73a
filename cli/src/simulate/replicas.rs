//! Replicas behind a router and data-parallel ranks: their flags, and their lines on a page.

use clap::{ArgGroup, Args};
use ridgepoint_lab::simulate::{RanksOfServer, Replicas, ReplicasReport};
use ridgepoint_replay::{Router, RouterKind};

use crate::common::one_of;
use crate::outcome::Failure;
use crate::text::{Page, Rows, count, number, percent, shown};

/// Several replicas of the server.
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("several").multiple(true).args(["replicas", "decode_replicas"]))]
pub struct ReplicaArgs {
    /// Replicas of the server that share the load behind --router; each has the GPUs of the deployment
    #[arg(long, value_name = "N", help_heading = "Replicas", value_parser = clap::value_parser!(u32).range(1..=4096))]
    replicas: Option<u32>,
    /// Rule by which a request's replica is chosen, or its decode replica of --decode-replicas [default: round-robin]
    #[arg(long, value_name = "RULE", help_heading = "Replicas", requires = "several", value_parser = router())]
    router: Option<RouterKind>,
}

/// Reads a rule.
pub fn router() -> impl clap::builder::TypedValueParser<Value = RouterKind> {
    one_of([
        ("round-robin", "One after the other", RouterKind::RoundRobin),
        ("least-requests", "The fewest requests in flight, by the router's own count", RouterKind::LeastRequests),
        ("power-of-two", "Of two drawn at random, the one with fewer requests in flight", RouterKind::PowerOfTwo),
        ("session", "Turns of a session go where its first one went", RouterKind::Session),
        (
            "cache-aware",
            "SGLang's and vLLM's routers: where most of the prompt was sent before, unless loads are uneven",
            RouterKind::CacheAware,
        ),
        ("llm-d", "llm-d's endpoint picker: prefix 3, queue 2, KV cache 2, reported every 50 ms", RouterKind::LlmD),
        ("dynamo", "Dynamo's KV router: the fewest blocks to compute and to hold", RouterKind::Dynamo),
        (
            "vllm-dp",
            "vLLM's balancing of data-parallel ranks: the shortest queues, reported every 100 ms",
            RouterKind::VllmDp,
        ),
        (
            "trtllm-adp",
            "TensorRT-LLM's balancing of attention ranks: the fewest prompt tokens in flight among those below an even share",
            RouterKind::TrtllmAdp,
        ),
    ])
}

impl ReplicaArgs {
    /// The rule that is given.
    pub fn router(&self) -> Option<RouterKind> {
        self.router
    }

    /// The replicas, if there are several; `with` has flags that go with one server alone, and whether they are given.
    ///
    /// # Errors
    /// A flag that goes with one server alone.
    pub fn read<'a>(
        &self,
        seed: u64,
        with: impl IntoIterator<Item = (&'a str, bool)>,
    ) -> Result<Option<Replicas>, Failure> {
        let Some(count) = self.replicas.filter(|count| *count > 1) else { return Ok(None) };
        alone("--replicas", with)?;
        Ok(Some(Replicas { count, router: Router { kind: self.router.unwrap_or_default(), seed }, ranks: None }))
    }
}

/// Adds data-parallel ranks, or says why one of them is replayed for all. `with` has what is of one engine alone, and whether it is there.
///
/// # Errors
/// Replicas of a server whose ranks cannot be replayed.
pub fn with_ranks<'a>(
    replicas: Option<Replicas>,
    (ranks, seed): (RanksOfServer, u64),
    with: impl IntoIterator<Item = (&'a str, bool)>,
    warnings: &mut Vec<String>,
) -> Result<Option<Replicas>, Failure> {
    if ranks.count <= 1 {
        return Ok(replicas);
    }
    match with.into_iter().find(|(_, is_there)| *is_there) {
        None => {
            let one = Replicas { count: 1, router: Router { seed, ..Router::default() }, ranks: None };
            Ok(Some(Replicas { ranks: Some(ranks), ..replicas.unwrap_or(one) }))
        }
        Some((what, _)) if replicas.is_some() => Err(Failure::usage(format!(
            "replicas with data-parallel ranks are not modelled together with {what}: leave out {what}, --replicas or --data-parallel-size"
        ))),
        Some((what, _)) => {
            warnings.push(format!("with {what}, one data-parallel rank is replayed for all"));
            Ok(None)
        }
    }
}

/// Refuses flags that go with one server alone; `with` has them, and whether they are given, beside `several`.
///
/// # Errors
/// The first that is given.
pub fn alone<'a>(several: &str, with: impl IntoIterator<Item = (&'a str, bool)>) -> Result<(), Failure> {
    match with.into_iter().find(|(_, is_given)| *is_given) {
        Some((flag, _)) => {
            Err(Failure::usage(format!("{flag} is of one server alone: leave out {flag}, or {several}")))
        }
        None => Ok(()),
    }
}

/// Puts the replicas on a page.
pub fn lay_out(of: &ReplicasReport, page: &mut Page) {
    let per_replica = of.ranks.map_or(1, |ranks| u64::from(ranks.count));
    let (heading, is_alone) = match of.ranks {
        None => ("replica", true),
        Some(_) if of.replicas.len() as u64 == per_replica => ("rank", true),
        Some(_) => ("replica.rank", false),
    };
    let name = |at: u64| {
        if is_alone {
            count(at + 1)
        } else {
            format!("{}.{}", count(at / per_replica + 1), count(at % per_replica + 1))
        }
    };
    let rows = Rows::of((0..).zip(&of.replicas))
        .left(heading, move |(at, _): &(u64, _)| name(*at))
        .right("sent", |(_, of)| count(of.requests))
        .right("found in cache", |(_, of)| shown(of.cached_share, percent))
        .right("GPUs busy", |(_, of)| shown(of.gpu_busy_share, percent))
        .right("most waiting", |(_, of)| count(of.max_waiting))
        .right("E2E mean ms", |(_, of)| number(of.e2e_ms.map(|of| of.mean)))
        .distribution("TTFT mean ms", |(_, of)| of.ttft_ms);
    let in_lockstep = of.ranks.is_some_and(|ranks| ranks.lockstep.is_some());
    let rows = if in_lockstep { rows.right("dummy steps", |(_, of)| shown(of.dummy_steps, count)) } else { rows };
    page.rows(&rows, &["p50", "most waiting", "E2E mean ms"]);
}
