//! Limits on what clients see, and between which rates the highest that holds them is looked for. Uses `section`, and
//! the replay's metrics.

use std::fmt;

use serde::Serialize;

use super::section::{Section, number};
use ridgepoint::replay::{Distribution, StageMetrics};
use ridgepoint::workload::MAX_RATE_PER_S;

/// What is limited.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Metric {
    /// Time to first token.
    Ttft,
    /// Time per output token, of each request.
    Tpot,
    /// Inter-token latency, of each gap.
    Itl,
    /// End to end.
    E2e,
}

/// Of what over all requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Statistic {
    /// The mean.
    Mean,
    /// Half of the values are at most this.
    P50,
    /// Nine in ten.
    P90,
    /// 99 in a hundred.
    P99,
}

/// Every key of a limit.
const KEYS: [(&str, Metric, Statistic); 16] = [
    ("ttft_mean_ms", Metric::Ttft, Statistic::Mean),
    ("ttft_p50_ms", Metric::Ttft, Statistic::P50),
    ("ttft_p90_ms", Metric::Ttft, Statistic::P90),
    ("ttft_p99_ms", Metric::Ttft, Statistic::P99),
    ("tpot_mean_ms", Metric::Tpot, Statistic::Mean),
    ("tpot_p50_ms", Metric::Tpot, Statistic::P50),
    ("tpot_p90_ms", Metric::Tpot, Statistic::P90),
    ("tpot_p99_ms", Metric::Tpot, Statistic::P99),
    ("itl_mean_ms", Metric::Itl, Statistic::Mean),
    ("itl_p50_ms", Metric::Itl, Statistic::P50),
    ("itl_p90_ms", Metric::Itl, Statistic::P90),
    ("itl_p99_ms", Metric::Itl, Statistic::P99),
    ("e2e_mean_ms", Metric::E2e, Statistic::Mean),
    ("e2e_p50_ms", Metric::E2e, Statistic::P50),
    ("e2e_p90_ms", Metric::E2e, Statistic::P90),
    ("e2e_p99_ms", Metric::E2e, Statistic::P99),
];

/// A limit on one figure.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Limit {
    /// What is limited.
    pub metric: Metric,
    /// Of what over all requests.
    pub statistic: Statistic,
    /// At most this, ms.
    pub limit_ms: f64,
}

impl Limit {
    /// The key of this limit in a grid, as in `ttft_p99_ms`.
    pub fn key(&self) -> &'static str {
        let is_this = |(_, metric, statistic): &&(&str, Metric, Statistic)| {
            (*metric, *statistic) == (self.metric, self.statistic)
        };
        KEYS.iter().find(is_this).map_or("", |(key, ..)| key)
    }

    /// The figure that is limited, ms; `None` where no request has one.
    pub fn value_ms(&self, of: &StageMetrics) -> Option<f64> {
        let distribution: Option<Distribution> = match self.metric {
            Metric::Ttft => of.ttft_ms,
            Metric::Tpot => of.tpot_ms,
            Metric::Itl => of.itl_ms,
            Metric::E2e => of.e2e_ms,
        };
        distribution.map(|of| match self.statistic {
            Statistic::Mean => of.mean,
            Statistic::P50 => of.p50,
            Statistic::P90 => of.p90,
            Statistic::P99 => of.p99,
        })
    }
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} = {}", self.key(), self.limit_ms)
    }
}

/// Limits that must hold together, and how their highest rate is looked for.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Slo {
    /// The limits, at least one.
    pub limits: Vec<Limit>,
    /// The rate that is found and the lowest one found to break a limit differ by at most this share.
    pub precision: f64,
    /// Where even this rate breaks a limit, nothing slower is tried, requests/s.
    pub lowest_rate_per_s: f64,
    /// Where this rate holds, nothing faster is tried, requests/s.
    pub highest_rate_per_s: f64,
}

const PRECISION: f64 = 0.02;
const LOWEST_RATE_PER_S: f64 = 0.01;
/// All requests at once, as far as any server can tell.
const HIGHEST_RATE_PER_S: f64 = 10_000.0;

impl Slo {
    /// The limits that `of` breaks, with what it has: `ttft_p99_ms 812.345 > 500`.
    pub fn broken(&self, of: &StageMetrics) -> Vec<String> {
        let broken = |limit: &Limit| {
            let value_ms = limit.value_ms(of).filter(|value_ms| *value_ms > limit.limit_ms)?;
            Some(format!("{} {value_ms:.3} > {}", limit.key(), limit.limit_ms))
        };
        self.limits.iter().filter_map(broken).collect()
    }

