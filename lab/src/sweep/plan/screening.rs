//! What each server of a plan can do alone, by short loads: a guess, from which deployments are judged.

use rayon::prelude::*;
use ridgepoint_replay::RouterKind;

use super::super::grid::{Configuration, Setting};
use super::super::point::SharedLatency;
use super::super::replica_keys::Sharing;
use super::super::row::Row;
use super::super::search::Search;
use super::{FrontPoint, Plan};

/// Requests of a load that screens.
const NUM_REQUESTS: u64 = 600;
/// The lowest load that is tried, as a share of the one that must hold: more replicas than its inverse are not thought of.
const LOWEST: f64 = 1.0 / 4_096.0;

/// Points of the front that are listed.
const MAX_FRONT: usize = 24;

/// A server that was screened.
pub(super) struct Screened {
    /// Its place in the grid.
    pub(super) server: usize,
    /// GPUs of one.
    pub(super) gpus: u64,
    /// The highest load that short loads say holds on one; `None` if the lowest that was tried fails.
    pub(super) highest: Option<f64>,
    /// What the lowest load breaks, if it fails.
    pub(super) broken: Option<String>,
    /// What its probes saw.
    pub(super) seen: Vec<FrontPoint>,
}

/// One server alone.
pub(super) fn one() -> Setting<Sharing> {
    shared(Sharing { count: 1, prefill: 0, router: RouterKind::default() })
}

/// Servers that share the load of a plan.
pub(super) fn shared(value: Sharing) -> Setting<Sharing> {
    Setting { value, keys: serde_json::Map::new(), all: String::new(), varied: String::new() }
}

/// Screens all servers, in order; or says why one cannot run. `finished` is told of each.
pub(super) fn screen(plan: &Plan, finished: &(dyn Fn() + Sync)) -> Vec<Result<Screened, String>> {
    let servers = (0..plan.num_servers()).into_par_iter().with_max_len(1);
    let screened = |server: usize| {
        let screened = screened(plan, server);
        finished();
        screened
    };
    servers.map(screened).collect()
}

fn screened(plan: &Plan, at: usize) -> Result<Screened, String> {
    let grid = &plan.sweep.grid;
    let (Some(server), Some(load)) = (grid.servers.get(at), grid.loads.first()) else { return Err(String::new()) };
    let one = one();
    let configuration = Configuration { server, replicas: &one, load };
    let point = plan.sweep.point(configuration).ok_or("its model or GPU was not found")?;
    let mut row = point.described(at);
    let latency = SharedLatency::new();
    let (engine, latency) = point.open(&mut row, &latency)?;
    let slo = grid.slo.as_ref().ok_or("there is no limit")?;
    let search = Search { point: &point, slo, row: &row, latency, config: &engine.config };
    let (mut highest, mut broken, mut seen) = (None::<f64>, None, Vec::new());
    search.guessed((LOWEST * plan.target(), plan.target()), NUM_REQUESTS, &mut |load, judged| {
        let Row { output_tokens_per_s_per_gpu, tpot_mean_ms, .. } = &judged.row;
        if let (Some(per_gpu), Some(tpot_ms)) = (output_tokens_per_s_per_gpu, tpot_mean_ms) {
            seen.push(FrontPoint {
                server: name_of(&row, &configuration),
                engine: row.serving_engine.clone(),
                load,
                tokens_per_s_per_gpu: *per_gpu,
                tokens_per_s_per_user: 1_000.0 / tpot_ms,
            });
        }
        match judged.judgement.broken() {
            None => highest = Some(highest.map_or(load, |of| of.max(load))),
            reason => broken = reason,
        }
    })?;
    Ok(Screened { server: at, gpus: row.gpus, highest, broken, seen })
}

/// A server in a few words: its model, its GPU, and what differs within the plan.
pub(super) fn name_of(row: &Row, of: &Configuration<'_>) -> String {
    let varied = of.varied();
    let own = varied.split(", ").filter(|text| !text.starts_with("model ") && !text.starts_with("hardware "));
    let own: Vec<&str> = own.filter(|text| !text.is_empty()).collect();
    let names = format!("{} on {}", row.model, row.hardware);
    if own.is_empty() { names } else { format!("{names}, {}", own.join(", ")) }
}

/// The points that no other one beats in both figures, by tokens per second of a user.
pub(super) fn front_of(mut all: Vec<FrontPoint>) -> Vec<FrontPoint> {
    all.sort_by(|one, other| {
        let by_user = other.tokens_per_s_per_user.total_cmp(&one.tokens_per_s_per_user);
        by_user.then(other.tokens_per_s_per_gpu.total_cmp(&one.tokens_per_s_per_gpu))
    });
    let mut front: Vec<FrontPoint> = Vec::new();
    for point in all {
        if front.last().is_none_or(|last| point.tokens_per_s_per_gpu > last.tokens_per_s_per_gpu) {
            front.push(point);
        }
    }
    let every = front.len().div_ceil(MAX_FRONT).max(1);
    front.into_iter().step_by(every).collect()
}
