//! inference-perf's stages: each begins when every request of the one before is finished. `profile` has checked them.
#![expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "floats saturate; readers check ranges")]

use std::sync::Arc;

use ridgepoint::units::NS_PER_S;

use super::arrivals::ArrivalTimes;
use super::prompts::{PromptStream, Prompts};
use super::seed::{Stream, generator};
use super::{Workload, WorkloadRequest};

/// Time until a stage is closed. inference-perf checks once a second whether all requests of a stage are finished, and its
/// workers wait up to half a second for a request before they notice the end of a stage.
///
/// # Source
/// inference-perf 0.3.0, `loadgen/load_generator.py`: `run_stage`, `Worker.loop`.
const CLOSE_NS: u64 = NS_PER_S;
/// Delay between the start of a stage and that of its clock, so that the first requests are queued in time.
///
/// # Source
/// inference-perf 0.3.0, `loadgen/load_generator.py`, `run_stage`.
const HEAD_START_NS: u64 = NS_PER_S;
/// All requests of a concurrent stage get times within one second.
///
/// # Source
/// inference-perf 0.3.0, `main.py`: a stage's duration is set to 1 and its rate to `num_requests`.
const CONCURRENT_SPAN_NS: u64 = NS_PER_S;

/// One stage of a load.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum StageLoad {
    /// ⌊rate · duration⌋ requests with exponential gaps that fill the duration.
    Constant {
        /// Requests per second.
        rate_per_s: f64,
        /// Length of the stage, s.
        duration_s: f64,
    },
    /// ⌊rate · duration⌋ requests, a Poisson number of them in each second.
    Poisson {
        /// Requests per second.
        rate_per_s: f64,
        /// Length of the stage, s, up to what chance adds.
        duration_s: f64,
    },
    /// A fixed number of requests in flight; each finished request is replaced at once.
    Concurrent {
        /// Most requests in flight.
        concurrency_level: u32,
        /// Requests of the stage.
        num_requests: u64,
    },
}

impl StageLoad {
    /// Returns the number of requests of the stage. Like inference-perf, it truncates rate · duration in 64-bit floats.
    pub fn num_requests(&self) -> u64 {
        match self {
            StageLoad::Constant { rate_per_s, duration_s } | StageLoad::Poisson { rate_per_s, duration_s } => {
                (rate_per_s * duration_s) as u64
            }
            StageLoad::Concurrent { num_requests, .. } => *num_requests,
        }
    }

    fn times(&self, seed: u64, stage: u32) -> ArrivalTimes {
        let rng = generator(seed, Stream::Arrivals, stage);
        let count = self.num_requests();
        match *self {
            StageLoad::Constant { duration_s, .. } => {
                ArrivalTimes::constant(rng, count, (duration_s * NS_PER_S as f64).round() as u64)
            }
            StageLoad::Poisson { rate_per_s, .. } => ArrivalTimes::poisson_seconds(rng, count, rate_per_s),
            StageLoad::Concurrent { .. } => ArrivalTimes::constant(rng, count, CONCURRENT_SPAN_NS),
        }
    }

    fn max_in_flight(&self) -> Option<u64> {
        match self {
            StageLoad::Concurrent { concurrency_level, .. } => Some(u64::from(*concurrency_level)),
            _ => None,
        }
    }
}

/// Returns the number of requests of the largest stage.
pub(super) fn most_requests(stages: &[StageLoad]) -> u64 {
    stages.iter().map(StageLoad::num_requests).max().unwrap_or(0)
}

/// A load in stages, from [`Profile::workload`](super::profile::Profile::workload). Memory does not grow with the number of
/// requests.
pub struct StagedLoad {
    stages: Arc<[StageLoad]>,
    /// Most requests in flight of a stage that has no limit of its own.
    max_in_flight: Option<u64>,
    interval_ns: u64,
    seed: u64,
    prompts: PromptStream,
    /// The current stage; `None` for a load without stages.
    current: Option<Current>,
}

/// The current stage.
struct Current {
    load: StageLoad,
    stage: u32,
    start_ns: u64,
    times: ArrivalTimes,
    prompts: Box<dyn Iterator<Item = WorkloadRequest> + Send>,
    max_in_flight: Option<u64>,
    sent: u64,
    finished: u64,
    /// Time at which the limit on requests in flight last allowed another one.
    free_since_ns: u64,
    last_finish_ns: u64,
}

