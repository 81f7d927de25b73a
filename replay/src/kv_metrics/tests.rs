#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use std::sync::Arc;

use approx::assert_relative_eq;
use ridgepoint::Deployment;
use ridgepoint::latency::BlackBox;

use super::*;
use crate::record::{Outcome, RequestRecord};
use crate::workload::{FixedList, Segment, WorkloadRequest};
use crate::{KvOffload, SchedulerOptions, replay};

const MS: u64 = 1_000_000;

/// A request of one output token whose prompt begins with 8 tokens of a segment, or is one.
fn request(arrival_ms: u64, num_prompt_tokens: u32, segment: u64) -> WorkloadRequest {
    let content = [Segment { id: segment, num_tokens: num_prompt_tokens.min(8) }];
    WorkloadRequest { content: Some(Arc::from(content)), ..WorkloadRequest::new(arrival_ms * MS, num_prompt_tokens, 1) }
}

/// Three blocks of 4 tokens.
fn three_blocks() -> EngineConfig {
    EngineConfig { block_size: 4, ..EngineConfig::new(&Deployment::default(), 12, 4) }
}

const PRICES: PrefixCachePrices = PrefixCachePrices {
    hash_us: [1.0; 3],
    lookup_hit_us: 0.5,
    lookup_miss_us: 0.25,
    touch_us: 0.125,
    insert_us: 0.5,
    evict_us: 0.25,
};

/// Steps of 10 ms and `beta1_us` for each prompt token.
fn metrics(requests: &[WorkloadRequest], engine: &EngineConfig, beta1_us: f64) -> KvMetrics {
    let latency = BlackBox { beta0_us: 10_000.0, beta1_us, ..BlackBox::default() };
    let mut watch = KvWatch::default();
    let replay = replay(&latency, engine, &mut FixedList::new(requests.to_vec()).unwrap(), &mut [&mut watch]).unwrap();
    let contents: Vec<_> = requests.iter().map(|request| request.content.clone()).collect();
    KvMetrics::of(&WatchedReplay {
        replay: &replay,
        contents: &contents,
        engine,
        latency: &latency,
        watch: &watch,
        prices: PRICES,
    })
}

/// At 0 ms blocks 0 and 1 are filled. At 100 ms block 0 is found, and block 2 holds the same as block 1 does. At 200 ms blocks 0 and 1 are
/// found, and block 2 is taken. At 300 ms another text takes all three.
fn four() -> [WorkloadRequest; 4] {
    [request(0, 8, 1), request(100, 8, 1), request(200, 9, 1), request(300, 11, 2)]
}

#[test]
fn lives_of_three_blocks_are_those_worked_out_by_hand() {
    let blocks = metrics(&four(), &three_blocks(), 100.0).blocks.unwrap();
    // Taken: 2 + 1 + 1 + 3. Block 2 is evicted at 200 and 300 ms without a hit, blocks 0 and 1 at 300 ms.
    assert_eq!((blocks.allocated, blocks.evicted, blocks.evicted_without_hit, blocks.resident), (7, 4, 2, 3));
    // The four look-ups find 0, 1, 2 and 0 blocks of at most 1, 1, 2 and 2.
    assert_eq!((blocks.lookups, blocks.lookup_hits, blocks.lookup_misses, blocks.hits), (4, 3, 2, 3));
    let (lifetime, idle, gap) = (blocks.lifetime_ms.unwrap(), blocks.idle_ms.unwrap(), blocks.reuse_gap_ms.unwrap());
    // 100, 100, 300 and 300 ms, all idle for 100 ms. Block 0 was found at 100 and at 200 ms.
    assert_eq!((lifetime.count, idle.count, gap.count), (4, 4, 1));
    assert_relative_eq!(lifetime.mean, 200.0, max_relative = 1e-12);
    assert_relative_eq!(lifetime.p50, 200.0, max_relative = 1e-3);
    assert_relative_eq!(lifetime.max, 300.0, max_relative = 1e-3);
    assert_relative_eq!(idle.mean, 100.0, max_relative = 1e-12);
    assert_relative_eq!(idle.max, 100.0, max_relative = 1e-3);
    assert_relative_eq!(gap.mean, 100.0, max_relative = 1e-12);
}

