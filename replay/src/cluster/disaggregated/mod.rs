//! Prefill–decode disaggregation: replicas that compute prompts, and replicas that decode behind them. The KV cache of a prompt moves from one
//! to the other. `links` shares the network among transfers, `run` is the replay
//! of requests that are `travelling`.
//!
//! # The order of things
//! Under vLLM (NIXL, pulled) and TensorRT-LLM, a request is computed on a prefill replica with one output token, then sent to a decode replica, which
//! takes blocks for the prompt and gets their content as a whole. Under SGLang it is sent to both at once: the prefill replica takes it from its front end when
//! the decode replica has blocks for it, and sends each chunk once it is computed. The prefill replica holds the blocks until the transfer ends.
//!
//! vLLM's decode replica computes the last token of the prompt again and samples the first token of the output, which the prefill replica's is discarded for. Under
//! SGLang and TensorRT-LLM the first token is the prefill replica's, and the client has it when the decode replica takes the request into its batch: routers
//! answer with what the decode replica streams.
//!
//! # Source
//! vLLM 0.32 (`distributed/kv_transfer/kv_connector/v1/nixl`), SGLang 0.5.9 (`disaggregation/prefill.py`, `decode.py`), TensorRT-LLM 1.2
//! (`_torch/pyexecutor/py_executor.py`).
//!
//! # Approximations
//! - Routers, the handshake and the answer of a prefill replica take no time beyond the front ends'; what a transfer costs besides its bytes is `latency_us`.
//! - A prefill replica frees blocks in its first iteration after the end of a transfer.
//! - SGLang's decode replica computes a retracted request again, where the engine brings it back from the host's memory.
//! - Under SGLang and TensorRT-LLM, a request of one output token ends on the prefill replica.

mod links;
mod run;
mod travelling;

use ridgepoint::latency::LatencyModel;
use ridgepoint::{Error, Result};

use super::{MAX_REPLICAS, Router};
use crate::config::EngineConfig;
use crate::observe::Observer;
use crate::record::{EngineCounters, Replay};
use crate::workload::Workload;

/// How the KV cache of prompts moves.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct KvTransfer {
    /// Bytes of a token's KV cache in all ranks of the replica that receives it, each of which gets its own part or copy.
    pub bytes_per_token: f64,
    /// Bytes per second that a prefill replica sends, all ranks together; may be infinite.
    pub prefill_bytes_per_s: f64,
    /// Bytes per second that a decode replica receives, all ranks together; may be infinite.
    pub decode_bytes_per_s: f64,
    /// Time from when a transfer may begin until its first byte moves, µs.
    pub latency_us: f64,
}

/// Pools of replicas that compute prompts and that decode.
#[derive(Clone)]
pub struct Disaggregated<'a> {
    /// Replicas that compute prompts.
    pub prefill: Vec<(&'a dyn LatencyModel, &'a EngineConfig)>,
    /// Replicas that decode.
    pub decode: Vec<(&'a dyn LatencyModel, &'a EngineConfig)>,
    /// How requests are spread over the first.
    pub prefill_router: Router,
    /// How they are spread over the second.
    pub decode_router: Router,
    /// How KV moves between them.
    pub transfer: KvTransfer,
}

/// A request's way from one replica to another. Times are ns from the start of the workload.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct KvTransferRecord {
    /// The request, in order of arrival.
    pub request: u32,
    /// Its replica among those that compute prompts, and among those that decode.
    pub prefill_replica: u32,
    /// See above.
    pub decode_replica: u32,
    /// Blocks that moved, and their bytes.
    pub num_blocks: u32,
    /// See above.
    pub bytes: f64,
    /// When it was sent to the decode replica.
    pub sent_ns: u64,
    /// When that had blocks for it.
    pub reserved_ns: u64,
    /// When its prompt was computed.
    pub computed_ns: u64,
    /// When the first bytes could move, and when the last had.
    pub began_ns: u64,
    /// See above.
    pub ended_ns: u64,
    /// When the decode replica first scheduled it.
    pub joined_ns: u64,
}

/// The result of a replay of two pools.
#[derive(Debug, Clone)]
pub struct DisaggregatedReplay {
    /// All requests in order of arrival as clients see them, all gaps between tokens, and counters: sums over all replicas, the largest of maxima.
    pub all: Replay,
    /// The counters of each prefill replica.
    pub prefill: Vec<EngineCounters>,
    /// The counters of each decode replica.
    pub decode: Vec<EngineCounters>,
    /// The prefill replica that each request was sent to.
    pub prefill_of: Vec<u32>,
    /// The transfers, in the order of their ends.
    pub transfers: Vec<KvTransferRecord>,
}

