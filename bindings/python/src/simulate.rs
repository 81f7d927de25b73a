//! `simulate`: replays a load on the server of a step model.

use numpy::{IntoPyArray, PyArray1};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use ridgepoint::correction::CorrectionInfo;
use ridgepoint::coverage::IntervalCoverage;
use ridgepoint::kv_capacity::KvCapacity;
use ridgepoint::latency::TransferDirection;
use ridgepoint_replay::server_config::{Beside, ServerConfig};
use ridgepoint_replay::workload::{OpenedLoad, Summary};
use ridgepoint_replay::{
    EngineConfig, EngineCounters, Intervals, Metrics, OffloadCounters, Outcome, Replay, RequestRecord, SpreadSampler,
    StageMetrics, TTFT_TAIL_REMARK, replay,
};
use serde::Serialize;
use serde_json::{Map, Value};

use crate::columns::{times_ns, tokens};
use crate::fault::{RidgepointError, detached, from_json, raised, to_json};
use crate::load::{Load, source};
use crate::server::Tier;
use crate::steps::StepModel;

/// The results of a replay without the columns of its requests.
#[derive(Serialize)]
struct Report<'a> {
    model: &'a str,
    hardware: &'a str,
    engine: &'a EngineConfig,
    kv_capacity: &'a KvCapacity,
    correction: CorrectionInfo,
    load: Summary,
    intervals: Intervals,
    interval_coverage: &'a IntervalCoverage,
    run: &'a StageMetrics,
    stages: &'a [StageMetrics],
    counters: &'a EngineCounters,
    offload: Option<OffloadCounters>,
    warnings: Vec<String>,
}

/// Replays a load. Returns its figures as JSON and a column for each property of the requests.
#[pyfunction]
#[pyo3(signature = (steps, load, scheduler, kv_offload, seed, arrival_ns, input_len, output_len, /))]
#[allow(clippy::too_many_arguments)]
pub fn simulate<'py>(
    py: Python<'py>,
    steps: &Bound<'py, StepModel>,
    load: &str,
    scheduler: &str,
    kv_offload: Option<&str>,
    seed: u64,
    arrival_ns: &Bound<'py, PyAny>,
    input_len: &Bound<'py, PyAny>,
    output_len: &Bound<'py, PyAny>,
) -> PyResult<(String, Bound<'py, PyDict>)> {
    let load = Load::parse(load)?;
    let scheduler: Map<String, Value> = from_json("scheduler", scheduler)?;
    let tier = kv_offload.map(Tier::parse).transpose()?;
    let (arrivals_ns, inputs, outputs) =
        (times_ns("arrival_ns", arrival_ns)?, tokens("input_len", input_len)?, tokens("output_len", output_len)?);
    let arrays = (arrivals_ns.values(), inputs.values(), outputs.values());
    for (name, found) in [("input_len", arrays.1.len()), ("output_len", arrays.2.len())] {
        if found != arrays.0.len() {
            let said = format!("{name} has {found} values, one for each of {} arrivals is needed", arrays.0.len());
            return Err(RidgepointError::new_err(said));
        }
    }
    let steps = steps.get();
    let (report, replayed) = detached(py, || {
        replayed(steps, scheduler, tier, source(&load, arrays, seed, steps.deployment.data_parallel_size))
    })?;
    Ok((report, requests(py, &replayed.records)?))
}

