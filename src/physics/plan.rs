//! A model on a deployment, checked and laid out once; then each batch becomes operators with a few multiplications.
#![expect(clippy::indexing_slicing, reason = "the index counts the list itself")]
#![expect(clippy::cast_possible_truncation, reason = "a step has a few operators of a kind")]

use crate::deployment::Deployment;
use crate::dtype::DType;
use crate::engine::Engine;
use crate::error::Result;
use crate::host_speed::HostSpeed;
use crate::model::{Attention, LayerGroup, Model, SamplerWork, SamplingParams, Window};
use crate::request::Request;

use super::batch::{BatchSums, WindowSums};
use super::check::{check, distinct_windows, has_chunked_attention};
use super::cuda_graph::{CudaGraphs, GraphMode};
use super::layer;
use super::memory::Memory;
use super::operator::Operator;
use super::operator_id::{OperatorGroup, OperatorId, OperatorKind, intern, window_suffix};
use super::pipeline::layers_per_stage;
use super::ranks::Context;
use super::rows::PaddedStep;
use super::sampler::{self, Sampler};
use super::streams;
use super::template::Template;
use super::weight_offload::Offloaded;

/// Everything about a step but the batch: which operators run, on which shapes, how often.
///
/// Operators are those of one rank of each pipeline stage in sequence, so their times sum to the latency of a step.
#[derive(Debug, Clone)]
pub struct StepPlan {
    /// Kinds of attention window in the model, in the order of [`BatchSums::windows`].
    pub windows: Vec<Window>,
    /// The captured graphs.
    pub cuda_graphs: CudaGraphs,
    /// Longest context of a request, tokens.
    pub max_model_len: u64,
    /// Most requests that the engine puts into a step.
    pub max_num_seqs: u64,
    /// Most tokens that the engine puts into a step.
    pub max_num_batched_tokens: u64,
    /// Layers of each pipeline stage.
    pub pipeline_stages: Vec<u64>,
    /// Weights and cache of one rank.
    pub memory: Memory,
    /// Weights on the GPU of the rank that keeps most there, bytes.
    pub(crate) most_gpu_weight_bytes: f64,
    /// Logits per sampled token, of the whole model: they are gathered from all ranks before sampling.
    pub vocab_size: u64,
    /// Sampling parameters of requests that bring none of their own.
    ///
    /// ```
    /// use ridgepoint::physics::StepPlan;
    /// use ridgepoint::{Deployment, Model};
    /// let plan = StepPlan::new(&Model::builtin("qwen2.5-7b")?, &Deployment::default())?;
    /// assert!(plan.sampling.truncates() && plan.sampling.penalises());
    /// # Ok::<(), ridgepoint::Error>(())
    /// ```
    pub sampling: SamplingParams,
    sampler: Sampler,
    /// The sampler's work in every step. Its kernels follow from it.
    pub(crate) sampler_work: SamplerWork,
    /// Most tokens, padding included, of a step whose shared experts run on a stream of their own, concurrently with the routed ones; 0 for models
    /// without shared experts.
    pub(crate) overlapped_tokens: u64,
    /// Operators that read weights from the host in every step, with the share of their calls that do; of experts, of their bytes.
    pub(crate) host_shares: Vec<(OperatorId, f64)>,
    /// Assumptions about the model and the deployment, and settings of them that have no effect.
    pub notes: Vec<String>,
    /// The operators before the batch is known, in order of execution: for callers that need few of a step's operators,
    /// for many steps.
    pub(crate) entries: Vec<Entry>,
    activation: DType,
    /// How fast the host launches kernels.
    pub(crate) host_speed: HostSpeed,
}

/// An operator of the plan before the batch is known, its repetitions over layers counted.
#[derive(Debug, Clone)]
pub(crate) struct Entry {
    id: OperatorId,
    name: &'static str,
    window: Window,
    template: Template,
    count: u64,
    /// Calls whose weights are on the host.
    host_calls: f64,
}

impl StepPlan {
    /// Lays out `model` on `deployment`.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`](crate::ErrorKind) with every problem of the deployment by itself and every size of the model that its ranks
    /// can't share, with the tensor-parallel sizes that would do.
    pub fn new(model: &Model, deployment: &Deployment) -> Result<Self> {
        Self::for_engine(model, deployment, &Engine::default())
    }

