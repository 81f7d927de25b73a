//! Replicas behind a router: conservation, equality with replays of single servers, and the rules of routers.

use proptest::prelude::*;
use ridgepoint::Deployment;
use ridgepoint::latency::{FixedLatency, LatencyModel};
use ridgepoint_replay::workload::{Segment, WorkloadRequest};
use ridgepoint_replay::{Cluster, ClusterReplay, EngineConfig, Outcome, Router, RouterKind, replay};

use crate::cases::Case;
use crate::laws::case;
use crate::loads::load;

const ALL: [RouterKind; 9] = [
    RouterKind::RoundRobin,
    RouterKind::LeastRequests,
    RouterKind::PowerOfTwo,
    RouterKind::Session,
    RouterKind::CacheAware,
    RouterKind::LlmD,
    RouterKind::Dynamo,
    RouterKind::VllmDp,
    RouterKind::TrtllmAdp,
];

fn cluster<'a>(latency: &'a dyn LatencyModel, config: &'a EngineConfig, count: usize, kind: RouterKind) -> Cluster<'a> {
    Cluster { replicas: vec![(latency, config); count], router: Router { kind, seed: 7 } }
}

fn replayed(case: &Case, count: usize, kind: RouterKind) -> ClusterReplay {
    let mut load = load(case.requests.clone(), case.concurrency);
    cluster(&case.latency, &case.config, count, kind).replay(load.as_mut(), &mut []).unwrap()
}

fn kind() -> impl Strategy<Value = RouterKind> {
    prop::sample::select(&ALL[..])
}

/// The sender of a request that is refused hears of it at once in a replay of one server, and behind an iteration in a cluster, which
/// matters where it sends another one then.
pub fn is_heard_in_time(case: &Case) -> bool {
    let is_too_long = |of: &WorkloadRequest| of.num_prompt_tokens + of.num_output_tokens > case.config.max_model_len;
    case.concurrency.is_none() || !case.requests.iter().any(is_too_long)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn one_replica_is_a_replay(case in case(), kind in kind()) {
        prop_assume!(is_heard_in_time(&case));
        let alone = replay(&case.latency, &case.config, load(case.requests.clone(), case.concurrency).as_mut(), &mut []).unwrap();
        let of = replayed(&case, 1, kind);
        prop_assert_eq!(&of.all.records, &alone.records);
        prop_assert_eq!(of.all.counters, alone.counters);
        prop_assert_eq!(of.all.inter_token_ns, alone.inter_token_ns);
    }

    #[test]
    fn every_request_ends_on_one_replica_as_if_that_were_alone(case in case(), count in 2usize..6, kind in kind()) {
        prop_assume!(is_heard_in_time(&case));
        let of = replayed(&case, count, kind);
        prop_assert_eq!(of.all.records.len(), case.requests.len());
        prop_assert!(of.all.records.iter().all(|record| record.outcome != Outcome::Unfinished));
        let again = replayed(&case, count, kind);
        prop_assert_eq!((&again.all.records, &again.replica_of), (&of.all.records, &of.replica_of));
        let tokens = |records: &[ridgepoint_replay::RequestRecord]| {
            records.iter().filter(|record| record.outcome == Outcome::Finished).map(|record| u64::from(record.num_output_tokens)).sum::<u64>()
        };
        let gaps: u64 = of.all.inter_token_ns.iter().map(|of| of.len()).sum();
        let finished = of.all.records.iter().filter(|record| record.outcome == Outcome::Finished).count() as u64;
        prop_assert_eq!(gaps, tokens(&of.all.records) - finished);
        prop_assert_eq!(of.replicas.iter().map(|of| of.steps).sum::<u64>(), of.all.counters.steps);
        // A step may end while its engine's host is busy with the next. What its client sends then may reach another engine a round late.
        let replicas = if case.concurrency.is_none() { 0..count as u32 } else { 0..0 };
        for replica in replicas {
            let own = |(at, record): (usize, &ridgepoint_replay::RequestRecord)| {
                let request = WorkloadRequest { arrival_ns: record.arrival_ns, ..case.requests[at].clone() };
                (of.replica_of[at] == replica).then_some((request, *record))
            };
            let (requests, records): (Vec<_>, Vec<_>) = of.all.records.iter().enumerate().filter_map(own).unzip();
            let alone = replay(&case.latency, &case.config, load(requests, None).as_mut(), &mut []).unwrap();
            prop_assert_eq!(alone.records, records);
            prop_assert_eq!(alone.counters, of.replicas[replica as usize]);
        }
    }
}

/// A server with room for everything, and steps of 10 ms.
fn roomy() -> (FixedLatency, EngineConfig) {
    let latency = FixedLatency { step_us: 10_000.0, ..FixedLatency::default() };
    (latency, EngineConfig::new(&Deployment::default(), 4096, 4000))
}

