//! Limits on what clients see, and the range of rates in which the highest that meets them is searched.

use ridgepoint::input::{Keys, NumberRange};
use ridgepoint_replay::workload::MAX_RATE_PER_S;
use ridgepoint_replay::{LoadState, QueueTrend, Spread, TTFT_TAIL_REMARK};
use serde_json::Value;

use super::row::Row;

/// Limits that must hold together, and how their highest rate is searched.
#[derive(Debug, Clone)]
pub(super) struct Slo {
    /// The key of each figure in a grid and its column in a row, as in `ttft_p99_ms`, with the largest value allowed, ms.
    limits: Vec<(String, f64)>,
    /// The limits hold with this probability: share, and standard deviations of a normal distribution below which it lies.
    confidence: Option<(f64, f64)>,
    /// The rate that is found and the lowest one found to break a limit differ by at most this share.
    pub(super) precision: f64,
    /// The lowest rate that is tried, requests/s.
    pub(super) lowest_rate_per_s: f64,
    /// The highest rate that is tried, requests/s.
    pub(super) highest_rate_per_s: f64,
}

/// Probabilities that a limit can be judged at, with the standard deviations of a normal distribution below which they lie.
const CONFIDENCES: [(f64, f64); 5] = [(0.5, 0.0), (0.8, 0.841_62), (0.9, 1.281_55), (0.95, 1.644_85), (0.99, 2.326_35)];

const PRECISION: f64 = 0.02;
const LOWEST_RATE_PER_S: f64 = 0.01;
/// At this rate all requests arrive at once, for a server.
const HIGHEST_RATE_PER_S: f64 = 10_000.0;

impl Slo {
    /// Whether the limits are judged by the upper end of an interval.
    pub(super) fn has_confidence(&self) -> bool {
        self.confidence.is_some()
    }

    /// A remark on figures that are known to be predicted too short.
    pub(super) fn remark(&self) -> Option<String> {
        self.limits.iter().any(|(key, _)| key == "ttft_p99_ms").then(|| TTFT_TAIL_REMARK.to_owned())
    }

    /// Judges a rate by the rows of its replays, one per seed, with their spreads and the trend of the queue over all of them. A figure
    /// that no request has breaks no limit. With a confidence the values are what the figures stay below.
    ///
    /// # Formula
    /// The score of a limit L is the larger of ln(v / L) and ln(v / L) + t s √(1 + 1/K) − ln 1.03, where v is the mean of the figure over K
    /// seeds, s the standard deviation of its logarithm, and t what Student's distribution of K − 1 degrees of freedom stays below in
    /// 95 %: the mean meets the limit, and another seed exceeds it by more than 3 % in at most one case of twenty. A queue that grows
    /// scores the share of the load by which it does, one that has not settled 1 %. A rate holds if no score is above 0.
    pub(super) fn judged(&self, seeds: &[(Row, Spread)], trend: Option<&QueueTrend>) -> Judgement {
        let figures: Vec<(Value, &Spread)> =
            seeds.iter().map(|(row, spread)| (serde_json::to_value(row).unwrap_or_default(), spread)).collect();
        let of_limit = |(key, limit_ms): &(String, f64)| {
            let values: Vec<f64> = figures
                .iter()
                .filter_map(|(row, spread)| Some(self.value_ms(key, row[key].as_f64()?, spread)))
                .collect();
            (!values.is_empty()).then(|| LimitJudgement::new(key, *limit_ms, &values))
        };
        let limits: Vec<LimitJudgement> = self.limits.iter().filter_map(of_limit).collect();
        Judgement { limits, queue: trend.filter(|trend| trend.state() != LoadState::KeepsUp).copied() }
    }

    /// What a figure is judged by.
    fn value_ms(&self, key: &str, predicted_ms: f64, spread: &Spread) -> f64 {
        match self.confidence {
            None => predicted_ms,
            Some((_, sds)) if key.starts_with("ttft") => spread.ttft_below(predicted_ms, sds),
            Some((_, sds)) => spread.steps_below(predicted_ms, sds),
        }
    }

