//! Pools of prefill and decode replicas: the link between them, and what each pool and the transfers did.

use ridgepoint::hardware::InterconnectKind;
use ridgepoint::latency::{CalibratedRoofline, LatencyModel};
use ridgepoint::physics::Memory;
use ridgepoint::{Deployment, Error, Hardware, Model};
use ridgepoint_replay::server_config::ServedEngine;
use ridgepoint_replay::workload::Workload;
use ridgepoint_replay::{
    Disaggregated, DisaggregatedReplay, Distribution, EngineConfig, EngineCounters, KvTransfer, NoisySteps, Observer,
    Router, RouterKind,
};
use serde::Serialize;

use super::report::Server;
use crate::served::Served;
use crate::words::quantity;

/// The remark that results of pools carry.
pub const TRANSFERS_NOTE: &str = "KV transfers get the whole rate of their link: what share of it NIXL, Mooncake or UCX reach, and what a transfer costs \
                                  besides its bytes, was not measured here";

/// How many replicas of each kind, and behind which routers. The decode replicas are the [`Server`]'s.
#[derive(Clone, Copy)]
pub struct Pools<'a> {
    /// Replicas that compute prompts, at least 1.
    pub num_prefill: u32,
    /// Replicas that decode, at least 1.
    pub num_decode: u32,
    /// Router of the first.
    pub prefill_router: Router,
    /// Router of the second.
    pub decode_router: Router,
    /// The engine of a prefill replica.
    pub prefill_engine: &'a ServedEngine,
    /// The times of its steps.
    pub prefill_latency: &'a CalibratedRoofline,
    /// The way between the pools.
    pub way: KvWay,
}

/// Over what KV moves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum KvWayKind {
    /// The link between GPUs, which joins those of all replicas.
    Nvlink,
    /// The network of each GPU.
    Network,
    /// A rate that the user gives.
    Given,
}

/// The way of KV between two pools.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct KvWay {
    /// What it is.
    pub over: KvWayKind,
    /// Bytes per second of each GPU of a prefill replica, and of a decode replica.
    pub prefill_bytes_per_s_per_gpu: f64,
    /// See above.
    pub decode_bytes_per_s_per_gpu: f64,
    /// Time before the first byte of a transfer, ms.
    pub latency_ms: f64,
    /// Bytes of a token's KV cache in all GPUs of a decode replica.
    pub bytes_per_token: f64,
}

/// Bytes of a token's KV cache in all GPUs of a replica: each has its part, or its copy.
fn bytes_per_token(model: &Model, deployment: &Deployment) -> ridgepoint::Result<f64> {
    let ranks = f64::from(deployment.tensor_parallel_size) * f64::from(deployment.pipeline_parallel_size);
    Ok(Memory::new(model, deployment)?.kv_bytes_per_token() * ranks)
}

/// A server of a pool.
#[derive(Clone, Copy)]
pub struct PoolServer<'a> {
    /// The model.
    pub model: &'a Model,
    /// The GPU.
    pub hardware: &'a Hardware,
    /// How the model is spread over GPUs.
    pub deployment: &'a Deployment,
}

impl<'a> From<&'a Served> for PoolServer<'a> {
    fn from(of: &'a Served) -> Self {
        PoolServer { model: &of.model, hardware: &of.hardware, deployment: &of.deployment }
    }
}

