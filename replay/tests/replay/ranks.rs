//! Data-parallel ranks: conservation, equality with independent replays, and rounds worked out by hand.

use proptest::prelude::*;
use ridgepoint::Deployment;
use ridgepoint::latency::{BlackBox, FixedLatency, LatencyModel};
use ridgepoint_replay::workload::WorkloadRequest;
use ridgepoint_replay::{
    Cluster, ClusterReplay, EngineConfig, EngineRules, KvOffload, Lockstep, Outcome, Ranks, Router, RouterKind,
    SglangOptions, TrtllmOptions, replay,
};

use crate::cases::Case;
use crate::cluster::is_heard_in_time;
use crate::common::Recorder;
use crate::laws::case;
use crate::loads::load;

const NEW: Lockstep = Lockstep::Waves { sync_interval: 16, syncs_first: true };
const OLD: Lockstep = Lockstep::Waves { sync_interval: 32, syncs_first: false };

/// Ranks of a server each, behind one that takes turns.
fn ranks<'a>(
    of: (&'a dyn LatencyModel, &'a EngineConfig),
    servers: u32,
    per_server: u32,
    kind: RouterKind,
    lockstep: Option<Lockstep>,
) -> Ranks<'a> {
    let router = Router { kind, seed: 7 };
    Ranks { ranks: vec![of; (servers * per_server) as usize], per_server, lockstep, router, servers: Router::default() }
}

fn replayed(case: &Case, per_server: u32, kind: RouterKind, lockstep: Option<Lockstep>) -> ClusterReplay {
    let mut load = load(case.requests.clone(), case.concurrency);
    ranks((&case.latency, &case.config), 1, per_server, kind, lockstep).replay(load.as_mut(), &mut []).unwrap()
}

fn kind() -> impl Strategy<Value = RouterKind> {
    prop::sample::select(vec![RouterKind::RoundRobin, RouterKind::VllmDp, RouterKind::TrtllmAdp])
}

fn lockstep() -> impl Strategy<Value = Lockstep> {
    let waves = (1u32..20, any::<bool>());
    let waves = waves.prop_map(|(sync_interval, syncs_first)| Lockstep::Waves { sync_interval, syncs_first });
    prop_oneof![1 => Just(Lockstep::Steps), 1 => waves]
}

/// The case under an engine's rules, in one stage.
fn under(mut case: Case, rules: u32) -> Case {
    let stages = case.config.pipeline_parallel_size;
    case.config.rules = match rules {
        0 => return case,
        1 => EngineRules::Trtllm(TrtllmOptions::default()),
        _ => EngineRules::Sglang(SglangOptions { ignore_eos: rules.is_multiple_of(2), ..SglangOptions::default() }),
    };
    case.config.pipeline_parallel_size = 1;
    if case.config.validate().is_err() {
        (case.config.rules, case.config.pipeline_parallel_size) = (EngineRules::Vllm, stages);
    }
    case
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn one_rank_is_a_replay(case in case(), rules in 0u32..4, kind in kind()) {
        prop_assume!(is_heard_in_time(&case));
        let case = under(case, rules);
        let mut seen = [Recorder::default(), Recorder::default()];
        let [first, second] = &mut seen;
        let mut sent = [(); 2].map(|()| load(case.requests.clone(), case.concurrency));
        let [to_one, to_rank] = &mut sent;
        let alone = replay(&case.latency, &case.config, to_one.as_mut(), &mut [first]).unwrap();
        // Engines refuse requests for other reasons, too.
        prop_assume!(case.concurrency.is_none() || alone.records.iter().all(|of| of.outcome != Outcome::Rejected));
        // Ranks that ask before each step whether any has work never run an empty one.
        let rank = ranks((&case.latency, &case.config), 1, 1, kind, Some(Lockstep::Steps));
        let of = rank.replay(to_rank.as_mut(), &mut [second]).unwrap();
        prop_assert_eq!(&of.all.records, &alone.records);
        prop_assert_eq!(of.all.counters, alone.counters);
        prop_assert_eq!(of.all.inter_token_ns, alone.inter_token_ns);
        let [first, second] = seen;
        prop_assert_eq!((first.steps, first.tokens), (second.steps, second.tokens));
    }

    #[test]
    fn ranks_on_their_own_are_replicas(case in case(), count in 1u32..5, kind in kind()) {
        let of = replayed(&case, count, kind, None);
        let cluster = Cluster {
            replicas: vec![(&case.latency as &dyn LatencyModel, &case.config); count as usize],
            router: Router { kind, seed: 7 },
        };
        let replicas = cluster.replay(load(case.requests.clone(), case.concurrency).as_mut(), &mut []).unwrap();
        prop_assert_eq!((&of.all.records, &of.replica_of), (&replicas.all.records, &replicas.replica_of));
        prop_assert_eq!((of.all.counters, of.replicas), (replicas.all.counters, replicas.replicas));
    }

    #[test]
    fn every_request_ends_and_all_ranks_run_as_many_steps(
        case in case(), rules in 0u32..4, (servers, count) in (1u32..3, 1u32..5), kind in kind(), lockstep in lockstep(),
    ) {
        let case = under(case, rules);
        let run = || {
            let mut load = load(case.requests.clone(), case.concurrency);
            ranks((&case.latency, &case.config), servers, count, kind, Some(lockstep)).replay(load.as_mut(), &mut []).unwrap()
        };
        let of = run();
        prop_assert_eq!(of.all.records.len(), case.requests.len());
        prop_assert!(of.all.records.iter().all(|record| record.outcome != Outcome::Unfinished));
        let finished = || of.all.records.iter().filter(|record| record.outcome == Outcome::Finished);
        let tokens: u64 = finished().map(|record| u64::from(record.num_output_tokens)).sum();
        let gaps: u64 = of.all.inter_token_ns.iter().map(|of| of.len()).sum();
        prop_assert_eq!(gaps, tokens - finished().count() as u64);
        for ranks in of.replicas.chunks(count as usize) {
            let all: Vec<u64> = ranks.iter().map(|of| of.steps + of.dummy_steps).collect();
            prop_assert!(all.iter().all(|of| *of == all[0]), "{:?}", all);
            prop_assert!(lockstep != Lockstep::Steps || all[0] <= ranks.iter().map(|of| of.steps).sum());
        }
        let again = run();
        prop_assert_eq!((&again.all.records, &again.replica_of), (&of.all.records, &of.replica_of));
    }
}

