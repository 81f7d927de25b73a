//! Logged starts of one model, measured and predicted, and the rates that are fitted to them.

use ridgepoint::units::GIB;
use ridgepoint::{CudagraphMode, Deployment, Error, Hardware, Model, Options, Result, StepModel};
use ridgepoint_replay::cold_start::{ColdStart, CompileCache, FittedRates, Rates, Seconds, TermName};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::fit::{RateFit, fit_rows};
use super::log::StartLog;
use super::measured::{MeasuredTime, Quantity, RateSum, measure, sum};

/// A measured time with its predictions. JSON keys are stable.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct MeasuredTerm {
    /// What was measured.
    pub quantity: Quantity,
    /// The terms that it is part of.
    pub terms: &'static [TermName],
    /// The time in the log, s.
    pub measured_s: f64,
    /// The prediction without this log.
    pub predicted: Seconds,
    /// The prediction with the fitted rates, s.
    pub fitted_s: f64,
}

/// What a rank logged of its memory. JSON keys are stable.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RankMemory {
    /// Name of its process.
    pub process: String,
    /// Pipeline stage, from 0.
    pub pipeline_rank: Option<u32>,
    /// Tensor-parallel rank, from 0.
    pub tensor_rank: Option<u32>,
    /// Time to load its weights, s.
    pub weights_s: Option<f64>,
    /// Memory of its weights, GiB.
    pub weights_gib: Option<f64>,
    /// Memory left for its KV cache, GiB.
    pub kv_cache_gib: Option<f64>,
}

/// A start as its log has it. JSON keys are stable.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LoggedStart {
    /// The log.
    pub log: String,
    /// Version of vLLM.
    pub engine_version: Option<String>,
    /// GPUs that share every layer.
    pub tensor_parallel_size: u32,
    /// Stages that share the layers.
    pub pipeline_parallel_size: u32,
    /// Time until the server listened, s.
    pub ready_s: Option<f64>,
    /// The prediction of it without this log.
    pub predicted_ready: Seconds,
    /// The measured times.
    pub measured: Vec<MeasuredTerm>,
    /// Times that the log should report and does not.
    pub not_found: Vec<&'static str>,
    /// The ranks that logged their memory.
    pub ranks: Vec<RankMemory>,
    /// Predicted weights of the rank that holds most, GiB.
    pub predicted_weights_gib: f64,
    /// Predicted KV cache of a rank, GiB.
    pub predicted_kv_cache_gib: f64,
}

/// Logged starts and the rates that are fitted to them. JSON keys are stable.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ColdStartFit {
    /// The starts.
    pub starts: Vec<LoggedStart>,
    /// The rates.
    pub rates: Vec<RateFit>,
    /// Standard deviation of the logarithm of a time between starts.
    pub scatter: f64,
    /// The rates as a file has them.
    #[serde(skip)]
    pub fitted: FittedRates,
    /// Remarks.
    #[serde(skip)]
    pub notes: Vec<String>,
}

/// A logged start with its measured times and the sums of rates that predict them.
struct ComparedStart {
    start: LoggedStart,
    rows: Vec<(MeasuredTime, RateSum)>,
}

/// Compares logs with predictions by `prior`, and fits the rates. `base` is the deployment that logs are silent about.
///
/// # Errors
/// `ErrorKind::Invalid` for logs of another model, and for logs that report no time; a deployment that does not fit the model.
pub fn compare(
    logs: &[StartLog],
    (model, hardware): (&Model, &Hardware),
    base: &Deployment,
    options: &Options,
    prior: &Rates,
) -> Result<ColdStartFit> {
    let mut notes = Vec::new();
    let mut problems = Vec::new();
    for log in logs {
        match model_of(log, model) {
            ModelOf::Same => {}
            ModelOf::Unknown(name) => {
                let note = format!("the logs' model '{name}' is not a known name: it is taken for {}", model.name);
                if !notes.contains(&note) {
                    notes.push(note);
                }
            }
            ModelOf::Other(name) => {
                problems.push(format!("{} is of the model '{name}', not of {}", log.name, model.name));
            }
        }
    }
    if !problems.is_empty() {
        problems.push("give logs of one model, and its name".to_owned());
        return Err(Error::invalid("the logs", problems));
    }
    let mut cases = Vec::new();
    for log in logs {
        let deployment = deployment(base, log).map_err(|error| error.of(log.name.as_str()))?;
        cases.push(case(log, (model, hardware), &deployment, options, prior)?);
    }
    let rows: Vec<(MeasuredTime, RateSum)> = cases.iter().flat_map(|case| case.rows.iter().cloned()).collect();
    let (rates, scatter) = fit_rows(&rows, prior)?;
    let fitted = FittedRates {
        name: "the logs".to_owned(),
        model: model.name.clone(),
        hardware: hardware.name.clone(),
        storage: prior.storage(),
        logs: logs.len() as u64,
        scatter,
        rates: rates.iter().map(|rate| (rate.rate, rate.stored())).collect(),
    };
    let value = |name| {
        let found = rates.iter().find(|rate| rate.rate == name);
        found.map_or_else(|| prior.of(name).value, |rate| rate.value)
    };
    let starts = cases.into_iter().map(|case| {
        let measured = case.rows.iter().map(|(measured, sum)| MeasuredTerm {
            quantity: measured.quantity,
            terms: measured.quantity.terms(),
            measured_s: measured.seconds,
            predicted: sum.time(prior),
            fitted_s: sum.seconds(value),
        });
        LoggedStart { measured: measured.collect(), ..case.start }
    });
    Ok(ColdStartFit { starts: starts.collect(), rates, scatter, fitted, notes })
}