impl KvWay {
    /// The way between `prefill` and `decode` replicas: a rate that is `given`, bytes per second of a GPU; else NVLink if it joins all GPUs, else
    /// their network.
    ///
    /// # Errors
    /// `ErrorKind::Invalid` for pools of unlike KV caches, of data-parallel ranks, or without a known link.
    pub fn between(
        (prefill, num_prefill): (PoolServer<'_>, u32),
        (decode, num_decode): (PoolServer<'_>, u32),
        given_bytes_per_s: Option<f64>,
        latency_ms: f64,
    ) -> ridgepoint::Result<Self> {
        let refused = |problem: String| Err(Error::invalid("the pools of prefill and decode replicas", vec![problem]));
        if [prefill, decode].iter().any(|of| of.deployment.data_parallel_size > 1) {
            return refused(
                "replicas with data-parallel ranks are not modelled: leave out --data-parallel-size and attention that is shared so".to_owned(),
            );
        }
        let one = |of: PoolServer<'_>| {
            let alone = Deployment { tensor_parallel_size: 1, pipeline_parallel_size: 1, ..of.deployment.clone() };
            bytes_per_token(of.model, &alone)
        };
        let (of_prefill, of_decode) = (one(prefill)?, one(decode)?);
        if (of_prefill - of_decode).abs() > 1e-6 * of_prefill {
            return refused(format!(
                "a token's KV cache has {of_prefill:.0} bytes on prefill replicas and {of_decode:.0} on decode replicas: give both the same \
                 --kv-cache-dtype and the same drafts"
            ));
        }
        let gpus = prefill.deployment.num_gpus() * u64::from(num_prefill)
            + decode.deployment.num_gpus() * u64::from(num_decode);
        let is_joined = |of: &Hardware| {
            let nvlink = of.interconnect.filter(|link| link.kind == InterconnectKind::Nvlink);
            prefill.hardware.name == decode.hardware.name && nvlink.is_some_and(|link| u64::from(link.num_gpus) >= gpus)
        };
        let (over, rates) = match (given_bytes_per_s, decode.hardware.interconnect) {
            (Some(rate), _) => (KvWayKind::Given, [rate, rate]),
            (None, Some(link)) if is_joined(decode.hardware) => {
                (KvWayKind::Nvlink, [link.unidirectional_bytes_per_s; 2])
            }
            _ => {
                let rate = |of: &Hardware| {
                    let network = of.network.map(|network| network.unidirectional_bytes_per_s);
                    network.ok_or_else(|| {
                        let problem = format!(
                            "no NVLink joins all {gpus} GPUs, and {} has no [network] in its file: give --kv-transfer-bandwidth",
                            of.name
                        );
                        Error::invalid("the pools of prefill and decode replicas", vec![problem])
                    })
                };
                (KvWayKind::Network, [rate(prefill.hardware)?, rate(decode.hardware)?])
            }
        };
        Ok(KvWay {
            over,
            prefill_bytes_per_s_per_gpu: rates[0],
            decode_bytes_per_s_per_gpu: rates[1],
            latency_ms,
            bytes_per_token: bytes_per_token(decode.model, decode.deployment)?,
        })
    }

    /// The transfers of replicas with these GPUs.
    pub fn transfer(&self, prefill: &Deployment, decode: &Deployment) -> KvTransfer {
        let of_replica = |rate: f64, deployment: &Deployment| rate * deployment.num_gpus() as f64;
        KvTransfer {
            bytes_per_token: self.bytes_per_token,
            prefill_bytes_per_s: of_replica(self.prefill_bytes_per_s_per_gpu, prefill),
            decode_bytes_per_s: of_replica(self.decode_bytes_per_s_per_gpu, decode),
            latency_us: self.latency_ms * 1e3,
        }
    }

    /// The way in words.
    pub fn in_words(&self) -> String {
        let rate = quantity(self.decode_bytes_per_s_per_gpu.min(self.prefill_bytes_per_s_per_gpu), "B/s");
        let over = match self.over {
            KvWayKind::Nvlink => "NVLink, which joins all GPUs",
            KvWayKind::Network => "the network of each GPU",
            KvWayKind::Given => "a link of each GPU as given",
        };
        format!("over {over}, {rate}")
    }
}

/// The pools of a replay. JSON keys are stable.
#[derive(Debug, Clone, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PoolsReport {
    /// Replicas that compute prompts.
    pub prefill: PoolReport,
    /// Replicas that decode.
    pub decode: PoolReport,
    /// The way of KV between them.
    pub way: KvWay,
    /// Requests whose KV moved.
    pub transfers: u64,
    /// Bytes that moved.
    pub bytes: f64,
    /// From when a request's first bytes might move until its last had, ms.
    pub transfer_ms: Option<Distribution>,
    /// From when its prompt was computed until its KV was there, ms: with chunks that move while others are computed, what is left.
    pub after_prompt_ms: Option<Distribution>,
    /// From when it was sent to a decode replica until that had blocks for it, ms.
    pub wait_for_blocks_ms: Option<Distribution>,
    /// From when its KV was there until the decode replica scheduled it, ms.
    pub wait_to_join_ms: Option<Distribution>,
    /// What was not measured.
    pub note: String,
}

/// One pool.
#[derive(Debug, Clone, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PoolReport {
    /// Its router.
    pub router: RouterKind,
    /// Its replicas.
    pub replicas: u32,
    /// GPUs of each.
    pub gpus_per_replica: u64,
    /// How each spreads the model.
    pub deployment: Deployment,
    /// Share of the time until the last request ended in which a replica's GPUs worked: their mean, and the most of one.
    pub gpu_busy_share: Option<f64>,
    /// See above.
    pub most_gpu_busy_share: Option<f64>,
    /// Most requests that ran, and that waited, on one replica.
    pub max_running: u32,
    /// See above.
    pub max_waiting: u32,
    /// Most KV blocks of one replica in use or held for transfers, over those that requests can have.
    pub peak_kv_share: Option<f64>,
    /// Preemptions.
    pub preemptions: u64,
}