/// Requests every millisecond whose prompts of 640 tokens begin with one of `texts` texts of 512.
fn on_texts(count: u64, texts: u64, num_output_tokens: u32) -> Vec<WorkloadRequest> {
    let of = |at: u64| WorkloadRequest {
        // Texts do not come in the order of replicas.
        content: Some(vec![Segment { id: (at * 7 + at / 5) % texts, num_tokens: 512 }].into()),
        ..WorkloadRequest::new(at * 1_000_000, 640, num_output_tokens)
    };
    (0..count).map(of).collect()
}

fn sent(requests: &[WorkloadRequest], count: usize, kind: RouterKind) -> ClusterReplay {
    let (latency, config) = roomy();
    cluster(&latency, &config, count, kind).replay(load(requests.to_vec(), None).as_mut(), &mut []).unwrap()
}

#[test]
fn routers_follow_their_rules() {
    let requests = on_texts(8, 1, 10);
    assert_eq!(sent(&requests, 3, RouterKind::RoundRobin).replica_of, [0, 1, 2, 0, 1, 2, 0, 1]);
    assert_eq!(sent(&requests, 3, RouterKind::LeastRequests).replica_of, [0, 1, 2, 0, 1, 2, 0, 1]);
    // The second ends first: the fourth goes where it was.
    let mut uneven = on_texts(4, 1, 40);
    uneven[1].num_output_tokens = 1;
    uneven[3].arrival_ns = 150_000_000;
    assert_eq!(sent(&uneven, 3, RouterKind::LeastRequests).replica_of, [0, 1, 2, 1]);
    // All prompts begin alike: the first replica has them all, until 65 more are in flight there than elsewhere.
    let many = sent(&on_texts(80, 1, 100), 2, RouterKind::CacheAware).replica_of;
    assert!(many[..65].iter().all(|of| *of == 0) && many[65] == 1, "{many:?}");
    // A short prompt leaves its replica the fewest tokens, but not more requests than an even share.
    let mut short = on_texts(6, 1, 10);
    short[1].num_prompt_tokens = 10;
    short[3].num_prompt_tokens = 600;
    assert_eq!(sent(&short, 3, RouterKind::TrtllmAdp).replica_of, [0, 1, 2, 1, 0, 2]);
    // vLLM counts its guess until the next report, so that requests within 100 ms spread.
    assert_eq!(sent(&requests, 3, RouterKind::VllmDp).replica_of[..6], [0, 1, 2, 0, 1, 2]);
}

#[test]
fn routers_that_know_prefixes_find_more_of_them() {
    let requests = on_texts(200, 40, 4);
    let cached = |kind| sent(&requests, 4, kind).all.counters.cached_tokens;
    let apart = cached(RouterKind::RoundRobin);
    for kind in [RouterKind::CacheAware, RouterKind::Dynamo] {
        assert!(cached(kind) > apart + 4 * 512, "{kind:?}: {} and {apart}", cached(kind));
    }
    // Forty texts are computed once each, and every other prompt finds 512 tokens.
    assert_eq!(cached(RouterKind::CacheAware) / 512, 200 - 40);
}

#[test]
fn turns_of_a_session_stay_together() {
    let mut requests = on_texts(30, 1, 4);
    for (at, request) in requests.iter_mut().enumerate() {
        request.session = Some(at as u32 % 7);
    }
    let of = sent(&requests, 3, RouterKind::Session).replica_of;
    assert!((7..30).all(|at| of[at] == of[at - 7]));
    assert_eq!(of[..3], [0, 1, 2]);
}

#[test]
fn replicas_may_be_unlike_and_none_is_refused() {
    let (fast, config) = roomy();
    let slow = FixedLatency { step_us: 40_000.0, ..fast };
    let unlike = Cluster {
        replicas: vec![(&fast as &dyn LatencyModel, &config), (&slow, &config)],
        router: Router { kind: RouterKind::LeastRequests, seed: 0 },
    };
    let requests: Vec<_> = (0..200).map(|at| WorkloadRequest::new(at * 20_000_000, 100, 10)).collect();
    let of = unlike.replay(load(requests.clone(), None).as_mut(), &mut []).unwrap().replica_of;
    let to_fast = of.iter().filter(|of| **of == 0).count();
    assert!((140..190).contains(&to_fast), "{to_fast}");
    let none = Cluster { replicas: Vec::new(), ..unlike };
    let error = none.replay(load(requests, None).as_mut(), &mut []).unwrap_err().to_string();
    assert!(error.contains("replicas") && error.contains("from 1 to 4096"), "{error}");
}
