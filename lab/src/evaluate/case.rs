//! An experiment made ready: what was measured, the engine, the latency models and the load. Uses `replay`, `latency`,
//! `workload`; where cases come from is up to `experiment` and `closed_loop`.

use std::path::Path;
use std::sync::Arc;

use super::measured::Measured;
use ridgepoint::Deployment;
use ridgepoint::Hardware;
use ridgepoint::Model;
use ridgepoint::Result;
use ridgepoint::internals::correction::Correction;
use ridgepoint::internals::efficiency::EfficiencyMode;
use ridgepoint::latency::{CalibratedRoofline, HostTimes, LatencyModel};
use ridgepoint::replay::{EngineConfig, Replay, RequestRecord, replay};
use ridgepoint::workload::Workload;
use ridgepoint::{Options, StepModel};

/// The requests of an experiment, made anew for each replay.
pub trait Load: Send + Sync {
    /// The same seed gives the same requests.
    fn workload(&self, seed: u64) -> Box<dyn Workload + Send>;
}

impl<F> Load for F
where
    F: Fn(u64) -> Box<dyn Workload + Send> + Send + Sync,
{
    fn workload(&self, seed: u64) -> Box<dyn Workload + Send> {
        self(seed)
    }
}

/// How many requests come in a second.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Rate {
    /// As the load says, whatever the engine does.
    OpenLoop,
    /// As fast as the engine finishes them, so many being in flight.
    ClosedLoop {
        /// Requests in flight.
        concurrency: u32,
    },
}

/// The rooflines of a model in a deployment; cases of the same deployment share them.
#[derive(Debug, Clone)]
pub struct Rooflines {
    /// With the correction that was asked for: the prediction. The calibrated one where none was.
    pub predicted: Arc<CalibratedRoofline>,
    /// With measured kernel efficiencies and the default host.
    pub calibrated: Arc<CalibratedRoofline>,
    /// Datasheet peaks and no host: a baseline.
    pub ideal: Arc<CalibratedRoofline>,
}

impl Rooflines {
    /// Compiles both.
    ///
    /// # Errors
    /// As [`StepModel::new`].
    pub fn new(model: &Model, hardware: &Hardware, deployment: &Deployment, data_dir: Option<&Path>) -> Result<Self> {
        let steps = |efficiency| {
            let options = Options { efficiency, data_dir: data_dir.map(Path::to_owned), ..Options::uncorrected() };
            StepModel::with_options(model, hardware, deployment, &options).map(CalibratedRoofline::new)
        };
        let calibrated = Arc::new(steps(EfficiencyMode::Tables)?);
        Ok(Rooflines {
            predicted: Arc::clone(&calibrated),
            calibrated,
            ideal: Arc::new(steps(EfficiencyMode::Ideal)?.with_host(HostTimes::NONE)),
        })
    }
}

impl Rooflines {
    /// The correction of the prediction, where there is one.
    pub fn correction(&self) -> Option<&Correction> {
        self.predicted.steps().correction()
    }

    /// The calibrated one with a correction, host times included.
    pub fn corrected(&self, correction: &Arc<Correction>) -> CalibratedRoofline {
        CalibratedRoofline::new(self.calibrated.steps().clone().with_correction(Arc::clone(correction)))
    }

    /// Predicts with a correction.
    pub fn correct(&mut self, correction: &Arc<Correction>) {
        self.predicted = Arc::new(self.corrected(correction));
    }
}

/// An experiment that can be replayed.
pub struct Case {
    /// Its name in the output.
    pub name: String,
    /// The model, by its short name.
    pub model: String,
    /// The GPU, by its short name.
    pub hardware: String,
    /// GPUs that share every layer.
    pub tensor_parallel_size: u32,
    /// Lengths of prompts and outputs by name, where the requests' own means are not to name them.
    pub workload: Option<String>,
    /// Version of the serving engine that was measured, where known.
    pub backend_version: Option<String>,
    /// What clients saw.
    pub measured: Measured,
    /// The engine.
    pub engine: EngineConfig,
    /// KV blocks by the memory equation, where `engine` has a count that the experiment reports instead.
    pub computed_gpu_blocks: Option<u32>,
    /// Step times.
    pub rooflines: Rooflines,
    /// The requests.
    pub load: Box<dyn Load>,
    /// How often they come, by stage; open loops where nothing is said.
    pub rates: Vec<Rate>,
    /// What to know of the case.
    pub notes: Vec<String>,
}

impl Case {
    /// How often the requests of a stage come.
    pub fn rate(&self, stage: u32) -> Rate {
        self.rates.get(stage as usize).copied().unwrap_or(Rate::OpenLoop)
    }

    /// Replays the load on the case's engine.
    ///
    /// # Errors
    /// As [`replay`].
    pub fn replay(&self, latency: &dyn LatencyModel, seed: u64) -> Result<Replay> {
        self.replay_on(latency, &self.engine, self.load.workload(seed).as_mut())
    }

    /// Replays a workload on an engine.
    ///
    /// # Errors
    /// As [`replay`].
    pub fn replay_on(
        &self,
        latency: &dyn LatencyModel,
        engine: &EngineConfig,
        workload: &mut dyn Workload,
    ) -> Result<Replay> {
        replay(latency, engine, workload, &mut ())
    }
}

/// Requests per second of an open loop's stage: gaps over the time that they span. `None` for fewer than two requests.
pub(super) fn arrivals_per_s(records: &[RequestRecord], stage: u32) -> Option<f64> {
    let arrivals = records.iter().filter(|record| record.stage == stage).map(|record| record.arrival_ns);
    let (mut count, mut first, mut last) = (0u64, u64::MAX, 0);
    for arrival_ns in arrivals {
        (count, first, last) = (count + 1, first.min(arrival_ns), last.max(arrival_ns));
    }
    let span_ns = last.checked_sub(first).filter(|span| *span > 0)?;
    Some((count - 1) as f64 / (span_ns as f64 / 1e9))
}