    /// [`Self::new`] with the kernels that an engine launches: of vLLM those of its version, or of the newest; others are laid out as [`Engine::fitted`], with
    /// samplers of their own.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub fn for_engine(model: &Model, deployment: &Deployment, engine: &Engine) -> Result<Self> {
        let mut notes =
            if deployment.language_model_only { model.notes_without_towers() } else { model.notes.to_vec() };
        notes.extend(check(model, deployment)?);
        notes.extend(sampler::remark(model, deployment, engine));
        let sampling = sampler::defaults(model, deployment, engine);
        let context = Context::new(model, deployment);
        let windows = distinct_windows(model);
        let (before, after) =
            layer::ends((model.vocab_size, model.lm_head_weights), model.head.map_or(0, |head| head.inputs), context);
        let (logit_bytes, hidden_bytes) =
            (context.activation.bytes(), context.hidden as f64 * context.activation.bytes());
        let sampler = Sampler::new(engine, model.vocab_size, logit_bytes, hidden_bytes);
        let mut layers = Vec::new();
        // Kinds of layers that share few operators go before those that were laid out first: in reverse they are in order.
        let is_hybrid = model.layers.iter().any(|group| matches!(group.attention, Attention::State(_)));
        let mut groups: Vec<(usize, &LayerGroup)> = model.layers.iter().enumerate().collect();
        if is_hybrid {
            groups.reverse();
        }
        let offloaded = Offloaded::checked(model, deployment)?;
        for (at, group) in groups {
            let window = layer::window(group).unwrap_or_default();
            let templates = layer::templates(group, &windows, engine, context).into_iter();
            let of_group =
                templates.map(|of| Entry::new(of, window, group.count, offloaded.layers(at, of.kind))).collect();
            merge(&mut layers, of_group);
        }
        let once = |template: Template| Entry::new(template, Window::Full, 1, 0.0);
        let mut entries: Vec<Entry> = before.into_iter().map(once).collect();
        entries.extend(layers);
        entries.extend(after.into_iter().map(once));
        name_variants(&mut entries);
        let of_host = entries.iter().filter(|entry| entry.host_calls > 0.0);
        let host_shares = of_host.map(|entry| (entry.id, entry.host_calls / entry.count as f64)).collect();
        let has_shared_experts =
            model.layers.iter().any(|group| group.moe.as_ref().is_some_and(|moe| moe.shared.is_some()));
        let memory = Memory::new(model, deployment)?;
        let gpu_weight_bytes = offloaded.split(&memory.weight_bytes_per_stage).into_iter().map(|(on_gpu, _)| on_gpu);
        let plan = StepPlan {
            entries,
            cuda_graphs: CudaGraphs::new(deployment, !has_chunked_attention(&windows), engine),
            windows,
            activation: context.activation,
            max_model_len: deployment.max_model_len.map_or(model.max_position_embeddings, u64::from),
            max_num_seqs: u64::from(deployment.max_num_seqs),
            max_num_batched_tokens: u64::from(deployment.max_num_batched_tokens),
            pipeline_stages: layers_per_stage(model.num_layers(), context.ranks.pipeline),
            memory,
            most_gpu_weight_bytes: gpu_weight_bytes.fold(0.0, f64::max),
            vocab_size: model.vocab_size,
            sampling,
            sampler,
            sampler_work: sampling.work(),
            host_shares,
            overlapped_tokens: if has_shared_experts { streams::overlapped_tokens(engine) } else { 0 },
            host_speed: deployment.host_speed,
            notes,
        };
        Ok(plan.with_sampler_work(sampling.work()))
    }

    /// The same plan with other work of the sampler, the last operators of a step.
    #[must_use]
    pub(crate) fn with_sampler_work(mut self, work: SamplerWork) -> Self {
        let templates = self.sampler.templates(work).into_iter();
        self.entries.retain(|entry| entry.id.kind.group() != OperatorGroup::Sampling);
        self.entries.extend(templates.map(|template| Entry::new(template, Window::Full, 1, 0.0)));
        self.sampler_work = work;
        self
    }

    /// Sums a batch for this plan.
    ///
    /// # Errors
    /// Those of [`BatchSums::new`].
    pub fn batch_sums(&self, requests: &[Request]) -> Result<BatchSums> {
        BatchSums::new(requests, &self.windows, self.max_model_len)
    }

    /// Fills `operators` with those of a step, in order of execution; its former content is dropped.
    ///
    /// Allocates nothing once `operators` has grown to its size. `batch` must come from [`Self::batch_sums`].
    pub fn operators(&self, batch: &BatchSums, operators: &mut Vec<Operator>) {
        operators.clear();
        let step = self.step(batch);
        operators.extend(self.entries.iter().filter_map(|entry| entry.operator(&step)));
    }

    /// A batch as entries see it.
    pub(crate) fn step<'a>(&self, batch: &'a BatchSums) -> PaddedStep<'a> {
        let padded_tokens = self.padded_tokens(batch);
        let is_padded = batch.is_decode_only() && self.graph_mode(batch) == GraphMode::Full;
        let decode_rows = if is_padded { padded_tokens } else { batch.decode_rows() };
        PaddedStep { batch, padded_tokens, decode_rows, activation: self.activation }
    }

    /// How the step is launched.
    pub fn graph_mode(&self, batch: &BatchSums) -> GraphMode {
        self.cuda_graphs.mode(batch.num_tokens, batch.is_decode_only())
    }

    /// Tokens that run through the layers: the captured size where a graph is replayed, else the scheduled ones.
    pub fn padded_tokens(&self, batch: &BatchSums) -> u64 {
        match self.graph_mode(batch) {
            GraphMode::Full | GraphMode::Piecewise => self.cuda_graphs.padded_tokens(batch.num_tokens),
            GraphMode::None | GraphMode::Eager => None,
        }
        .unwrap_or(batch.num_tokens)
    }

    /// Kernel launches of a step of many requests that has every operator, and the calls among them that graphs are split at: attention, of
    /// chunks and decodes alike, and the kernels of layers with a state.
    pub(crate) fn launches(&self) -> (u64, u64) {
        use OperatorKind::{AttentionDecode, AttentionPrefill, IndexerDecode, IndexerPrefill, StateUpdate};
        let is_counted = |entry: &&Entry| {
            !matches!(entry.id.kind, AttentionPrefill | IndexerPrefill) && !entry.template.kernel.is_for_few_rows()
        };
        let is_call = |entry: &&Entry| matches!(entry.id.kind, AttentionDecode | IndexerDecode | StateUpdate);
        let (kernels, calls) = (self.entries.iter().filter(is_counted), self.entries.iter().filter(is_call));
        let launches = |entry: &Entry| entry.count * entry.template.kernel.launches();
        (kernels.map(launches).sum(), calls.map(|entry| entry.count).sum())
    }

    /// Limits of the scheduler that a batch exceeds; its time is predicted all the same.
    pub fn warnings(&self, batch: &BatchSums) -> Vec<String> {
        let limits = [
            ("tokens", batch.num_tokens, "max_num_batched_tokens", self.max_num_batched_tokens),
            ("requests", batch.num_requests(), "max_num_seqs", self.max_num_seqs),
        ];
        let beyond = limits.into_iter().filter(|(_, found, _, limit)| found > limit);
        let split = beyond.map(|(what, found, key, limit)| {
            format!("the batch has {found} {what}, more than {key} = {limit}: the engine would split it")
        });
        split.chain(self.begun_anew(batch)).collect()
    }

    /// A remark if requests have grown into another chunk of attention over chunks of keys.
    fn begun_anew(&self, batch: &BatchSums) -> Option<String> {
        let seen = || self.windows.iter().zip(&batch.windows);
        let visible = |of: &WindowSums| u128::from(of.decode_kv_tokens) + of.prefill_pairs;
        let most = seen().map(|(_, sums)| visible(sums)).max()?;
        let hidden = seen().find_map(|(window, sums)| match window {
            Window::Chunked(tokens) if visible(sums) < most => Some(tokens),
            _ => None,
        })?;
        Some(format!("attention over chunks of {hidden} keys begins anew at each: a longer request may be faster"))
    }
}

