//! Whether a server keeps up with the load of a replay: the trend of its queue over the load's later half. Uses `record`, `units`.
#![expect(clippy::indexing_slicing, reason = "positions within lists of the same length")]

use ridgepoint::coverage::LoadKind;
use ridgepoint::units::ns_to_s;
use serde::{Deserialize, Serialize};

use super::record::{Outcome, Replay, RequestRecord};

/// The later half of a load is averaged in so many parts.
const PARTS: usize = 16;
/// A later half with fewer arrivals is too short to judge.
const MIN_ARRIVALS: usize = 2 * PARTS;
/// Growth of the waiting queue above this many times N is an overload.
const MIN_CHANCES: f64 = 2.0;
/// The same for all unfinished requests, whose number varies more.
const MIN_CHANCES_RUNNING: f64 = 3.0;
/// The trend of unfinished requests is judged if half the load takes this many times the median request.
const MIN_SPANS: u64 = 4;
/// A queue whose fitted line ends above this share of N has not settled.
const MAX_END: f64 = 0.25;
/// A mean TTFT with a larger relative standard error has not settled.
const MAX_ERROR: f64 = 0.15;
/// TTFTs of neighbours depend on each other if the variance of the parts' means is so many times that of independent values.
const MIN_DEPENDENCE_OF_WAITS: f64 = 20.0;
/// A queue whose parts' means have a smaller such ratio is constant.
const MIN_DEPENDENCE: f64 = 3.0;
/// The lowest squared variation of arrivals and work that is assumed.
const MIN_VARIATION: f64 = 0.01;

/// Whether a server keeps up with a load.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum LoadState {
    /// The queue has settled.
    KeepsUp,
    /// The queue does not grow beyond what chance makes of it, and has not settled either: latencies depend on the length of the load.
    AtLimit,
    /// The queue grows for as long as the load lasts.
    Overloaded,
}

/// The queue over the later half of a load's arrivals, or of one stage of it.
///
/// # Formula
/// Q, the number of waiting requests (without a first token), is seen by each arrival, averaged in 16 parts, and a line is fitted to the
/// means. `growth` is what the line rises by. Of a server that gets exactly as much as it can do, the queue is a random walk that
/// n arrivals move by N = √(n · (c_a² + c_w²)) requests, where c_a and c_w are the coefficients of variation of the gaps between
/// arrivals and of the tokens of a request. So growth > 2 N is an overload. A queue has not settled if the line ends above N / 4, or if
/// the standard error of the mean TTFT, from the 16 parts, is above 15 % where neighbours depend on each other. Limits are set by
/// replays of three servers at 60 to 120 % of what they do, with 200 to 20,000 requests.
///
/// A closed loop keeps the number of its requests, however many of them wait: growth is at most that of all unfinished requests, and
/// a number that does not change settles everything. Where the median request takes less than an eighth of the load, growth of
/// all unfinished requests above 3 N counts too: a server with free seats runs more and more of them.
/// Of a load of sessions, n counts those that begin, as later turns wait for the ones before.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct QueueTrend {
    /// Arrivals in the later half.
    pub arrivals: f64,
    /// Requests by which the queue grows.
    pub growth: f64,
    /// Standard deviation of the growth of a queue whose server is at its limit, N.
    pub chance: f64,
    /// Whether the queue has not settled.
    pub is_unsettled: bool,
    /// Arrival rate, requests or sessions per second.
    pub asked_per_s: f64,
    /// Whether the arrivals are those of sessions.
    pub is_of_sessions: bool,
    /// Whether the number of unfinished requests does not change: a closed loop.
    pub is_closed_loop: bool,
}

impl QueueTrend {
    /// Returns the state of the server.
    pub fn state(&self) -> LoadState {
        if self.growth > MIN_CHANCES * self.chance {
            LoadState::Overloaded
        } else if self.is_unsettled {
            LoadState::AtLimit
        } else {
            LoadState::KeepsUp
        }
    }

    /// Returns how the load sends its requests.
    pub fn load_kind(&self) -> LoadKind {
        if self.is_closed_loop { LoadKind::Closed } else { LoadKind::Open }
    }

