//! The prediction of a step: physics gives the operators, efficiency their times, a correction weighs them. Everything that does not
//! depend on the batch is done once, in [`StepModel::new`].
//!
//! A step's time has two evaluators. `operators` defines it: the sum over the operators, with its sources and its parts. `fast` caches
//! that sum in lookup tables for event loops. Read the first to see how a time comes about. Uses `physics`, `efficiency`,
//! `correction`, `kv_capacity`, `model`, `hardware`, `deployment`.

mod assumption;
mod draft_reads;
mod drafting;
mod fast;
mod gpu_notes;
mod host_reads;
mod launches;
mod operators;
#[cfg(test)]
mod operators_tests;
mod options;
mod uneven_rows;

use std::sync::{Arc, OnceLock};

use crate::correction::Correction;
use crate::coverage::IntervalCoverage;
use crate::deployment::Deployment;
use crate::efficiency::kernel_time::same_kernel;
use crate::efficiency::shared_reads::SharedReads;
use crate::efficiency::{EfficiencyMode, Tables, Timer, engine_on};
use crate::engine::Engine;
use crate::error::{Result, each_once};
use crate::hardware::{Architecture, Hardware, HostLink};
use crate::model::{Model, OwnSampling, SamplerWork, Window};
use crate::physics::{BatchSums, MANY_SAMPLED, Operator, OperatorGroup, StepPlan};
use crate::request::Request;
use crate::units::real;

use assumption::Assumption;
use draft_reads::{DraftReads, shared_reads};
use drafting::Drafting;
use fast::{OperatorTables, StepTables};
pub use fast::{StepRequests, StepState};
use gpu_notes::{gpu_notes, no_link, weights_that_do_not_fit};
use host_reads::HostReads;
use launches::Launches;
pub use options::{CorrectionChoice, Options};
use uneven_rows::slow_decodes;

/// Predicts steps of one model on one kind of GPU in one deployment.
///
/// ```
/// use ridgepoint::{Deployment, Hardware, Model, Request, StepModel};
///
/// let model = Model::find("llama-3.1-8b")?;
/// let hardware = Hardware::find("h100")?;
/// let steps = StepModel::new(&model, &hardware, &Deployment::default())?;
///
/// // 64 decodes with 2,048 cached tokens each, and a chunk of 512 tokens of a new prompt.
/// let mut batch = vec![Request::decode(2048); 64];
/// batch.push(Request::prefill(512, 0));
/// let step = steps.estimate(&batch)?;
///
/// // Reading 16 GB of weights and 17 GB of KV cache takes at least 10 ms; measured kernels need a little more.
/// assert!(step.bound_us > 9_000.0 && step.step_time_us > step.bound_us);
/// assert!((12_000.0..24_000.0).contains(&step.step_time_us));
///
/// // The same within 0.1 %, in tens of nanoseconds.
/// assert!((steps.step_time_us(&batch) / step.step_time_us - 1.0).abs() < 1e-3);
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
    /// Host times of steps.
    launches: Launches,
    /// Weights on the host; `None` if all are on the GPU.
    host_reads: Option<HostReads>,
    /// Repeated reads of decode attention, by the plan's windows; `None` under a window.
    shared_reads: Vec<Option<SharedReads>>,
    draft_reads: DraftReads,
    /// Steps of what drafts tokens on the same ranks.
    draft: Option<Arc<Drafting>>,
    correction: Option<Arc<Correction>>,
    /// Assumptions about the GPU that widen the interval.
    assumptions: Vec<Assumption>,
    /// Half width, in logarithms, that an interval of its own lacks, as public runs asked for it.
    added: f64,
    hardware: String,
    engine: Engine,
    host_link: Option<HostLink>,
    notes: Vec<String>,
    tables: Option<StepTables>,
    /// No layer limits the keys that a query sees.
    is_full_attention: bool,
    cpu: pulp::Arch,
    /// Step models for other sampler work, by [`SamplerWork::index`]. Each is built when a step first needs it.
    by_sampler_work: Arc<[OnceLock<Box<StepModel>>; SamplerWork::COUNT]>,
}

