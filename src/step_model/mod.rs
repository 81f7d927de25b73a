//! The prediction of a step: physics gives the operators, efficiency their times. Everything that does not depend on the
//! batch is done once, in [`StepModel::new`]. Uses `physics`, `efficiency`, `correction`, `kv_capacity`, `model`,
//! `hardware`, `deployment`.

mod compiled;
mod corrected;
mod estimated;
mod options;
mod summed;

use std::sync::Arc;

use crate::correction::Correction;
use crate::deployment::Deployment;
use crate::efficiency::kernel_time::{is_within_another, same_kernel};
use crate::efficiency::mixed::{Alone, added_by_prefill_us};
use crate::efficiency::{EfficiencyMode, OperatorTime, Provenance, Tables, Timer};
use crate::error::Result;
use crate::estimate::StepEstimate;
use crate::hardware::Hardware;
use crate::kv_capacity::device_memory_bytes;
use crate::model::Model;
use crate::physics::{BatchShape, GraphMode, Kernel, Operator, StepPlan};
use crate::request::Request;
use crate::units::GIB;

use compiled::Compiled;
pub use compiled::StepState;
pub use options::{CorrectionChoice, Options};

/// What one host launch costs when no graph replays it, µs: a kernel shorter than this waits for the next launch (assumed,
/// of the order that profilers show for eager PyTorch).
const HOST_LAUNCH_US: f64 = 5.0;

/// Predicts steps of one model on one GPU type in one deployment.
///
/// ```
/// use ridgepoint::{Deployment, Hardware, Model, Request, StepModel};
///
/// let model = Model::find("llama-3.1-8b")?;
/// let hardware = Hardware::find("h100")?;
/// let step_model = StepModel::new(&model, &hardware, &Deployment::default())?;
///
/// // 64 decodes with 2048 cached tokens each, and a chunk of 512 tokens of a new prompt.
/// let mut batch = vec![Request::decode(2048); 64];
/// batch.push(Request::prefill(512, 0));
/// let step = step_model.step_time(&batch);
///
/// // 16 GB of weights and 17 GB of KV cache can't be read faster than in 10 ms; measured kernels need a little more.
/// assert!(step.bound_us > 9_000.0 && step.step_time_us > step.bound_us);
/// assert!((12_000.0..24_000.0).contains(&step.step_time_us));
/// # Ok::<(), ridgepoint::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct StepModel {
    plan: StepPlan,
    timers: Vec<(Operator, Timer)>,
    mode: EfficiencyMode,
    peak_flop_per_s: f64,
    hbm_bytes_per_s: f64,
    sm_count: f64,
    correction: Option<Arc<Correction>>,
    hardware: String,
    notes: Vec<String>,
    compiled: Option<Compiled>,
    cpu: pulp::Arch,
}

impl StepModel {
    /// Checks the deployment against the model, finds the efficiency tables of its operators and the recommended correction, and
    /// builds the lookup tables.
    ///
    /// # Errors
    /// [`crate::Error::Invalid`] for a deployment that the model can't be split by; [`crate::Error::MissingTable`],
    /// [`crate::Error::MissingPeak`], [`crate::Error::BadRow`] where tables lack or are broken.
    pub fn new(model: &Model, hardware: &Hardware, deployment: &Deployment) -> Result<Self> {
        Self::with_options(model, hardware, deployment, &Options::default())
    }

