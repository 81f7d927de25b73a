//! Laws of replays, for every engine, workload and latency. Engines are small, so blocks, slots and budgets run out all the time.

use crate::cases::{self, Case, Sent};
use crate::common::{Recorder, SeenStep};
use crate::loads::load;
use proptest::prelude::*;
use ridgepoint::latency::FixedLatency;
use ridgepoint_replay::{EngineConfig, Outcome, Replay, RequestRecord, SchedulerOptions, SchedulingPolicy, replay};

pub fn case() -> impl Strategy<Value = Case> {
    let sizes = [1u32..=8, 2u32..=24, 1u32..=64, 1u32..=8];
    let threshold = prop_oneof![Just(0u32), 1u32..=16];
    let stages = prop_oneof![4 => Just(1u32), 1 => 2u32..=3];
    let config = cases::config(sizes, 0.6, threshold, stages, |tokens, number| 2 + number % (tokens - 1));
    let sent = Sent {
        most_requests: 24,
        gap_ns: 20_000,
        piece_tokens: 1..40,
        long_prompts: 1.0,
        timed_loads: 3,
        most_clients: 8,
    };
    cases::case(config.prop_map(|(config, _)| config), sent)
}

impl Case {
    fn run(&self) -> (Replay, Recorder) {
        let mut seen = Recorder::default();
        let mut load = load(self.requests.clone(), self.concurrency);
        let replayed = replay(&self.latency, &self.config, load.as_mut(), &mut [&mut seen]).unwrap();
        (replayed, seen)
    }

    fn depth(&self) -> usize {
        match self.config.pipeline_parallel_size {
            1 => 1 + usize::from(self.config.scheduler.async_scheduling),
            stages => stages as usize,
        }
    }

    fn is_too_long(&self, record: &RequestRecord) -> bool {
        record.num_prompt_tokens + record.num_output_tokens > self.config.max_model_len
    }
}

fn ns(us: f64) -> u64 {
    (us * 1000.0).round() as u64
}

/// A request's share of a step: the step, its computed tokens, and where its scheduled ones end.
struct Share<'a> {
    step: &'a SeenStep,
    start: u32,
    end: u32,
    samples: bool,
}

