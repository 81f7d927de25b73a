//! The sampler: its parameters where requests bring none of their own, and the kernels that choose a token from the logits. They
//! follow from the model and the server.
//!
//! Kernels and their order are those of vLLM 0.15.1 (`vllm/v1/sample/sampler.py`, `ops/topk_topp_sampler.py`, `ops/penalties.py`,
//! `vllm/model_executor/layers/utils.py`), bytes those of PyTorch's kernels behind them. Logits are 32-bit from the cast on.
//! How logits are truncated by top-p and top-k depends on the version (`truncation.rs`). Requests with a seed of their own, which no
//! load here has, are sorted or searched by every version. Where requests set parameters of their own, the sampler does for all rows
//! what any of them needs.

use crate::deployment::{Deployment, GenerationConfig};
use crate::engine::Engine;
use crate::model::{Model, SamplerWork, SamplingParams};

use super::operator::Kernel;
use super::operator_id::OperatorKind::{Penalties, Sampling};
use super::rows::Rows;
use super::template::{KernelTemplate, Template};
use super::truncation::{DRAWN_LAUNCHES, REDUCTION_TILE, Truncation, drawn_bytes_per_logit};

/// Whether the server takes its parameters from the model's `generation_config.json`: vLLM and SGLang (`--sampling-defaults model`) do
/// by default (`server_args.py` of SGLang 0.5.9). TensorRT-LLM's server is taken to have defaults of its own, which truncate
/// and penalise nothing; its source was not at hand.
fn reads_the_models(deployment: &Deployment, engine: &Engine) -> bool {
    deployment.generation_config == GenerationConfig::Auto && !engine.is_trtllm()
}

/// The parameters of requests to `model` served as `deployment` says. Where the server ignores the model's own, or they are not known,
/// only what it overrides counts.
pub(super) fn defaults(model: &Model, deployment: &Deployment, engine: &Engine) -> SamplingParams {
    let of_model = model.sampling.filter(|_| reads_the_models(deployment, engine)).unwrap_or_default();
    of_model.overridden_by(&deployment.override_generation_config)
}

/// A remark where the server would read a file that is not at hand.
pub(super) fn remark(model: &Model, deployment: &Deployment, engine: &Engine) -> Option<String> {
    (reads_the_models(deployment, engine) && model.sampling.is_none()).then(|| {
        "generation_config.json is not known: tokens are taken to be sampled without top-p, top-k and penalties; have it \
         next to the config.json, or set generation_config to vllm where the server ignores it"
            .to_owned()
    })
}

/// Bytes per logit of choosing tokens with a temperature.
///
/// # Formula
/// `(b + 4) + 8 + 8 + 4 + 12 + 4`: cast to 32 bits, division by the temperature in place, softmax, exponential random numbers, division
/// of the probabilities by them, argmax.
///
/// # Source
/// vLLM, `Sampler.sample` and `random_sample`.
///
/// ```
/// assert_eq!(ridgepoint::physics::sampler::random_bytes_per_logit(2.0), 42.0);
/// ```
pub fn random_bytes_per_logit(logit_bytes: f64) -> f64 {
    logit_bytes + 40.0
}

/// Launches behind [`random_bytes_per_logit`], and of the gather of hidden states before the LM head.
const RANDOM_LAUNCHES: u64 = 7;

/// Bytes per logit of taking the most likely tokens.
///
/// # Formula
/// `(b + 4) + 4`: cast to 32 bits, argmax.
///
/// # Source
/// vLLM, `Sampler.greedy_sample`.
///
/// ```
/// assert_eq!(ridgepoint::physics::sampler::greedy_bytes_per_logit(2.0), 10.0);
/// ```
pub fn greedy_bytes_per_logit(logit_bytes: f64) -> f64 {
    logit_bytes + 8.0
}

/// Launches behind [`greedy_bytes_per_logit`], and of the gather.
const GREEDY_LAUNCHES: u64 = 3;