    /// Returns the rate at which requests or sessions are done.
    pub fn done_per_s(&self) -> f64 {
        self.asked_per_s * (1.0 - self.growth / self.arrivals).max(0.0)
    }

    /// Returns the trend over several replays of the same load with other seeds; `None` of none. It has settled
    /// if it has in more than half of them.
    pub fn of_all(trends: &[QueueTrend]) -> Option<Self> {
        let sum = |of: fn(&QueueTrend) -> f64| trends.iter().map(of).sum::<f64>();
        let unsettled = trends.iter().filter(|trend| trend.is_unsettled).count();
        Some(QueueTrend {
            arrivals: sum(|of| of.arrivals),
            growth: sum(|of| of.growth),
            chance: sum(|of| of.chance * of.chance).sqrt(),
            is_unsettled: 2 * unsettled >= trends.len(),
            ..*trends.first()?
        })
    }
}

impl Replay {
    /// Returns the trend of the queue: of several stages, that of the worst. `None` if the load is too short to show one.
    pub fn queue_trend(&self) -> Option<QueueTrend> {
        let mut stages: Vec<u32> = self.records.iter().map(|record| record.stage).collect();
        stages.sort_unstable();
        stages.dedup();
        let found = stages.into_iter().filter_map(|stage| self.trend_of(stage));
        let badness = |of: &QueueTrend| (of.state(), of.growth / of.arrivals);
        found.max_by(|one, other| badness(one).partial_cmp(&badness(other)).unwrap_or(std::cmp::Ordering::Equal))
    }

    fn trend_of(&self, stage: u32) -> Option<QueueTrend> {
        let sent = || self.records.iter().filter(|record| record.outcome != Outcome::Rejected);
        let is_of_sessions = sent().any(|record| record.turn > 0);
        let mut arriving: Vec<&RequestRecord> =
            sent().filter(|record| record.stage == stage && record.turn == 0).collect();
        arriving.sort_by_key(|record| record.arrival_ns);
        let later = arriving.get(arriving.len() / 2..).filter(|later| later.len() >= MIN_ARRIVALS)?;
        let (begin_ns, end_ns) = (later.first()?.arrival_ns, later.last()?.arrival_ns);
        if begin_ns == end_ns {
            return None;
        }
        // The others that each arrival of the later half finds in a queue, by the time at which requests leave it.
        let all_arrived = sorted(sent().map(|record| record.arrival_ns));
        let seen = |left_ns: fn(&RequestRecord) -> u64| -> Vec<f64> {
            // A time that a request did not reach is 0.
            let left = sorted(sent().map(left_ns).filter(|ns| *ns > 0));
            let (mut arrived, mut gone) = (0, 0);
            let others = later.iter().map(|of| {
                let until = |times: &[u64], from: usize| {
                    from + times[from..].iter().take_while(|ns| **ns <= of.arrival_ns).count()
                };
                (arrived, gone) = (until(&all_arrived, arrived), until(&left, gone));
                arrived as f64 - gone as f64 - 1.0
            });
            others.collect()
        };
        let (waiting, unfinished) = (seen(|record| record.first_token_ns), seen(|record| record.finish_ns));
        let (waiting, unfinished) = (QueueLine::of(&waiting), QueueLine::of(&unfinished));
        let gaps: Vec<f64> = later.windows(2).map(|of| (of[1].arrival_ns - of[0].arrival_ns) as f64).collect();
        let work: Vec<f64> =
            later.iter().map(|of| f64::from(of.num_prompt_tokens) + f64::from(of.num_output_tokens)).collect();
        let arrivals = later.len() as f64;
        let chance = ((variation(&gaps) + variation(&work)).max(MIN_VARIATION) * arrivals).sqrt();
        let mut growth = waiting.growth.min(unfinished.growth);
        let took = sorted(arriving.iter().map(|record| record.finish_ns.saturating_sub(record.arrival_ns)));
        // Sessions begin with few requests in flight, and have more of them for as long as one lasts.
        let shows_running = !is_of_sessions && took[took.len() / 2].saturating_mul(MIN_SPANS) < end_ns - begin_ns;
        if shows_running && unfinished.growth > MIN_CHANCES_RUNNING * chance {
            growth = growth.max(unfinished.growth);
        }
        let ttft = QueueLine::of(&later.iter().map(|record| record.ttft_ms()).collect::<Vec<_>>());
        let is_closed_loop = unfinished.variance < 1.0;
        let is_unsettled = (waiting.mean + waiting.growth / 2.0 > MAX_END * chance
            && waiting.dependence > MIN_DEPENDENCE)
            || (ttft.error > MAX_ERROR * ttft.mean && ttft.dependence > MIN_DEPENDENCE_OF_WAITS);
        Some(QueueTrend {
            arrivals,
            growth: growth.max(0.0),
            chance,
            is_unsettled: is_unsettled && !is_closed_loop && !is_of_sessions,
            asked_per_s: arrivals / ns_to_s(end_ns - begin_ns),
            is_of_sessions,
            is_closed_loop,
        })
    }
}