fn case(
    log: &StartLog,
    (model, hardware): (&Model, &Hardware),
    deployment: &Deployment,
    options: &Options,
    prior: &Rates,
) -> Result<ComparedStart> {
    let options = Options { operators_only: true, ..options.clone() };
    let steps = StepModel::with_options(model, hardware, deployment, &options)?;
    let start = ColdStart {
        model,
        hardware,
        deployment,
        steps: &steps,
        rates: prior,
        compile_cache: log.compile_cache.unwrap_or(CompileCache::Cold),
        prompt_tokens: 1,
    };
    let (amounts, start_up) = (start.amounts()?, start.predict()?);
    let [profile_s, fill_s] =
        ["profile_run", "kv_cache"].map(|name| start_up.part(name).map_or(0.0, |part| part.time.estimate_s));
    let (measured, not_found) = measure(log, &amounts);
    let rows = measured.into_iter().map(|measured| (measured, sum(&measured, &amounts, profile_s, fill_s))).collect();
    let ranks = log.ranks.iter().map(|(process, rank)| RankMemory {
        process: process.clone(),
        pipeline_rank: rank.pipeline_rank,
        tensor_rank: rank.tensor_rank,
        weights_s: rank.weights_s,
        weights_gib: rank.weights_gib,
        kv_cache_gib: rank.kv_cache_gib,
    });
    let start = LoggedStart {
        log: log.name.clone(),
        engine_version: log.labels.engine_version.clone(),
        tensor_parallel_size: deployment.tensor_parallel_size,
        pipeline_parallel_size: deployment.pipeline_parallel_size,
        ready_s: log.ready_s,
        predicted_ready: start_up.ready,
        measured: Vec::new(),
        not_found,
        ranks: ranks.filter(|rank| rank.weights_s.is_some() || rank.weights_gib.is_some()).collect(),
        predicted_weights_gib: amounts.rank_bytes / GIB,
        predicted_kv_cache_gib: amounts.kv_bytes / GIB,
    };
    Ok(ComparedStart { start, rows })
}

/// Whose start a log is.
enum ModelOf {
    Same,
    /// A path, or a name that no built-in model has.
    Unknown(String),
    Other(String),
}

fn model_of(log: &StartLog, model: &Model) -> ModelOf {
    let Some(name) = log.labels.model.clone() else { return ModelOf::Unknown("none".to_owned()) };
    let last = name.trim_end_matches('/').rsplit('/').next().unwrap_or_default().to_owned();
    let found = [&name, &last].into_iter().find_map(|name| Model::builtin(name).ok());
    match found {
        _ if name == model.name || last == model.name => ModelOf::Same,
        Some(found) if found.name == model.name => ModelOf::Same,
        Some(_) => ModelOf::Other(name),
        None => ModelOf::Unknown(name),
    }
}

/// The deployment of a log: its own settings, and those of `base` that it does not report.
fn deployment(base: &Deployment, log: &StartLog) -> Result<Deployment> {
    let labels = &log.labels;
    let mut own = base.clone();
    for (value, reported) in [
        (&mut own.tensor_parallel_size, labels.tensor_parallel_size),
        (&mut own.pipeline_parallel_size, labels.pipeline_parallel_size),
        (&mut own.data_parallel_size, labels.data_parallel_size),
        (&mut own.max_num_seqs, labels.max_num_seqs),
        (&mut own.max_num_batched_tokens, labels.max_num_batched_tokens),
    ] {
        *value = reported.unwrap_or(*value);
    }
    own.max_model_len = labels.max_model_len.or(own.max_model_len);
    own.enforce_eager = labels.enforce_eager.unwrap_or(own.enforce_eager);
    let mode = labels.cudagraph_mode.and_then(|name| CudagraphMode::deserialize(Value::from(name)).ok());
    own.cudagraph_mode = mode.or(own.cudagraph_mode);
    if own.enforce_eager {
        own.cudagraph_mode = None;
    }
    let mut sizes = labels.capture_sizes();
    sizes.retain(|size| *size <= own.max_num_batched_tokens);
    if own.enforce_eager || own.cudagraph_mode == Some(CudagraphMode::None) {
        (own.cudagraph_capture_sizes, own.max_cudagraph_capture_size) = (Vec::new(), None);
    } else if !sizes.is_empty() {
        (own.cudagraph_capture_sizes, own.max_cudagraph_capture_size) = (sizes, None);
    }
    own.validate()?;
    Ok(own)
}