    pub(super) fn read(mut section: Section<'_>) -> Self {
        let limits: Vec<Limit> = KEYS
            .iter()
            .filter_map(|(key, metric, statistic)| {
                let limit_ms = section.one(key, "a number of ms above 0", |value| number(value).filter(|ms| *ms > 0.0));
                limit_ms.map(|limit_ms| Limit { metric: *metric, statistic: *statistic, limit_ms })
            })
            .collect();
        if !KEYS.iter().any(|(key, ..)| section.has(key)) {
            section.problem("has no limit: give some, as in ttft_p99_ms = 500 and itl_p99_ms = 50 (any of ttft, tpot, itl, e2e with mean, p50, p90, p99)");
        }
        let precision = section.one("precision", "a share from 0.001 to 1", |value| {
            number(value).filter(|share| (0.001..=1.0).contains(share))
        });
        let mut rate = |key| {
            let expected = format!("a rate above 0 and at most {MAX_RATE_PER_S} requests per second");
            section.one(key, &expected, |value| number(value).filter(|rate| *rate > 0.0 && *rate <= MAX_RATE_PER_S))
        };
        let (lowest, highest) = (rate("lowest_rate_per_s"), rate("highest_rate_per_s"));
        let lowest_rate_per_s =
            lowest.unwrap_or(highest.map_or(LOWEST_RATE_PER_S, |of| LOWEST_RATE_PER_S.min(of / 2.0)));
        let highest_rate_per_s = highest.unwrap_or(HIGHEST_RATE_PER_S.max(2.0 * lowest_rate_per_s).min(MAX_RATE_PER_S));
        if lowest_rate_per_s >= highest_rate_per_s {
            section.problem(&format!(
                "lowest_rate_per_s = {lowest_rate_per_s} must be below highest_rate_per_s = {highest_rate_per_s}"
            ));
        }
        section.finish();
        Slo { limits, precision: precision.unwrap_or(PRECISION), lowest_rate_per_s, highest_rate_per_s }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ridgepoint::replay::{Metrics, Outcome, Replay, RequestRecord};

    fn read(text: &str) -> (Slo, Vec<String>) {
        let table = text.parse().unwrap();
        let mut problems = Vec::new();
        let slo = Slo::read(Section::new("slo", &table, &mut problems));
        (slo, problems)
    }

    /// Two requests: TTFT 20 and 40 ms, E2E 120 and 240 ms, 11 tokens each, so TPOT 10 and 20 ms.
    fn two() -> StageMetrics {
        let record = |ttft_ms: u64, e2e_ms: u64| RequestRecord {
            stage: 0,
            outcome: Outcome::Finished,
            num_prompt_tokens: 5,
            num_output_tokens: 11,
            num_cached_tokens: 0,
            num_preemptions: 0,
            arrival_ns: 0,
            scheduled_ns: 0,
            first_token_ns: ttft_ms * 1_000_000,
            finish_ns: e2e_ms * 1_000_000,
        };
        let records = vec![record(20, 120), record(40, 240)];
        Metrics::of(&Replay { records, inter_token_ns: Vec::new(), counters: Default::default() }).run
    }

    #[test]
    fn limits_are_told_by_figure_and_statistic() {
        let (slo, problems) =
            read("ttft_p99_ms = 39\nttft_mean_ms = 30\ntpot_p50_ms = 14.5\ne2e_p90_ms = 228\nitl_p99_ms = 1");
        assert_eq!(problems, [""; 0]);
        // The 99th percentile of 20 and 40 is 20 + 0.99 × 20, the 90th of 120 and 240 is 228; nothing is known of gaps.
        assert_eq!(slo.broken(&two()), ["ttft_p99_ms 39.800 > 39", "tpot_p50_ms 15.000 > 14.5"]);
        assert_eq!((slo.precision, slo.lowest_rate_per_s, slo.highest_rate_per_s), (0.02, 0.01, 10_000.0));
    }

    #[test]
    fn every_key_names_its_limit() {
        for (key, metric, statistic) in KEYS {
            assert_eq!(Limit { metric, statistic, limit_ms: 1.0 }.key(), key);
        }
    }

    #[test]
    fn what_can_not_be_is_told() {
        let (_, problems) = read("ttft_p95_ms = 5\nprecision = 0\nlowest_rate_per_s = 3\nhighest_rate_per_s = 2");
        assert_eq!(problems.len(), 4, "{problems:?}");
        assert!(problems[0].starts_with("[slo] has no limit: give some"), "{problems:?}");
        assert_eq!(problems[1], "slo.precision = 0 must be a share from 0.001 to 1");
        assert_eq!(problems[2], "[slo] lowest_rate_per_s = 3 must be below highest_rate_per_s = 2");
        assert!(problems[3].starts_with("slo.ttft_p95_ms = 5 is not a known key: did you mean"), "{problems:?}");
        assert_eq!(read("e2e_p99_ms = -1").1, ["slo.e2e_p99_ms = -1 must be a number of ms above 0"]);
    }
}