/// Bytes per logit of penalties.
///
/// # Formula
/// `2 · (8 + 9) + 10 + 24 + 17`: counts of prompt and of output tokens cleared and turned into masks, repetition, frequency, presence.
/// vLLM applies all three where a request has one.
const PENALTY_BYTES_PER_LOGIT: f64 = 2.0 * (8.0 + 9.0) + 10.0 + 24.0 + 17.0;

/// Launches of penalties: three for each count, one for repetition, two each for frequency and presence.
const PENALTY_LAUNCHES: u64 = 11;

/// Bytes per logit of the most likely tokens in addition to random ones: an argmax over logits that are cast already.
const BOTH_BYTES_PER_LOGIT: f64 = 4.0;

/// Launches behind them: the argmax, temperatures of 1 for greedy rows (a comparison, a choice), and the choice of each row's token (likewise).
const BOTH_LAUNCHES: u64 = 5;

/// Size of a row of logits, and how the engine truncates it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sampler {
    truncation: Truncation,
    vocab: u64,
    logit_bytes: f64,
    hidden_bytes: f64,
}

impl Sampler {
    /// Rows of `vocab` logits of `logit_bytes` bytes, whose hidden states have `hidden_bytes`.
    pub(super) fn new(engine: &Engine, vocab: u64, logit_bytes: f64, hidden_bytes: f64) -> Self {
        Sampler { truncation: Truncation::of(engine), vocab, logit_bytes, hidden_bytes }
    }

    /// The kernels that choose a token from each row.
    pub(super) fn templates(&self, work: SamplerWork) -> Vec<Template> {
        let Sampler { truncation, vocab, logit_bytes, hidden_bytes } = *self;
        let row_bytes = |bytes_per_logit: f64| bytes_per_logit * vocab as f64;
        let mut list = Vec::new();
        if work.has_penalties() {
            let bytes = row_bytes(PENALTY_BYTES_PER_LOGIT);
            list.push(Template::elementwise(Penalties, Rows::Sampled, bytes, PENALTY_LAUNCHES));
        }
        let truncating = truncation.templates(work, vocab);
        let is_drawn = truncation.draws() && !truncating.is_empty();
        list.extend(truncating);
        // Reductions of whole rows: an argmax, a softmax, both.
        let (mut bytes_per_logit, mut launches, mut reductions) = if !work.is_random() {
            (greedy_bytes_per_logit(logit_bytes), GREEDY_LAUNCHES, 1)
        } else if is_drawn {
            (drawn_bytes_per_logit(logit_bytes), DRAWN_LAUNCHES, 1)
        } else {
            (random_bytes_per_logit(logit_bytes), RANDOM_LAUNCHES, 2)
        };
        if work.is_random() && work.is_greedy() {
            bytes_per_logit += BOTH_BYTES_PER_LOGIT;
            launches += BOTH_LAUNCHES;
            reductions += 1;
        }
        let bytes = row_bytes(bytes_per_logit) + 2.0 * hidden_bytes;
        let kernel = Kernel::RowScan { launches, row: reductions * vocab, tile: REDUCTION_TILE };
        list.push(Template::streaming(Sampling, Rows::Sampled, bytes, kernel));
        list
    }
}

