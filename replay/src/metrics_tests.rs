use approx::assert_relative_eq;
use proptest::prelude::*;

use super::super::offload::OffloadCounters;
use super::super::record::EngineCounters;
use super::*;

const MS: u64 = 1_000_000;

/// A finished request with its times in ms.
fn finished(stage: u32, input: u32, output: u32, times_ms: [u64; 4]) -> RequestRecord {
    let [arrival, scheduled, first, finish] = times_ms.map(|ms| ms * MS);
    RequestRecord {
        stage,
        outcome: Outcome::Finished,
        num_prompt_tokens: input,
        num_output_tokens: output,
        arrival_ns: arrival,
        scheduled_ns: scheduled,
        first_token_ns: first,
        finish_ns: finish,
        ..RequestRecord::default()
    }
}

fn replay(records: Vec<RequestRecord>, gaps_ms: &[&[u64]]) -> Replay {
    let histogram = |gaps: &&[u64]| {
        let mut histogram = Histogram::<u64>::new(3).unwrap();
        gaps.iter().for_each(|gap| histogram.record(gap * MS).unwrap());
        histogram
    };
    Replay {
        records,
        inter_token_ns: gaps_ms.iter().map(histogram).collect(),
        counters: EngineCounters::default(),
        tokens_come_together: false,
        offload: None,
    }
}

/// Three requests in two stages, one refused, one unfinished.
///
/// | stage | sent | scheduled | first | finish | tokens in, out | TTFT | E2E | TPOT | per output token |
/// |---|---|---|---|---|---|---|---|---|---|
/// | 0 | 1000 | 1010 | 1050 | 1130 | 100, 5 | 50 | 130 | 80 / 4 = 20 | 80 / 5 = 16 |
/// | 0 | 1500 | 1500 | 1530 | 1530 | 200, 1 | 30 | 30 | – | 0 |
/// | 1 | 2000 | 2020 | 2070 | 3000 | 300, 32 | 70 | 1000 | 930 / 31 = 30 | 930 / 32 = 29.0625 |
fn small() -> Replay {
    let mut refused = finished(1, 9000, 50, [2100, 0, 0, 2101]);
    refused.outcome = Outcome::Rejected;
    let mut stopped = finished(1, 400, 50, [2200, 2300, 2400, 0]);
    stopped.outcome = Outcome::Unfinished;
    let records = vec![
        finished(0, 100, 5, [1000, 1010, 1050, 1130]),
        finished(0, 200, 1, [1500, 1500, 1530, 1530]),
        finished(1, 300, 32, [2000, 2020, 2070, 3000]),
        refused,
        stopped,
    ];
    let long = [30; 31];
    replay(records, &[&[10, 20, 20, 30], &long])
}

#[test]
fn requests_are_counted_by_how_they_ended() {
    let metrics = Metrics::of(&small());
    let counts = |of: &StageMetrics| (of.stage, of.requests, of.finished, of.rejected, of.unfinished);
    let counted: Vec<_> = metrics.run_and_stages().map(counts).collect();
    assert_eq!(counted, [(None, 5, 3, 1, 1), (Some(0), 2, 2, 0, 0), (Some(1), 3, 1, 1, 1)]);
}

#[test]
fn only_finished_requests_have_latencies() {
    let metrics = Metrics::of(&small());
    let ttft = metrics.run.ttft_ms.unwrap();
    // 30, 50, 70.
    assert_eq!((ttft.count, ttft.mean, ttft.p50, ttft.min, ttft.max), (3, 50.0, 50.0, 30.0, 70.0));
    // At rank 1.8: 50 + 0.8 × 20. Spread: (400 + 0 + 400) / 3.
    assert_relative_eq!(ttft.p90, 66.0, max_relative = 1e-12);
    assert_relative_eq!(ttft.std, (800.0_f64 / 3.0).sqrt(), max_relative = 1e-12);
    // 30, 130, 1000.
    let e2e = metrics.run.e2e_ms.unwrap();
    assert_relative_eq!(e2e.mean, 1160.0 / 3.0, max_relative = 1e-12);
    assert_relative_eq!(e2e.p99, 130.0 + 0.98 * 870.0, max_relative = 1e-12);
    // 10, 0, 20.
    let queued = metrics.run.queued_ms.unwrap();
    assert_eq!((queued.mean, queued.p50, queued.max), (10.0, 10.0, 20.0));
}

