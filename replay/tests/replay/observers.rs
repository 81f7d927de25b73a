//! Observers have the events that they want, and no others, whatever other observers of the same replay want. A latency model that
//! changes another one's steps changes all steps of a replay.

use std::sync::atomic::{AtomicU64, Ordering};

use ridgepoint::latency::{CalibratedRoofline, HostTimes, LatencyModel, TransferDirection};
use ridgepoint::model::{OwnSampling, SamplingParams};
use ridgepoint::{Deployment, Hardware, Model, Step, StepModel};
use ridgepoint_replay::workload::WorkloadRequest;
use ridgepoint_replay::{EngineConfig, Event, Events, KvDisk, KvEvent, KvOffload, Observer, SchedulerOptions, replay};

use crate::common::Recorder;
use crate::loads::Listed;
use crate::scenarios::support::{all_delays, engine_of, sharing};

/// Records what it gets.
struct Recorded {
    wants: Events,
    heard: Vec<String>,
}

impl Recorded {
    fn new(wants: Events) -> Self {
        Recorded { wants, heard: Vec::new() }
    }
}

impl Observer for Recorded {
    fn wants(&self) -> Events {
        self.wants
    }
    fn on(&mut self, event: &Event<'_>) {
        self.heard.push(format!("{event:?}"));
    }
}

/// Twelve prompts of three texts, on an engine whose blocks run short, with a host's tier and a disk.
fn requests() -> Vec<WorkloadRequest> {
    (0..12).map(|index| sharing(3 * index, 20, 9, index % 3, 16)).collect()
}

fn engine() -> EngineConfig {
    let disk = Some(KvDisk { block_bytes: 1, num_disk_blocks: None });
    let kv_offload =
        Some(KvOffload { num_cpu_blocks: 24, block_bytes: 1, offload_prompt_only: false, contention: 1.0, disk });
    EngineConfig { kv_offload, ..engine_of(20) }
}

/// Says of the text of an event whether it is of a kind.
type IsOne = fn(&str) -> bool;

#[test]
fn observers_have_the_events_that_they_want() {
    let all = Events::STEPS | Events::TOKENS | Events::KV | Events::BLOCKS;
    let mut everything = Recorded::new(all);
    replay(&all_delays(), &engine(), &mut Listed::new(requests()), &mut [&mut everything]).unwrap();
    let kinds: [(Events, IsOne); 6] = [
        (Events::NONE, |_| false),
        (Events::STEPS, |event| event.starts_with("Step(")),
        (Events::FIRST_TOKENS, |event| event.starts_with("Token") && event.contains("token: 0,")),
        (Events::TOKENS, |event| event.starts_with("Token")),
        (Events::KV, |event| event.starts_with("Kv(")),
        (Events::BLOCKS, |event| event.starts_with("Blocks(")),
    ];
    let told: Vec<usize> =
        kinds.iter().map(|(_, is_one)| everything.heard.iter().filter(|event| is_one(event)).count()).collect();
    assert_eq!((told[0], told[2], told[3], told[5]), (0, 12, 108, 1));
    assert!(told[1] > 20 && told[4] > 10, "{told:?}");
    for is_alone in [true, false] {
        for (wants, is_one) in kinds {
            let (mut some, mut other) = (Recorded::new(wants), Recorded::new(all));
            let observers: &mut [&mut dyn Observer] =
                if is_alone { &mut [&mut some] } else { &mut [&mut some, &mut other] };
            replay(&all_delays(), &engine(), &mut Listed::new(requests()), observers).unwrap();
            let expected: Vec<&String> = everything.heard.iter().filter(|event| is_one(event)).collect();
            assert_eq!(some.heard.iter().collect::<Vec<_>>(), expected, "{wants:?}");
            assert!(is_alone || other.heard == everything.heard);
        }
    }
    let mut seen = Recorder::default();
    replay(&all_delays(), &engine(), &mut Listed::new(requests()), &mut [&mut seen]).unwrap();
    assert!(seen.kv.iter().any(|event| matches!(event, KvEvent::Submitted(_))));
}

/// Steps that take twice as long as another model's. It says nothing of what a step is.
struct Twice<'a> {
    inner: &'a dyn LatencyModel,
    sharing: AtomicU64,
    sampling: AtomicU64,
}

impl LatencyModel for Twice<'_> {
    fn step_time_us(&self, step: &Step<'_>) -> f64 {
        self.sharing.fetch_add(u64::from(step.shared_kv_tokens > 0), Ordering::Relaxed);
        self.sampling.fetch_add(u64::from(!step.own_sampling.is_empty()), Ordering::Relaxed);
        2.0 * self.inner.step_time_us(step)
    }
    fn host(&self) -> HostTimes {
        self.inner.host()
    }
    fn kv_transfer_time_us(&self, direction: TransferDirection, bytes: u64) -> f64 {
        self.inner.kv_transfer_time_us(direction, bytes)
    }
}

#[test]
fn a_wrapper_of_the_step_time_alone_changes_every_step() {
    let steps =
        StepModel::new(&Model::find("llama-3.1-8b").unwrap(), &Hardware::find("h100").unwrap(), &Deployment::default());
    // All requests are there when a host that takes no time schedules the first step: the schedule does not depend on times.
    let latency = CalibratedRoofline::new(steps.unwrap()).with_host(HostTimes::NONE);
    let greedy = OwnSampling::from(&SamplingParams { temperature: Some(0.0), ..SamplingParams::default() });
    for (is_sharing, is_sampling) in [(false, false), (true, false), (false, true), (true, true)] {
        let requests: Vec<WorkloadRequest> = (0..16)
            .map(|index| {
                let (prompt, output) = (2000, 5 + index);
                let request = if is_sharing {
                    sharing(0, prompt, output, 7, 1600)
                } else {
                    WorkloadRequest::new(0, prompt, output)
                };
                WorkloadRequest { sampling: if is_sampling { greedy } else { request.sampling }, ..request }
            })
            .collect();
        let config = EngineConfig {
            scheduler: SchedulerOptions {
                async_scheduling: false,
                ..EngineConfig::new(&Deployment::default(), 4096, 10_000).scheduler
            },
            ..EngineConfig::new(&Deployment::default(), 4096, 10_000)
        };
        let durations_ns = |latency: &dyn LatencyModel| {
            let mut seen = Recorder::default();
            replay(latency, &config, &mut Listed::new(requests.clone()), &mut [&mut seen]).unwrap();
            seen.steps.iter().map(|step| step.end_ns - step.start_ns).collect::<Vec<_>>()
        };
        let twice = Twice { inner: &latency, sharing: 0.into(), sampling: 0.into() };
        let (plain, doubled) = (durations_ns(&latency), durations_ns(&twice));
        assert_eq!(plain.len(), doubled.len());
        for (one, two) in plain.iter().zip(&doubled) {
            assert!((2 * one).abs_diff(*two) <= 1, "{one} {two}");
        }
        assert_eq!(twice.sharing.into_inner() > 0, is_sharing);
        assert_eq!(twice.sampling.into_inner() > 0, is_sampling);
    }
}