    /// [`StepModel::new`] with another correction or none, the textbook roofline, or tables from a folder.
    ///
    /// # Errors
    /// As [`StepModel::new`] and [`CorrectionChoice::resolve`].
    pub fn with_options(
        model: &Model,
        hardware: &Hardware,
        deployment: &Deployment,
        options: &Options,
    ) -> Result<Self> {
        let correction = options.correction.resolve(model.name(), options.efficiency)?;
        let plan = StepPlan::new(model, deployment)?;
        let tables = Tables::new(hardware, options.data_dir.as_deref());
        let mut timers: Vec<(Operator, Timer)> = Vec::new();
        let mut notes = plan.notes().to_vec();
        let mut peak_flop_per_s: f64 = 0.0;
        let mut operators = Vec::new();
        for batch in probe_batches() {
            let shape = BatchShape::new(&batch, plan.windows(), u64::MAX)?;
            plan.operators(&shape, &mut operators);
            for operator in operators.drain(..) {
                if timers.iter().any(|(known, _)| known.id == operator.id) {
                    continue;
                }
                let timer = match timers.iter().find(|(known, _)| same_kernel(known, &operator)) {
                    Some((_, timer)) => timer.clone(),
                    None => Timer::new(&operator, hardware, &tables, options.efficiency)?,
                };
                if let Some(note) = &timer.note
                    && !notes.contains(note)
                {
                    notes.push(note.clone());
                }
                if operator.flops > 0.0 {
                    peak_flop_per_s = peak_flop_per_s.max(timer.peak_flop_per_s());
                }
                timers.push((operator, timer));
            }
        }
        notes.extend(weights_that_do_not_fit(&plan, hardware, deployment));
        let stages = plan.pipeline_stages().len();
        if stages > 1 {
            notes.push(format!(
                "pipeline of {stages} stages: the time is one step's way through all of them; with one batch in flight each stage idles {:.0} % of it (the bubble), a full pipeline finishes a step every {:.0} % of it",
                100.0 * plan.pipeline_bubble_fraction(),
                100.0 * plan.slowest_stage_share()
            ));
        }
        let mut steps = StepModel {
            compiled: None,
            cpu: pulp::Arch::new(),
            correction,
            hardware: hardware.name().to_owned(),
            plan,
            timers,
            mode: options.efficiency,
            peak_flop_per_s: peak_flop_per_s.max(1.0),
            hbm_bytes_per_s: hardware.hbm_bytes_per_s(),
            sm_count: f64::from(hardware.sm_count()),
            notes,
        };
        if !options.operators_only {
            steps.compiled = compiled::Tables::new(&steps)
                .and_then(|tables| Compiled::new(Arc::new(tables), steps.correction.as_deref()));
        }
        Ok(steps)
    }

    /// Predicts the step of `requests`, in µs. Independent of their order; never fails:
    ///
    /// - no requests: a step of 0 µs, with a warning;
    /// - a request that schedules nothing: left out, with a warning;
    /// - a request beyond `max_model_len`, or a batch beyond the scheduler's limits: predicted all the same, with a warning.
    ///
    /// [`StepModel::try_step_time`] refuses such requests instead.
    pub fn step_time(&self, requests: &[Request]) -> StepEstimate {
        match self.plan.batch_shape(requests) {
            Ok(shape) => self.estimate(&shape, Vec::new()),
            Err(_) => {
                let possible: Vec<Request> = requests.iter().copied().filter(|r| r.num_scheduled_tokens > 0).collect();
                let warnings = self.refusals(requests);
                match BatchShape::new(&possible, self.plan.windows(), u64::MAX) {
                    Ok(shape) => self.estimate(&shape, warnings),
                    Err(_) => estimated::nothing(warnings),
                }
            }
        }
    }

    /// Predicts the step of `requests`, in µs, or says what is wrong with them.
    ///
    /// # Errors
    /// [`crate::Error::EmptyStep`] without requests, [`crate::Error::InvalidRequest`] for the first one that schedules nothing or outgrows
    /// `max_model_len`.
    pub fn try_step_time(&self, requests: &[Request]) -> Result<StepEstimate> {
        Ok(self.estimate(&self.plan.batch_shape(requests)?, Vec::new()))
    }

    /// Why [`StepModel::try_step_time`] refuses a batch: the first request that schedules nothing, and the first one
    /// that is too long.
    fn refusals(&self, requests: &[Request]) -> Vec<String> {
        let harmless = Request::prefill(1, 0);
        let mut refusals: Vec<String> = [true, false]
            .into_iter()
            .filter_map(|idle| {
                let is_of_kind = |r: &Request| (r.num_scheduled_tokens == 0) == idle;
                let of_kind: Vec<Request> =
                    requests.iter().map(|r| if is_of_kind(r) { *r } else { harmless }).collect();
                self.plan.batch_shape(&of_kind).err().map(|error| error.to_string())
            })
            .collect();
        refusals.dedup();
        refusals
    }

