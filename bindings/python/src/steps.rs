//! `StepModel`: predicts step times from arrays of requests.

use std::path::{Path, PathBuf};

use numpy::{IntoPyArray, PyArray1};
use pyo3::prelude::*;
use ridgepoint::correction::CorrectionInfo;
use ridgepoint::dtype::MatmulFormat;
use ridgepoint::kv_capacity::KvCapacity;
use ridgepoint::latency::{CalibratedRoofline, KvTransfers, LatencyModel, TransferDirection};
use ridgepoint::{Deployment, Hardware, Model, Request, RequestColumns, StepEstimate};
use ridgepoint_lab::prediction::{Prediction, prediction_arguments};
use ridgepoint_replay::server_config::ServerConfig;
use serde::Serialize;

use crate::columns::{Column, flags, positions, tokens};
use crate::fault::{RidgepointError, caught, detached, from_json, raised, to_json};

/// The base class of Python's `StepModel`. It has the methods that a simulator calls often.
#[pyclass(module = "ridgepoint._native", subclass, frozen)]
pub struct StepModel {
    /// Step times and host overheads.
    pub latency: CalibratedRoofline,
    /// The model.
    pub model: Model,
    /// The GPU.
    pub hardware: Hardware,
    /// vLLM's engine arguments.
    pub deployment: Deployment,
    /// Notes on the model's precision.
    pub precision_notes: Vec<String>,
}

/// The checked columns of the requests of one or more steps.
struct Requests<'py> {
    computed: Column<'py, u32>,
    scheduled: Column<'py, u32>,
    samples: Option<Column<'py, u8>>,
}

impl<'py> Requests<'py> {
    fn new(
        num_computed_tokens: &Bound<'py, PyAny>,
        num_scheduled_tokens: &Bound<'py, PyAny>,
        samples: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Self> {
        Ok(Requests {
            computed: tokens("num_computed_tokens", num_computed_tokens)?,
            scheduled: tokens("num_scheduled_tokens", num_scheduled_tokens)?,
            samples: samples.map(|samples| flags("samples", samples)).transpose()?,
        })
    }

    fn slices(&self) -> (&[u32], &[u32], Option<&[u8]>) {
        (self.computed.values(), self.scheduled.values(), self.samples.as_ref().map(Column::values))
    }
}

fn columns<'a>(computed: &'a [u32], scheduled: &'a [u32], samples: Option<&'a [u8]>) -> PyResult<RequestColumns<'a>> {
    let columns = RequestColumns::new(computed, scheduled).map_err(raised)?;
    samples.map_or(Ok(columns), |samples| columns.with_sample_bytes(samples).map_err(raised))
}

/// Refuses a folder of data that is not there: look-ups would silently find nothing.
///
/// # Errors
/// `RidgepointError` with the folder.
pub fn check_data_dir(data_dir: Option<&Path>) -> PyResult<()> {
    let Some(dir) = data_dir.filter(|dir| !dir.is_dir()) else { return Ok(()) };
    let folders = "no such folder; give one that contains hardware/, models/ or bench_data/";
    Err(RidgepointError::new_err(format!("data_dir = {}: {folders}", dir.display())))
}

/// A step estimate with the names of its model, GPU and correction.
#[derive(Serialize)]
struct Predicted<'a> {
    model: &'a str,
    hardware: &'a str,
    correction: CorrectionInfo,
    #[serde(flatten)]
    step: StepEstimate,
}

#[pymethods]
impl StepModel {
    #[new]
    #[pyo3(signature = (model, model_config, precision, hardware, deployment, prediction, data_dir, kv_transfers, /))]
    #[allow(clippy::too_many_arguments)]
    fn new(
        py: Python<'_>,
        model: &str,
        model_config: Option<&str>,
        precision: Option<&str>,
        hardware: &str,
        deployment: &str,
        prediction: &str,
        data_dir: Option<PathBuf>,
        kv_transfers: Option<(PathBuf, Option<String>)>,
    ) -> PyResult<Self> {
        let (deployment, given_deployment) = Deployment::given_in_json("deployment", deployment).map_err(raised)?;
        let prediction = from_json("prediction", prediction)?;
        let given = prediction_arguments().read_all("prediction", &prediction).map_err(raised)?;
        detached(py, || {
            check_data_dir(data_dir.as_deref())?;
            let (model, precision_notes) = found(model, model_config, precision, data_dir.as_deref())?;
            let hardware = ridgepoint_replay::find_hardware(data_dir.as_deref(), hardware).map_err(raised)?;
            let options = Prediction::options(&given, data_dir.as_deref());
            let deployment = deployment.on(&given_deployment, &options.engine, &hardware);
            let steps =
                ridgepoint::StepModel::with_options(&model, &hardware, &deployment, &options).map_err(raised)?;
            // The file's name alone, or the contents of one.
            let measured = kv_transfers.map(|(path, text)| match text {
                None => KvTransfers::read(&path),
                Some(text) => KvTransfers::from_json(&path.display().to_string(), &text),
            });
            let measured = measured.transpose().map_err(raised)?;
            let latency = CalibratedRoofline::new(steps).with_kv_transfers(measured);
            Ok(StepModel { latency, model, hardware, deployment, precision_notes })
        })
    }

