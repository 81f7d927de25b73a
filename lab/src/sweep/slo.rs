//! Limits on what clients see, and the range of rates in which the highest that meets them is searched.
#![expect(clippy::indexing_slicing, reason = "a missing key of a JSON value is null")]

use ridgepoint::input::{Keys, NumberRange};
use ridgepoint_replay::workload::MAX_RATE_PER_S;
use ridgepoint_replay::{Spread, TTFT_TAIL_REMARK};

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

    /// The limits that a row breaks, with its values: `ttft_p99_ms 812.345 > 500`; `None` if all hold. A figure that no request has
    /// breaks none. With a confidence the values are what the figures stay below.
    pub(super) fn broken(&self, row: &Row, spread: &Spread) -> Option<String> {
        let columns = serde_json::to_value(row).unwrap_or_default();
        let broken = |(key, limit_ms): &(String, f64)| {
            let predicted_ms = columns[key].as_f64()?;
            let value_ms = match self.confidence {
                None => predicted_ms,
                Some((_, sds)) if key.starts_with("ttft") => spread.ttft_below(predicted_ms, sds),
                Some((_, sds)) => spread.steps_below(predicted_ms, sds),
            };
            (value_ms > *limit_ms).then(|| format!("{key} {value_ms:.3} > {limit_ms}"))
        };
        let broken: Vec<String> = self.limits.iter().filter_map(broken).collect();
        (!broken.is_empty()).then(|| broken.join(", "))
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
            for statistic in ["mean", "p50", "p90", "p99"] {
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
        let replay = Replay { records, inter_token_ns: Vec::new(), counters: Default::default(), offload: None };
        let mut row = Row { data_parallel_size: 1, gpus: 1, ..Row::default() };
        row.fill(&Metrics::of(&replay).run, &replay.counters, Some(true));
        row
    }

    #[test]
    fn limits_are_identified_by_figure_and_statistic() {
        let (slo, problems) =
            read("ttft_p99_ms = 39\nttft_mean_ms = 30\ntpot_p50_ms = 14.5\ne2e_p90_ms = 228\nitl_p99_ms = 1");
        assert_eq!(problems, [""; 0]);
        // The 99th percentile of 20 and 40 is 20 + 0.99 × 20, the 90th of 120 and 240 is 228; nothing is known of gaps.
        let sure = Spread::default();
        assert_eq!(slo.broken(&two(), &sure).unwrap(), "ttft_p99_ms 39.800 > 39, tpot_p50_ms 15.000 > 14.5");
        assert!(slo.remark().is_some_and(|remark| remark.contains("predicted TTFT p99")));
        assert_eq!((slo.precision, slo.lowest_rate_per_s, slo.highest_rate_per_s), (0.02, 0.01, 10_000.0));
    }

    #[test]
    fn a_confidence_judges_by_the_upper_end_of_the_interval() {
        // Steps are known to 10 %: 90 % of them are below 1.128 times the prediction, 15 ms.
        let spread = Spread { tables_sd: 0.1, ..Spread::default() };
        let broken = |confidence: &str| read(&format!("tpot_p50_ms = 16.5\n{confidence}")).0.broken(&two(), &spread);
        assert_eq!((broken(""), broken("confidence = 0.5"), broken("confidence = 0.8")), (None, None, None));
        assert_eq!(broken("confidence = 0.9").unwrap(), "tpot_p50_ms 16.922 > 16.5");
        let (slo, _) = read("tpot_p50_ms = 16.5\nconfidence = 0.9");
        assert_eq!((slo.text().as_str(), slo.remark()), ("tpot_p50_ms = 16.5, confidence = 0.9", None));
        let (_, problems) = read("tpot_p50_ms = 16.5\nconfidence = 1.5");
        assert_eq!(problems, ["slo.confidence = 1.5 must be 0.5, 0.8, 0.9, 0.95 or 0.99"]);
    }

    #[test]
    fn what_can_not_be_is_reported() {
        let (_, problems) = read("ttft_p95_ms = 5\nprecision = 0\nlowest_rate_per_s = 3\nhighest_rate_per_s = 2");
        assert_eq!(problems.len(), 4, "{problems:?}");
        assert!(problems[0].starts_with("[slo] has no limit: give some"), "{problems:?}");
        assert_eq!(problems[1], "slo.precision = 0 must be a share from 0.001 to 1");
        assert_eq!(problems[2], "[slo] lowest_rate_per_s = 3 must be below highest_rate_per_s = 2");
        assert!(problems[3].starts_with("slo.ttft_p95_ms is not a known key: did you mean"), "{problems:?}");
        assert_eq!(read("e2e_p99_ms = -1").1, ["slo.e2e_p99_ms = -1 must be a number above 0 ms"]);
    }
}