    /// The physics behind the prediction.
    pub fn plan(&self) -> &StepPlan {
        &self.plan
    }

    /// What the model, the deployment and the tables assume, in plain words; part of every estimate's warnings.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    fn timer(&self, operator: &Operator) -> Option<&Timer> {
        let known = self.timers.iter().find(|(known, _)| known.id == operator.id);
        known.map(|(_, timer)| timer)
    }

    /// What prompt chunks add to a step's decode attention where both are one call, µs.
    fn added_to_decodes_us(&self, prefill: &Operator, time: OperatorTime, work: &[Operator]) -> Option<f64> {
        let Kernel::AttentionPrefill { heads, .. } = prefill.kernel else { return None };
        let same_heads =
            |o: &&Operator| matches!(o.kernel, Kernel::AttentionDecode { heads: other, .. } if other == heads);
        let decode = work.iter().find(same_heads)?;
        let (timer, decode_timer) = (self.timer(prefill)?, self.timer(decode)?);
        let decode_alone =
            Alone { operator: decode, time: decode_timer.time(decode), launch_us: decode_timer.attention_launch_us() };
        let alone = Alone { operator: prefill, time, launch_us: timer.attention_launch_us() };
        added_by_prefill_us(decode_alone, alone, self.sm_count)
    }

    /// Time of one call of `operator` among the step's `work`; `None` where another's time holds it.
    fn timed(&self, operator: &Operator, graph_mode: GraphMode, work: &[Operator]) -> Option<OperatorTime> {
        if self.is_timed_within_another(operator) {
            return None;
        }
        Some(self.timed_by(self.timer(operator)?, operator, graph_mode, work))
    }

    fn is_timed_within_another(&self, operator: &Operator) -> bool {
        self.mode == EfficiencyMode::Tables && is_within_another(operator.id.kind)
    }

    /// [`StepModel::timed`] by the operator's own timer.
    fn timed_by(&self, timer: &Timer, operator: &Operator, graph_mode: GraphMode, work: &[Operator]) -> OperatorTime {
        let mut timed = timer.time(operator);
        if self.mode == EfficiencyMode::Ideal {
            return timed;
        }
        if let Some(added_us) = self.added_to_decodes_us(operator, timed, work) {
            timed.time_us = added_us.max(timed.bound_us);
            timed.provenance = timed.provenance.max(Provenance::Interpolated);
        }
        if graph_mode == GraphMode::Eager {
            timed.time_us = timed.time_us.max(HOST_LAUNCH_US * operator.launches() as f64);
        }
        timed
    }
}

/// A warning where the weights alone are more than the engine may use: the time is that of a GPU with room for them.
fn weights_that_do_not_fit(plan: &StepPlan, hardware: &Hardware, deployment: &Deployment) -> Option<String> {
    let weights_bytes = plan.memory().max_weight_bytes();
    let device_bytes = device_memory_bytes(hardware);
    let usable_bytes = device_bytes * deployment.gpu_memory_utilization;
    (weights_bytes > usable_bytes).then(|| {
        format!(
            "the weights take {:.1} GiB of each GPU, {:.1} GiB more than gpu_memory_utilization = {} of {:.0} GiB leaves: the engine would not start; a larger tensor_parallel_size or a quantised checkpoint would fit",
            weights_bytes / GIB,
            (weights_bytes - usable_bytes) / GIB,
            deployment.gpu_memory_utilization,
            device_bytes / GIB
        )
    })
}

/// Batches that together make every operator of a plan appear.
fn probe_batches() -> [Vec<Request>; 2] {
    [vec![Request::decode(8)], vec![Request::prefill(1, 0), Request::prefill(2, 4)]]
}