    /// Predicts the time of one step, µs. A step without requests takes 0 µs; a request that schedules nothing is ignored.
    ///
    /// Args:
    ///     num_computed_tokens: tokens of each request already in the KV cache.
    ///     num_scheduled_tokens: tokens of each request processed in this step: 1 for a decode, the chunk for a prefill.
    ///     samples: whether the step samples a token for the request: false for all prefill chunks of a prompt but the last.
    ///         Defaults to true.
    ///
    /// Raises:
    ///     RidgepointError: the columns have unequal lengths, or a value is negative or does not fit in 32 bits.
    ///     TypeError: a column does not hold integers, or samples does not hold booleans.
    #[pyo3(signature = (num_computed_tokens, num_scheduled_tokens, samples=None))]
    fn step_time_us(
        &self,
        num_computed_tokens: &Bound<'_, PyAny>,
        num_scheduled_tokens: &Bound<'_, PyAny>,
        samples: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<f64> {
        let requests = Requests::new(num_computed_tokens, num_scheduled_tokens, samples)?;
        let (computed, scheduled, samples) = requests.slices();
        let columns = columns(computed, scheduled, samples)?;
        caught(|| Ok(self.latency.steps().step_time_us(&columns)))
    }

    /// Predicts the times of many steps, µs, as an array of len(offsets) - 1 values. Releases the GIL.
    ///
    /// Args:
    ///     offsets: step i has the requests from offsets[i] up to, but not including, offsets[i + 1]. The first offset is 0, the
    ///         last one the number of requests.
    ///     num_computed_tokens, num_scheduled_tokens, samples: the columns of step_time_us for all steps.
    ///
    /// Raises:
    ///     RidgepointError, TypeError: as for step_time_us; also if offsets decrease or do not span the columns.
    #[pyo3(signature = (offsets, num_computed_tokens, num_scheduled_tokens, samples=None))]
    fn step_times_us<'py>(
        &self,
        py: Python<'py>,
        offsets: &Bound<'py, PyAny>,
        num_computed_tokens: &Bound<'py, PyAny>,
        num_scheduled_tokens: &Bound<'py, PyAny>,
        samples: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyArray1<f64>>> {
        let offsets = positions("offsets", offsets)?;
        let requests = Requests::new(num_computed_tokens, num_scheduled_tokens, samples)?;
        let (computed, scheduled, samples) = requests.slices();
        // Check equal lengths once for all steps.
        columns(computed, scheduled, samples)?;
        check_offsets(&offsets, computed.len())?;
        let steps = self.latency.steps();
        let times_us = detached(py, || {
            let mut times_us = Vec::with_capacity(offsets.len().saturating_sub(1));
            for (start, end) in offsets.iter().zip(offsets.iter().skip(1)) {
                let of_step = *start..*end;
                let (Some(computed), Some(scheduled)) = (computed.get(of_step.clone()), scheduled.get(of_step.clone()))
                else {
                    return Err(RidgepointError::new_err(format!("offsets: no requests from {start} to {end}")));
                };
                let samples = samples.and_then(|samples| samples.get(of_step));
                times_us.push(steps.step_time_us(&columns(computed, scheduled, samples)?));
            }
            Ok(times_us)
        })?;
        Ok(times_us.into_pyarray(py))
    }

    /// Estimates one step and returns all its figures as JSON.
    fn _predict(
        &self,
        py: Python<'_>,
        num_computed_tokens: &Bound<'_, PyAny>,
        num_scheduled_tokens: &Bound<'_, PyAny>,
        samples: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<String> {
        let requests = Requests::new(num_computed_tokens, num_scheduled_tokens, samples)?;
        let (computed, scheduled, samples) = requests.slices();
        let requests: Vec<Request> = columns(computed, scheduled, samples)?.iter().collect();
        detached(py, || {
            let steps = self.latency.steps();
            let predicted = Predicted {
                model: &self.model.name,
                hardware: &self.hardware.name,
                correction: CorrectionInfo::of(steps.correction()),
                step: steps.estimate(&requests).map_err(raised)?,
            };
            to_json(&predicted)
        })
    }

    /// Time from sending a request until the engine can schedule it, µs.
    fn queueing_time_us(&self, prompt_tokens: u32) -> f64 {
        self.latency.host().queueing_time_us(&Request::prefill(prompt_tokens, 0))
    }

    /// Time from the end of a step until the client has its token, µs.
    fn output_token_processing_time_us(&self) -> f64 {
        self.latency.host().output_token_processing_time_us()
    }

    /// Time of the engine's host thread per step, µs.
    fn scheduling_processing_time_us(&self) -> f64 {
        self.latency.host().scheduling_processing_time_us()
    }

    /// Time of the engine's host thread per preempted request, µs.
    fn preemption_processing_time_us(&self) -> f64 {
        self.latency.host().preemption_processing_time_us()
    }

    /// Time to copy KV blocks between GPU and host, or host and disk, µs.
    fn kv_transfer_time_us(&self, direction: &str, num_bytes: u64) -> PyResult<f64> {
        let direction = match direction {
            "gpu_to_cpu" => TransferDirection::GpuToCpu,
            "cpu_to_gpu" => TransferDirection::CpuToGpu,
            "cpu_to_disk" => TransferDirection::CpuToDisk,
            "disk_to_cpu" => TransferDirection::DiskToCpu,
            other => {
                let known = "'gpu_to_cpu', 'cpu_to_gpu', 'cpu_to_disk' or 'disk_to_cpu'";
                let said = format!("direction = '{other}' must be {known}");
                return Err(RidgepointError::new_err(said));
            }
        };
        self.latency.known_kv_transfer_time_us(direction, num_bytes).map_err(raised)
    }

    /// Share of its speed that a direction of copies keeps while the other one copies too.
    #[getter]
    fn kv_contention(&self) -> f64 {
        self.latency.kv_transfers().map_or(1.0, |transfers| transfers.contention)
    }

    /// Returns the memory equation as JSON.
    fn _kv_capacity(&self, py: Python<'_>) -> PyResult<String> {
        let engine = self.latency.steps().engine();
        detached(py, || {
            to_json(&KvCapacity::for_engine(&self.model, &self.hardware, &self.deployment, engine).map_err(raised)?)
        })
    }

    /// Short name of the model.
    #[getter]
    fn model_name(&self) -> &str {
        &self.model.name
    }

    /// Short name of the GPU.
    #[getter]
    fn hardware_name(&self) -> &str {
        &self.hardware.name
    }

    /// Name of the correction, or `None` without one.
    #[getter]
    fn correction_name(&self) -> Option<&str> {
        self.latency.steps().correction().map(|correction| correction.name.as_str())
    }

    /// Assumptions about the model, the deployment and the tables.
    #[getter]
    pub fn notes(&self) -> Vec<String> {
        self.precision_notes.iter().cloned().chain(self.latency.steps().notes()).collect()
    }
}

/// Finds a model by name or path, or reads its configuration. Also returns notes on the requested precision.
fn found(
    name: &str,
    config: Option<&str>,
    precision: Option<&str>,
    data_dir: Option<&Path>,
) -> PyResult<(Model, Vec<String>)> {
    let precision = precision.map(|asked| {
        MatmulFormat::parse(asked).filter(|_| config.is_none()).ok_or_else(|| {
            RidgepointError::new_err(match config {
                Some(_) => format!("precision = '{asked}': a configuration says itself how its weights are stored"),
                None => format!("precision = '{asked}' must be bf16, fp8, int8, int4 or fp4"),
            })
        })
    });
    match (config, precision.transpose()?) {
        (Some(json), _) => Ok((Model::from_config_str(name, name, json, None).map_err(raised)?, Vec::new())),
        (None, precision) => {
            let server = ServerConfig { precision, ..ServerConfig::new(name, name, "") };
            server.find_model(data_dir).map_err(raised)
        }
    }
}

fn check_offsets(offsets: &[usize], num_requests: usize) -> PyResult<()> {
    let (Some(first), Some(last)) = (offsets.first(), offsets.last()) else {
        return Err(RidgepointError::new_err("offsets is empty: n steps have n + 1 offsets, the first of them 0"));
    };
    let falls = offsets.iter().zip(offsets.iter().skip(1)).position(|(start, end)| end < start);
    let said = match falls {
        _ if *first != 0 => format!("offsets[0] = {first} must be 0, where the first step's requests begin"),
        Some(step) => format!("offsets decrease after offsets[{step}]: each step's requests follow those before it"),
        None if *last != num_requests => {
            format!("offsets end at {last}, and there are {num_requests} requests: the last one must be their number")
        }
        None => return Ok(()),
    };
    Err(RidgepointError::new_err(said))
}