/// A line through the means of a series' parts.
struct QueueLine {
    /// Mean of the series.
    mean: f64,
    /// What the line rises by from the beginning of the series to its end.
    growth: f64,
    /// Standard error of the mean, from the means of the parts.
    error: f64,
    /// Variance of the parts' means over that of means of independent values.
    dependence: f64,
    /// Variance of the series.
    variance: f64,
}

impl QueueLine {
    /// Fits a line to at least [`PARTS`] values.
    fn of(values: &[f64]) -> Self {
        let at = |part: usize| part * values.len() / PARTS;
        let parts: Vec<f64> = (0..PARTS).map(|part| mean(&values[at(part)..at(part + 1)])).collect();
        let middle = (PARTS - 1) as f64 / 2.0;
        let offset = |part: usize| part as f64 - middle;
        let spread: f64 = (0..PARTS).map(|part| offset(part).powi(2)).sum();
        let slope = parts.iter().enumerate().map(|(part, of)| offset(part) * of).sum::<f64>() / spread;
        let (of_values, of_parts) = (variance(values), variance(&parts));
        QueueLine {
            mean: mean(values),
            growth: slope * PARTS as f64,
            error: (of_parts / (PARTS - 1) as f64).sqrt(),
            dependence: of_parts / (of_values * PARTS as f64 / values.len() as f64).max(f64::MIN_POSITIVE),
            variance: of_values,
        }
    }
}

fn sorted(of: impl Iterator<Item = u64>) -> Vec<u64> {
    let mut all: Vec<u64> = of.collect();
    all.sort_unstable();
    all
}

fn mean(of: &[f64]) -> f64 {
    of.iter().sum::<f64>() / of.len() as f64
}

fn variance(of: &[f64]) -> f64 {
    let mean = mean(of);
    of.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / of.len() as f64
}

/// The squared coefficient of variation.
fn variation(of: &[f64]) -> f64 {
    variance(of) / mean(of).powi(2)
}

