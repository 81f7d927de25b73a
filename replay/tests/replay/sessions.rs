//! Sessions on a small engine: times worked out by hand, hits of later turns and of chains of blocks, and laws.

use std::collections::HashMap;

use proptest::prelude::*;
use ridgepoint::Deployment;
use ridgepoint::latency::FixedLatency;
use ridgepoint_replay::workload::requests::RequestFile;
use ridgepoint_replay::workload::{
    ArrivalPattern, GeneratedSessions, NormalLengths, SessionShape, SessionStarts, Workload, WorkloadRequest,
};
use ridgepoint_replay::{EngineConfig, HeldRequests, Outcome, Replay, SchedulerOptions, replay};

/// Keeps what is sent.
struct Recording<'a>(&'a mut dyn Workload, Vec<WorkloadRequest>);

impl Workload for Recording<'_> {
    fn next_arrival_ns(&self) -> Option<u64> {
        self.0.next_arrival_ns()
    }
    fn next_request(&mut self) -> Option<WorkloadRequest> {
        let request = self.0.next_request()?;
        self.1.push(request.clone());
        Some(request)
    }
    fn finished(&mut self, now_ns: u64, stage: u32, request: u32) {
        self.0.finished(now_ns, stage, request);
    }
}

fn steps() -> FixedLatency {
    FixedLatency { step_us: 10.0, ..FixedLatency::default() }
}

fn engine(max_model_len: u32) -> EngineConfig {
    let deployment = Deployment { max_num_seqs: 8, max_num_batched_tokens: 8192, ..Deployment::default() };
    EngineConfig {
        scheduler: SchedulerOptions {
            async_scheduling: false,
            ..EngineConfig::new(&deployment, max_model_len, 2000).scheduler
        },
        ..EngineConfig::new(&deployment, max_model_len, 2000)
    }
}

fn replayed(load: &mut dyn Workload, engine: &EngineConfig) -> (Replay, Vec<WorkloadRequest>) {
    let mut kept = Recording(load, Vec::new());
    let replay = replay(&steps(), engine, &mut kept, &mut []).unwrap();
    (replay, kept.1)
}

const TWO_TURNS: &str = "session_id,arrival_us,input_len,output_len,think_time_s\na,0,40,20,\na,,100,2,0.000005\n";

/// Steps of 10 µs. The first turn has its 20 tokens after 200 µs. The client thinks for 5 µs. The second turn has its first token
/// 10 µs later, its second 20 µs later.
#[test]
fn a_second_turn_is_sent_when_the_first_has_finished_and_the_client_has_thought() {
    let file = RequestFile::parse("turns", TWO_TURNS.as_bytes(), None).unwrap();
    let (replay, sent) = replayed(&mut *file.workload(), &engine(4096));
    let times = |of: usize| {
        let record = &replay.records[of];
        (record.arrival_ns, record.first_token_ns, record.finish_ns)
    };
    assert_eq!((times(0), times(1)), ((0, 10_000, 200_000), (205_000, 215_000, 225_000)));
    assert_eq!((sent[0].turn, sent[1].turn), (0, 1));
}

/// Blocks of 16 tokens. Of the first turn's 60 tokens the last one is never computed, as nothing follows it: 59 are three blocks.
#[test]
fn a_second_turn_finds_the_first_with_its_output() {
    let file = RequestFile::parse("turns", TWO_TURNS.as_bytes(), None).unwrap();
    let (replay, _) = replayed(&mut *file.workload(), &engine(4096));
    let cached: Vec<u32> = replay.records.iter().map(|record| record.num_cached_tokens).collect();
    assert_eq!(cached, [0, 48]);
}

/// Blocks of Mooncake have 512 tokens, those of the engine 16: 992 of 1,000 tokens are whole blocks.
#[test]
fn a_chain_of_blocks_that_extends_another_hits_what_they_share() {
    let line = |at_ms: u32, tokens: u32, ids: &str| {
        format!("{{\"timestamp\":{at_ms},\"input_length\":{tokens},\"output_length\":2,\"hash_ids\":[{ids}]}}\n")
    };
    let text = [
        line(0, 1536, "1,2,3"),
        line(1000, 2048, "1,2,3,4"),
        line(2000, 2048, "1,2,9,4"),
        line(3000, 1000, "1,2"),
        line(4000, 1024, "2,3"),
        line(5000, 1536, "1,2,3"),
    ];
    let file = RequestFile::parse("mooncake", text.concat().as_bytes(), None).unwrap();
    let (replay, _) = replayed(&mut *file.workload(), &engine(4096));
    let cached: Vec<u32> = replay.records.iter().map(|record| record.num_cached_tokens).collect();
    // The same blocks behind others are others; of a prompt that is known as a whole, the last block is computed again.
    assert_eq!(cached, [0, 1536, 1024, 992, 0, 1520]);
}

