//! Pools of prefill and decode replicas: schedules worked out by hand, and what is conserved.
#![expect(clippy::float_cmp, reason = "products of whole numbers are exact")]

use proptest::prelude::*;
use ridgepoint::Deployment;
use ridgepoint::latency::FixedLatency;
use ridgepoint_replay::workload::WorkloadRequest;
use ridgepoint_replay::{
    Disaggregated, DisaggregatedReplay, EngineConfig, EngineRules, KvTransfer, Outcome, Router, RouterKind,
    SglangOptions, TrtllmOptions,
};

use crate::cases::Case;
use crate::laws::case;
use crate::loads::load;

/// Steps of 10 ms.
const STEP: FixedLatency =
    FixedLatency { step_us: 10_000.0, queueing_us: 0.0, output_token_us: 0.0, scheduling_us: 0.0, preemption_us: 0.0 };

const KINDS: [RouterKind; 5] =
    [RouterKind::RoundRobin, RouterKind::LeastRequests, RouterKind::LlmD, RouterKind::Dynamo, RouterKind::VllmDp];

/// 1,000 bytes a token over links of so many bytes per second at either end.
fn over(prefill_bytes_per_s: f64, decode_bytes_per_s: f64) -> KvTransfer {
    KvTransfer { bytes_per_token: 1000.0, prefill_bytes_per_s, decode_bytes_per_s, latency_us: 0.0 }
}

fn at_once() -> KvTransfer {
    over(f64::INFINITY, f64::INFINITY)
}

fn engine(rules: EngineRules, blocks: u32) -> EngineConfig {
    let longest = (16 * (blocks - 1)).min(4096);
    let mut config = EngineConfig { rules, ..EngineConfig::new(&Deployment::default(), longest, blocks) };
    config.scheduler.enable_prefix_caching = false;
    config
}

fn sglang(chunk: i32) -> EngineRules {
    EngineRules::Sglang(SglangOptions { chunked_prefill_size: chunk, ..SglangOptions::default() })
}

fn trtllm() -> EngineRules {
    EngineRules::Trtllm(TrtllmOptions::default())
}

fn pools(
    (prefill, num_prefill): (&EngineConfig, usize),
    (decode, num_decode): (&EngineConfig, usize),
    transfer: KvTransfer,
    requests: Vec<WorkloadRequest>,
) -> DisaggregatedReplay {
    let of = Disaggregated {
        prefill: vec![(&STEP, prefill); num_prefill],
        decode: vec![(&STEP, decode); num_decode],
        prefill_router: Router::default(),
        decode_router: Router::default(),
        transfer,
    };
    of.replay(load(requests, None).as_mut(), &mut []).unwrap()
}

/// TTFT and E2E of each request, ms.
fn times(of: &DisaggregatedReplay) -> Vec<(f64, f64)> {
    of.all.records.iter().map(|record| (record.ttft_ms(), record.e2e_ms())).collect()
}

fn at_0(count: usize, prompt: u32, outputs: u32) -> Vec<WorkloadRequest> {
    vec![WorkloadRequest::new(0, prompt, outputs); count]
}

#[test]
fn one_pair_without_a_network_follows_each_engine() {
    for (rules, expected) in [
        // The prompt by 10 ms; its last token again and the first of the output by 20, two more tokens by 40.
        (EngineRules::Vllm, (20.0, 40.0)),
        // The prompt and the first token by 10 ms, two more by 30.
        (sglang(8192), (10.0, 30.0)),
        (trtllm(), (10.0, 30.0)),
    ] {
        let config = engine(rules, 1001);
        let of = pools((&config, 1), (&config, 1), at_once(), at_0(1, 100, 3));
        assert_eq!(times(&of), [expected], "{rules:?}");
        assert_eq!(of.prefill[0].scheduled_tokens, 100);
        assert_eq!(of.decode[0].steps, if rules.is_vllm() { 3 } else { 2 });
        assert_eq!(of.all.inter_token_ns[0].len(), 2);
        assert!(of.all.inter_token_ns[0].max() < 10_010_000);
    }
}

#[test]
fn transfers_that_share_a_sender_take_twice_as_long() {
    let config = engine(EngineRules::Vllm, 1001);
    // 100 tokens are 7 blocks of 16: 112,000 bytes, 10 ms at 11.2 MB/s. Prompt, transfer, first token.
    let one = pools((&config, 1), (&config, 2), over(11.2e6, f64::INFINITY), at_0(1, 100, 2));
    assert_eq!(times(&one), [(30.0, 40.0)]);
    // Both prompts are in the first step, and each transfer has half of the sender.
    let two = pools((&config, 1), (&config, 2), over(11.2e6, f64::INFINITY), at_0(2, 100, 2));
    assert_eq!(times(&two), [(40.0, 50.0); 2]);
    assert!(two.transfers.iter().all(|of| of.ended_ns - of.began_ns == 20_000_000 && of.bytes == 112_000.0));
    // Two senders and one receiver share the receiver; two and two share nothing.
    let shared = pools((&config, 2), (&config, 1), over(f64::INFINITY, 11.2e6), at_0(2, 100, 2));
    assert_eq!(times(&shared), [(40.0, 50.0); 2]);
    let apart = pools((&config, 2), (&config, 2), over(11.2e6, 11.2e6), at_0(2, 100, 2));
    assert_eq!(times(&apart), [(30.0, 40.0); 2]);
    let late = KvTransfer { latency_us: 3000.0, ..at_once() };
    assert_eq!(times(&pools((&config, 1), (&config, 1), late, at_0(1, 100, 2))), [(23.0, 33.0)]);
}

