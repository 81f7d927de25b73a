//! Time of the host to launch a step's kernels where no CUDA graph replays all of them. The host runs ahead of the GPU: a step takes
//! the longer of both. Uses `physics`.

use serde::Serialize;

use crate::engine::Engine;
use crate::physics::{BatchSums, GraphMode, StepPlan};

/// Host time of a kernel of an eager step, µs.
///
/// # Source
/// Measured: a layer of ten kernels takes 182 µs. With `enforce_eager`, vLLM 0.32.0 on one core of a server CPU needs 1,963 µs for a step of
/// a Llama with 8 layers and 9,254 µs with 48. The layers are 64 wide, so that their arithmetic takes next to no time.
const EAGER_LAUNCH_US: f64 = 18.2;

/// The same under SGLang and TensorRT-LLM, whose steps of prompts are eager.
///
/// # Source
/// Identified on open closed loops, not measured: the TTFT of prompts of 1,024 tokens with 4 to 32 in flight. SGLang 0.5.9 on B200 leaves about 130 ms
/// of a prompt of DeepSeek-V3 (60 µs for each kernel that the plan counts) and more of Qwen3.5's; TensorRT-LLM 1.0 to 1.2 leaves 20 to 60 µs. They
/// are kernels of the plan: each stands for some that the engines launch beside it.
const SGLANG_LAUNCH_US: f64 = 80.0;
const TRTLLM_LAUNCH_US: f64 = 30.0;

/// Host time of a kernel that `torch.compile` has compiled, µs.
///
/// # Source
/// Measured like [`EAGER_LAUNCH_US`], without `enforce_eager`: 921 and 4,391 µs a step, 87 µs a layer.
const COMPILED_LAUNCH_US: f64 = 8.7;

/// Launches around an attention call between piecewise graphs: the cache write, the call, the graph behind it.
const PIECEWISE_LAUNCHES: u64 = 3;

/// Host times of a step by its kind, µs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub(super) struct Launches {
    /// The largest captured size, tokens.
    captured_tokens: u64,
    /// Of decodes alone: within the captured sizes, and beyond.
    decodes_us: [f64; 2],
    /// Of a step with a prefill chunk, likewise.
    chunks_us: [f64; 2],
}

impl Launches {
    /// The launches of every operator of `plan`: one call runs the attention of chunks and of decodes.
    pub(super) fn new(plan: &StepPlan, engine: &Engine) -> Self {
        let eager_us = match engine.name() {
            "sglang" => SGLANG_LAUNCH_US,
            "trtllm" => TRTLLM_LAUNCH_US,
            _ => EAGER_LAUNCH_US,
        };
        let (kernels, attention_calls) = plan.launches();
        let typical_us = |mode: GraphMode| match mode {
            GraphMode::Full => 0.0,
            GraphMode::Piecewise => (PIECEWISE_LAUNCHES * attention_calls) as f64 * COMPILED_LAUNCH_US,
            GraphMode::None => kernels as f64 * COMPILED_LAUNCH_US,
            GraphMode::Eager => kernels as f64 * eager_us,
        };
        let host_us = |mode| plan.host_speed.factor() * typical_us(mode);
        let graphs = &plan.cuda_graphs;
        let captured_tokens = graphs.limit_tokens();
        let by_size = |is_decode_only| {
            [captured_tokens, captured_tokens + 1].map(|tokens| host_us(graphs.mode(tokens, is_decode_only)))
        };
        Launches { captured_tokens, decodes_us: by_size(true), chunks_us: by_size(false) }
    }

    /// Host time of a step, µs.
    pub(super) fn step_us(&self, sums: &BatchSums) -> f64 {
        if sums.is_decode_only() { self.decodes_us(sums.num_tokens) } else { self.chunks_us(sums.num_tokens) }
    }

    /// Host time of a step of decodes alone, µs.
    pub(super) fn decodes_us(&self, tokens: u64) -> f64 {
        self.of(self.decodes_us, tokens)
    }

    /// Host time of a step with a prefill chunk, µs.
    #[inline]
    pub(super) fn chunks_us(&self, tokens: u64) -> f64 {
        self.of(self.chunks_us, tokens)
    }

    #[inline]
    fn of(&self, [captured_us, beyond_us]: [f64; 2], tokens: u64) -> f64 {
        if tokens <= self.captured_tokens { captured_us } else { beyond_us }
    }
}

#[allow(clippy::float_cmp)]
#[cfg(test)]
mod tests {
    use super::*;
    use crate::deployment::{CudagraphMode, Deployment};
    use crate::model::Model;

    fn launches(model: &str, deployment: &Deployment) -> Launches {
        let model = Model::find(model).expect("built in");
        Launches::new(
            &StepPlan::for_engine(&model, deployment, &Engine::fitted()).expect("possible"),
            &Engine::fitted(),
        )
    }

    #[test]
    fn kernels_are_launched_as_often_as_the_mode_says() {
        // 32 layers of ten kernels; embedding, final norm, LM head, and the sampler's 11 + 1 + 7 + 7.
        let kernels = 320.0 + 3.0 + 26.0;
        let of = |mode| launches("llama-3.1-8b", &Deployment { cudagraph_mode: mode, ..Deployment::default() });
        let default = of(None);
        assert_eq!(default.decodes_us, [0.0, kernels * 8.7]);
        assert_eq!(default.chunks_us, [96.0 * 8.7, kernels * 8.7]);
        assert_eq!((default.decodes_us(512), default.captured_tokens), (0.0, 512));
        assert_eq!(default.chunks_us(513), kernels * 8.7);
        assert_eq!(of(Some(CudagraphMode::Piecewise)).decodes_us[0], 96.0 * 8.7);
        assert_eq!(of(Some(CudagraphMode::FullDecodeOnly)).chunks_us[0], kernels * 8.7);
        let eager = launches("llama-3.1-8b", &Deployment { enforce_eager: true, ..Deployment::default() });
        assert_eq!((eager.decodes_us, eager.chunks_us), ([kernels * 18.2; 2], [kernels * 18.2; 2]));
    }

    #[test]
    fn chunked_attention_is_never_part_of_a_graph() {
        let scout = launches("llama-4-scout-fp8-dynamic", &Deployment::tensor_parallel(2));
        assert!(scout.decodes_us[0] > 0.0 && scout.decodes_us[0] == scout.chunks_us[0]);
    }
}
