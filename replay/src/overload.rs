//! Whether a server keeps up with the load of a replay. Uses `record`, `units`.

use ridgepoint::units::ns_to_s;

use super::record::{Outcome, Replay, RequestRecord};

/// A server that gets less than this share of the arriving requests done does not keep up.
const MIN_DONE_SHARE: f64 = 0.95;
/// Growth of a queue counts if it exceeds this many standard deviations of a queue that does not grow.
const MIN_DEVIATIONS: f64 = 3.0;

/// A load that the server does not keep up with.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Overload {
    /// Arrival rate in the second half of the load, requests or sessions per second.
    pub asked_per_s: f64,
    /// Completion rate in that time, in the same unit.
    pub done_per_s: f64,
    /// Whether the rates count sessions.
    pub is_of_sessions: bool,
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
    ///
    /// Of a load of sessions, n counts those that begin, as later turns wait for the ones before. Its time ends with the last first turn.
    pub fn overload(&self) -> Option<Overload> {
        let mut stages: Vec<u32> = self.records.iter().map(|record| record.stage).collect();
        stages.sort_unstable();
        stages.dedup();
        let found = stages.into_iter().filter_map(|stage| self.overload_of(stage));
        found.min_by(|one, other| share(one).total_cmp(&share(other)))
    }

    /// Returns a warning if the arrivals span less time than the replay needs to finish after the last one. Such a load does not show
    /// whether the server sustains its rate.
    pub fn burst(&self) -> Option<String> {
        let arrivals = || self.records.iter().filter(|record| record.turn == 0).map(|record| record.arrival_ns);
        let (begin_ns, end_ns) = (arrivals().min()?, arrivals().max()?);
        let over_ns = self.records.iter().map(|record| record.finish_ns).max()?;
        let [arriving_s, ending_s] = [end_ns - begin_ns, over_ns.saturating_sub(end_ns)].map(ns_to_s);
        let (what, key) = if self.records.iter().any(|record| record.turn > 0) {
            ("sessions", "num_sessions")
        } else {
            ("requests", "num_requests")
        };
        (arriving_s < ending_s).then(|| {
            format!(
                "all {what} arrive within {arriving_s:.1} s and end {ending_s:.1} s later, so that the server need not keep up with their \
                 rate: give more {key}"
            )
        })
    }

    fn overload_of(&self, stage: u32) -> Option<Overload> {
        let sent = || self.records.iter().filter(|record| record.outcome != Outcome::Rejected);
        let is_of_sessions = sent().any(|record| record.turn > 0);
        let arriving = || sent().filter(|record| record.stage == stage && record.turn == 0);
        let begin_ns = arriving().map(|record| record.arrival_ns).min()?;
        let end_ns = arriving().map(|record| record.arrival_ns).max()?;
        let middle_ns = begin_ns + (end_ns - begin_ns) / 2;
        let arrivals = arriving().filter(|record| record.arrival_ns > middle_ns).count() as f64;
        let half_s = ns_to_s(end_ns - middle_ns);
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
        let mut early_ns: Vec<u64> = arriving()
            .filter(|record| record.arrival_ns <= middle_ns)
            .map(|record| record.finish_ns.saturating_sub(record.arrival_ns))
            .collect();
        early_ns.sort_unstable();
        // Sessions begin with few requests in flight, and have more of them for as long as one lasts.
        if !is_of_sessions && early_ns.get(early_ns.len() / 2).is_some_and(|median_ns| *median_ns < end_ns - middle_ns)
        {
            growth = [growth, grown(unfinished)].into_iter().flatten().reduce(f64::max);
        }
        let done = arrivals - growth?;
        (done < MIN_DONE_SHARE * arrivals).then_some(Overload {
            asked_per_s: arrivals / half_s,
            done_per_s: done.max(0.0) / half_s,
            is_of_sessions,
        })
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
                outcome: Outcome::Finished,
                num_prompt_tokens: 5,
                num_output_tokens: 11,
                arrival_ns: arrival_ms * 1_000_000,
                scheduled_ns: first_ms * 1_000_000,
                first_token_ns: first_ms * 1_000_000,
                finish_ns: (first_ms + service_ms) * 1_000_000,
                ..RequestRecord::default()
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
    fn sessions_that_begin_faster_than_others_end_are_an_overload() {
        // A session of two turns every 100 ms. First turns wait ever longer, and the later ones come after all of them.
        let sessions = |wait_ms: u64| {
            let mut replay = replay(400, 50, |k| wait_ms * k);
            let later: Vec<RequestRecord> = replay.records.iter().map(|first| later_turn(first, 50_000)).collect();
            replay.records.extend(later);
            replay
        };
        let overload = sessions(100).overload().unwrap();
        assert!((overload.asked_per_s - 10.0).abs() < 0.1 && overload.is_of_sessions, "{overload:?}");
        assert!((overload.done_per_s - 5.0).abs() < 0.2, "{overload:?}");
        assert_eq!(sessions(0).overload(), None);
    }

    fn later_turn(first: &RequestRecord, after_ms: u64) -> RequestRecord {
        let after_ns = after_ms * 1_000_000;
        RequestRecord {
            turn: 1,
            arrival_ns: first.finish_ns + after_ns,
            first_token_ns: first.finish_ns + after_ns + 1_000_000,
            finish_ns: first.finish_ns + after_ns + 50_000_000,
            ..*first
        }
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