impl Disaggregated<'_> {
    /// Replays `workload` until every request has ended. A request is refused at once if one of its replicas could never hold it. `observers` watch the
    /// first decode replica.
    ///
    /// # Errors
    /// Those of [`replay`](crate::replay); `ErrorKind::InvalidArgument` for a pool without replicas or with more than 4,096, and for a rate or a latency that is
    /// none; `ErrorKind::Invalid` for replicas between which KV cannot move, or whose KV is not blocks of tokens alone.
    pub fn replay(
        &self,
        workload: &mut dyn Workload,
        observers: &mut [&mut dyn Observer],
    ) -> Result<DisaggregatedReplay> {
        self.replay_at(true, workload, observers)
    }

    fn replay_at(
        &self,
        fast_forward: bool,
        workload: &mut dyn Workload,
        observers: &mut [&mut dyn Observer],
    ) -> Result<DisaggregatedReplay> {
        self.check()?;
        run::Flow::new(self, fast_forward, observers)?.run(workload)
    }

    fn check(&self) -> Result<()> {
        for (name, count) in [("prefill replicas", self.prefill.len()), ("decode replicas", self.decode.len())] {
            if count == 0 || count > MAX_REPLICAS {
                return Err(Error::invalid_argument(name, count, format!("must be from 1 to {MAX_REPLICAS}")));
            }
        }
        let KvTransfer { bytes_per_token, prefill_bytes_per_s, decode_bytes_per_s, latency_us } = self.transfer;
        for (name, value, is_fine) in [
            ("bytes_per_token", bytes_per_token, bytes_per_token >= 0.0 && bytes_per_token.is_finite()),
            ("prefill_bytes_per_s", prefill_bytes_per_s, prefill_bytes_per_s > 0.0),
            ("decode_bytes_per_s", decode_bytes_per_s, decode_bytes_per_s > 0.0),
            ("latency_us", latency_us, latency_us >= 0.0 && latency_us.is_finite()),
        ] {
            if !is_fine {
                return Err(Error::invalid_argument(
                    name,
                    value,
                    "must be a number above 0; a latency may be 0, a rate infinite",
                ));
            }
        }
        let configs = || self.prefill.iter().chain(&self.decode).map(|(_, config)| *config);
        let Some(first) = configs().next() else { return Ok(()) };
        let mut problems = Vec::new();
        for config in configs() {
            if std::mem::discriminant(&config.rules) != std::mem::discriminant(&first.rules) {
                problems
                    .push("the pools have different engines: KV moves between servers of one engine alone".to_owned());
            }
            if config.block_size != first.block_size {
                problems.push(format!(
                    "block_size is {} here and {} there: give both pools the same, as KV moves in whole blocks",
                    first.block_size, config.block_size
                ));
            }
            if config.state_blocks_per_request > 0 || config.window_blocks > 0 {
                problems.push("states and sliding windows that move between servers are not modelled".to_owned());
            }
            if config.kv_offload.is_some() {
                problems.push(
                    "KV blocks on the host beside KV that moves between servers are not modelled: leave out kv_offload"
                        .to_owned(),
                );
            }
        }
        problems.dedup();
        if problems.is_empty() {
            Ok(())
        } else {
            Err(Error::invalid("the pools of prefill and decode replicas", problems))
        }
    }
}

#[cfg(test)]
mod tests {
    use ridgepoint::Deployment;
    use ridgepoint::latency::FixedLatency;

    use super::*;
    use crate::workload::{ClosedLoop, RequestShape};
    use crate::{EngineRules, RouterKind, SglangOptions, TrtllmOptions};

    #[test]
    fn fast_forwarding_changes_nothing() {
        let latency =
            FixedLatency { step_us: 700.0, scheduling_us: 40.0, output_token_us: 9.0, ..FixedLatency::default() };
        let rules = [
            EngineRules::Vllm,
            EngineRules::Sglang(SglangOptions { chunked_prefill_size: 64, ..SglangOptions::default() }),
            EngineRules::Trtllm(TrtllmOptions::default()),
        ];
        for rules in rules {
            // Decode replicas run short of blocks.
            let small = EngineConfig { rules, ..EngineConfig::new(&Deployment::default(), 1400, 90) };
            let of = Disaggregated {
                prefill: vec![(&latency, &small); 2],
                decode: vec![(&latency, &small); 2],
                prefill_router: Router { kind: RouterKind::LeastRequests, seed: 1 },
                decode_router: Router { kind: RouterKind::PowerOfTwo, seed: 1 },
                transfer: KvTransfer {
                    bytes_per_token: 1e5,
                    prefill_bytes_per_s: 2e10,
                    decode_bytes_per_s: 1e10,
                    latency_us: 20.0,
                },
            };
            let run = |fast_forward| {
                let mut load = ClosedLoop::new(24, 200, RequestShape::new(330, 120)).expect("a load");
                of.replay_at(fast_forward, &mut load, &mut []).expect("a replay")
            };
            let (fast, slow) = (run(true), run(false));
            assert_eq!((&fast.all.records, &fast.transfers), (&slow.all.records, &slow.transfers), "{rules:?}");
            assert_eq!((&fast.decode, &fast.all.inter_token_ns), (&slow.decode, &slow.all.inter_token_ns), "{rules:?}");
            let preempts = fast.decode.iter().any(|of| of.preemptions > 0);
            assert!(preempts || !rules.is_vllm(), "blocks are not short");
        }
    }
}