impl Current {
    fn is_full(&self) -> bool {
        self.max_in_flight.is_some_and(|limit| self.sent - self.finished >= limit)
    }
}

impl StagedLoad {
    pub(super) fn new(
        stages: &[StageLoad],
        prompts: &Prompts,
        interval_ns: u64,
        max_in_flight: Option<u64>,
        seed: u64,
    ) -> Self {
        let prompts = PromptStream::new(prompts, seed, most_requests(stages));
        let mut load = StagedLoad { stages: stages.into(), max_in_flight, interval_ns, seed, prompts, current: None };
        load.begin(0, 0);
        load
    }

    /// Begins a stage, if there is one of this number.
    fn begin(&mut self, stage: u32, start_ns: u64) {
        let Some(load) = self.stages.get(stage as usize) else { return };
        self.current = Some(Current {
            load: *load,
            stage,
            start_ns,
            times: load.times(self.seed, stage),
            prompts: self.prompts.stage(),
            max_in_flight: load.max_in_flight().or(self.max_in_flight),
            sent: 0,
            finished: 0,
            free_since_ns: start_ns,
            last_finish_ns: start_ns,
        });
    }
}

impl Workload for StagedLoad {
    fn next_arrival_ns(&self) -> Option<u64> {
        let current = self.current.as_ref().filter(|current| !current.is_full())?;
        let planned_ns = current.start_ns.saturating_add(current.times.next_ns()?);
        Some(planned_ns.max(current.free_since_ns))
    }

    fn next_request(&mut self) -> Option<WorkloadRequest> {
        let arrival_ns = self.next_arrival_ns()?;
        let current = self.current.as_mut()?;
        current.sent += 1;
        current.times.next();
        Some(WorkloadRequest { arrival_ns, stage: current.stage, ..current.prompts.next()? })
    }

    fn finished(&mut self, now_ns: u64, stage: u32, _request: u32) {
        let Some(current) = &mut self.current else { return };
        if stage != current.stage || current.finished >= current.sent {
            return;
        }
        if current.is_full() {
            current.free_since_ns = current.free_since_ns.max(now_ns);
        }
        current.finished += 1;
        current.last_finish_ns = current.last_finish_ns.max(now_ns);
        if current.finished >= current.load.num_requests() {
            let pause_ns = self.interval_ns.saturating_add(CLOSE_NS + HEAD_START_NS);
            let start_ns = current.last_finish_ns.saturating_add(pause_ns);
            self.begin(stage.saturating_add(1), start_ns);
        }
    }

