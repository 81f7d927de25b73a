//! The sampler's work on the logits of each sampled token beside scaling them and drawing. It follows from model and server;
//! no operator's bytes depend on it.

use serde::Serialize;

use crate::deployment::{Deployment, GenerationConfig};
use crate::model::Model;

/// The sampler's work on the logits of one token, for requests that bring no sampling parameters of their own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
pub struct SamplerWork {
    /// Logits per sampled token, of the whole model: they are gathered from all ranks before sampling.
    pub vocab_size: u64,
    /// They are ordered for top-p or top-k ([`SamplingDefaults::truncates`](crate::model::SamplingDefaults::truncates)).
    pub truncates: bool,
    /// Tokens that have occurred are counted and penalised
    /// ([`SamplingDefaults::penalises`](crate::model::SamplingDefaults::penalises)).
    pub penalises: bool,
}

impl SamplerWork {
    /// The work of `model` served as `deployment` says; neither flag is set where `generation_config` is `vllm` or the
    /// model's own is not known.
    pub(super) fn new(model: &Model, deployment: &Deployment) -> Self {
        let defaults = match deployment.generation_config {
            GenerationConfig::Auto => model.sampling.unwrap_or_default(),
            GenerationConfig::Vllm => Default::default(),
        };
        SamplerWork { vocab_size: model.vocab_size, truncates: defaults.truncates(), penalises: defaults.penalises() }
    }
}

/// A remark where the server would read a file that is not at hand.
pub(super) fn remark(model: &Model, deployment: &Deployment) -> Option<String> {
    (deployment.generation_config == GenerationConfig::Auto && model.sampling.is_none()).then(|| {
        "generation_config.json is not known: tokens are taken to be sampled without top-p, top-k and penalties; have it \
         beside the config.json, or set generation_config to vllm where the server ignores it"
            .to_owned()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::SamplingDefaults;
    use crate::physics::fixtures::llama_31_70b;

    fn work(sampling: Option<SamplingDefaults>, generation_config: GenerationConfig) -> (SamplerWork, Option<String>) {
        let model = Model { sampling, ..llama_31_70b() };
        let deployment = Deployment { generation_config, ..Deployment::tensor_parallel(4) };
        (SamplerWork::new(&model, &deployment), remark(&model, &deployment))
    }

    #[test]
    fn the_models_parameters_count_unless_the_server_ignores_them() {
        let known = SamplingDefaults { top_p: Some(0.9), repetition_penalty: Some(1.1), ..Default::default() };
        let both = SamplerWork { vocab_size: 128_256, truncates: true, penalises: true };
        let neutral = SamplerWork { truncates: false, penalises: false, ..both };
        assert_eq!(work(Some(known), GenerationConfig::Auto), (both, None));
        assert_eq!(work(Some(known), GenerationConfig::Vllm), (neutral, None));
    }

    #[test]
    fn an_unknown_file_is_remarked_on_where_the_server_would_read_it() {
        let (auto, said) = work(None, GenerationConfig::Auto);
        assert_eq!((auto.truncates, auto.penalises), (false, false));
        assert!(said.is_some_and(|said| said.starts_with("generation_config.json is not known: ")));
        assert_eq!(work(None, GenerationConfig::Vllm).1, None);
    }
}