/// Bytes per row of `vocab` logits and kernel of a sampler's operator under vLLM 0.15, by its name; `None` for other names. Logits are
/// 16-bit before the cast.
pub fn kernel_of(name: &str, vocab: u64) -> Option<(f64, Kernel)> {
    let alone = SamplingParams { top_k: Some(20), ..SamplingParams::default() };
    let sorted = SamplingParams { top_p: Some(0.9), repetition_penalty: Some(1.1), ..SamplingParams::default() };
    let of = |params: &SamplingParams| Sampler::new(&Engine::fitted(), vocab, 2.0, 0.0).templates(params.work());
    let template = of(&sorted).into_iter().chain(of(&alone)).find(|template| template.kind.name() == name)?;
    match template.kernel {
        KernelTemplate::Streaming { bytes_per_row, kernel, .. } => Some((bytes_per_row, kernel)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::physics::fixtures::llama_31_70b;

    fn read(sampling: Option<SamplingParams>, generation_config: GenerationConfig) -> (SamplingParams, Option<String>) {
        let model = Model { sampling, ..llama_31_70b() };
        let deployment = Deployment { generation_config, ..Deployment::tensor_parallel(4) };
        read_by(&Engine::fitted(), &model, &deployment)
    }

    fn read_by(engine: &Engine, model: &Model, deployment: &Deployment) -> (SamplingParams, Option<String>) {
        (defaults(model, deployment, engine), remark(model, deployment, engine))
    }

    #[test]
    fn the_models_parameters_count_unless_the_server_ignores_them() {
        let known = SamplingParams { top_p: Some(0.9), repetition_penalty: Some(1.1), ..Default::default() };
        assert_eq!(read(Some(known), GenerationConfig::Auto), (known, None));
        assert_eq!(read(Some(known), GenerationConfig::Vllm), (SamplingParams::default(), None));
        let (model, deployment) = (Model { sampling: Some(known), ..llama_31_70b() }, Deployment::tensor_parallel(4));
        let by = |name| read_by(&Engine::parse(name, None).unwrap(), &model, &deployment).0;
        assert_eq!((by("sglang"), by("trtllm")), (known, SamplingParams::default()));
    }

    #[test]
    fn an_unknown_file_is_remarked_on_where_the_server_would_read_it() {
        let (auto, said) = read(None, GenerationConfig::Auto);
        assert_eq!(auto, SamplingParams::default());
        assert!(said.is_some_and(|said| said.starts_with("generation_config.json is not known: ")));
        assert_eq!(read(None, GenerationConfig::Vllm).1, None);
    }

    /// Names, bytes per logit and launches of the sampler's kernels over 1,000 logits of 2 bytes.
    fn kernels(sampling: SamplingParams) -> Vec<(&'static str, f64, u64)> {
        names(sampling.work())
    }

    fn names(work: SamplerWork) -> Vec<(&'static str, f64, u64)> {
        let list = Sampler::new(&Engine::fitted(), 1000, 2.0, 0.0).templates(work);
        let one = list.iter().map(|template| match template.kernel {
            KernelTemplate::Streaming { bytes_per_row, kernel, .. } => {
                (template.kind.name(), bytes_per_row / 1000.0, kernel.launches())
            }
            _ => panic!("{template:?} moves more than bytes"),
        });
        one.collect()
    }

    #[test]
    fn kernels_are_those_that_the_parameters_need() {
        let none = SamplingParams::default();
        let (top_p, top_k) = (Some(0.9), Some(20));
        assert_eq!(kernels(none), [("sampling", 42.0, 7)]);
        let greedy = SamplingParams { temperature: Some(0.0), top_p, top_k, ..none };
        assert_eq!(kernels(greedy), [("sampling", 10.0, 3)]);
        let sorted = [("top_p_sort", 156.0, 11), ("top_p_cumsum", 8.0, 1), ("top_p_mask", 46.0, 7)];
        assert_eq!(kernels(SamplingParams { top_p, ..none })[..3], sorted);
        assert_eq!(kernels(SamplingParams { top_k, ..none })[0], ("top_k", 34.0, 13));
        let all = kernels(SamplingParams { top_p, top_k, repetition_penalty: Some(1.1), ..none });
        assert_eq!((all.len(), all[0], all[4]), (6, ("penalties", 85.0, 11), ("top_k", 14.0, 4)));
    }
    #[test]
    fn greedy_and_random_requests_share_the_passes_over_all_rows() {
        let greedy = SamplingParams { temperature: Some(0.0), ..Default::default() }.work();
        let top_k = SamplingParams { top_k: Some(20), ..Default::default() }.work();
        assert_eq!(names(greedy | top_k), [("top_k", 34.0, 13), ("sampling", 46.0, 12)]);
        assert_eq!(names(greedy | SamplingParams::default().work()), [("sampling", 46.0, 12)]);
    }
}