/// Returns the report and the replay.
fn replayed(
    steps: &StepModel,
    mut scheduler: Map<String, Value>,
    tier: Option<Tier>,
    source: ridgepoint::Result<OpenedLoad>,
) -> PyResult<(String, Replay)> {
    let mut source = source.map_err(raised)?;
    let predictor = steps.latency.steps();
    let names = [("model", &steps.model.name), ("hardware", &steps.hardware.name)];
    scheduler.extend(names.map(|(key, name)| (key.to_owned(), name.as_str().into())));
    let beside = Beside { engine: predictor.engine().clone(), ..Beside::default() };
    let server = ServerConfig::from_values_with("scheduler", &scheduler, &beside).map_err(raised)?;
    let server = ServerConfig { origin: "engine".to_owned(), ..server.with_deployment(steps.deployment.clone()) };
    let mut engine = server.engine_config(&steps.model, &steps.hardware, predictor.engine()).map_err(raised)?;
    if let Some(tier) = tier {
        if engine.config.kv_offload.is_some() {
            let said = "scheduler: kv_offload cannot be given with kv_offloading_size or kv_transfer_config: keep one";
            return Err(RidgepointError::new_err(said));
        }
        let (tier, note) = tier.on(steps.latency.kv_transfers());
        engine.config.kv_offload = Some(tier);
        engine.notes.extend(note);
    }
    if engine.config.kv_offload.is_some() {
        steps.latency.known_kv_transfer_time_us(TransferDirection::CpuToGpu, 0).map_err(raised)?;
    }
    let mut warnings = steps.notes();
    warnings.extend(engine.notes);
    warnings.append(&mut source.notes);
    let mut sampler = SpreadSampler::new(predictor);
    let replayed =
        replay(&steps.latency, &engine.config, &mut *source.workload, &mut [&mut sampler]).map_err(raised)?;
    replayed.check_clock().map_err(raised)?;
    let metrics = Metrics::of(&replayed);
    let trend = replayed.queue_trend();
    warnings.extend(replayed.notes(&engine.config, trend.as_ref()));
    warnings.push(TTFT_TAIL_REMARK.to_owned());
    let is_corrected = predictor.correction().is_some();
    let coverage =
        IntervalCoverage::of(predictor.engine(), &steps.hardware.name, trend.map(|of| of.load_kind()), is_corrected);
    warnings.push(coverage.remark.clone());
    let report = Report {
        model: &steps.model.name,
        hardware: &steps.hardware.name,
        engine: &engine.config,
        kv_capacity: &engine.capacity,
        correction: CorrectionInfo::of(predictor.correction()),
        load: source.summary,
        intervals: Intervals::of(&sampler.spread(), &coverage),
        interval_coverage: &coverage,
        run: &metrics.run,
        stages: &metrics.stages,
        counters: &replayed.counters,
        offload: replayed.offload,
        warnings,
    };
    Ok((to_json(&report)?, replayed))
}

/// Indices into `_OUTCOMES` of `_replay.py`.
fn outcome_code(outcome: Outcome) -> u32 {
    match outcome {
        Outcome::Finished => 0,
        Outcome::Rejected => 1,
        Outcome::Unfinished => 2,
    }
}

/// Returns a column for each property, with a row per request in order of arrival. Times that an unfinished or rejected
/// request lacks are NaN.
fn requests<'py>(py: Python<'py>, records: &[RequestRecord]) -> PyResult<Bound<'py, PyDict>> {
    let columns = PyDict::new(py);
    let words = |value: fn(&RequestRecord) -> u32| -> Bound<'py, PyArray1<u32>> {
        records.iter().map(value).collect::<Vec<_>>().into_pyarray(py)
    };
    let times = |value: fn(&RequestRecord) -> u64| -> Bound<'py, PyArray1<u64>> {
        records.iter().map(value).collect::<Vec<_>>().into_pyarray(py)
    };
    let figures = |value: fn(&RequestRecord) -> Option<f64>| -> Bound<'py, PyArray1<f64>> {
        let figure = |record: &RequestRecord| {
            (record.outcome == Outcome::Finished).then(|| value(record)).flatten().unwrap_or(f64::NAN)
        };
        records.iter().map(figure).collect::<Vec<_>>().into_pyarray(py)
    };
    columns.set_item("stage", words(|record| record.stage))?;
    columns.set_item("turn", words(|record| record.turn))?;
    columns.set_item("outcome", words(|record| outcome_code(record.outcome)))?;
    columns.set_item("num_prompt_tokens", words(|record| record.num_prompt_tokens))?;
    columns.set_item("num_output_tokens", words(|record| record.num_output_tokens))?;
    columns.set_item("num_cached_tokens", words(|record| record.num_cached_tokens))?;
    columns.set_item("num_loaded_tokens", words(|record| record.num_loaded_tokens))?;
    columns.set_item("num_disk_tokens", words(|record| record.num_disk_tokens))?;
    columns.set_item("num_preemptions", words(|record| record.num_preemptions))?;
    columns.set_item("arrival_ns", times(|record| record.arrival_ns))?;
    columns.set_item("scheduled_ns", times(|record| record.scheduled_ns))?;
    columns.set_item("load_ns", times(|record| record.load_ns))?;
    columns.set_item("first_token_ns", times(|record| record.first_token_ns))?;
    columns.set_item("finish_ns", times(|record| record.finish_ns))?;
    columns.set_item("ttft_ms", figures(|record| Some(record.ttft_ms())))?;
    columns.set_item("tpot_ms", figures(RequestRecord::tpot_ms))?;
    columns.set_item("e2e_ms", figures(|record| Some(record.e2e_ms())))?;
    Ok(columns)
}