#[test]
fn hits_are_identified_by_request_and_prefix() {
    let of = metrics(&four(), &three_blocks(), 100.0);
    let expected = Hits {
        requests: 4,
        asked_tokens: 36,
        gpu_hit_tokens: 12,
        host_hit_tokens: 0,
        disk_hit_tokens: 0,
        missed_tokens: 24,
    };
    assert_eq!((of.hits, of.num_other_groups, of.other_groups), (expected, 0, Hits::default()));
    let groups: Vec<_> = of.prefix_groups.iter().map(|group| (group.prefix.as_deref(), group.hits)).collect();
    let first = Hits {
        requests: 3,
        asked_tokens: 25,
        gpu_hit_tokens: 12,
        host_hit_tokens: 0,
        disk_hit_tokens: 0,
        missed_tokens: 13,
    };
    let second = Hits {
        requests: 1,
        asked_tokens: 11,
        gpu_hit_tokens: 0,
        host_hit_tokens: 0,
        disk_hit_tokens: 0,
        missed_tokens: 11,
    };
    assert_eq!(groups, [(Some("1"), first), (Some("2"), second)]);
}

#[test]
fn what_the_host_spends_is_counts_times_prices() {
    let host = metrics(&four(), &three_blocks(), 100.0).host.unwrap();
    // Full blocks with the output token: 2 + 2 + 2 + 3. Without it 8 are full, and 3 of them were found.
    assert_eq!((host.hashed_blocks, host.inserted_blocks), (9, 5));
    assert_relative_eq!(host.hash_ms, 9e-3, max_relative = 1e-12);
    assert_relative_eq!(host.lookup_ms, (3.0 * 0.5 + 2.0 * 0.25) * 1e-3, max_relative = 1e-12);
    assert_relative_eq!(host.touch_ms, 3.0 * 0.125e-3, max_relative = 1e-12);
    assert_relative_eq!(host.table_ms, (5.0 * 0.5 + 4.0 * 0.25) * 1e-3, max_relative = 1e-12);
    assert_relative_eq!(host.total_ms, 14.875e-3, max_relative = 1e-12);
    assert_relative_eq!(host.per_request_us, 14.875 / 4.0, max_relative = 1e-12);
    // The last step begins at 300 ms and takes 10 + 11 × 0.1 ms.
    assert_relative_eq!(host.run_share.unwrap(), 14.875e-3 / 311.1, max_relative = 1e-12);
}

#[test]
fn caching_pays_from_the_hit_rate_at_which_saved_time_equals_cost() {
    let balance = |beta1_us| metrics(&four(), &three_blocks(), beta1_us).balance.unwrap();
    let dear = balance(100.0);
    // Prompts with hits: 8 tokens, 4 of them hits, and 9 with 8.
    assert_eq!((dear.price_prompt_tokens, dear.price_cached_tokens), (9, 6));
    assert_relative_eq!(dear.saved_us_per_token, 100.0, max_relative = 1e-9);
    assert_relative_eq!(dear.cost_us_per_hit_token, (0.5 + 0.125 - 0.5) / 4.0, max_relative = 1e-12);
    assert_relative_eq!(dear.saved_ms, 1.2, max_relative = 1e-9);
    assert_relative_eq!(dear.net_ms, 1.2 - 14.875e-3, max_relative = 1e-9);
    // 14.875 µs less 12 hit tokens of 0.03125 µs are 14.5 µs, over 36 tokens.
    assert_relative_eq!(dear.break_even_hit_rate.unwrap(), 14.5 / (36.0 * (100.0 - 0.03125)), max_relative = 1e-9);
    // Cheap tokens: 12 × 0.5 µs are less than 14.875 µs, and a third is less than the hit rate that would do.
    let cheap = balance(0.5);
    assert_relative_eq!(cheap.break_even_hit_rate.unwrap(), 14.5 / (36.0 * (0.5 - 0.03125)), max_relative = 1e-6);
    assert!(cheap.net_ms < 0.0 && cheap.hit_rate < cheap.break_even_hit_rate.unwrap());
    assert_eq!(balance(0.03).break_even_hit_rate, None);
}

