//! Closed loops: a finished request is replaced at once, whatever finishes next.

use ridgepoint::Deployment;
use ridgepoint::latency::FixedLatency;
use ridgepoint_replay::workload::{ClosedLoop, RequestShape};
use ridgepoint_replay::{EngineConfig, replay};

/// Steps of 10 ms, tokens 2 ms later at their clients, and room in a step for one prompt of 100 tokens and one decode. A runs in
/// the steps that end at 10, 20 and 30 ms; B, behind it, in those that end at 20, 30 and 40 ms. C replaces A at 32 ms, although B
/// finishes in the very next step, and runs from 40 ms on; D replaces B at 42 ms and runs from 50 ms on.
#[test]
fn requests_that_finish_in_neighbouring_steps_are_replaced_one_by_one() {
    let deployment = Deployment { max_num_batched_tokens: 101, ..Deployment::default() };
    let mut config = EngineConfig::new(&deployment, 200, 1000);
    config.scheduler.async_scheduling = false;
    let latency = FixedLatency { step_us: 10_000.0, output_token_us: 2_000.0, ..FixedLatency::default() };
    let mut load = ClosedLoop::new(2, 4, RequestShape::new(100, 3)).unwrap();
    let replayed = replay(&latency, &config, &mut load, &mut []).unwrap();
    let ms = |ns: u64| ns / 1_000_000;
    let seen: Vec<(u64, u64, u64)> =
        replayed.records.iter().map(|r| (ms(r.arrival_ns), ms(r.first_token_ns), ms(r.finish_ns))).collect();
    assert_eq!(seen, [(0, 12, 32), (0, 22, 42), (32, 52, 72), (42, 62, 82)]);
}
