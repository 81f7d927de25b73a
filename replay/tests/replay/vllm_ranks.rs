//! The rounds of ranks against vLLM 0.32.0's own: random loads that its `DPEngineCoreProc` and its schedulers ran. `make.py` beside the cases
//! says what a line holds and what is a stub.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};

use flate2::read::GzDecoder;
use ridgepoint::Deployment;
use ridgepoint::Step;
use ridgepoint::latency::{BlackBox, HostTimes, LatencyModel, TransferDirection};
use ridgepoint_replay::workload::WorkloadRequest;
use ridgepoint_replay::{EngineConfig, Lockstep, Ranks, Router};
use serde::Deserialize;

use crate::loads::load;

/// Ranks, asynchronous, interval; times; limits; requests; of each rank its steps and dummy steps; of each request its times in µs.
#[derive(Debug, Deserialize)]
struct Case(u32, u8, u32, [f64; 4], [u32; 3], Vec<(u64, u32, u32)>, Vec<[u64; 2]>, Vec<[u64; 3]>);

/// A straight line, and the time of scheduling.
#[derive(Debug)]
struct Line(BlackBox, f64);

impl LatencyModel for Line {
    fn step_time_us(&self, step: &Step<'_>) -> f64 {
        self.0.step_time_us(step)
    }
    fn host(&self) -> HostTimes {
        HostTimes { scheduling_us: self.1, ..HostTimes::NONE }
    }
    fn kv_transfer_time_us(&self, _: TransferDirection, _: u64) -> f64 {
        0.0
    }
}

/// Steps and dummy steps of each rank, and the times of each request.
fn replayed(case: &Case) -> (Vec<[u64; 2]>, Vec<[u64; 3]>) {
    let &Case(count, ahead, sync_interval, [beta0_us, beta1_us, beta2_us, scheduling_us], limits, ref sent, ..) = case;
    let line = Line(BlackBox { beta0_us, beta1_us, beta2_us, ..BlackBox::default() }, scheduling_us);
    let mut config = EngineConfig::new(&Deployment::default(), 64, limits[2]);
    (config.max_num_seqs, config.max_num_batched_tokens, config.block_size) = (limits[0], limits[1], 4);
    config.scheduler.async_scheduling = ahead > 0;
    config.scheduler.enable_prefix_caching = false;
    config.scheduler.scheduler_reserve_full_isl = true;
    let requests = sent.iter().map(|(us, prompt, output)| WorkloadRequest::new(us * 1000, *prompt, *output)).collect();
    let ranks = Ranks {
        ranks: vec![(&line as &dyn LatencyModel, &config); count as usize],
        per_server: count,
        lockstep: Some(Lockstep::Waves { sync_interval, syncs_first: true }),
        router: Router::default(),
        servers: Router::default(),
    };
    let of = ranks.replay(load(requests, None).as_mut(), &mut []).unwrap();
    let counts = of.replicas.iter().map(|of| [of.steps, of.dummy_steps]).collect();
    let times = of.all.records.iter().map(|of| [of.scheduled_ns, of.first_token_ns, of.finish_ns].map(|ns| ns / 1000));
    (counts, times.collect())
}

/// `RIDGEPOINT_RANKS` names another file of the kind, with more cases than are worth committing.
#[test]
fn ranks_run_the_steps_and_dummy_batches_that_vllm_runs() {
    let path = std::env::var("RIDGEPOINT_RANKS");
    let path = path.unwrap_or_else(|_| "tests/fixtures/vllm_ranks/cases.jsonl.gz".into());
    let file = File::open(&path).unwrap();
    let text: Box<dyn Read> = if path.ends_with(".gz") { Box::new(GzDecoder::new(file)) } else { Box::new(file) };
    let (mut cases, mut dummies, mut unlike) = (0, 0, Vec::new());
    for line in BufReader::new(text).lines() {
        let line = line.unwrap();
        let case: Case = serde_json::from_str(&line).unwrap();
        let found = replayed(&case);
        cases += 1;
        dummies += case.6.iter().map(|of| of[1]).sum::<u64>();
        if found != (case.6, case.7) {
            unlike.push(format!("{line}: {found:?}"));
        }
    }
    assert!(unlike.is_empty(), "{} of {cases} cases differ, such as {}", unlike.len(), unlike[0]);
    assert!(cases >= 1000 && dummies >= 10_000, "{cases} cases, {dummies} dummy steps");
}
