//! Replays the loads of results on a server and compares.

use std::sync::Arc;

use ridgepoint::correction::CorrectionInfo;
use ridgepoint::input::check;
use ridgepoint::latency::{CalibratedRoofline, LatencyModel};
use ridgepoint::{Correction, Result};
use ridgepoint_replay::{EngineConfig, Metrics, Spread, SpreadSampler, replay};
use serde::Serialize;

use super::load::{BenchLoad, LengthSpread};
use super::result::BenchResult;
use crate::evaluate::metric::{Latency, Metric, predicted_ms};
use crate::stats::{error_pct, median};

/// A result and the server that it is of.
pub struct BenchCase {
    /// What was measured.
    pub result: BenchResult,
    engine: EngineConfig,
    latency: CalibratedRoofline,
    load: BenchLoad,
    seed: u64,
}

/// Requests in flight by a result's figures may exceed the server's limit by this share.
const IN_FLIGHT_TOLERANCE: f64 = 1.1;

impl BenchCase {
    /// Puts a result on a server.
    ///
    /// # Errors
    /// Requests that are longer than the server takes, or more of them in flight than it runs: the command is another server's.
    pub fn new(
        result: BenchResult,
        (engine, replicas): (EngineConfig, u32),
        latency: CalibratedRoofline,
        spread: Option<LengthSpread>,
        seed: u64,
    ) -> Result<Self> {
        let load = BenchLoad::new(&result, spread, replicas, seed)?;
        let mut problems = Vec::new();
        if load.longest > engine.max_model_len && !result.requests.is_empty() {
            problems.push(format!(
                "has requests of up to {} tokens, and the server takes {} (max_model_len): the result is another server's",
                load.longest, engine.max_model_len
            ));
        }
        let decoding = result.ms(Metric::E2E_MEAN).zip(result.ms(Metric::TTFT_MEAN));
        let running = decoding.map(|(e2e, ttft)| result.completed as f64 / result.duration_s * (e2e - ttft) / 1e3);
        let most = f64::from(engine.max_num_seqs) * f64::from(replicas);
        if let Some(running) = running.filter(|running| *running > IN_FLIGHT_TOLERANCE * most) {
            problems.push(format!(
                "had {running:.0} requests decoding at once on average, by E2E - TTFT and the rate, and the server runs at most {most} \
                 (max_num_seqs): the result is another server's"
            ));
        }
        check(&result.name, problems)?;
        Ok(BenchCase { result, engine, latency, load, seed })
    }

    /// The figures of a replay with a correction; without one, with the server's own. The second value is their spread.
    ///
    /// # Errors
    /// As [`replay`].
    pub(super) fn replayed(&self, correction: Option<&Correction>) -> Result<(Metrics, Spread, Vec<String>)> {
        let latency = match correction {
            None => self.latency.clone(),
            Some(correction) => self.latency.clone().with_correction(Arc::new(correction.clone())),
        };
        let mut sampler = SpreadSampler::new(latency.steps());
        let mut load = self.load.workload(self.seed)?;
        let replayed = replay(&latency as &dyn LatencyModel, &self.engine, load.as_mut(), &mut [&mut sampler])?;
        let metrics = Metrics::of(&replayed);
        let notes = sampler.extrapolated().into_iter();
        let rejected = metrics.run.rejected;
        let refused = (rejected > 0).then(|| {
            format!(
                "{rejected} requests are longer than max_model_len = {} and are not predicted",
                self.engine.max_model_len
            )
        });
        let spread = sampler.spread();
        Ok((metrics, spread, notes.chain(refused).collect()))
    }

