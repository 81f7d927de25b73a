//! Replays of servers that verify drafts: laws for every engine, and steps counted by hand.
#![allow(clippy::float_cmp)]

use crate::cases::{self, Case, Sent};
use crate::common::Recorder;
use crate::loads::load;
use proptest::prelude::*;
use ridgepoint::Deployment;
use ridgepoint::latency::FixedLatency;
use ridgepoint_replay::workload::WorkloadRequest;
use ridgepoint_replay::{
    CapacitySchedulerPolicy, EngineConfig, EngineRules, Outcome, Replay, SglangOptions, Speculation, TrtllmOptions,
    replay,
};

fn run(case: &Case) -> (Replay, Recorder) {
    let mut seen = Recorder::default();
    let mut load = load(case.requests.clone(), case.concurrency);
    let replayed = replay(&case.latency, &case.config, load.as_mut(), &mut [&mut seen]).unwrap();
    (replayed, seen)
}

/// Small engines of all rules, with one to five drafts.
fn case() -> impl Strategy<Value = Case> {
    let sizes = [1u32..=8, 4u32..=40, 6u32..=64, 1u32..=8];
    let threshold = prop_oneof![2 => Just(0u32), 1 => 6u32..=16];
    let stages = prop_oneof![4 => Just(1u32), 1 => 2u32..=3];
    let config = cases::config(sizes, 0.6, threshold, stages, |tokens, number| 2 + number % (tokens - 1));
    let config =
        (config, 1u32..=5, 0.0..=1.0f64, 0u32..3).prop_map(|((config, number), drafts, acceptance, lookahead)| {
            let policies = [
                CapacitySchedulerPolicy::GuaranteedNoEvict,
                CapacitySchedulerPolicy::MaxUtilization,
                CapacitySchedulerPolicy::StaticBatch,
            ];
            let capacity_scheduler_policy = policies[number as usize / 3 % 3];
            let rules = match number % 3 {
                _ if config.pipeline_parallel_size > 1 => EngineRules::Vllm,
                1 => EngineRules::Sglang(SglangOptions::default()),
                2 => EngineRules::Trtllm(TrtllmOptions { capacity_scheduler_policy, ..TrtllmOptions::default() }),
                _ => EngineRules::Vllm,
            };
            // A context of TensorRT-LLM takes whole blocks.
            let least = config.block_size.max(drafts + 1);
            let speculation = Speculation {
                acceptance: vec![acceptance; drafts.min(3) as usize],
                num_tree_tokens: if drafts > 3 { drafts } else { 0 },
                num_lookahead_tokens: lookahead * drafts,
            };
            EngineConfig {
                max_num_batched_tokens: config.max_num_batched_tokens.max(least),
                rules,
                speculation: Some(speculation),
                ..config
            }
        });
    let sent = Sent {
        most_requests: 24,
        gap_ns: 20_000,
        piece_tokens: 1..40,
        long_prompts: 0.5,
        timed_loads: 2,
        most_clients: 8,
    };
    cases::case(config, sent)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn every_token_comes_once_and_in_order(case in case()) {
        let (replayed, seen) = run(&case);
        let mut next = vec![(0u32, 0u64); replayed.records.len()];
        for (record, token, now_ns) in &seen.tokens {
            let (expected, last_ns) = &mut next[*record as usize];
            prop_assert_eq!(*token, *expected);
            prop_assert!(*now_ns >= *last_ns);
            (*expected, *last_ns) = (token + 1, *now_ns);
        }
        for (record, (tokens, last_ns)) in replayed.records.iter().zip(&next) {
            let finishes = record.outcome == Outcome::Finished;
            prop_assert_eq!(*tokens, if finishes { record.num_output_tokens } else { 0 });
            prop_assert!(!finishes || record.finish_ns == *last_ns);
        }
        let drafts = case.config.num_draft_tokens();
        for step in &seen.steps {
            prop_assert!(step.batch.iter().all(|(_, request)| u32::from(request.num_draft_tokens) <= drafts));
            let longest = step.batch.iter().map(|(_, of)| of.num_computed_tokens + of.num_scheduled_tokens).max();
            prop_assert!(longest <= Some(case.config.max_model_len));
        }
        let counters = replayed.counters;
        prop_assert!(counters.accepted_tokens <= counters.verifications * u64::from(drafts));
        prop_assert!(counters.max_blocks_in_use <= case.config.usable_blocks());
    }
}