impl Entry {
    /// The operator of `layers` layers, of which `host_layers` have its weights on the host.
    fn new(template: Template, window: Window, layers: u64, host_layers: f64) -> Self {
        let (kind, calls) = (template.kind, template.calls);
        let (id, name, host_calls) = (OperatorId::first(kind), kind.name(), host_layers * calls as f64);
        Entry { id, name, window, template, count: layers * calls, host_calls }
    }

    /// Identity of the operator within the plan.
    pub(crate) fn id(&self) -> OperatorId {
        self.id
    }

    /// Rows that alone determine the operator of a step; `None` where it has none, and for kernels that depend on more.
    pub(crate) fn rows(&self, step: &PaddedStep<'_>) -> Option<u64> {
        self.template.kernel.rows(step)
    }

    /// The operator for this step; `None` where the step has no rows for it.
    pub(crate) fn operator(&self, step: &PaddedStep<'_>) -> Option<Operator> {
        self.template.kernel.operator(step, self.id, self.name, self.count)
    }
}

/// Adds the entries of more layers, each behind its predecessor, or counts them to equal ones.
fn merge(entries: &mut Vec<Entry>, of_layers: Vec<Entry>) {
    let mut next = 0;
    for entry in of_layers {
        let is_equal = |e: &Entry| e.id.kind == entry.id.kind && e.template.kernel == entry.template.kernel;
        let equal = entries.iter().position(is_equal);
        let at = equal.unwrap_or(next.min(entries.len()));
        match equal.and_then(|at| entries.get_mut(at)) {
            Some(known) => {
                known.count += entry.count;
                known.host_calls += entry.host_calls;
            }
            None => entries.insert(at, entry),
        }
        next = next.max(at + 1);
    }
}

/// Numbers the operators of each kind and makes their names unique: attention is named after its window, other operators
/// too where they come in several shapes. Names that are still alike are numbered.
fn name_variants(entries: &mut [Entry]) {
    let mut taken: Vec<&'static str> = Vec::with_capacity(entries.len());
    for index in 0..entries.len() {
        let Entry { id: OperatorId { kind, .. }, window, .. } = entries[index];
        let same_kind = |others: &[Entry]| others.iter().filter(|other| other.id.kind == kind).count();
        let is_attention = matches!(kind, OperatorKind::AttentionPrefill | OperatorKind::AttentionDecode);
        let suffix = if is_attention || same_kind(entries) > 1 { window_suffix(window) } else { "" };
        let base = format!("{}{suffix}", kind.name());
        let numbered = (2..).map(|number| format!("{base}_{number}"));
        let mut names = std::iter::once(base.clone()).chain(numbered);
        let variant = same_kind(&entries[..index]) as u16;
        if let Some(name) = names.find(|name| !taken.contains(&name.as_str())) {
            entries[index].id.variant = variant;
            entries[index].name = intern(&name);
            taken.push(entries[index].name);
        }
    }
}
