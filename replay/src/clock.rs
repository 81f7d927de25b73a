//! The clock of a replay: the time of the engine's host thread and of the GPUs.
#![expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "floats saturate; readers check ranges")]

use ridgepoint::latency::{HostTimes, Queues, non_negative};
use ridgepoint::units::NS_PER_US;

/// The clock in integer nanoseconds, with those delays of the latency model that are equal for all steps.
#[derive(Debug)]
pub(super) struct Clock {
    /// Time of the engine's host thread.
    host_ns: u64,
    /// Time from which the GPUs can begin another step.
    gpu_free_ns: u64,
    /// End of the last step.
    gpu_end_ns: u64,
    stages: u64,
    output_ns: u64,
    /// What an iteration costs the engine's thread.
    host: HostTimes,
    /// The cost of an iteration without preemptions, if it is the same for all.
    equal_ns: Option<u64>,
}

/// The timing of a step.
pub(super) struct StepTiming {
    pub(super) start_ns: u64,
    pub(super) end_ns: u64,
    /// Time for which the GPUs could begin no other step.
    pub(super) busy_ns: u64,
}

impl Clock {
    /// Starts at 0, for a pipeline of `stages` GPUs, with these delays of the host.
    pub(super) fn new(delays: &HostTimes, stages: u32) -> Self {
        let host = HostTimes {
            scheduling_us: delays.scheduling_processing_time_us(),
            scheduling_us_per_running: non_negative(delays.scheduling_us_per_running),
            scheduling_us_per_waiting: non_negative(delays.scheduling_us_per_waiting),
            preemption_us: delays.preemption_processing_time_us(),
            resume_us: non_negative(delays.resume_us),
            ..HostTimes::NONE
        };
        let [running_us, waiting_us, _, resume_us] = host.queue_prices_us();
        let is_equal = running_us + waiting_us + resume_us <= 0.0;
        Clock {
            host_ns: 0,
            gpu_free_ns: 0,
            gpu_end_ns: 0,
            stages: u64::from(stages),
            output_ns: ns(delays.output_token_processing_time_us()),
            equal_ns: is_equal.then(|| ns(host.scheduling_us)),
            host,
        }
    }

    /// Time of the engine's host thread.
    pub(super) fn now_ns(&self) -> u64 {
        self.host_ns
    }

    /// Lets the host thread wait until `then_ns`, if that is in the future.
    pub(super) fn wait_until(&mut self, then_ns: u64) {
        self.host_ns = self.host_ns.max(then_ns);
    }

    /// Runs an iteration that preempted requests and scheduled no step.
    pub(super) fn idle_iteration(&mut self, num_preempted: usize) {
        self.host_ns = self.host_ns.saturating_add(ns(self.host.preemption_us * num_preempted as f64));
    }

    /// Time at which the last step ends.
    pub(super) fn gpu_end_ns(&self) -> u64 {
        self.gpu_end_ns
    }

    /// Runs an iteration of the host thread that schedules these requests.
    #[inline]
    pub(super) fn schedule(&mut self, queues: &Queues) {
        let host_ns = match (self.equal_ns, queues.num_preempted) {
            (Some(host_ns), 0) => host_ns,
            _ => ns(self.host.scheduling_us + self.host.queues_us(queues)),
        };
        self.host_ns = self.host_ns.saturating_add(host_ns);
    }

    /// Earliest time at which the GPUs can begin a step that the host hands to them now.
    pub(super) fn next_start_ns(&self) -> u64 {
        self.host_ns.max(self.gpu_free_ns)
    }

    /// Hands a step of `step_us` to the GPUs, which begin at `not_before_ns` at the earliest.
    #[inline]
    pub(super) fn run(&mut self, step_us: f64, not_before_ns: u64) -> StepTiming {
        let step_ns = ns(step_us);
        let start_ns = self.host_ns.max(self.gpu_free_ns).max(not_before_ns);
        let end_ns = start_ns.saturating_add(step_ns).max(self.gpu_end_ns);
        // An integer division would take longer than the rest of this function.
        let share_ns = if self.stages == 1 { step_ns } else { step_ns / self.stages };
        self.gpu_free_ns = start_ns.saturating_add(share_ns);
        self.gpu_end_ns = end_ns;
        StepTiming { start_ns, end_ns, busy_ns: self.gpu_free_ns - start_ns }
    }

    /// Time at which clients have the tokens of a step.
    pub(super) fn at_client_ns(&self, end_ns: u64) -> u64 {
        end_ns.saturating_add(self.output_ns)
    }
}

/// Converts microseconds to nanoseconds.
pub(super) fn ns_f64(us: f64) -> f64 {
    us * NS_PER_US as f64
}

/// Converts microseconds to whole nanoseconds, rounding halves up. Negative values and NaN become 0.
pub(super) fn ns(us: f64) -> u64 {
    // `f64::round` would be a library call on most CPUs. The cast saturates and maps NaN to 0.
    let exact_ns = ns_f64(us);
    let whole_ns = exact_ns as u64;
    whole_ns.saturating_add(u64::from(exact_ns - whole_ns as f64 >= 0.5))
}

#[cfg(test)]
mod tests {
    use ridgepoint::latency::{FixedLatency, LatencyModel};

    use super::*;

    #[test]
    fn nanoseconds_are_rounded_as_f64_rounds() {
        let next_down = f64::from_bits(0.5_f64.to_bits() - 1);
        let whole = [0.0, 0.4, 0.5, next_down, 1.5, 2.5, 1234.4999, 4503599627370497.5, 1e18, 1e20, -0.4, -0.5, -7.0];
        for exact in whole.into_iter().chain([f64::NAN, f64::INFINITY, f64::NEG_INFINITY, f64::MAX]) {
            assert_eq!(ns(exact / 1e3), (exact / 1e3 * 1e3).round() as u64, "{exact}");
        }
    }

    #[test]
    fn steps_queue_behind_the_host_and_each_other() {
        let latency = FixedLatency { scheduling_us: 2.0, preemption_us: 0.5, ..FixedLatency::default() };
        let mut clock = Clock::new(&latency.host(), 2);
        let mut run = |num_preempted, step_us| {
            clock.schedule(&Queues { num_preempted, num_running: 9, ..Queues::default() });
            let ran = clock.run(step_us, 0);
            (ran.start_ns, ran.end_ns, ran.busy_ns)
        };
        // Scheduled by 2 µs; the next could be by 4 + 2 × 0.5 = 5 µs, when the first stage has been free since 2 + 10 / 2 = 7.
        assert_eq!(run(0, 10.0), (2_000, 12_000, 5_000));
        assert_eq!(run(2, 1.0), (7_000, 12_000, 500));
        // By 5 + 2 = 7 µs; the first stage is free at 7.5.
        assert_eq!(run(0, 4.0), (7_500, 12_000, 2_000));
        clock.idle_iteration(3);
        assert_eq!(clock.now_ns(), 8_500);
        clock.wait_until(8_000);
        assert_eq!((clock.now_ns(), clock.at_client_ns(u64::MAX)), (8_500, u64::MAX));
    }
}
