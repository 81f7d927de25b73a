//! Replays cases and sets what was predicted beside what was measured, with the baselines. Uses `case`, `comparison`,
//! `black_box`; cases run in parallel, results keep their order.

use rayon::prelude::*;

use super::black_box::{self, Observation, StageMeans};
use super::case::{Case, Rate, arrivals_per_s};
use super::comparison::{Baseline, Evaluation, ExperimentReport, MetricRow, Skipped};
use super::measured::WHOLE_RUN;
use super::metric::{Metric, predicted_ms};
use ridgepoint::internals::correction::{Correction, Used};
use ridgepoint::latency::LatencyModel;
use ridgepoint::replay::{Metrics, Replay, RequestRecord, SpreadSampler, StageMetrics, replay};
use ridgepoint::{Error, Result};

/// A client's count of output tokens may differ from what was asked for by this much before a note says so.
const OUTPUT_TOLERANCE: f64 = 0.02;

/// Replays every case and compares; `done` is called after each replay, [`replays`] times.
///
/// # Errors
/// Never for a case that can't be replayed: it is listed as skipped. `ErrorKind::Invalid` where no case is left.
pub fn judge(cases: &[Case], mut skipped: Vec<Skipped>, seed: u64, done: &(dyn Fn() + Sync)) -> Result<Evaluation> {
    let judged: Vec<Result<Judged>> = cases.par_iter().map(|case| Judged::new(case, seed, done)).collect();
    let mut kept = Vec::new();
    for (case, result) in cases.iter().zip(judged) {
        match result {
            Ok(judged) => kept.push(judged),
            Err(error) => skipped.push(Skipped { id: case.name.clone(), reason: error.to_string() }),
        }
    }
    if kept.is_empty() {
        return Err(Error::invalid("nothing could be run", reasons(&skipped)));
    }
    let seen: Vec<Observation> = kept.iter().flat_map(|judged| judged.observations.iter().cloned()).collect();
    kept.par_iter_mut().try_for_each(|judged| judged.add_black_box(&seen, seed).inspect(|()| done()))?;
    Ok(Evaluation::new(kept.into_iter().map(|judged| judged.report).collect(), skipped))
}

/// Each reason once, with the first that it is of.
fn reasons(skipped: &[Skipped]) -> Vec<String> {
    let mut reasons: Vec<(&Skipped, usize)> = Vec::new();
    for one in skipped {
        match reasons.iter_mut().find(|(first, _)| first.reason == one.reason) {
            Some((_, more)) => *more += 1,
            None => reasons.push((one, 0)),
        }
    }
    let named = |(first, more): &(&Skipped, usize)| match more {
        0 => format!("{}: {}", first.id, first.reason),
        more => format!("{} and {more} more: {}", first.id, first.reason),
    };
    reasons.iter().map(named).collect()
}

/// Replays of these cases in [`judge`]: prediction, ideal roofline and black box, and the calibrated roofline where the
/// prediction is corrected.
pub fn replays(cases: &[Case]) -> u64 {
    cases.iter().map(|case| if case.rooflines.correction().is_some() { 4 } else { 3 }).sum()
}

struct Judged<'a> {
    case: &'a Case,
    report: ExperimentReport,
    observations: Vec<Observation>,
}

impl<'a> Judged<'a> {
    fn new(case: &'a Case, seed: u64, done: &(dyn Fn() + Sync)) -> Result<Self> {
        let roofline = case.rooflines.predicted.as_ref();
        let mut sampler = SpreadSampler::new(roofline.steps());
        let predicted = replay(roofline, &case.engine, case.load.workload(seed).as_mut(), &mut sampler)?;
        done();
        let metrics = Metrics::of(&predicted);
        let spread = sampler.spread();
        let rows: Vec<MetricRow> = rows(case, &metrics)?.into_iter().map(|row| row.within(&spread)).collect();
        let mut notes = case.notes.clone();
        let correction = case.rooflines.correction();
        notes.extend(correction.and_then(|correction| seen_in_the_fit(correction, &case.model)));
        notes.extend(case.rooflines.predicted.steps().carried_over());
        notes.extend(refused(&metrics.run, case.engine.max_model_len));
        notes.extend(output_counted_otherwise(case, &metrics.run));
        let report = ExperimentReport {
            name: case.name.clone(),
            model: case.model.clone(),
            hardware: case.hardware.clone(),
            tensor_parallel_size: case.tensor_parallel_size,
            workload: case.workload.clone().unwrap_or_else(|| workload(&metrics.run)),
            backend_version: case.backend_version.clone(),
            correction: Used::of(correction),
            metrics: rows,
            notes,
        };
        let observations = observations(case, &predicted);
        let mut judged = Judged { case, report, observations };
        if correction.is_some() {
            judged.add_baseline(Baseline::CalibratedRoofline, case.rooflines.calibrated.as_ref(), seed)?;
            done();
        }
        judged.add_baseline(Baseline::IdealRoofline, case.rooflines.ideal.as_ref(), seed)?;
        done();
        Ok(judged)
    }

    fn add_baseline(&mut self, baseline: Baseline, latency: &dyn LatencyModel, seed: u64) -> Result<()> {
        let metrics = Metrics::of(&self.case.replay(latency, seed)?);
        for row in &mut self.report.metrics {
            if let Some(ms) = predicted_ms(&metrics, u32::try_from(row.stage).ok(), row.metric) {
                row.baselines.insert(baseline, ms);
            }
        }
        Ok(())
    }

