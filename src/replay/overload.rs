//! Whether a server keeps up with the load of a replay. Uses `record`.

use super::record::{Outcome, Replay, RequestRecord};

/// A server that gets less than this share of the arriving requests done does not keep up.
const MIN_DONE_SHARE: f64 = 0.95;
/// Growth of a queue counts if it exceeds this many standard deviations of a queue that does not grow.
const MIN_DEVIATIONS: f64 = 3.0;

/// A load that the server does not keep up with.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Overload {
    /// Requests that arrive per second in the second half of the load.
    pub asked_per_s: f64,
    /// Requests that the server completes per second in that time.
    pub done_per_s: f64,
}

impl Replay {
    /// Returns the load that the server does not keep up with: of several stages, the one with the smallest share done.
    ///
    /// # Formula
    /// Let n requests of a stage arrive in the second half of its time, and let the number of waiting requests (without a first
    /// token) grow by g meanwhile, but by no more than all unfinished ones do: a closed loop keeps their number, however many of them
    /// wait at its end. The server does (n − g) / n of the load. If the median request of the first half takes less than that half, g
    /// is the growth of all unfinished requests. A share below 95 % is an overload if g is also above 3 √(w₁ + w₂), where w₁ and w₂
    /// are the queue's lengths at the beginning and the end of the second half: chance makes one of 700 loads grow so much.
    pub fn overload(&self) -> Option<Overload> {
        let mut stages: Vec<u32> = self.records.iter().map(|record| record.stage).collect();
        stages.sort_unstable();
        stages.dedup();
        let found = stages.into_iter().filter_map(|stage| self.overload_of(stage));
        found.min_by(|one, other| share(one).total_cmp(&share(other)))
    }

    fn overload_of(&self, stage: u32) -> Option<Overload> {
        let sent = || self.records.iter().filter(|record| record.outcome != Outcome::Rejected);
        let of_stage = || sent().filter(|record| record.stage == stage);
        let begin_ns = of_stage().map(|record| record.arrival_ns).min()?;
        let end_ns = of_stage().map(|record| record.arrival_ns).max()?;
        let middle_ns = begin_ns + (end_ns - begin_ns) / 2;
        let arrivals = of_stage().filter(|record| record.arrival_ns > middle_ns).count() as f64;
        let half_s = (end_ns - middle_ns) as f64 / 1e9;
        if arrivals < 1.0 || half_s <= 0.0 {
            return None;
        }
        // The length of a queue that requests leave at `left_ns`, at two times.
        let lengths = |left_ns: fn(&RequestRecord) -> u64| {
            [middle_ns, end_ns].map(|at_ns| {
                let in_queue = |record: &&RequestRecord| {
                    record.arrival_ns <= at_ns && (record.outcome == Outcome::Unfinished || left_ns(record) > at_ns)
                };
                sent().filter(in_queue).count() as f64
            })
        };
        let grown = |[before, after]: [f64; 2]| {
            Some(after - before).filter(|grown| *grown > MIN_DEVIATIONS * (before + after).sqrt())
        };
        let unfinished = lengths(|record| record.finish_ns);
        let all_growth = unfinished[1] - unfinished[0];
        let mut growth = grown(lengths(|record| record.first_token_ns)).map(|waiting| waiting.min(all_growth));
        let mut early_ns: Vec<u64> = of_stage()
            .filter(|record| record.arrival_ns <= middle_ns)
            .map(|record| record.finish_ns.saturating_sub(record.arrival_ns))
            .collect();
        early_ns.sort_unstable();
        if early_ns.get(early_ns.len() / 2).is_some_and(|median_ns| *median_ns < end_ns - middle_ns) {
            growth = [growth, grown(unfinished)].into_iter().flatten().reduce(f64::max);
        }
        let done = arrivals - growth?;
        (done < MIN_DONE_SHARE * arrivals)
            .then_some(Overload { asked_per_s: arrivals / half_s, done_per_s: done.max(0.0) / half_s })
    }
}

fn share(of: &Overload) -> f64 {
    of.done_per_s / of.asked_per_s
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One request per 100 ms; request k waits `wait_ms(k)` and is then served for `service_ms`.
    fn replay(requests: u64, service_ms: u64, wait_ms: impl Fn(u64) -> u64) -> Replay {
        let record = |k: u64| {
            let arrival_ms = 100 * k;
            let first_ms = arrival_ms + wait_ms(k) + 1;
            RequestRecord {
                stage: 0,
                outcome: Outcome::Finished,
                num_prompt_tokens: 5,
                num_output_tokens: 11,
                num_cached_tokens: 0,
                num_preemptions: 0,
                num_loaded_tokens: 0,
                num_disk_tokens: 0,
                load_ns: 0,
                arrival_ns: arrival_ms * 1_000_000,
                queued_ns: 0,
                scheduled_ns: first_ms * 1_000_000,
                first_token_ns: first_ms * 1_000_000,
                finish_ns: (first_ms + service_ms) * 1_000_000,
            }
        };
        let records = (0..requests).map(record).collect();
        Replay { records, inter_token_ns: Vec::new(), counters: Default::default(), offload: None }
    }

    #[test]
    fn a_queue_that_grows_is_an_overload() {
        // A request is done every 200 ms: request k waits 100 ms × k.
        let overload = replay(401, 50, |k| 100 * k).overload().unwrap();
        assert!((overload.asked_per_s - 10.0).abs() < 1e-9, "{overload:?}");
        assert!((overload.done_per_s - 5.0).abs() < 0.2, "{overload:?}");
        // One every 111 ms is 90 % of the load.
        let overload = replay(2001, 50, |k| 11 * k).overload().unwrap();
        assert!((overload.done_per_s - 9.0).abs() < 0.1, "{overload:?}");
    }

    #[test]
    fn a_server_that_keeps_up_is_none() {
        assert_eq!(replay(400, 50, |_| 0).overload(), None);
        assert_eq!(replay(400, 5_000, |_| 300).overload(), None);
        // Requests of a minute, and a load of 40 s: nothing waits.
        assert_eq!(replay(400, 60_000, |_| 0).overload(), None);
        // A closed loop of 40: each wave comes when the one before it is done, and the last one waits.
        let mut waves = replay(400, 50, |_| 0);
        for (at, record) in waves.records.iter_mut().enumerate() {
            let wave_ns = at as u64 / 40 * 1_000_000_000;
            (record.arrival_ns, record.finish_ns) = (wave_ns, wave_ns + 1_000_000_000);
            record.first_token_ns = wave_ns + 500_000_000;
        }
        assert_eq!(waves.overload(), None);
        // 97 % of the load.
        assert_eq!(replay(2001, 50, |k| 3 * k).overload(), None);
        assert_eq!(replay(1, 50, |_| 0).overload(), None);
        assert_eq!(
            Replay { records: Vec::new(), inter_token_ns: Vec::new(), counters: Default::default(), offload: None }
                .overload(),
            None
        );
    }
}
