//! The length from which loading a prefix from the host, or reading it from the disk first, is faster than computing it again.

use ridgepoint::latency::{LatencyModel, TransferDirection};

use crate::EngineConfig;
use crate::prefill_time::prefill_time_us;

/// Time to load a prefix against the time to compute it, on a server that does nothing else.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LoadOrCompute {
    /// Tokens of the prefix.
    pub tokens: u32,
    /// Time to load its blocks, µs; with that to read them, where they are on the disk.
    pub load_us: f64,
    /// Time that the prompt's steps take less, µs.
    pub saved_us: f64,
}

impl LoadOrCompute {
    /// Compares both for a prefix of `num_blocks` blocks with one block behind it. Loads take no time without a host's tier.
    ///
    /// # Formula
    /// `saved = T(prefix + block, 0) − T(block, prefix)`, with `T(n, cached)` the steps of a prompt of `n` tokens in chunks of
    /// `max_num_batched_tokens`, or `long_prefill_token_threshold`; `load = kv_transfer_time(blocks · bytes)`.
    pub fn of(latency: &dyn LatencyModel, engine: &EngineConfig, num_blocks: u32) -> Self {
        let tokens = num_blocks.saturating_mul(engine.block_size);
        let bytes = engine.kv_offload.as_ref().map_or(0, |tier| tier.block_bytes).saturating_mul(u64::from(num_blocks));
        let end = tokens.saturating_add(engine.block_size);
        let prompt_us = |from| {
            prefill_time_us(latency, &[], from..end, engine.scheduler.chunk(engine.max_num_batched_tokens).max(1))
        };
        let saved_us = prompt_us(0) - prompt_us(tokens);
        LoadOrCompute { tokens, load_us: latency.kv_transfer_time_us(TransferDirection::CpuToGpu, bytes), saved_us }
    }

    /// Compares both for a prefix on the disk, which the host reads before the GPU loads it. Reads take no time without a disk tier.
    ///
    /// # Formula
    /// That of [`LoadOrCompute::of`] with `load = kv_transfer_time(blocks · disk bytes) + kv_transfer_time(blocks · bytes)`.
    pub fn from_disk(latency: &dyn LatencyModel, engine: &EngineConfig, num_blocks: u32) -> Self {
        let disk = engine.kv_offload.as_ref().and_then(|tier| tier.disk.as_ref());
        let bytes = disk.map_or(0, |disk| disk.block_bytes).saturating_mul(u64::from(num_blocks));
        let read_us = latency.kv_transfer_time_us(TransferDirection::DiskToCpu, bytes);
        let of = Self::of(latency, engine, num_blocks);
        LoadOrCompute { load_us: of.load_us + read_us, ..of }
    }

    /// Returns the blocks of the longest prefix that leaves room for one block behind it within `max_model_len`.
    pub fn longest_blocks(engine: &EngineConfig) -> u32 {
        (engine.max_model_len / engine.block_size.max(1)).saturating_sub(1)
    }

    /// Returns the shortest prefix, in whole blocks, that is loaded faster than it is computed; `None` if there is none up to
    /// `max_model_len`.
    pub fn break_even(latency: &dyn LatencyModel, engine: &EngineConfig) -> Option<Self> {
        Self::shortest(engine, |num_blocks| Self::of(latency, engine, num_blocks))
    }

    /// Returns the shortest prefix that is read from the disk and loaded faster than it is computed.
    pub fn break_even_from_disk(latency: &dyn LatencyModel, engine: &EngineConfig) -> Option<Self> {
        Self::shortest(engine, |num_blocks| Self::from_disk(latency, engine, num_blocks))
    }

    fn shortest(engine: &EngineConfig, compare: impl Fn(u32) -> Self) -> Option<Self> {
        let most = Self::longest_blocks(engine);
        let pays = |num_blocks: &u32| {
            let of = compare(*num_blocks);
            of.load_us < of.saved_us
        };
        let (mut below, mut above) = (0, most.min(1));
        while !pays(&above) {
            if above == most {
                return None;
            }
            (below, above) = (above, above.saturating_mul(2).min(most));
        }
        while above - below > 1 {
            let middle = below.midpoint(above);
            if pays(&middle) {
                above = middle;
            } else {
                below = middle;
            }
        }
        Some(compare(above))
    }
}

#[cfg(test)]
mod tests {
    use ridgepoint::latency::HostTimes;
    use ridgepoint::{Deployment, Step};

    use super::*;
    use crate::{KvDisk, KvOffload};

    /// 1 µs a token, 10 µs a step; a block of 16 bytes takes 100 µs and 4 µs for each.
    struct Line;

    impl LatencyModel for Line {
        fn step_time_us(&self, step: &Step<'_>) -> f64 {
            if step.requests.is_empty() {
                return 0.0;
            }
            10.0 + step.requests.iter().map(|request| f64::from(request.num_scheduled_tokens)).sum::<f64>()
        }
        fn host(&self) -> HostTimes {
            HostTimes::NONE
        }
        fn kv_transfer_time_us(&self, _: TransferDirection, bytes: u64) -> f64 {
            100.0 + bytes as f64 / 4.0
        }
    }

    #[test]
    fn loading_pays_from_the_length_whose_steps_take_longer() {
        let offload =
            KvOffload { num_cpu_blocks: 9, block_bytes: 16, offload_prompt_only: false, contention: 1.0, disk: None };
        let base = EngineConfig::new(&Deployment::default(), 4096, 1000);
        let mut engine = EngineConfig { kv_offload: Some(offload), max_num_batched_tokens: 8192, ..base };
        // n blocks save 16·n µs of one step and take 100 + 4·n µs: 9 blocks are the first that pay, 144 against 136.
        let found = LoadOrCompute::break_even(&Line, &engine);
        assert_eq!(found, Some(LoadOrCompute { tokens: 144, load_us: 136.0, saved_us: 144.0 }));
        // In chunks of 32 tokens, n blocks also save a step of 10 µs for every two of them: 6 blocks save 96 + 30 and take 124.
        engine.max_num_batched_tokens = 32;
        assert_eq!(LoadOrCompute::break_even(&Line, &engine).map(|of| of.tokens), Some(96));
        engine.max_model_len = 96;
        assert_eq!(LoadOrCompute::break_even(&Line, &engine), None);
        // The longest prefix is six blocks, between powers of two.
        engine.max_model_len = 112;
        assert_eq!(LoadOrCompute::break_even(&Line, &engine).map(|of| of.tokens), Some(96));
    }

    /// n blocks of 20 bytes on the disk are read in 100 + 5·n µs and loaded in 100 + 4·n: 29 save 464 and take 461.
    #[test]
    fn a_read_pays_later_than_a_load() {
        let disk = Some(KvDisk { block_bytes: 20, num_disk_blocks: None });
        let offload =
            KvOffload { num_cpu_blocks: 9, block_bytes: 16, offload_prompt_only: false, contention: 1.0, disk };
        let base = EngineConfig::new(&Deployment::default(), 4096, 1000);
        let engine = EngineConfig { kv_offload: Some(offload), max_num_batched_tokens: 8192, ..base };
        let found = LoadOrCompute::break_even_from_disk(&Line, &engine);
        assert_eq!(found, Some(LoadOrCompute { tokens: 464, load_us: 461.0, saved_us: 464.0 }));
    }
}
