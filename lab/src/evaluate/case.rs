//! A serving run that can be replayed: its engine, its load, its latency models and what clients measured.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use super::fold::Labels;
use super::measured::Measured;
use ridgepoint::latency::{CalibratedRoofline, HostTimes, LatencyModel, TransferDirection};
use ridgepoint::{
    Correction, CorrectionChoice, Deployment, EfficiencyMode, Engine, Hardware, Model, Options, Result, Step, StepModel,
};
use ridgepoint_replay::server_config::ServedEngine;
use ridgepoint_replay::workload::Workload;
use ridgepoint_replay::{EngineConfig, Observer, Replay, replay};

/// Memory that the replay of a run may take, GiB: four million requests.
pub const MAX_MEMORY_GIB: f64 = 1.0;

/// Makes the requests of a run anew. The same seed gives the same requests.
pub type Load = Box<dyn Fn(u64) -> Box<dyn Workload + Send> + Send + Sync>;

/// The rooflines of a model in a deployment. Cases of the same deployment share them.
#[derive(Debug, Clone)]
pub struct Rooflines {
    /// The prediction: with the requested correction, or the calibrated roofline.
    pub predicted: Arc<CalibratedRoofline>,
    /// Measured kernel efficiencies and the default host overheads.
    pub calibrated: Arc<CalibratedRoofline>,
    /// Datasheet peaks and a host without overhead.
    pub ideal: Arc<CalibratedRoofline>,
}

impl Rooflines {
    /// The rooflines without a correction of a step as `engine` launches it.
    ///
    /// # Errors
    /// As [`StepModel::new`].
    pub fn new(
        model: &Model,
        hardware: &Hardware,
        deployment: &Deployment,
        engine: &Engine,
        data_dir: Option<&Path>,
    ) -> Result<Self> {
        let steps = uncorrected(model, hardware, deployment, engine, data_dir)?;
        Ok(Self::of(steps.map(CalibratedRoofline::new)))
    }

    /// The same with the KV transfers of a server's engine.
    ///
    /// # Errors
    /// As [`ServedEngine::latency`].
    pub(super) fn served_by(self, engine: &ServedEngine) -> Result<Self> {
        let latency = |of: &CalibratedRoofline| engine.latency(of.steps().clone());
        Ok(Self::of([latency(&self.calibrated)?, latency(&self.ideal)?]))
    }

    /// Combines the calibrated roofline, which is also the prediction, with the ideal one, whose host takes no time.
    fn of([calibrated, ideal]: [CalibratedRoofline; 2]) -> Self {
        let calibrated = Arc::new(calibrated);
        Rooflines { predicted: Arc::clone(&calibrated), calibrated, ideal: Arc::new(ideal.with_host(HostTimes::NONE)) }
    }

    /// The correction of the prediction.
    pub fn correction(&self) -> Option<&Correction> {
        self.predicted.steps().correction()
    }

    /// The calibrated roofline with a correction and its host overheads.
    pub fn corrected(&self, correction: &Arc<Correction>) -> CalibratedRoofline {
        CalibratedRoofline::clone(&self.calibrated).with_correction(Arc::clone(correction))
    }
}

/// Step models without a correction: with calibrated tables, and with datasheet peaks.
pub(super) fn uncorrected(
    model: &Model,
    hardware: &Hardware,
    deployment: &Deployment,
    engine: &Engine,
    data_dir: Option<&Path>,
) -> Result<[StepModel; 2]> {
    let steps = |efficiency| {
        let (engine, data_dir) = (engine.clone(), data_dir.map(Path::to_owned));
        let options = Options { efficiency, engine, data_dir, ..Options::uncorrected() };
        StepModel::with_options(model, hardware, deployment, &options)
    };
    Ok([steps(EfficiencyMode::Tables)?, steps(EfficiencyMode::Ideal)?])
}

/// A serving run that can be replayed.
pub struct Case {
    /// What was run.
    pub labels: Labels,
    /// What clients measured.
    pub measured: Measured,
    /// The engine.
    pub engine: EngineConfig,
    /// Step times.
    pub rooflines: Rooflines,
    /// The requests.
    pub load: Load,
    /// Time of an event loop that each request takes at the client and in the front end beyond the host's own, µs.
    pub client_us: f64,
    /// By stage, the number of requests in flight in a closed loop; `None` in an open loop.
    pub concurrency: Vec<Option<u32>>,
    /// Everything that the run shares with runs of another number of requests in flight; `None` in an open loop.
    pub curve: Option<String>,
    /// Remarks on the run.
    pub notes: Vec<String>,
}

impl Case {
    /// Replays the load on the run's engine. `observers` watch it.
    ///
    /// # Errors
    /// As [`replay`].
    pub fn replay(&self, latency: &dyn LatencyModel, seed: u64, observers: &mut [&mut dyn Observer]) -> Result<Replay> {
        let sent = SentByClient { latency, client_us: self.client_us };
        replay(&sent, &self.engine, (self.load)(seed).as_mut(), observers)
    }
}

/// A server whose client takes time of its own for each request.
struct SentByClient<'a> {
    latency: &'a dyn LatencyModel,
    client_us: f64,
}

impl LatencyModel for SentByClient<'_> {
    fn step_time_us(&self, step: &Step<'_>) -> f64 {
        self.latency.step_time_us(step)
    }
    fn host(&self) -> HostTimes {
        let host = self.latency.host();
        HostTimes { front_end_us: host.front_end_us + self.client_us, ..host }
    }
    fn kv_transfer_time_us(&self, direction: TransferDirection, bytes: u64) -> f64 {
        self.latency.kv_transfer_time_us(direction, bytes)
    }
}

/// Gives every case the correction that `requested` (`none`, `global`, `auto`, a path) means for its model.
///
/// # Errors
/// As [`CorrectionChoice::resolve`].
pub fn correct(cases: &mut [Case], requested: &str) -> Result<()> {
    let choice = CorrectionChoice::from(requested);
    correct_with(cases, |case| choice.resolve(&case.labels.model, EfficiencyMode::Tables))
}

/// Gives every case a correction, or none. Corrections of one deployment that have the same name must be the same.
///
/// # Errors
/// Those of `correction_of`.
pub fn correct_with(
    cases: &mut [Case],
    correction_of: impl Fn(&Case) -> Result<Option<Arc<Correction>>>,
) -> Result<()> {
    let mut made: BTreeMap<(*const CalibratedRoofline, String), Arc<CalibratedRoofline>> = BTreeMap::new();
    for case in cases {
        let correction = correction_of(case)?;
        let rooflines = &mut case.rooflines;
        rooflines.predicted = correction.map_or_else(
            || Arc::clone(&rooflines.calibrated),
            |correction| {
                let key = (Arc::as_ptr(&rooflines.calibrated), correction.name.clone());
                Arc::clone(made.entry(key).or_insert_with(|| Arc::new(rooflines.corrected(&correction))))
            },
        );
    }
    Ok(())
}