    fn add_black_box(&mut self, seen: &[Observation], seed: u64) -> Result<()> {
        let Case { name, model, tensor_parallel_size, hardware, .. } = self.case;
        let Some(fitted) = black_box::fit(name, model, *tensor_parallel_size, hardware, seen) else {
            self.report.notes.push(format!("no black box: no other experiment on {hardware} to fit it on"));
            return Ok(());
        };
        let whose = if fitted.same_model {
            format!("of {model} at tensor_parallel_size = {tensor_parallel_size}")
        } else {
            format!(
                "of all models on {hardware}, as none is of {model} at tensor_parallel_size = {tensor_parallel_size}"
            )
        };
        let stages = if fitted.stages == 1 { "1 stage".to_owned() } else { format!("{} stages", fitted.stages) };
        self.report.notes.push(format!("black box fitted on {stages} of other experiments {whose}"));
        self.add_baseline(Baseline::BlackBox, &fitted.black_box, seed)
    }
}

/// A row per measured figure.
fn rows(case: &Case, metrics: &Metrics) -> Result<Vec<MetricRow>> {
    let mut problems = Vec::new();
    let mut rows = Vec::new();
    for (stage, metric, measured_ms) in case.measured.iter() {
        match predicted_ms(metrics, u32::try_from(stage).ok(), metric) {
            Some(predicted_ms) => rows.push(MetricRow::new(stage, metric, measured_ms, predicted_ms)),
            None => problems.push(format!("{metric} of stage {stage} is measured, but no request of it finishes")),
        }
    }
    if problems.is_empty() {
        return Ok(rows);
    }
    problems.extend(refused(&metrics.run, case.engine.max_model_len));
    Err(Error::invalid(case.name.clone(), problems))
}

fn refused(run: &StageMetrics, max_model_len: u32) -> Option<String> {
    let StageMetrics { requests, rejected, .. } = run;
    (*rejected > 0).then(|| {
        format!("{rejected} of {requests} requests are refused: prompt and output are longer than max_model_len = {max_model_len}")
    })
}

fn seen_in_the_fit(correction: &Correction, model: &str) -> Option<String> {
    let fitted = correction.source.models.iter().any(|fitted| fitted == model);
    fitted.then(|| format!("correction {} was fitted on this model: not a test of it", correction.name))
}

fn workload(run: &StageMetrics) -> String {
    let per_request = |tokens: u64| tokens as f64 / run.finished.max(1) as f64;
    format!("{:.0} in, {:.0} out", per_request(run.input_tokens), per_request(run.output_tokens))
}

/// inference-perf divides by the tokens that it counts in the text that came back. Where a model goes on past its end of text,
/// what it then generates has no text to count, and `itl_mean` is larger than the gaps between tokens were.
fn output_counted_otherwise(case: &Case, run: &StageMetrics) -> Option<String> {
    let get = |metric| case.measured.get(WHOLE_RUN, metric);
    let counted = (get(Metric::E2E_MEAN)? - get(Metric::TTFT_MEAN)?) / get(Metric::ITL_MEAN)?;
    let asked = run.output_tokens as f64 / run.finished as f64;
    ((counted / asked - 1.0).abs() > OUTPUT_TOLERANCE).then(|| {
        format!(
            "measured itl_mean counts {counted:.0} output tokens a request, the load asks for {asked:.0}: itl_mean is not \
             comparable, E2E and TTFT are"
        )
    })
}

/// What clients saw of each stage, as a step sees it.
fn observations(case: &Case, replay: &Replay) -> Vec<Observation> {
    let stages = replay.records.iter().map(|record| record.stage).max().map_or(0, |last| last + 1);
    (0..stages).filter_map(|stage| observation(case, &replay.records, stage, stages == 1)).collect()
}

fn observation(case: &Case, records: &[RequestRecord], stage: u32, is_only_one: bool) -> Option<Observation> {
    let of_stage: Vec<&RequestRecord> = records.iter().filter(|record| record.stage == stage).collect();
    let mean = |value: fn(&RequestRecord) -> u32| {
        of_stage.iter().map(|record| f64::from(value(record))).sum::<f64>() / of_stage.len() as f64
    };
    let output_tokens = mean(|record| record.num_output_tokens);
    let measured = |metric| {
        let own = i32::try_from(stage).ok().and_then(|stage| case.measured.get(stage, metric));
        own.or_else(|| case.measured.get(WHOLE_RUN, metric).filter(|_| is_only_one))
    };
    let ttft_ms = measured(Metric::TTFT_MEAN)?;
    let decoding_ms = match measured(Metric::E2E_MEAN) {
        Some(e2e_ms) => e2e_ms - ttft_ms,
        None => measured(Metric::TPOT_MEAN)? * (output_tokens - 1.0),
    };
    let requests_per_s = match case.rate(stage) {
        Rate::OpenLoop => arrivals_per_s(records, stage)?,
        Rate::ClosedLoop { concurrency } => f64::from(concurrency) / ((ttft_ms + decoding_ms) / 1e3),
    };
    let new_prompt_tokens = mean(|record| record.num_prompt_tokens.saturating_sub(record.num_cached_tokens));
    let means = StageMeans { requests_per_s, new_prompt_tokens, output_tokens, ttft_ms, decoding_ms };
    Observation::new(&case.name, &case.model, case.tensor_parallel_size, &case.hardware, means)
}