#[test]
fn chunks_move_while_the_next_is_computed() {
    // Chunks of 96 and 96 tokens by 10 and 20 ms; each moves in 5 ms: the last by 25 ms, where the whole prompt would take until 30.
    let config = engine(sglang(96), 1001);
    let of = pools((&config, 1), (&config, 1), over(19.2e6, f64::INFINITY), at_0(1, 192, 2));
    assert_eq!(times(&of), [(25.0, 35.0)]);
    assert_eq!((of.transfers[0].num_blocks, of.transfers[0].computed_ns), (12, 20_000_000));
    // A slow link moves them one behind the other: from 10 ms on, 20 ms each.
    let slow = pools((&config, 1), (&config, 1), over(4.8e6, f64::INFINITY), at_0(1, 192, 2));
    assert_eq!(times(&slow), [(50.0, 60.0)]);
}

#[test]
fn a_full_decode_replica_holds_up_the_pool_before_it() {
    let roomy = engine(EngineRules::Vllm, 1001);
    // 10 blocks, of which a request takes 7: the second gets its blocks when the first has ended at 40 ms.
    let small = engine(EngineRules::Vllm, 11);
    let of = pools((&roomy, 1), (&small, 1), at_once(), at_0(2, 100, 3));
    assert_eq!(times(&of), [(20.0, 40.0), (50.0, 70.0)]);
    assert_eq!(of.transfers[1].reserved_ns - of.transfers[1].sent_ns, 30_000_000);
    // As small, and a transfer of 10 ms: the prefill replica has room for the second prompt when the first was moved, at 20 ms.
    let held = pools((&small, 1), (&roomy, 1), over(11.2e6, f64::INFINITY), at_0(2, 100, 2));
    assert_eq!(times(&held), [(30.0, 40.0), (50.0, 60.0)]);
    // SGLang's decode replica keeps 512 tokens for each request: of 1,024 with 256 of a prompt there is no room for another. Its prompt is
    // computed when the first request has ended at 20 ms.
    let small = engine(sglang(8192), 1024 / 16 + 1);
    let first = pools((&engine(sglang(8192), 1001), 1), (&small, 1), at_once(), at_0(2, 256, 2));
    assert_eq!(times(&first), [(10.0, 20.0), (30.0, 40.0)]);
    // TensorRT-LLM keeps blocks to the end: 10 blocks are less than twice 100 tokens and 61 outputs.
    let small = engine(trtllm(), 21);
    let whole = pools((&engine(trtllm(), 1001), 1), (&small, 1), at_once(), at_0(2, 100, 62));
    assert_eq!(times(&whole), [(10.0, 620.0), (620.0, 1230.0)]);
}

#[test]
fn requests_that_fit_nowhere_are_refused_and_single_tokens_end_where_they_are_computed() {
    for rules in [EngineRules::Vllm, sglang(8192), trtllm()] {
        let (roomy, small) = (engine(rules, 1001), engine(rules, 101));
        let mut requests = at_0(2, 1900, 2);
        requests[1].num_prompt_tokens = 100;
        for (prefill, decode) in [(&roomy, &small), (&small, &roomy)] {
            let of = pools((prefill, 1), (decode, 1), at_once(), requests.clone());
            let outcomes: Vec<Outcome> = of.all.records.iter().map(|record| record.outcome).collect();
            assert_eq!(outcomes, [Outcome::Rejected, Outcome::Finished], "{rules:?}");
            assert_eq!(of.transfers.len(), 1);
        }
        let single = pools((&roomy, 1), (&roomy, 1), at_once(), at_0(1, 100, 1));
        let (ttft_ms, transfers) = if rules.is_vllm() { (20.0, 1) } else { (10.0, 0) };
        assert_eq!((times(&single), single.transfers.len()), (vec![(ttft_ms, ttft_ms)], transfers), "{rules:?}");
    }
}