/// A server with room for everything.
fn config() -> EngineConfig {
    let mut config = EngineConfig::new(&Deployment::default(), 4096, 4000);
    config.scheduler.async_scheduling = false;
    config
}

/// Prompts of 100 tokens: when each is sent, and the tokens that it generates.
fn prompts(sent: &[(u64, u32)]) -> Vec<WorkloadRequest> {
    sent.iter().map(|(ms, output)| WorkloadRequest::new(ms * 1_000_000, 100, *output)).collect()
}

/// Steps of 5 ms and 50 µs for each token of a prompt.
fn line() -> BlackBox {
    BlackBox { beta0_us: 5000.0, beta1_us: 50.0, ..BlackBox::default() }
}

fn by_turns(requests: &[WorkloadRequest], count: u32, lockstep: Option<Lockstep>) -> ClusterReplay {
    let (line, config) = (line(), config());
    let of = ranks((&line, &config), 1, count, RouterKind::RoundRobin, lockstep);
    of.replay(load(requests.to_vec(), None).as_mut(), &mut []).unwrap()
}

fn times_ms(of: &ClusterReplay) -> Vec<(f64, f64)> {
    of.all.records.iter().map(|record| (record.ttft_ms(), record.e2e_ms())).collect()
}

#[test]
fn a_step_lasts_as_long_as_that_of_the_slowest_rank() {
    // The first rank decodes from 10 ms on, while the second computes a prompt that came at 2 ms.
    let requests = prompts(&[(0, 4), (2, 1)]);
    assert_eq!(times_ms(&by_turns(&requests, 2, None)), [(10.0, 25.0), (10.0, 10.0)]);
    // The host of an idle rank is ready for the second step when the first has begun: its prompt is in the third.
    assert_eq!(times_ms(&by_turns(&requests, 2, Some(OLD))), [(10.0, 30.0), (23.0, 23.0)]);
    // Ranks that ask each other behind the first step wait for its end.
    assert_eq!(times_ms(&by_turns(&requests, 2, Some(NEW))), [(10.0, 30.0), (18.0, 18.0)]);
    let of = by_turns(&requests, 2, Some(Lockstep::Steps));
    assert_eq!(times_ms(&of), [(10.0, 30.0), (23.0, 23.0)]);
    assert_eq!(of.replicas.iter().map(|of| (of.steps, of.dummy_steps)).collect::<Vec<_>>(), [(4, 0), (1, 3)]);
}

#[test]
fn a_wave_ends_when_its_ranks_agree() {
    let dummies = |output, lockstep| {
        let of = by_turns(&prompts(&[(0, output)]), 3, Some(lockstep));
        of.replicas.iter().map(|of| (of.steps, of.dummy_steps)).collect::<Vec<_>>()
    };
    // Behind the first step, or in the sixteenth and every sixteenth from then on.
    assert_eq!(dummies(1, NEW), [(1, 0), (0, 1), (0, 1)]);
    assert_eq!(dummies(2, NEW), [(2, 14), (0, 16), (0, 16)]);
    assert_eq!(dummies(16, NEW), [(16, 0), (0, 16), (0, 16)]);
    assert_eq!(dummies(17, NEW), [(17, 15), (0, 32), (0, 32)]);
    assert_eq!(dummies(1, OLD), [(1, 31), (0, 32), (0, 32)]);
    assert_eq!(dummies(33, OLD), [(33, 31), (0, 64), (0, 64)]);
    assert_eq!(dummies(33, Lockstep::Steps), [(33, 0), (0, 33), (0, 33)]);
    assert_eq!((Lockstep::vllm((0, 29)), Lockstep::vllm((0, 30))), (OLD, NEW));
}

#[test]
fn ranks_that_cannot_be_are_refused() {
    let (latency, config) = (FixedLatency::default(), config());
    let refused = |of: Ranks<'_>| of.replay(load(Vec::new(), None).as_mut(), &mut []).unwrap_err().to_string();
    let of = || ranks((&latency, &config), 1, 2, RouterKind::RoundRobin, Some(NEW));
    for per_server in [0, 3] {
        let error = refused(Ranks { per_server, ..of() });
        assert!(error.contains(&format!("a multiple of per_server = {per_server}")), "{error}");
    }
    let never = Lockstep::Waves { sync_interval: 0, syncs_first: true };
    assert!(refused(Ranks { lockstep: Some(never), ..of() }).contains("sync_interval"));
    let none = refused(Ranks { ranks: Vec::new(), ..of() });
    assert!(none.contains("from 1 to 4096"), "{none}");
    let kv_offload =
        Some(KvOffload { num_cpu_blocks: 1, block_bytes: 1, offload_prompt_only: false, contention: 0.0, disk: None });
    let tiered = EngineConfig { kv_offload, ..config.clone() };
    let error = refused(ranks((&latency, &tiered), 1, 2, RouterKind::RoundRobin, Some(NEW)));
    assert!(error.contains("kv_offload") && error.contains("lockstep"), "{error}");
}