/// The second session starts at 100 µs, with a server that is added at 50 µs and ready at 1,000 µs. The first session is another
/// server's, and so are its later turns.
#[test]
fn a_server_that_starts_late_keeps_the_turns_of_its_own_sessions() {
    let text = "session_id,arrival_us,input_len,output_len\na,0,40,2\nb,100,50,2\na,,60,2\nb,,70,2\n";
    let file = RequestFile::parse("turns", text.as_bytes(), None).unwrap();
    let mut load = file.workload();
    let mut held = HeldRequests::new(&mut *load, 50_000, 1_000_000);
    let (mut replay, _) = replayed(&mut held, &engine(4096));
    let report = held.restore(&mut replay);
    let found: Vec<(u32, u64, u64)> =
        replay.records.iter().map(|of| (of.num_prompt_tokens, of.arrival_ns, of.finish_ns)).collect();
    assert_eq!(found, [(50, 100_000, 1_020_000), (70, 1_020_000, 1_040_000)]);
    assert_eq!((report.left_out, report.waited.requests, report.later.requests), (1, 1, 1));
}

#[test]
fn turns_that_do_not_fit_are_refused_and_the_session_ends() {
    let (input, output) = (NormalLengths::fixed(100), NormalLengths::fixed(10));
    let shape = SessionShape { turns: 5, prefix_len: 0, input, output, think_time_s: 0.0 };
    let sessions = GeneratedSessions::new(SessionStarts::Concurrency(1), 2, shape, 0).unwrap();
    // 110, 220, 330 tokens: the third and later turns are too long.
    let (replay, _) = replayed(&mut sessions.workload(), &engine(300));
    let outcomes: Vec<Outcome> = replay.records.iter().map(|record| record.outcome).collect();
    let (finished, rejected) = (Outcome::Finished, Outcome::Rejected);
    assert_eq!(outcomes, [finished, finished, rejected, rejected, rejected].repeat(2));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn turns_never_precede_the_end_of_their_predecessors(
        rate in prop::option::of(1.0..20_000.0f64),
        concurrency in 1u32..6,
        num_sessions in 1u64..20,
        turns in 1u32..6,
        prefix_len in 0u32..100,
        spread in 0.0..20.0f64,
        think_us in 0u32..100,
        seed in any::<u64>(),
    ) {
        let input = NormalLengths { min: 1, max: 60, mean: 30.0, std_dev: spread, ..NormalLengths::fixed(1) };
        let output = NormalLengths { min: 1, max: 9, mean: 4.0, std_dev: spread, ..NormalLengths::fixed(1) };
        let shape = SessionShape { turns, prefix_len, input, output, think_time_s: f64::from(think_us) * 1e-6 };
        let starts = match rate {
            Some(per_s) => SessionStarts::Rate { pattern: ArrivalPattern::Poisson, per_s },
            None => SessionStarts::Concurrency(concurrency),
        };
        let sessions = GeneratedSessions::new(starts, num_sessions, shape, seed).unwrap();
        let (replay, sent) = replayed(&mut sessions.workload(), &engine(4096));
        let (_, again) = replayed(&mut sessions.workload(), &engine(4096));
        prop_assert_eq!(&sent, &again, "the same seed sends the same load");
        prop_assert_eq!(sent.len() as u64, num_sessions * u64::from(turns));
        prop_assert!(sent.windows(2).all(|pair| pair[0].arrival_ns <= pair[1].arrival_ns));
        prop_assert_eq!(sessions.summary().requests, sent.len());
        let mut open: HashMap<u64, usize> = HashMap::new();
        for (index, request) in sent.iter().enumerate() {
            prop_assert!(request.num_prompt_tokens + request.num_output_tokens <= sessions.summary().max_total_tokens);
            if turns == 1 {
                continue;
            }
            let session = request.content.as_ref().unwrap().last().unwrap().id;
            match open.insert(session, index) {
                None => prop_assert_eq!(request.turn, 0),
                Some(before) => {
                    prop_assert_eq!(request.turn, sent[before].turn + 1);
                    prop_assert!(request.arrival_ns >= replay.records[before].finish_ns);
                    let past = sent[before].num_prompt_tokens + sent[before].num_output_tokens;
                    prop_assert!(request.num_prompt_tokens > past);
                }
            }
            if rate.is_none() && request.turn == 0 {
                // Sessions in progress when this one starts, with it: none before has an end still to come.
                let running = open.values().filter(|last| {
                    sent[**last].turn + 1 < turns || replay.records[**last].finish_ns > request.arrival_ns
                });
                prop_assert!(running.count() <= concurrency as usize);
            }
        }
    }
}