    /// The limits as a text: `ttft_p99_ms = 500, itl_p99_ms = 50`.
    pub(super) fn text(&self) -> String {
        let limits = self.limits.iter().map(|(key, limit_ms)| format!("{key} = {limit_ms}"));
        let confidence = self.confidence.map(|(share, _)| format!("confidence = {share}"));
        limits.chain(confidence).collect::<Vec<_>>().join(", ")
    }

    /// The limits and the range of the search as a text.
    pub(super) fn settings(&self) -> String {
        let Slo { precision, lowest_rate_per_s, highest_rate_per_s, .. } = self;
        format!("{}, precision {precision}, rates {lowest_rate_per_s} to {highest_rate_per_s}", self.text())
    }

    pub(super) fn read(keys: Keys<'_>) -> Self {
        let mut limits = Vec::new();
        let mut has_limit = false;
        for latency in ["ttft", "tpot", "itl", "e2e"] {
            for statistic in ["mean", "p50", "p90", "p95", "p99"] {
                let key = format!("{latency}_{statistic}_ms");
                has_limit |= keys.has(&key);
                if let Some(limit_ms) = keys.number(&key, NumberRange::above_zero(f64::MAX, "ms")) {
                    limits.push((key, limit_ms));
                }
            }
        }
        if !has_limit {
            keys.log.problem(
                "[slo] has no limit: give some, as in ttft_p99_ms = 500 and itl_p99_ms = 50 (any of ttft, tpot, itl, e2e with mean, p50, \
                 p90, p99)",
            );
        }
        let precision = keys.read("precision", "a share from 0.001 to 1", |value| {
            value.as_f64().filter(|share| (0.001..=1.0).contains(share))
        });
        let confidence = keys.read("confidence", "0.5, 0.8, 0.9, 0.95 or 0.99", |value| {
            let share = value.as_f64()?;
            CONFIDENCES.into_iter().find(|(known, _)| known.total_cmp(&share).is_eq())
        });
        let rate = |key| keys.number(key, NumberRange::above_zero(MAX_RATE_PER_S, "requests per second"));
        let (lowest, highest) = (rate("lowest_rate_per_s"), rate("highest_rate_per_s"));
        let lowest_rate_per_s =
            lowest.unwrap_or(highest.map_or(LOWEST_RATE_PER_S, |of| LOWEST_RATE_PER_S.min(of / 2.0)));
        let highest_rate_per_s = highest.unwrap_or(HIGHEST_RATE_PER_S.max(2.0 * lowest_rate_per_s).min(MAX_RATE_PER_S));
        if lowest_rate_per_s >= highest_rate_per_s {
            keys.log.problem(format!(
                "[slo] lowest_rate_per_s = {lowest_rate_per_s} must be below highest_rate_per_s = {highest_rate_per_s}"
            ));
        }
        keys.finish();
        Slo { limits, confidence, precision: precision.unwrap_or(PRECISION), lowest_rate_per_s, highest_rate_per_s }
    }
}

/// What was found of a rate.
#[derive(Debug, Clone)]
pub(super) struct Judgement {
    limits: Vec<LimitJudgement>,
    /// The trend of a queue that grows, or has not settled.
    queue: Option<QueueTrend>,
}

/// What was found of a limit.
#[derive(Debug, Clone)]
struct LimitJudgement {
    key: String,
    limit_ms: f64,
    /// Mean over the seeds, ms.
    value_ms: f64,
    /// What another seed stays below in nineteen cases of twenty, ms.
    upper_ms: f64,
}