/// Engines with room for all.
fn engine(rules: EngineRules, speculation: Option<Speculation>) -> EngineConfig {
    EngineConfig { rules, speculation, ..EngineConfig::new(&Deployment::default(), 4096, 4000) }
}

fn engines() -> [EngineRules; 3] {
    [EngineRules::Vllm, EngineRules::Sglang(SglangOptions::default()), EngineRules::Trtllm(TrtllmOptions::default())]
}

fn replayed(config: &EngineConfig, requests: &[WorkloadRequest]) -> Replay {
    let latency = FixedLatency { step_us: 1000.0, ..FixedLatency::default() };
    replay(&latency, config, load(requests.to_vec(), None).as_mut(), &mut []).unwrap()
}

#[test]
fn drafts_that_are_never_accepted_change_no_schedule() {
    let requests: Vec<_> =
        (0..20u32).map(|at| WorkloadRequest::new(u64::from(at) * 700_000, 40 + at, 5 + 7 * at)).collect();
    for rules in engines() {
        let plain = replayed(&engine(rules, None), &requests);
        let drafted = replayed(&engine(rules, Some(Speculation::of_length(3, 1.0))), &requests);
        assert_eq!(plain.records, drafted.records, "{rules:?}");
        assert_eq!((drafted.counters.accepted_tokens, plain.counters.verifications), (0, 0));
        assert!(drafted.counters.verifications > 0);
    }
}

#[test]
fn drafts_that_are_always_accepted_bring_all_their_tokens() {
    for rules in engines() {
        for (drafts, outputs) in [(1, 9), (3, 9), (4, 2), (5, 100)] {
            let config = engine(rules, Some(Speculation::of_length(drafts, f64::from(drafts + 1))));
            let replay = replayed(&config, &[WorkloadRequest::new(0, 100, outputs)]);
            // One token comes with the prompt.
            let verifications = (outputs - 1).div_ceil(drafts + 1);
            assert_eq!(replay.counters.verifications, u64::from(verifications), "{rules:?}, {drafts}, {outputs}");
            assert_eq!(replay.records[0].e2e_ms(), f64::from(1 + verifications));
            // A gap is the time between two deliveries, each of which may have several tokens.
            assert_eq!(replay.inter_token_ns[0].len(), u64::from(verifications));
        }
    }
}

#[test]
fn the_more_are_accepted_the_fewer_steps_a_request_takes() {
    for rules in engines() {
        let steps = |length: f64| {
            let config = engine(rules, Some(Speculation::of_length(3, length)));
            replayed(&config, &[WorkloadRequest::new(0, 100, 3000)]).counters.steps
        };
        let lengths: Vec<f64> = (0..=12).map(|at| 1.0 + 0.25 * f64::from(at)).collect();
        let counts: Vec<u64> = lengths.iter().map(|length| steps(*length)).collect();
        assert!(counts.is_sorted_by(|more, fewer| more > fewer), "{counts:?}");
        for (length, count) in lengths.iter().zip(counts) {
            assert!(
                (3000.0 / length / count as f64 - 1.0).abs() < 0.05,
                "{rules:?}: {length} tokens a step, {count} steps"
            );
        }
    }
}

#[test]
fn a_context_ends_drafts_before_it() {
    // A request that fills the context: its last verification has no room for drafts.
    let config = EngineConfig { max_model_len: 128, ..engine(EngineRules::Vllm, Some(Speculation::of_length(4, 5.0))) };
    let mut seen = Recorder::default();
    let requests = vec![WorkloadRequest::new(0, 100, 28)];
    let latency = FixedLatency { step_us: 1000.0, ..FixedLatency::default() };
    replay(&latency, &config, load(requests, None).as_mut(), &mut [&mut seen]).unwrap();
    let drafts: Vec<u8> = seen.steps.iter().map(|step| step.batch[0].1.num_draft_tokens).collect();
    // 1 token with the prompt, five of each of five verifications, and the last two.
    assert_eq!(drafts, [0, 4, 4, 4, 4, 4, 1]);
}