fn shares(steps: &[SeenStep], record: usize) -> Vec<Share<'_>> {
    let of_record =
        |step: &SeenStep| step.batch.iter().find(|(of, _)| *of as usize == record).map(|(_, request)| *request);
    let share = |(step, request): (_, ridgepoint::Request)| Share {
        step,
        start: request.num_computed_tokens,
        end: request.num_computed_tokens + request.num_scheduled_tokens,
        samples: request.samples,
    };
    steps.iter().filter_map(|step| Some((step, of_record(step)?))).map(share).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(384))]

    #[test]
    fn every_request_is_answered_or_refused(case in case()) {
        let (replay, seen) = case.run();
        prop_assert_eq!(replay.records.len(), case.requests.len());
        for (index, (record, sent)) in replay.records.iter().zip(&case.requests).enumerate() {
            prop_assert_eq!((record.num_prompt_tokens, record.stage), (sent.num_prompt_tokens, sent.stage));
            let tokens = seen.tokens.iter().filter(|(of, ..)| *of as usize == index).count();
            if case.is_too_long(record) {
                prop_assert_eq!((record.outcome, tokens), (Outcome::Rejected, 0));
            } else {
                prop_assert_eq!((record.outcome, tokens), (Outcome::Finished, sent.num_output_tokens as usize));
            }
        }
    }

    #[test]
    fn times_are_in_order(case in case()) {
        let (replay, seen) = case.run();
        let FixedLatency { step_us, queueing_us, output_token_us, scheduling_us, .. } = case.latency;
        let arrivals: Vec<u64> = replay.records.iter().map(|record| record.arrival_ns).collect();
        prop_assert!(arrivals.is_sorted());
        for record in &replay.records {
            let visible_ns = record.arrival_ns + ns(queueing_us);
            if record.outcome == Outcome::Rejected {
                prop_assert_eq!((record.finish_ns, record.first_token_ns), (visible_ns, 0));
                continue;
            }
            prop_assert!(visible_ns <= record.scheduled_ns);
            let earliest_ns = record.scheduled_ns + ns(scheduling_us) + ns(step_us) + ns(output_token_us);
            prop_assert!(earliest_ns <= record.first_token_ns);
            let more_steps = u64::from(record.num_output_tokens - 1);
            let least_gap_ns = ns(step_us) / if case.depth() == 1 { 1 } else { u64::from(case.config.pipeline_parallel_size) };
            prop_assert!(record.first_token_ns + more_steps * least_gap_ns <= record.finish_ns);
        }
        let times: Vec<u64> = seen.tokens.iter().map(|(.., ns)| *ns).collect();
        prop_assert!(times.is_sorted());
    }

    #[test]
    fn steps_keep_to_the_clock(case in case()) {
        let (replay, seen) = case.run();
        let stages = u64::from(case.config.pipeline_parallel_size);
        let (step_ns, host_ns) = (ns(case.latency.step_us), ns(case.latency.scheduling_us));
        for (index, step) in seen.steps.iter().enumerate() {
            let preempting_ns = ns(case.latency.preemption_us * f64::from(step.num_preempted));
            let ready_ns = step.scheduled_ns + host_ns + preempting_ns;
            let before = index.checked_sub(1).map(|before| &seen.steps[before]);
            prop_assert_eq!(step.index, index as u64);
            prop_assert_eq!(step.start_ns, before.map_or(0, |b| b.start_ns + step_ns / stages).max(ready_ns));
            prop_assert_eq!(step.end_ns, step.start_ns + step_ns);
            prop_assert!(before.is_none_or(|b| b.scheduled_ns + host_ns <= step.scheduled_ns));
            let over = index.checked_sub(case.depth()).map(|over| seen.steps[over].end_ns);
            prop_assert!(over.unwrap_or(0) <= step.scheduled_ns, "{} steps in flight", case.depth() + 1);
        }
        let counters = replay.counters;
        prop_assert_eq!(counters.steps, seen.steps.len() as u64);
        prop_assert_eq!(counters.busy_ns, counters.steps * (step_ns / stages));
        prop_assert_eq!(counters.end_ns, replay.records.iter().map(|record| record.finish_ns).max().unwrap_or(0));
    }

    #[test]
    fn no_budget_is_exceeded(case in case()) {
        let (replay, seen) = case.run();
        let config = &case.config;
        for step in &seen.steps {
            let tokens: u32 = step.batch.iter().map(|(_, request)| request.num_scheduled_tokens).sum();
            prop_assert!(0 < tokens && tokens <= config.max_num_batched_tokens);
            prop_assert!(step.batch.len() <= step.num_running as usize && step.num_running <= config.max_num_seqs);
            prop_assert!(step.blocks_in_use <= config.usable_blocks());
            let mut records: Vec<u32> = step.batch.iter().map(|(record, _)| *record).collect();
            records.sort_unstable();
            prop_assert!(records.windows(2).all(|pair| pair[0] < pair[1]), "twice in a step");
            let longest = config.scheduler.long_prefill_token_threshold;
            for (record, request) in &step.batch {
                prop_assert!(longest == 0 || request.num_scheduled_tokens <= longest);
                // The last token is sampled, never computed.
                let RequestRecord { num_prompt_tokens, num_output_tokens, .. } = replay.records[*record as usize];
                let context = request.num_computed_tokens + request.num_scheduled_tokens;
                prop_assert!(context < num_prompt_tokens + num_output_tokens);
            }
        }
        let counters = replay.counters;
        prop_assert!(counters.max_running <= config.max_num_seqs);
        let most_blocks = seen.steps.iter().map(|step| step.blocks_in_use).max().unwrap_or(0);
        prop_assert_eq!(counters.max_blocks_in_use, most_blocks);
    }

    /// Token by token: a request's shares follow each other, but after a preemption, when they start at a block that is cached.
    /// A share that ends where the known tokens do samples the next one.
    #[test]
    fn requests_advance_token_by_token(case in case()) {
        let (replay, seen) = case.run();
        for (index, record) in replay.records.iter().enumerate() {
            let (mut end, mut sampled, mut jumps) = (record.num_cached_tokens, 0, 0);
            let mut token_ns = Vec::new();
            for (at, share) in shares(&seen.steps, index).iter().enumerate() {
                if at == 0 {
                    prop_assert_eq!(record.scheduled_ns, share.step.scheduled_ns);
                    prop_assert!(share.start <= record.num_cached_tokens);
                    prop_assert!(share.start < record.num_prompt_tokens && share.start % case.config.block_size == 0);
                } else if share.start != end {
                    jumps += 1;
                    prop_assert!(share.start % case.config.block_size == 0, "starts inside a block");
                }
                end = share.end;
                prop_assert_eq!(share.samples, end == record.num_prompt_tokens + sampled, "{} of {:?}", end, record);
                sampled += u32::from(share.samples);
                if share.samples {
                    token_ns.push(share.step.end_ns + ns(case.latency.output_token_us));
                }
            }
            prop_assert!(jumps <= record.num_preemptions);
            let delivered: Vec<u64> = seen.tokens.iter().filter(|(of, ..)| *of as usize == index).map(|(.., t)| *t).collect();
            prop_assert_eq!(&delivered, &token_ns);
            prop_assert_eq!(record.first_token_ns, token_ns.first().copied().unwrap_or(0));
            if let Some(last_ns) = token_ns.last() {
                prop_assert_eq!(record.finish_ns, *last_ns);
            }
        }
    }

    /// Every prompt token is computed or found, once; what is computed again was lost to a preemption.
    #[test]
    fn prompt_tokens_are_conserved(case in case()) {
        let (replay, seen) = case.run();
        let (mut new, mut again, mut scheduled) = (0, 0, 0);
        for (index, record) in replay.records.iter().enumerate() {
            let mut reached = 0;
            for share in shares(&seen.steps, index) {
                again += u64::from(share.end.min(reached).saturating_sub(share.start));
                new += u64::from(share.end.min(record.num_prompt_tokens).saturating_sub(share.start.max(reached)));
                scheduled += u64::from(share.end - share.start);
                reached = reached.max(share.end);
            }
        }
        let counters = replay.counters;
        prop_assert_eq!(counters.scheduled_tokens, scheduled);
        prop_assert_eq!((counters.recomputed_tokens, counters.prefill_tokens), (again, new + again));
        let answered = replay.records.iter().filter(|record| record.outcome == Outcome::Finished);
        let uncached = answered.map(|record| u64::from(record.num_prompt_tokens - record.num_cached_tokens));
        prop_assert_eq!(uncached.sum::<u64>(), new);
    }

    #[test]
    fn preemptions_are_counted_and_admit_nobody(case in case()) {
        let (replay, seen) = case.run();
        let by_request: u64 = replay.records.iter().map(|record| u64::from(record.num_preemptions)).sum();
        let by_step: u64 = seen.steps.iter().map(|step| u64::from(step.num_preempted)).sum();
        prop_assert_eq!(replay.counters.preemptions, by_request);
        // Those of an iteration that schedules nothing belong to no step.
        prop_assert!(by_step <= by_request);
        if case.config.scheduler.scheduling_policy == SchedulingPolicy::Fcfs && case.depth() == 1 {
            prop_assert_eq!(by_step, by_request);
        }
        for (at, step) in seen.steps.iter().enumerate().filter(|(_, step)| step.num_preempted > 0) {
            for (record, _) in &step.batch {
                let ran_before = seen.steps[..at].iter().any(|before| before.batch.iter().any(|(of, _)| of == record));
                prop_assert!(ran_before, "a step that preempted admitted request {}", record);
            }
        }
        if replay.counters.preemptions == 0 {
            prop_assert_eq!(replay.counters.recomputed_tokens, 0);
        }
    }

    #[test]
    fn without_the_cache_nothing_is_found(case in case()) {
        let config = EngineConfig { scheduler: SchedulerOptions { enable_prefix_caching: false, ..case.config.clone().scheduler }, ..case.config.clone() };
        let (replay, seen) = Case { config, ..case }.run();
        prop_assert_eq!(replay.counters.cached_tokens, 0);
        prop_assert!(replay.records.iter().all(|record| record.num_cached_tokens == 0));
        for (index, record) in replay.records.iter().enumerate() {
            let starts = shares(&seen.steps, index).iter().filter(|share| share.start == 0).count();
            prop_assert!(starts <= 1 + record.num_preemptions as usize);
        }
    }

    #[test]
    fn first_come_is_first_served(case in case()) {
        let config = EngineConfig { scheduler: SchedulerOptions { scheduling_policy: SchedulingPolicy::Fcfs, ..case.config.clone().scheduler }, ..case.config.clone() };
        let (_, seen) = Case { config, ..case }.run();
        // The queueing time is the same for all, so requests become visible in the order of their records.
        let mut first_seen: Vec<u32> = Vec::new();
        for (record, _) in seen.steps.iter().flat_map(|step| &step.batch) {
            if !first_seen.contains(record) {
                first_seen.push(*record);
            }
        }
        prop_assert!(first_seen.is_sorted(), "{:?}", first_seen);
    }

    #[test]
    fn the_same_workload_gives_the_same_bytes(case in case()) {
        let ((first, seen), (second, again)) = (case.run(), case.run());
        let bytes = |replay: &Replay| serde_json::to_vec(&(&replay.records, &replay.counters)).unwrap();
        prop_assert_eq!(bytes(&first), bytes(&second));
        prop_assert_eq!(seen.steps, again.steps);
        prop_assert_eq!(seen.tokens, again.tokens);
        prop_assert!(first.inter_token_ns == second.inter_token_ns);
    }

    /// A gap for every token but the first, in the stage of its request; three digits of each.
    #[test]
    fn gaps_between_tokens_are_counted_by_stage(case in case()) {
        let (replay, seen) = case.run();
        let mut gaps: Vec<Vec<u64>> = vec![Vec::new(); replay.inter_token_ns.len()];
        for (index, record) in replay.records.iter().enumerate() {
            let times: Vec<u64> = seen.tokens.iter().filter(|(of, ..)| *of as usize == index).map(|(.., t)| *t).collect();
            gaps[record.stage as usize].extend(times.windows(2).map(|pair| pair[1] - pair[0]));
        }
        for (histogram, gaps) in replay.inter_token_ns.iter().zip(gaps) {
            prop_assert_eq!(histogram.len(), gaps.len() as u64);
            if let (Some(least), Some(most)) = (gaps.iter().min(), gaps.iter().max()) {
                prop_assert!(histogram.min().abs_diff(*least) * 1000 <= *least);
                prop_assert!(histogram.max().abs_diff(*most) * 1000 <= *most);
            }
        }
    }

    /// The first are sent at 0, and one for each that is over, when it is over for its client.
    #[test]
    fn a_closed_loop_keeps_its_number_in_flight(case in case(), concurrency in 1usize..=8) {
        let (replay, _) = Case { concurrency: Some(concurrency), ..case }.run();
        let arrivals: Vec<u64> = replay.records.iter().map(|record| record.arrival_ns).collect();
        let mut due: Vec<u64> = replay.records.iter().map(|record| record.finish_ns).collect();
        due.sort_unstable();
        let is_first = arrivals.len().min(concurrency);
        prop_assert!(arrivals[..is_first].iter().all(|arrival_ns| *arrival_ns == 0));
        for (arrival_ns, due_ns) in arrivals[is_first..].iter().zip(&due) {
            prop_assert!(due_ns <= arrival_ns, "more than {} in flight", concurrency);
            // A refusal can be known to the engine after a later end, and is sent after it.
            let has_refusals = replay.records.iter().any(|record| record.outcome == Outcome::Rejected);
            prop_assert!(due_ns == arrival_ns || has_refusals, "{:?} {:?}", arrivals, due);
        }
    }
}