    fn expected_requests(&self) -> Option<usize> {
        Some(self.stages.iter().map(|stage| stage.num_requests() as usize).fold(0, usize::saturating_add))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROMPTS: Prompts = Prompts::SharedPrefix {
        num_groups: 2,
        num_prompts_per_group: 2,
        system_prompt_len: 10,
        question_len: 20,
        output_len: 5,
    };

    fn load(stages: &[StageLoad], max_in_flight: Option<u64>, seed: u64) -> StagedLoad {
        StagedLoad::new(stages, &PROMPTS, NS_PER_S, max_in_flight, seed)
    }

    fn drain(load: &mut StagedLoad) -> Vec<WorkloadRequest> {
        std::iter::from_fn(|| load.next_request()).collect()
    }

    #[test]
    fn the_next_stage_waits_for_the_last_finish_and_three_seconds() {
        let constant = |rate_per_s, duration_s| StageLoad::Constant { rate_per_s, duration_s };
        let mut load = load(&[constant(2.0, 10.0), constant(4.0, 5.0)], None, 1);
        assert_eq!(load.expected_requests(), Some(40));
        let first = drain(&mut load);
        assert_eq!((first.len(), first[19].arrival_ns, first[19].stage), (20, 10 * NS_PER_S, 0));
        for done in 0..20 {
            assert_eq!(load.next_arrival_ns(), None);
            load.finished(11 * NS_PER_S + done, 0, 0);
        }
        // The last finish, a second to close the stage, the interval of 1 s and a second of head start.
        let start_ns = 14 * NS_PER_S + 19;
        let second = drain(&mut load);
        assert_eq!((second.len(), second[19].arrival_ns, second[19].stage), (20, start_ns + 5 * NS_PER_S, 1));
        assert!(second[0].arrival_ns > start_ns);
        // The prompts begin again with the first.
        assert_eq!(first[0].content, second[0].content);
        (0..20).for_each(|_| load.finished(30 * NS_PER_S, 1, 0));
        assert_eq!((load.next_arrival_ns(), load.next_request()), (None, None));
    }

    #[test]
    fn concurrent_requests_are_replaced_when_one_finishes() {
        let stage = StageLoad::Concurrent { concurrency_level: 3, num_requests: 5 };
        let mut load = load(&[stage], None, 2);
        let first = drain(&mut load);
        assert_eq!(first.len(), 3);
        assert!(first.iter().all(|request| request.arrival_ns <= NS_PER_S));
        load.finished(7 * NS_PER_S, 0, 0);
        assert_eq!(load.next_arrival_ns(), Some(7 * NS_PER_S));
        assert_eq!(load.next_request().map(|request| request.arrival_ns), Some(7 * NS_PER_S));
        assert_eq!(load.next_arrival_ns(), None);
        load.finished(8 * NS_PER_S, 0, 0);
        load.finished(9 * NS_PER_S, 0, 0);
        assert_eq!(drain(&mut load).len(), 1);
        load.finished(10 * NS_PER_S, 0, 0);
        assert_eq!(load.next_arrival_ns(), None);
    }

    #[test]
    fn workers_hold_requests_back_only_at_their_limit() {
        let stage = StageLoad::Constant { rate_per_s: 1.0, duration_s: 4.0 };
        let planned: Vec<u64> = drain(&mut load(&[stage], None, 3)).iter().map(|r| r.arrival_ns).collect();
        let mut limited = load(&[stage], Some(2), 3);
        assert_eq!(drain(&mut limited).iter().map(|r| r.arrival_ns).collect::<Vec<u64>>(), planned[..2]);
        // Free before its time: sent at its time. Free after its time: sent when free.
        limited.finished(planned[1] + 1, 0, 0);
        assert_eq!(limited.next_request().map(|r| r.arrival_ns), Some(planned[2].max(planned[1] + 1)));
        limited.finished(100 * NS_PER_S, 0, 0);
        assert_eq!(limited.next_request().map(|r| r.arrival_ns), Some(100 * NS_PER_S));
    }

    #[test]
    fn a_finish_of_another_stage_or_beyond_what_was_sent_counts_nothing() {
        let stage = StageLoad::Constant { rate_per_s: 1.0, duration_s: 2.0 };
        let mut load = load(&[stage, stage], None, 1);
        load.finished(1, 0, 0);
        load.finished(1, 9, 0);
        assert_eq!(drain(&mut load).len(), 2);
        load.finished(3 * NS_PER_S, 0, 0);
        load.finished(3 * NS_PER_S, 1, 0);
        assert_eq!(load.next_arrival_ns(), None);
        load.finished(4 * NS_PER_S, 0, 0);
        assert!(load.next_arrival_ns() > Some(7 * NS_PER_S));
    }

    #[test]
    fn the_number_of_requests_is_cut_not_rounded() {
        let requests = |rate_per_s, duration_s| StageLoad::Constant { rate_per_s, duration_s }.num_requests();
        assert_eq!((requests(2.5, 600.0), requests(0.3, 9.0), requests(1.99, 1.0)), (1500, 2, 1));
        // 0.29 · 100 is 28.999999999999996 in 64 bits, for inference-perf too.
        assert_eq!(requests(0.29, 100.0), 28);
    }

    #[test]
    fn equal_seeds_give_equal_loads_and_stages_differ() {
        let stage = StageLoad::Poisson { rate_per_s: 5.0, duration_s: 10.0 };
        assert_eq!(drain(&mut load(&[stage], None, 5)), drain(&mut load(&[stage], None, 5)));
        let mut two = load(&[stage, stage], None, 5);
        let first = drain(&mut two);
        (0..50).for_each(|_| two.finished(20 * NS_PER_S, 0, 0));
        let second = drain(&mut two);
        let offsets: Vec<u64> = second.iter().map(|r| r.arrival_ns - 23 * NS_PER_S).collect();
        assert_ne!(offsets, first.iter().map(|r| r.arrival_ns).collect::<Vec<u64>>());
    }
}