/// What binds if no limit breaks before the server is overloaded.
pub(super) const QUEUE: &str = "queue";
/// The score of a queue that has not settled.
const UNSETTLED_SCORE: f64 = 0.01;
/// Another seed may exceed a limit by this share.
const TOLERANCE: f64 = 0.03;
/// What Student's distribution of 1, 2, … degrees of freedom stays below in 95 %.
const STUDENT_95_PCT: [f64; 7] = [6.314, 2.920, 2.353, 2.132, 2.015, 1.943, 1.895];

impl LimitJudgement {
    fn new(key: &str, limit_ms: f64, values_ms: &[f64]) -> Self {
        let number = values_ms.len() as f64;
        let value_ms = values_ms.iter().sum::<f64>() / number;
        let deviations = values_ms.iter().map(|value| (value / value_ms).ln().powi(2));
        let student = values_ms.len().checked_sub(2).and_then(|at| STUDENT_95_PCT.get(at)).copied().unwrap_or(0.0);
        let sd = (deviations.sum::<f64>() / (number - 1.0).max(1.0)).sqrt();
        let upper_ms = value_ms * (student * sd * (1.0 + 1.0 / number).sqrt()).exp();
        LimitJudgement { key: key.to_owned(), limit_ms, value_ms, upper_ms }
    }

    fn score(&self) -> f64 {
        (self.value_ms / self.limit_ms).max(self.upper_ms / self.limit_ms / (1.0 + TOLERANCE)).ln()
    }

    fn margin_pct(&self) -> f64 {
        100.0 * (1.0 - self.value_ms / self.limit_ms)
    }

    /// The limit with the value that breaks it; `None` if it holds.
    fn broken(&self) -> Option<String> {
        let LimitJudgement { key, limit_ms, value_ms, upper_ms } = self;
        if value_ms > limit_ms {
            Some(format!("{key} {value_ms:.3} > {limit_ms}"))
        } else {
            (self.score() > 0.0).then(|| format!("{key} {value_ms:.3}, with another seed {upper_ms:.3} > {limit_ms}"))
        }
    }
}

impl Judgement {
    /// How far the rate is from the limits; at most 0 if it holds.
    pub(super) fn score(&self) -> f64 {
        let of_limits = self.limits.iter().map(LimitJudgement::score).fold(f64::NEG_INFINITY, f64::max);
        let of_queue = self.queue.map(|trend| match trend.state() {
            LoadState::Overloaded => (trend.growth / trend.arrivals).max(UNSETTLED_SCORE),
            _ => UNSETTLED_SCORE,
        });
        // A limit that nothing is known of holds.
        of_limits.max(of_queue.unwrap_or(-1.0))
    }

    /// Whether the seeds differ by so little that each limit is judged by its mean.
    pub(super) fn is_narrow(&self) -> bool {
        self.limits.iter().all(|limit| limit.upper_ms <= limit.value_ms * (1.0 + TOLERANCE))
    }

    /// Whether all figures are within a share of another judgement's.
    pub(super) fn is_within(&self, of: &Judgement, share: f64) -> bool {
        let pairs = self.limits.iter().zip(&of.limits);
        self.queue.is_none()
            && pairs.into_iter().all(|(one, other)| (one.value_ms / other.value_ms - 1.0).abs() <= share)
    }

    /// The limits that the rate breaks, with its values: `ttft_p99_ms 812.345 > 500`; `None` if it holds.
    pub(super) fn broken(&self) -> Option<String> {
        let of_queue = self.queue.map(|trend| match trend.state() {
            LoadState::Overloaded => {
                let (done_per_s, asked_per_s) = (trend.done_per_s(), trend.asked_per_s);
                format!("the queue grows: {done_per_s:.3} of {asked_per_s:.3} per second are done")
            }
            _ => "the queue has not settled".to_owned(),
        });
        let broken: Vec<String> = self.limits.iter().filter_map(LimitJudgement::broken).chain(of_queue).collect();
        (!broken.is_empty()).then(|| broken.join(", "))
    }