#[test]
fn waits_for_loads_are_reported_with_a_tier_alone() {
    let mut replay = small();
    assert!(replay.offload.is_none());
    let without = serde_json::to_string(&Metrics::of(&replay)).unwrap();
    assert!(!without.contains("kv_load_ms"), "{without}");
    // 9 and 0 ms in stage 0, 6 ms in stage 1; the unfinished request's 4 ms do not count.
    replay.offload = Some(OffloadCounters::default());
    for (at, ms) in [(0, 9), (2, 6), (4, 4)] {
        replay.records[at].load_ns = ms * MS;
    }
    let metrics = Metrics::of(&replay);
    let means: Vec<_> = metrics.run_and_stages().map(|of| of.kv_load_ms.map(|of| (of.count, of.mean))).collect();
    assert_eq!(means, [Some((3, 5.0)), Some((2, 4.5)), Some((1, 6.0))]);
}

#[test]
fn a_single_token_has_no_time_per_output_token() {
    let metrics = Metrics::of(&small());
    let tpot = metrics.run.tpot_ms.unwrap();
    assert_eq!((tpot.count, tpot.mean, tpot.min, tpot.max), (2, 25.0, 20.0, 30.0));
    assert_eq!(metrics.stages[0].tpot_ms.unwrap().count, 1);
    // It counts where the divisor is all output tokens: 0, 16, 29.0625.
    let per_token = metrics.run.itl_per_output_token_ms.unwrap();
    assert_eq!((per_token.count, per_token.min, per_token.p50, per_token.max), (3, 0.0, 16.0, 29.0625));
    assert_relative_eq!(per_token.mean, 45.0625 / 3.0, max_relative = 1e-12);
}

#[test]
fn the_mean_gap_is_exact_and_weighs_long_requests_more() {
    let metrics = Metrics::of(&small());
    let itl = metrics.run.itl_ms.unwrap();
    assert_eq!(itl.count, 35);
    // (80 + 930) / (4 + 31); the mean of TPOT is 25.
    assert_relative_eq!(itl.mean, 1010.0 / 35.0, max_relative = 1e-15);
    assert_relative_eq!(itl.p50, 30.0, max_relative = 1e-3);
    let first = metrics.stages[0].itl_ms.unwrap();
    assert_eq!((first.count, first.mean), (4, 20.0));
    // 10, 20, 20, 30 at rank 2.7.
    assert_relative_eq!(first.p90, 27.0, max_relative = 1e-3);
    // What (mean E2E − mean TTFT) / (mean output tokens − 1) gives: (1160 / 3 − 50) / (38 / 3 − 1).
    let (e2e, ttft) = (metrics.run.e2e_ms.unwrap().mean, metrics.run.ttft_ms.unwrap().mean);
    assert_relative_eq!(itl.mean, (e2e - ttft) / (38.0 / 3.0 - 1.0), max_relative = 1e-12);
}

#[test]
fn throughput_is_over_first_arrival_to_last_finish() {
    let metrics = Metrics::of(&small());
    // 1.0 s to 3.0 s: three requests, 600 tokens in, 38 out.
    let run = &metrics.run;
    assert_eq!((run.input_tokens, run.output_tokens, run.duration_s), (600, 38, Some(2.0)));
    assert_eq!(
        (run.requests_per_s, run.output_tokens_per_s, run.total_tokens_per_s),
        (Some(1.5), Some(19.0), Some(319.0))
    );
    // 1.0 s to 1.53 s.
    assert_eq!(metrics.stages[0].duration_s, Some(0.53));
    assert_eq!(metrics.stages[1].duration_s, Some(1.0));
}