    /// What is measured, with its prediction.
    pub(super) fn rows(&self, metrics: &Metrics, spread: &Spread) -> Vec<BenchRow> {
        let result = &self.result;
        let duration_s = metrics.run.duration_s;
        let throughput = |figure: &'static str, count: u64| {
            let row = BenchRow::new(figure, "per s", count as f64 / result.duration_s, count as f64 / duration_s?);
            // Throughput is as uncertain as the time that it is over.
            let (lower, upper) = spread.of_steps(row.predicted);
            Some(BenchRow { lower, upper, ..row })
        };
        let rates = [
            throughput("requests", result.completed),
            throughput("total_tokens", result.prompt_tokens + result.output_tokens),
        ];
        let latencies = result.measured.iter().filter_map(|(_, metric, measured_ms)| {
            let row = BenchRow::new(metric.to_string(), "ms", measured_ms, predicted_ms(metrics, None, metric)?);
            let (lower, upper) = match metric.latency {
                Latency::Ttft => spread.of_ttft(row.predicted),
                _ => spread.of_steps(row.predicted),
            };
            Some(BenchRow { lower, upper, ..row })
        });
        rates.into_iter().flatten().chain(latencies).collect()
    }
}

/// A figure of a result and its prediction.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct BenchRow {
    /// Its name: `requests`, `total_tokens`, or that of a latency, such as `ttft_mean`.
    pub figure: String,
    /// `per s` or `ms`.
    pub unit: &'static str,
    /// As the load generator has it.
    pub measured: f64,
    /// As it is predicted.
    pub predicted: f64,
    /// Lower end of the prediction's interval.
    pub lower: f64,
    /// Upper end of the prediction's interval.
    pub upper: f64,
    /// `(predicted − measured) / measured`, percent.
    pub error_pct: f64,
}

impl BenchRow {
    fn new(figure: impl Into<String>, unit: &'static str, measured: f64, predicted: f64) -> Self {
        let error_pct = error_pct(measured, predicted);
        BenchRow { figure: figure.into(), unit, measured, predicted, lower: predicted, upper: predicted, error_pct }
    }
}

/// A result with its predictions.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct JudgedResult {
    /// Name of the result.
    pub name: String,
    /// The load in words.
    pub load: String,
    /// Its figures.
    pub rows: Vec<BenchRow>,
    /// Remarks.
    pub notes: Vec<String>,
}

/// Results with their predictions. Serialised keys are stable.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct BenchReport {
    /// The server, in words.
    pub server: String,
    /// The correction of the predictions.
    pub correction: CorrectionInfo,
    /// The results, in order.
    pub results: Vec<JudgedResult>,
    /// Median absolute error of each figure over the results, percent.
    pub median_ape_pct: Vec<FigureError>,
}

/// Median absolute error of a figure over results.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct FigureError {
    /// The figure.
    pub figure: String,
    /// Its error, percent.
    pub median_ape_pct: f64,
}

/// Replays and compares results. `done` is called after each replay.
///
/// # Errors
/// As [`replay`].
pub fn judge_bench(server: String, cases: &[BenchCase], done: &dyn Fn()) -> Result<BenchReport> {
    let mut results = Vec::new();
    for case in cases {
        let (metrics, spread, more) = case.replayed(None)?;
        let notes = case.result.notes.iter().cloned().chain(more).collect();
        done();
        let rows = case.rows(&metrics, &spread);
        results.push(JudgedResult { name: case.result.name.clone(), load: case.load.in_words.clone(), rows, notes });
    }
    let correction = CorrectionInfo::of(cases.first().and_then(|case| case.latency.steps().correction()));
    Ok(BenchReport { server, correction, median_ape_pct: medians(&results), results })
}

/// Median absolute error of each figure, in the order in which figures first occur.
fn medians(results: &[JudgedResult]) -> Vec<FigureError> {
    let mut errors: Vec<(String, Vec<f64>)> = Vec::new();
    for row in results.iter().flat_map(|of| &of.rows) {
        match errors.iter_mut().find(|(figure, _)| *figure == row.figure) {
            Some((_, errors)) => errors.push(row.error_pct.abs()),
            None => errors.push((row.figure.clone(), vec![row.error_pct.abs()])),
        }
    }
    let of = |(figure, errors)| Some(FigureError { figure, median_ape_pct: median(errors)? });
    errors.into_iter().filter_map(of).collect()
}