    /// The key of the limit that the rate exceeds most, or `queue` if it exceeds none.
    pub(super) fn binds(&self) -> &str {
        let worst = self.limits.iter().max_by(|one, other| one.score().total_cmp(&other.score()));
        worst.filter(|limit| limit.score() > 0.0).map_or(QUEUE, |limit| limit.key.as_str())
    }

    /// The limit that is nearest to breaking, with how far its figure is below it, %.
    pub(super) fn tightest(&self) -> Option<(&str, f64)> {
        let nearest = self.limits.iter().max_by(|one, other| one.score().total_cmp(&other.score()))?;
        Some((&nearest.key, nearest.margin_pct()))
    }

    /// How far the figure of a limit is below it, %; `None` if there is no such figure.
    pub(super) fn margin_pct(&self, key: &str) -> Option<f64> {
        self.limits.iter().find(|limit| limit.key == key).map(LimitJudgement::margin_pct)
    }

    /// The margins of all limits as a text.
    pub(super) fn margins(&self) -> String {
        let margins = self.limits.iter().map(|limit| format!("{} {:.1} %", limit.key, limit.margin_pct()));
        margins.collect::<Vec<_>>().join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ridgepoint::input::{Log, parse_toml};
    use ridgepoint_replay::{Metrics, Outcome, Replay, RequestRecord};

    fn read(text: &str) -> (Slo, Vec<String>) {
        let value = parse_toml("grid.toml", text).unwrap();
        let log = Log::default();
        let slo = Slo::read(Keys::new("slo", &value, &log));
        (slo, log.finish("grid.toml", Some(())).err().map(|error| error.problems().to_vec()).unwrap_or_default())
    }

    /// Two requests: TTFT 20 and 40 ms, E2E 120 and 240 ms, 11 tokens each, so TPOT 10 and 20 ms.
    fn two() -> Row {
        let record = |ttft_ms: u64, e2e_ms: u64| RequestRecord {
            stage: 0,
            turn: 0,
            outcome: Outcome::Finished,
            num_prompt_tokens: 5,
            num_output_tokens: 11,
            num_cached_tokens: 0,
            num_preemptions: 0,
            num_loaded_tokens: 0,
            num_disk_tokens: 0,
            load_ns: 0,
            arrival_ns: 0,
            queued_ns: 0,
            scheduled_ns: 0,
            first_token_ns: ttft_ms * 1_000_000,
            finish_ns: e2e_ms * 1_000_000,
        };
        let records = vec![record(20, 120), record(40, 240)];
        let replay = Replay { records, ..Replay::default() };
        let mut row = Row { data_parallel_size: 1, gpus: 1, ..Row::default() };
        row.fill(&Metrics::of(&replay).run, &replay.counters, None);
        row
    }

    #[test]
    fn limits_are_identified_by_figure_and_statistic() {
        let (slo, problems) =
            read("ttft_p99_ms = 39\nttft_mean_ms = 30\ntpot_p50_ms = 14.5\ne2e_p90_ms = 228\nitl_p99_ms = 1");
        assert_eq!(problems, [""; 0]);
        // The 99th percentile of 20 and 40 is 20 + 0.99 × 20, the 90th of 120 and 240 is 228; nothing is known of gaps.
        let sure = Spread::default();
        assert_eq!(
            slo.judged(&[(two(), sure)], None).broken().unwrap(),
            "ttft_p99_ms 39.800 > 39, tpot_p50_ms 15.000 > 14.5"
        );
        assert!(slo.remark().is_some_and(|remark| remark.contains("predicted TTFT p99")));
        assert_eq!((slo.precision, slo.lowest_rate_per_s, slo.highest_rate_per_s), (0.02, 0.01, 10_000.0));
    }

    #[test]
    fn a_confidence_judges_by_the_upper_end_of_the_interval() {
        // Steps are known to 10 %: 90 % of them are below 1.128 times the prediction, 15 ms.
        let spread = Spread { tables_sd: 0.1, ..Spread::default() };
        let broken = |confidence: &str| {
            read(&format!("tpot_p50_ms = 16.5\n{confidence}")).0.judged(&[(two(), spread)], None).broken()
        };
        assert_eq!((broken(""), broken("confidence = 0.5"), broken("confidence = 0.8")), (None, None, None));
        assert_eq!(broken("confidence = 0.9").unwrap(), "tpot_p50_ms 16.922 > 16.5");
        let (slo, _) = read("tpot_p50_ms = 16.5\nconfidence = 0.9");
        assert_eq!((slo.text().as_str(), slo.remark()), ("tpot_p50_ms = 16.5, confidence = 0.9", None));
        let (_, problems) = read("tpot_p50_ms = 16.5\nconfidence = 1.5");
        assert_eq!(problems, ["slo.confidence = 1.5 must be 0.5, 0.8, 0.9, 0.95 or 0.99"]);
    }

    #[test]
    fn several_seeds_are_judged_by_their_mean_and_by_what_another_one_may_be() {
        let seeds = |values: &[f64]| -> Vec<(Row, Spread)> {
            let row = |value: &f64| Row { ttft_p95_ms: Some(*value), ..Row::default() };
            values.iter().map(|value| (row(value), Spread::default())).collect()
        };
        let judged = |values: &[f64]| read("ttft_p95_ms = 100").0.judged(&seeds(values), None);
        // One seed, and four that are equal, are their value.
        assert!((judged(&[95.0]).score() - 0.95_f64.ln()).abs() < 1e-12);
        assert!((judged(&[95.0; 4]).score() - 0.95_f64.ln()).abs() < 1e-12 && judged(&[95.0; 4]).broken().is_none());
        assert_eq!((judged(&[95.0; 4]).margins().as_str(), judged(&[95.0; 4]).binds()), ("ttft_p95_ms 5.0 %", "queue"));
        // Mean 95, deviations of ±10: the logarithms' standard deviation is 0.122, so another one is below 95 · e^(2.353 · 0.122 · 1.118).
        let wide = judged(&[85.0, 105.0, 85.0, 105.0]);
        assert_eq!(wide.broken().unwrap(), "ttft_p95_ms 95.000, with another seed 131.010 > 100");
        assert!((wide.score() - (1.31010_f64 / 1.03).ln()).abs() < 1e-4 && wide.binds() == "ttft_p95_ms");
        assert_eq!(judged(&[101.0; 4]).broken().unwrap(), "ttft_p95_ms 101.000 > 100");
        // Limits hold, and the queue grows by a tenth of the load.
        let trend = QueueTrend {
            arrivals: 1000.0,
            growth: 100.0,
            chance: 30.0,
            is_unsettled: true,
            asked_per_s: 10.0,
            is_of_sessions: false,
            is_closed_loop: false,
        };
        let overloaded = read("ttft_p95_ms = 100").0.judged(&seeds(&[50.0]), Some(&trend));
        assert_eq!((overloaded.score(), overloaded.binds()), (0.1, "queue"));
        assert_eq!(overloaded.broken().unwrap(), "the queue grows: 9.000 of 10.000 per second are done");
    }

    #[test]
    fn what_can_not_be_is_reported() {
        let (_, problems) = read("ttft_p98_ms = 5\nprecision = 0\nlowest_rate_per_s = 3\nhighest_rate_per_s = 2");
        assert_eq!(problems.len(), 4, "{problems:?}");
        assert!(problems[0].starts_with("[slo] has no limit: give some"), "{problems:?}");
        assert_eq!(problems[1], "slo.precision = 0 must be a share from 0.001 to 1");
        assert_eq!(problems[2], "[slo] lowest_rate_per_s = 3 must be below highest_rate_per_s = 2");
        assert!(problems[3].starts_with("slo.ttft_p98_ms is not a known key: did you mean"), "{problems:?}");
        assert_eq!(read("e2e_p99_ms = -1").1, ["slo.e2e_p99_ms = -1 must be a number above 0 ms"]);
    }
}