#[cfg(test)]
mod tests {
    use rand::{RngExt, SeedableRng};

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
        Replay { records, ..Replay::default() }
    }

    fn trend(of: &Replay) -> QueueTrend {
        of.queue_trend().expect("long enough")
    }

    #[test]
    fn a_queue_that_grows_is_an_overload() {
        // A request is done every 200 ms: request k waits 100 ms × k.
        let of = trend(&replay(401, 50, |k| 100 * k));
        assert_eq!(of.state(), LoadState::Overloaded);
        assert!((of.asked_per_s - 10.0).abs() < 0.1 && (of.done_per_s() - 5.0).abs() < 0.2, "{of:?}");
        // One every 111 ms is 90 % of the load, one every 103 ms 97 %: even arrivals leave nothing to chance.
        for (late_ms, done_per_s) in [(11, 9.0), (3, 9.7)] {
            let of = trend(&replay(2001, 50, |k| late_ms * k));
            assert!((of.done_per_s() - done_per_s).abs() < 0.1 && of.state() == LoadState::Overloaded, "{of:?}");
        }
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
        let of = trend(&sessions(100));
        assert!((of.asked_per_s - 10.0).abs() < 0.1 && of.is_of_sessions, "{of:?}");
        assert!((of.done_per_s() - 5.0).abs() < 0.2 && of.state() == LoadState::Overloaded, "{of:?}");
        assert_eq!(trend(&sessions(0)).state(), LoadState::KeepsUp);
    }

    /// Requests of 100 ms each, one after the other, that arrive at random at a share of that rate: the waits are Lindley's.
    fn random(share: f64, requests: usize, seed: u64) -> Replay {
        let mut rng = rand_pcg::Pcg64::seed_from_u64(seed);
        let (mut arrival_s, mut free_s) = (0.0_f64, 0.0_f64);
        let ns = |s: f64| (s * 1e9) as u64;
        let record = |_| {
            arrival_s += 0.1 / share * rng.sample::<f64, _>(rand_distr::Exp1);
            let start_s = free_s.max(arrival_s);
            free_s = start_s + 0.1;
            RequestRecord {
                outcome: Outcome::Finished,
                num_prompt_tokens: 5,
                num_output_tokens: 1,
                arrival_ns: ns(arrival_s),
                scheduled_ns: ns(start_s),
                first_token_ns: ns(free_s),
                finish_ns: ns(free_s),
                ..RequestRecord::default()
            }
        };
        let records = (0..requests).map(record).collect();
        Replay { records, ..Replay::default() }
    }

    #[test]
    fn a_queue_of_random_arrivals_has_one_of_three_states() {
        let number = |share: f64, requests: usize, state: LoadState| {
            (0..20).filter(|seed| trend(&random(share, requests, *seed)).state() == state).count()
        };
        // An overload of a tenth needs 4 · 100 / (0.1)² / 1.2 arrivals to show; before that it is at least no server that keeps up.
        assert!(number(1.1, 4_000, LoadState::Overloaded) >= 18);
        assert!(number(1.05, 20_000, LoadState::Overloaded) >= 18);
        assert_eq!(number(1.1, 400, LoadState::KeepsUp) + number(1.05, 4_000, LoadState::KeepsUp), 0);
        assert!(number(1.0, 4_000, LoadState::AtLimit) >= 14);
        for requests in [400, 4_000] {
            assert!(number(0.5, requests, LoadState::KeepsUp) >= 19, "{requests}");
            assert_eq!(number(0.7, requests, LoadState::Overloaded), 0);
        }
        assert!(number(0.8, 20_000, LoadState::KeepsUp) >= 19);
        // Several seeds say more than one: each of these alone leaves it open.
        let short: Vec<QueueTrend> = (0..20).map(|seed| trend(&random(1.1, 1_000, seed))).collect();
        assert!(short.iter().filter(|of| of.state() == LoadState::Overloaded).count() < 15);
        assert_eq!(QueueTrend::of_all(&short).map(|of| of.state()), Some(LoadState::Overloaded));
        assert_eq!(QueueTrend::of_all(&[]), None);
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
    fn a_queue_that_does_not_grow_has_settled() {
        let state = |of: Replay| of.queue_trend().map(|of| of.state());
        let settled = Some(LoadState::KeepsUp);
        assert_eq!(state(replay(400, 50, |_| 0)), settled);
        assert_eq!(state(replay(400, 5_000, |_| 30)), settled);
        // Requests of a minute, and a load of 40 s: nothing waits.
        assert_eq!(state(replay(400, 60_000, |_| 0)), settled);
        // A closed loop of 40: each wave comes when the one before it is done, and the last one waits.
        let mut waves = replay(400, 50, |_| 0);
        for (at, record) in waves.records.iter_mut().enumerate() {
            let wave_ns = at as u64 / 40 * 1_000_000_000;
            (record.arrival_ns, record.finish_ns) = (wave_ns, wave_ns + 1_000_000_000);
            record.first_token_ns = wave_ns + 500_000_000;
        }
        assert_eq!(state(waves), settled);
        assert_eq!(state(replay(60, 50, |k| 100 * k)), None);
        assert_eq!(state(replay(0, 50, |_| 0)), None);
    }
}