#[test]
fn without_hits_half_the_mean_prompt_prices_a_token() {
    let balance = metrics(&[request(0, 8, 1), request(100, 6, 2)], &three_blocks(), 100.0).balance.unwrap();
    assert_eq!((balance.price_prompt_tokens, balance.price_cached_tokens), (7, 3));
    assert!(balance.hit_rate <= 0.0 && balance.saved_ms <= 0.0 && balance.net_ms < 0.0, "{balance:?}");
}

#[test]
fn tokens_from_the_host_are_distinguished_from_those_of_the_gpu() {
    let tier = KvOffload { num_cpu_blocks: 8, block_bytes: 1, offload_prompt_only: false, contention: 1.0, disk: None };
    let engine = EngineConfig { kv_offload: Some(tier), ..three_blocks() };
    // The second prompt takes all blocks, so that the third finds its 8 tokens on the host alone.
    let of = metrics(&[request(0, 8, 1), request(100, 11, 2), request(200, 9, 1)], &engine, 0.0);
    let expected = Hits {
        requests: 3,
        asked_tokens: 28,
        gpu_hit_tokens: 0,
        host_hit_tokens: 8,
        disk_hit_tokens: 0,
        missed_tokens: 20,
    };
    assert_eq!(of.hits, expected);
}

#[test]
fn an_engine_without_prefix_caching_has_hits_of_none_and_no_costs() {
    let engine = EngineConfig {
        scheduler: SchedulerOptions { enable_prefix_caching: false, ..three_blocks().scheduler },
        ..three_blocks()
    };
    let of = metrics(&four(), &engine, 100.0);
    assert_eq!((of.blocks, of.host, of.balance), (None, None, None));
    assert_eq!((of.hits.asked_tokens, of.hits.gpu_hit_tokens), (36, 0));
}

#[test]
fn groups_beyond_the_tenth_are_one_row() {
    let record = |num_prompt_tokens| RequestRecord {
        outcome: Outcome::Finished,
        num_prompt_tokens,
        num_output_tokens: 1,
        num_cached_tokens: 1,
        first_token_ns: 1,
        finish_ns: 1,
        ..RequestRecord::default()
    };
    // Group i of 12 asks for 100 + i tokens; a request without content follows, and one that was refused.
    let mut records: Vec<_> = (0..13).map(|group| record(100 + group)).collect();
    records.push(RequestRecord { outcome: Outcome::Rejected, ..record(9000) });
    let contents: Vec<Option<Content>> = (0..12).map(|id| Some(Arc::from([Segment { id, num_tokens: 4 }]))).collect();
    let (groups, num_others, others) = hits::by_prefix(&records, &contents);
    let named: Vec<_> = groups.iter().map(|group| group.prefix.as_deref()).collect();
    assert_eq!(named[..3], [None, Some("11"), Some("10")]);
    assert_eq!((named.len(), named[9], num_others), (10, Some("3"), 3));
    assert_eq!((others.requests, others.asked_tokens, others.gpu_hit_tokens), (3, 100 + 101 + 102, 3));
}

#[test]
fn hashing_is_priced_between_the_sizes_that_were_timed() {
    let prices = PrefixCachePrices::default();
    assert_relative_eq!(prices.hash_block_us(16), 1.0, max_relative = 1e-12);
    assert_relative_eq!(prices.hash_block_us(24), 1.1, max_relative = 1e-12);
    assert_relative_eq!(prices.hash_block_us(80), 2.75, max_relative = 1e-12);
    assert!(prices.extrapolated(16).is_none() && prices.extrapolated(128).is_none());
    assert!(prices.extrapolated(8).unwrap().contains("block_size = 8"));
    assert!(prices.extrapolated(256).is_some());
}