impl PoolReport {
    fn of(router: Router, deployment: &Deployment, engine: &EngineConfig, of: &[EngineCounters], end_ns: u64) -> Self {
        let busy: Vec<f64> = of.iter().map(|of| of.busy_ns as f64 / end_ns.max(1) as f64).collect();
        let is_known = end_ns > 0 && !busy.is_empty();
        let most = |figure: fn(&EngineCounters) -> u32| of.iter().map(figure).max().unwrap_or(0);
        let blocks = engine.usable_blocks();
        PoolReport {
            router: router.kind,
            replicas: u32::try_from(of.len()).unwrap_or(u32::MAX),
            gpus_per_replica: deployment.num_gpus(),
            deployment: deployment.clone(),
            gpu_busy_share: is_known.then(|| busy.iter().sum::<f64>() / busy.len() as f64),
            most_gpu_busy_share: is_known.then(|| busy.iter().copied().fold(0.0, f64::max)),
            max_running: most(|of| of.max_running),
            max_waiting: most(|of| of.max_waiting),
            peak_kv_share: (blocks > 0).then(|| f64::from(most(|of| of.max_blocks_in_use)) / f64::from(blocks)),
            preemptions: of.iter().map(|of| of.preemptions).sum(),
        }
    }
}

impl PoolsReport {
    pub(super) fn of(pools: &Pools<'_>, decode: (&Deployment, &EngineConfig), of: &DisaggregatedReplay) -> Self {
        let end_ns = of.all.counters.end_ns;
        let prefill = &pools.prefill_engine;
        let between = |from: fn(&ridgepoint_replay::KvTransferRecord) -> (u64, u64)| {
            let ms = |record| {
                let (from_ns, to_ns) = from(record);
                ridgepoint::units::ns_to_ms(to_ns.saturating_sub(from_ns))
            };
            Distribution::of(of.transfers.iter().map(ms).collect())
        };
        PoolsReport {
            prefill: PoolReport::of(pools.prefill_router, &prefill.deployment, &prefill.config, &of.prefill, end_ns),
            decode: PoolReport::of(pools.decode_router, decode.0, decode.1, &of.decode, end_ns),
            way: pools.way,
            transfers: of.transfers.len() as u64,
            bytes: of.transfers.iter().map(|of| of.bytes).sum(),
            transfer_ms: between(|of| (of.began_ns, of.ended_ns)),
            after_prompt_ms: between(|of| (of.computed_ns, of.ended_ns)),
            wait_for_blocks_ms: between(|of| (of.sent_ns, of.reserved_ns)),
            wait_to_join_ms: between(|of| (of.ended_ns, of.joined_ns)),
            note: TRANSFERS_NOTE.to_owned(),
        }
    }
}

impl Server<'_> {
    /// Replays a load on two pools, each replica with noise of its own.
    pub(super) fn disaggregated(
        &self,
        pools: &Pools<'_>,
        workload: &mut dyn Workload,
        observers: &mut [&mut dyn Observer],
    ) -> ridgepoint::Result<DisaggregatedReplay> {
        let num_prefill = pools.num_prefill as usize;
        let count = pools.num_prefill.saturating_add(pools.num_decode);
        let steady =
            |at: usize| if at < num_prefill { pools.prefill_latency as &dyn LatencyModel } else { self.steady() };
        let noisy = |at: u32| {
            let seed = self.seed.wrapping_add(u64::from(at));
            self.noise_sigma.map(|sigma| NoisySteps::new(steady(at as usize), sigma, seed)).transpose()
        };
        let noisy: Vec<_> = (0..count).map(noisy).collect::<ridgepoint::Result<_>>()?;
        let mut replicas = Vec::with_capacity(noisy.len());
        for (at, noisy) in noisy.iter().enumerate() {
            let latency: &dyn LatencyModel = noisy.as_ref().map_or(steady(at), |noisy| noisy);
            let engine = if at < num_prefill { pools.prefill_engine } else { self.engine };
            replicas.push((latency, &engine.config));
        }
        let decode = replicas.split_off(num_prefill);
        let pools = Disaggregated {
            prefill: replicas,
            decode,
            prefill_router: pools.prefill_router,
            decode_router: pools.decode_router,
            transfer: pools.way.transfer(&pools.prefill_engine.deployment, self.deployment),
        };
        pools.replay(workload, observers)
    }
}