impl StepModel {
    /// The link between the GPU and its host; `None` if it is not known.
    pub(crate) fn host_link(&self) -> Option<&HostLink> {
        self.host_link.as_ref()
    }

    /// Checks the deployment against the model, finds the efficiency tables of its operators and the recommended correction, and
    /// builds the lookup tables.
    ///
    /// # Errors
    /// A deployment that the model can't be split by; efficiency tables that are missing or broken, a number format that the GPU has
    /// no peak for; a power limit that the GPU does not take.
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
        let hardware = &options.gpu(hardware)?;
        let correction = match &options.correction {
            // Those that are built in were fitted on GPUs.
            CorrectionChoice::Auto if hardware.architecture == Architecture::Cpu => None,
            choice => choice.resolve(&model.name, options.efficiency)?,
        };
        let engine = engine_on(&options.engine, hardware);
        let mut plan = StepPlan::for_engine(model, deployment, &engine)?;
        if hardware.architecture == Architecture::Cpu {
            plan.overlapped_tokens = 0;
        }
        let tables = Tables::new(hardware, &engine, options.data_dir.as_deref());
        let is_datasheet = options.efficiency == EfficiencyMode::Tables && tables.are_empty()?;
        let efficiency = if is_datasheet { EfficiencyMode::Ideal } else { options.efficiency };
        let mut notes: Vec<String> = plan.notes.iter().chain(&hardware.notes).cloned().collect();
        if !engine.is_vllm() {
            let found = IntervalCoverage::of(&engine, &hardware.name, None, correction.is_some());
            notes.push(format!(
                "steps are laid out as vLLM's, with kernels and the sampler of {}; {}",
                engine, found.remark
            ));
        }
        if is_datasheet {
            let name = &hardware.name;
            notes.push(format!(
                "no kernels of {name} were measured: every time is the datasheet's bound, which real kernels take longer than, and \
                 has no interval; `ridgepoint calibrate` makes tables from measurements"
            ));
        }
        let mut timers: Vec<(Operator, Timer)> = Vec::new();
        for operator in operators_of(&plan) {
            if operator.group == OperatorGroup::Communication && hardware.interconnect.is_none() {
                return Err(no_link(hardware, deployment));
            }
            let timer = match timers.iter().find(|(known, _)| same_kernel(known, &operator)) {
                Some((_, timer)) => timer.clone(),
                None => Timer::new(&operator, hardware, &tables, efficiency)?,
            };
            timers.push((operator, timer));
        }
        let computing = timers.iter().filter(|(operator, _)| operator.flops > 0.0);
        let peak_flop_per_s = computing.map(|(_, timer)| timer.peak_flop_per_s).fold(0.0, f64::max);
        notes.extend(notes_of(&timers));
        notes.extend(gpu_notes(&timers, hardware, efficiency));
        let assumptions = Assumption::all(model, hardware, deployment, options, correction.as_ref())?;
        if timers.iter().any(|(_, timer)| !timer.notes.is_empty()) {
            let name = &hardware.name;
            notes.push(format!("`ridgepoint hardware {name} --series` lists the kernels that were measured; `ridgepoint calibrate` adds others"));
        }
        if efficiency == EfficiencyMode::Tables {
            notes.extend(slow_decodes(&plan, &timers));
        }
        notes.extend(weights_that_do_not_fit(&plan, hardware, deployment));
        let host_reads = HostReads::new(&plan, hardware, efficiency)?;
        notes.extend(host_reads.as_ref().map(HostReads::note));
        let launches =
            if efficiency == EfficiencyMode::Ideal { Launches::default() } else { Launches::new(&plan, &engine) };
        let mut steps = StepModel {
            tables: None,
            shared_reads: shared_reads(&plan, &timers, hardware),
            draft_reads: DraftReads::new(&plan, &timers),
            draft: Drafting::new(model, hardware, deployment, options)?.map(Arc::new),
            is_full_attention: plan.windows.iter().all(|window| *window == Window::Full),
            cpu: pulp::Arch::new(),
            added: operators::added(&engine, &hardware.name, correction.as_deref()),
            correction,
            assumptions,
            hardware: hardware.name.clone(),
            engine,
            host_link: hardware.host_link,
            plan,
            timers,
            mode: efficiency,
            peak_flop_per_s: peak_flop_per_s.max(1.0),
            hbm_bytes_per_s: hardware.hbm_bytes_per_s,
            sm_count: f64::from(hardware.sm_count),
            launches,
            host_reads,
            notes,
            by_sampler_work: Arc::default(),
        };
        if !options.operators_only {
            steps.tables = steps.lookup_tables();
        }
        Ok(steps)
    }

    /// The same steps with another correction.
    #[must_use]
    pub fn with_correction(mut self, correction: Arc<Correction>) -> Self {
        self.tables = self.tables.and_then(|tables| StepTables::new(tables.operators, Some(&correction)));
        self.assumptions = self
            .assumptions
            .iter()
            .map(|of| of.map(|steps| steps.clone().with_correction(correction.clone())))
            .collect();
        self.added = operators::added(&self.engine, &self.hardware, Some(&correction));
        self.correction = Some(correction);
        self.by_sampler_work = Arc::default();
        self
    }

    /// Returns a step model for requests with sampling parameters of their own. `requests` has one entry per request, the default for a
    /// request that sets none. The sampler does for all requests of a step what any of them needs.
    ///
    /// ```
    /// use ridgepoint::model::{OwnSampling, SamplingParams};
    /// use ridgepoint::{Deployment, Engine, Hardware, Model, Options, Request, StepModel};
    ///
    /// // The model's generation_config.json has top_p = 0.9, for which vLLM sorts the logits up to version 0.16.
    /// let (model, gpu, deployment) = (Model::find("llama-3.1-8b")?, Hardware::find("h100")?, Deployment::default());
    /// let options = Options { engine: Engine::parse("vllm", Some("0.15")).expect("a version"), ..Options::default() };
    /// let steps = StepModel::with_options(&model, &gpu, &deployment, &options)?;
    /// let greedy = OwnSampling::from(&SamplingParams { temperature: Some(0.0), ..SamplingParams::default() });
    /// let time_us = |requests: &[OwnSampling]| {
    ///     steps.with_own_sampling(requests).step_time_us(&[Request::decode(1024); 64])
    /// };
    /// assert!(time_us(&[greedy]) < 0.9 * time_us(&[OwnSampling::default()]), "greedy requests sort nothing");
    /// assert!(time_us(&[greedy, OwnSampling::default()]) > time_us(&[OwnSampling::default()]));
    /// # Ok::<(), ridgepoint::Error>(())
    /// ```
    #[must_use]
    pub fn with_own_sampling(&self, requests: &[OwnSampling]) -> Self {
        self.for_sampling(requests).clone()
    }

    /// The step model for a step whose requests have these sampling parameters of their own: this one where they change nothing.
    #[inline]
    fn for_sampling(&self, requests: &[OwnSampling]) -> &Self {
        if requests.is_empty() { self } else { self.for_sampler_work(requests) }
    }

    fn for_sampler_work(&self, requests: &[OwnSampling]) -> &Self {
        let works = requests.iter().map(|own| own.over(&self.plan.sampling));
        let work = works.fold(SamplerWork::default(), |all, work| all | work);
        match self.by_sampler_work.get(work.index()) {
            Some(other) if work != self.plan.sampler_work => {
                other.get_or_init(|| Box::new(self.with_sampler_work(work)))
            }
            _ => self,
        }
    }

    /// The same steps with other work of the sampler.
    fn with_sampler_work(&self, work: SamplerWork) -> Self {
        let mut steps = self.clone();
        steps.by_sampler_work = Arc::default();
        steps.assumptions = self.assumptions.iter().map(|of| of.map(|steps| steps.with_sampler_work(work))).collect();
        steps.plan = steps.plan.with_sampler_work(work);
        let timed = operators_of(&steps.plan).into_iter().filter_map(|operator| {
            let (_, timer) = self.timers.iter().find(|(known, _)| same_kernel(known, &operator))?;
            Some((operator, timer.clone()))
        });
        steps.timers = timed.collect();
        if self.mode == EfficiencyMode::Tables {
            steps.launches = Launches::new(&steps.plan, &steps.engine);
        }
        if self.tables.is_some() {
            steps.tables = steps.lookup_tables();
        }
        steps
    }

    /// Leaves out keys that decodes need not read from memory: those that their drafts see again, and `shared_kv_tokens` that are read by
    /// another request too.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a part of a count is a count")]
    fn share(&self, sums: &mut BatchSums, shared_kv_tokens: u64) {
        if sums.num_draft_tokens > 0 {
            self.draft_reads.leave_out(sums);
        }
        if shared_kv_tokens == 0 {
            return;
        }
        for (window, reads) in sums.windows.iter_mut().zip(&self.shared_reads) {
            if let Some(reads) = reads {
                let keys = real(window.decode_kv_tokens);
                window.decode_kv_tokens = (reads.memory_keys(keys, real(shared_kv_tokens)) + 0.5) as u64;
            }
        }
    }

    fn lookup_tables(&self) -> Option<StepTables> {
        StepTables::new(Arc::new(OperatorTables::new(self)?), self.correction.as_deref())
    }

    /// The physics behind the prediction, for the laboratory and the bindings.
    pub fn plan(&self) -> &StepPlan {
        &self.plan
    }

    /// The correction that is applied; `None` for the sum of the operators.
    pub fn correction(&self) -> Option<&Correction> {
        self.correction.as_deref()
    }

    /// The engine whose kernels and sampler are predicted.
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Efficiency of the kernels: measured or ideal.
    pub fn efficiency(&self) -> EfficiencyMode {
        self.mode
    }

    /// Assumptions of the model, the deployment, the tables and the correction. They are part of every estimate's warnings.
    pub fn notes(&self) -> Vec<String> {
        self.notes.iter().cloned().chain(self.carried_over()).collect()
    }

    /// A remark if the correction was fitted on other GPUs or, unless it is built in, on other versions of the engine.
    pub fn carried_over(&self) -> Option<String> {
        let correction = self.correction.as_ref()?;
        let gpu = (!self.is_fitted_gpu()).then(|| (correction.source.hardware.join(", "), self.hardware.clone()));
        let version = correction.source.other_version_than(&self.engine).filter(|_| !correction.is_builtin());
        let parts: Vec<_> = gpu.into_iter().chain(version.map(|fitted| (fitted, self.engine.to_string()))).collect();
        let (fitted, here): (Vec<_>, Vec<_>) = parts.into_iter().unzip();
        let words = || {
            let (name, fitted, here) = (&correction.name, fitted.join(" with "), here.join(" with "));
            format!("correction {name} was fitted on {fitted} and is carried over to {here}")
        };
        (!here.is_empty()).then(words)
    }

    /// A remark if the correction was fitted on smaller or on larger steps. It is part of the estimate's warnings.
    pub fn extrapolated(&self, batch: &BatchSums) -> Option<String> {
        let correction = self.correction.as_ref()?;
        Some(correction.beyond(batch)?.in_words(&correction.name))
    }

    fn is_fitted_gpu(&self) -> bool {
        self.correction.as_ref().is_none_or(|correction| correction.source.hardware.contains(&self.hardware))
    }
}

/// Each note of the timers once, with the operators that have it.
fn notes_of(timers: &[(Operator, Timer)]) -> impl Iterator<Item = String> {
    each_once(timers.iter().flat_map(|(_, timer)| &timer.notes)).into_iter().map(|note| {
        let with_it = timers.iter().filter(|(_, timer)| timer.notes.contains(note));
        let names = each_once(with_it.map(|(operator, _)| operator.name));
        format!("{}: {note}", names.join(", "))
    })
}

/// Returns each operator of a plan once, taken from batches that together have all of them.
fn operators_of(plan: &StepPlan) -> Vec<Operator> {
    let many = vec![Request::decode(8); usize::try_from(MANY_SAMPLED).unwrap_or(8)];
    let (mut all, mut operators) = (Vec::<Operator>::new(), Vec::new());
    for batch in [vec![Request::decode(8)], vec![Request::prefill(1, 0), Request::prefill(2, 4)], many] {
        plan.operators(&BatchSums::unchecked(&batch, &plan.windows), &mut operators);
        for operator in operators.drain(..) {
            if all.iter().all(|known| known.id != operator.id) {
                all.push(operator);
            }
        }
    }
    all
}