#[test]
fn nothing_finished_is_null_and_never_nan() {
    let mut refused = finished(3, 9000, 50, [0, 0, 0, 1]);
    refused.outcome = Outcome::Rejected;
    for (records, requests) in [(vec![], 0), (vec![refused], 1)] {
        let metrics = Metrics::of(&replay(records, &[]));
        let run = &metrics.run;
        assert_eq!((run.requests, run.finished, run.duration_s, run.requests_per_s), (requests, 0, None, None));
        let all = [run.ttft_ms, run.tpot_ms, run.itl_ms, run.itl_per_output_token_ms, run.e2e_ms, run.queued_ms];
        assert_eq!(all, [None; 6]);
        let json = serde_json::to_value(&metrics).unwrap();
        assert_eq!((&json["run"]["stage"], &json["run"]["ttft_ms"]), (&(-1).into(), &serde_json::Value::Null));
    }
}

#[test]
fn a_run_without_duration_has_no_rates() {
    let metrics = Metrics::of(&replay(vec![finished(0, 10, 1, [5, 5, 5, 5])], &[]));
    assert_eq!((metrics.run.duration_s, metrics.run.requests_per_s), (Some(0.0), None));
    assert_eq!(metrics.run.ttft_ms.unwrap().max.to_bits(), 0);
}

#[test]
fn a_far_stage_without_histogram_has_all_but_gaps() {
    let metrics = Metrics::of(&replay(vec![finished(u32::MAX, 10, 3, [0, 1, 2, 8])], &[]));
    assert_eq!(metrics.stages.len(), 1);
    assert_eq!((metrics.stages[0].stage, metrics.stages[0].itl_ms), (Some(u32::MAX), None));
    assert_relative_eq!(metrics.stages[0].tpot_ms.unwrap().mean, 3.0, max_relative = 1e-12);
}

fn any_record() -> impl Strategy<Value = RequestRecord> {
    let time = 0..2_000_000_000_u64;
    (0..3_u32, 0..5_u8, 1..4000_u32, 1..500_u32, time.clone(), [time.clone(), time.clone(), time]).prop_map(
        |(stage, outcome, input, output, arrival_ns, [queued, prefill, decode])| RequestRecord {
            stage,
            outcome: match outcome {
                0 => Outcome::Rejected,
                1 => Outcome::Unfinished,
                _ => Outcome::Finished,
            },
            num_prompt_tokens: input,
            num_output_tokens: output,
            arrival_ns,
            scheduled_ns: arrival_ns + queued,
            first_token_ns: arrival_ns + queued + prefill,
            finish_ns: arrival_ns + queued + prefill + if output > 1 { decode } else { 0 },
            ..RequestRecord::default()
        },
    )
}

proptest! {
    #[test]
    fn the_order_of_records_is_irrelevant(
        (sorted, shuffled) in prop::collection::vec(any_record(), 0..60)
            .prop_flat_map(|records| (Just(records.clone()), Just(records).prop_shuffle())),
    ) {
        let gaps: [&[u64]; 2] = [&[10, 25], &[30]];
        prop_assert_eq!(Metrics::of(&replay(sorted, &gaps)), Metrics::of(&replay(shuffled, &gaps)));
    }

    #[test]
    fn every_distribution_is_in_order(records in prop::collection::vec(any_record(), 1..60)) {
        let metrics = Metrics::of(&replay(records, &[]));
        for of in metrics.run_and_stages() {
            prop_assert_eq!(of.requests, of.finished + of.rejected + of.unfinished);
            let all = [of.ttft_ms, of.tpot_ms, of.itl_per_output_token_ms, of.e2e_ms, of.queued_ms];
            for one in all.into_iter().flatten() {
                prop_assert!(one.min <= one.p50 && one.p50 <= one.p90 && one.p90 <= one.p99 && one.p99 <= one.max);
                prop_assert!(one.min <= one.mean && one.mean <= one.max);
                prop_assert!(one.count <= of.finished);
            }
            if let (Some(ttft), Some(e2e)) = (of.ttft_ms, of.e2e_ms) {
                prop_assert!(ttft.mean <= e2e.mean && ttft.p99 <= e2e.p99);
            }
        }
        let finished: u64 = metrics.stages.iter().map(|stage| stage.finished).sum();
        prop_assert_eq!(finished, metrics.run.finished);
    }
}