#[test]
fn pools_between_which_nothing_moves_are_refused_by_name() {
    let vllm = engine(EngineRules::Vllm, 1001);
    let refused = |prefill: &EngineConfig, decode: &EngineConfig, count: usize, transfer: KvTransfer| {
        let of = Disaggregated {
            prefill: vec![(&STEP, prefill); count],
            decode: vec![(&STEP, decode)],
            prefill_router: Router::default(),
            decode_router: Router::default(),
            transfer,
        };
        of.replay(load(at_0(1, 10, 2), None).as_mut(), &mut []).unwrap_err().to_string()
    };
    let wide = EngineConfig { block_size: 32, ..vllm.clone() };
    assert!(refused(&vllm, &wide, 1, at_once()).contains("block_size is 16 here and 32 there"));
    assert!(refused(&vllm, &engine(trtllm(), 1001), 1, at_once()).contains("different engines"));
    assert!(refused(&vllm, &vllm, 0, at_once()).contains("prefill replicas"));
    assert!(refused(&vllm, &vllm, 1, over(0.0, 1.0)).contains("prefill_bytes_per_s"));
    let states = EngineConfig { state_blocks_per_request: 1, ..vllm.clone() };
    assert!(refused(&vllm, &states, 1, at_once()).contains("states"));
}

/// Random small engines and loads, under each engine's rules, with the sizes of the pools and a link.
fn pair() -> impl Strategy<Value = (Case, Case, [usize; 2], KvTransfer, RouterKind)> {
    let rate = prop_oneof![Just(f64::INFINITY), 1e5..1e9f64];
    let link = (rate.clone(), rate, 0u32..40)
        .prop_map(|(prefill, decode, latency)| KvTransfer { latency_us: f64::from(latency), ..over(prefill, decode) });
    let sizes = [1usize..4, 1usize..4];
    (case(), case(), sizes, link, prop::sample::select(&KINDS[..]), 0..3, 1..64i32).prop_map(
        |(mut prefill, mut decode, sizes, link, kind, engine, chunk)| {
            for of in [&mut prefill, &mut decode] {
                of.config.block_size = if engine == 1 { 1 } else { 4 };
                match engine {
                    0 => {}
                    1 => {
                        of.config.rules = sglang(chunk);
                        of.config.num_gpu_blocks += 600;
                    }
                    _ => of.config.rules = trtllm(),
                }
                if engine > 0 {
                    of.config.pipeline_parallel_size = 1;
                }
                of.config.max_num_batched_tokens = of.config.max_num_batched_tokens.max(of.config.block_size);
                // Blocks are of another size than those that the longest context was drawn for.
                of.config.max_model_len = of.config.max_model_len.min(of.config.usable_blocks() * of.config.block_size);
            }
            (prefill, decode, sizes, link, kind)
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn requests_tokens_and_bytes_are_conserved((prefill, decode, [num_prefill, num_decode], transfer, kind) in pair()) {
        let router = Router { kind, seed: 3 };
        let of = Disaggregated {
            prefill: vec![(&prefill.latency, &prefill.config); num_prefill],
            decode: vec![(&decode.latency, &decode.config); num_decode],
            prefill_router: router,
            decode_router: router,
            transfer,
        };
        let run = || of.replay(load(prefill.requests.clone(), prefill.concurrency).as_mut(), &mut []).unwrap();
        let (first, again) = (run(), run());
        prop_assert_eq!((&first.all.records, &first.transfers), (&again.all.records, &again.transfers));
        let records = &first.all.records;
        prop_assert_eq!(records.len(), prefill.requests.len());
        prop_assert!(records.iter().all(|record| record.outcome != Outcome::Unfinished));
        let finished = || records.iter().filter(|record| record.outcome == Outcome::Finished);
        let (requests, tokens) = (finished().count() as u64, finished().map(|of| u64::from(of.num_output_tokens)).sum::<u64>());
        if prefill.config.tokens_come_alone() {
            prop_assert_eq!(first.all.inter_token_ns.iter().map(|of| of.len()).sum::<u64>(), tokens - requests);
        }
        for of in finished() {
            prop_assert!(of.arrival_ns <= of.first_token_ns && of.first_token_ns <= of.finish_ns);
        }
        let is_vllm = prefill.config.rules.is_vllm();
        let moves = |at: u32| is_vllm || records[at as usize].num_output_tokens > 1;
        let moved: u64 = finished().enumerate().count() as u64
            - finished().filter(|of| !is_vllm && of.num_output_tokens == 1).count() as u64;
        prop_assert_eq!(first.transfers.len() as u64, moved);
        let block = prefill.config.block_size;
        for of in &first.transfers {
            prop_assert!(moves(of.request));
            let whole = records[of.request as usize].num_prompt_tokens.div_ceil(block);
            prop_assert!(of.num_blocks == whole || is_vllm && decode.config.scheduler.enable_prefix_caching && of.num_blocks < whole);
            prop_assert_eq!(of.bytes, f64::from(of.num_blocks * block) * transfer.bytes_per_token);
            prop_assert!(of.sent_ns <= of.reserved_ns && of.reserved_ns <= of.began_ns && of.began_ns <= of.ended_ns);
            prop_assert!(of.computed_ns <= of.ended_ns && of.ended_ns <= of.joined_ns);
            // No faster than both links allow.
            let least_ns = 1e9 * of.bytes / transfer.prefill_bytes_per_s.min(transfer.decode_bytes_per_s);
            prop_assert!((of.ended_ns - of.began_ns) as f64 >= least_ns.floor() - 1.0 || !is_vllm);
        }
    }
}
