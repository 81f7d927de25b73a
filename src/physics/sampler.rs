//! The sampling parameters of requests that bring none of their own. They follow from model and server; no operator's bytes
//! depend on them.

use crate::deployment::{Deployment, GenerationConfig};
use crate::model::{Model, SamplingDefaults};

/// The parameters of `model` served as `deployment` says; none where `generation_config` is `vllm` or the model's own is not
/// known.
pub(super) fn defaults(model: &Model, deployment: &Deployment) -> SamplingDefaults {
    match deployment.generation_config {
        GenerationConfig::Auto => model.sampling.unwrap_or_default(),
        GenerationConfig::Vllm => SamplingDefaults::default(),
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
    use crate::physics::fixtures::llama_31_70b;

    fn read(
        sampling: Option<SamplingDefaults>,
        generation_config: GenerationConfig,
    ) -> (SamplingDefaults, Option<String>) {
        let model = Model { sampling, ..llama_31_70b() };
        let deployment = Deployment { generation_config, ..Deployment::tensor_parallel(4) };
        (defaults(&model, &deployment), remark(&model, &deployment))
    }

    #[test]
    fn the_models_parameters_count_unless_the_server_ignores_them() {
        let known = SamplingDefaults { top_p: Some(0.9), repetition_penalty: Some(1.1), ..Default::default() };
        assert_eq!(read(Some(known), GenerationConfig::Auto), (known, None));
        assert_eq!(read(Some(known), GenerationConfig::Vllm), (SamplingDefaults::default(), None));
    }

    #[test]
    fn an_unknown_file_is_remarked_on_where_the_server_would_read_it() {
        let (auto, said) = read(None, GenerationConfig::Auto);
        assert_eq!(auto, SamplingDefaults::default());
        assert!(said.is_some_and(|said| said.starts_with("generation_config.json is not known: ")));
        assert_eq!(read(None, GenerationConfig::Vllm).1, None);
    }
}
