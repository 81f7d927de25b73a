//! The CUDA graph that a step replays, and the number of tokens that it is padded to.

use serde::Serialize;

use crate::default_limits::TRTLLM_GRAPH_SIZE;
use crate::deployment::{CudagraphMode, Deployment};
use crate::engine::Engine;

/// No graph is captured for more tokens than this, whatever `max_num_seqs` is (vLLM's default).
const MAX_CAPTURE_TOKENS: u64 = 512;
/// The same under SGLang, where the GPU is not known.
const MAX_DECODES_SGLANG: u32 = 256;

/// How a step's kernels are launched.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum GraphMode {
    /// One graph holds the whole decode step, padded to the next captured size.
    Full,
    /// Graphs between the attention calls, padded to the next captured size; attention is launched from the host.
    Piecewise,
    /// More tokens than the largest captured size: compiled kernels launched from the host, no padding.
    None,
    /// `enforce_eager`, or no graph of an engine that does not compile: every kernel is launched from the host, no padding.
    #[default]
    Eager,
}

/// The number of graphs that an engine captures when it starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Captures {
    /// Graphs between the attention calls.
    pub piecewise: u64,
    /// Graphs of whole steps.
    pub full: u64,
}

/// The graphs that an engine has captured.
///
/// # Formula
/// Sizes 1, 2, 4, multiples of 8 below 256, multiples of 16 from 256, up to
/// `min(2·max_num_seqs, 512, max_num_batched_tokens)`, unless the deployment gives them.
///
/// SGLang: decodes alone, 1, 2, 4, multiples of 4 to 16, of 8 to 256, of 16 below 512, of 32 from there. TensorRT-LLM: decodes alone, 1 to 31,
/// 32, 64, 128 and powers of two, which a batch must meet; with `enable_padding` 1, 2, 4, multiples of 8 to 128, powers of two. Other steps of
/// both are eager.
///
/// Where a decode verifies k drafts, it has 1 + k tokens. vLLM's sizes are rounded up to multiples of these and the default limit is
/// `min(2·max_num_seqs·(1 + k), 512)`; the other engines' sizes count requests, of SGLang 1 to 8, even ones to 32, multiples of 4 to 64, of 8
/// to 256, of 16 from there.
///
/// # Source
/// vLLM, `VllmConfig._set_cudagraph_sizes` (`vllm/config/vllm.py`), since 0.13. SGLang 0.5.9, `ServerArgs`
/// (`server_args.py`). TensorRT-LLM 1.2, `CudaGraphConfig` (`llmapi/llm_args.py`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CudaGraphs {
    /// Graphs of steps of decodes alone, and of steps with a prefill chunk.
    modes: [GraphMode; 2],
    /// Upper limit of the captured sizes; `None` where nothing is captured.
    limit_tokens: Option<u64>,
    /// The captured sizes where they were given.
    given: Vec<u32>,
    sizes: SizesOf,
    /// How a step is launched that no size holds.
    uncaptured: GraphMode,
    /// Tokens of a decode: one, and its drafts.
    tokens_of_decode: u64,
}

/// Captured sizes by default.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SizesOf {
    Vllm,
    Sglang,
    SglangVerifying,
    Trtllm { enable_padding: bool },
}

impl SizesOf {
    /// The first size that holds `tokens`; without padding, `tokens` itself if it is one.
    fn next(self, tokens: u64) -> Option<u64> {
        match (self, tokens) {
            (SizesOf::Trtllm { enable_padding: false }, 33..) => tokens.is_power_of_two().then_some(tokens),
            (SizesOf::Trtllm { enable_padding: false }, _) => Some(tokens.max(1)),
            (SizesOf::Trtllm { .. }, 129..) => Some(tokens.next_power_of_two()),
            (SizesOf::SglangVerifying, 3..=8) => Some(tokens),
            (SizesOf::SglangVerifying, 9..=32) => Some(tokens.next_multiple_of(2)),
            (SizesOf::SglangVerifying, 33..=64) => Some(tokens.next_multiple_of(4)),
            (_, 0..=2) => Some(tokens.max(1)),
            (_, 3..=4) => Some(4),
            (SizesOf::Sglang, 5..=16) => Some(tokens.next_multiple_of(4)),
            (_, 5..=256) => Some(tokens.next_multiple_of(8)),
            (SizesOf::Sglang, 497..) => Some(tokens.next_multiple_of(32)),
            _ => Some(tokens.next_multiple_of(16)),
        }
    }
}

impl CudaGraphs {
    /// The graphs that an engine captures for this deployment. `has_full` is false for attention that no graph can hold.
    ///
    /// # Source
    /// vLLM, `CompilationConfig.resolve_cudagraph_mode_and_sizes` (`vllm/config/compilation.py`).
    pub fn new(deployment: &Deployment, has_full: bool, engine: &Engine) -> Self {
        use GraphMode::{Eager, Full, None, Piecewise};
        // An engine that does not compile launches every kernel itself.
        let uncaptured = if engine.is_vllm() { None } else { Eager };
        let modes = match deployment.cudagraph_mode.unwrap_or_default() {
            _ if deployment.enforce_eager => [Eager; 2],
            CudagraphMode::None => [uncaptured; 2],
            _ if !engine.is_vllm() => [if has_full { Full } else { Eager }, Eager],
            CudagraphMode::FullAndPiecewise if has_full => [Full, Piecewise],
            CudagraphMode::FullAndPiecewise | CudagraphMode::Piecewise => [Piecewise; 2],
            CudagraphMode::Full if has_full => [Full; 2],
            CudagraphMode::FullDecodeOnly if has_full => [Full, None],
            CudagraphMode::Full | CudagraphMode::FullDecodeOnly => [None; 2],
        };
        let tokens_of_decode = 1 + u64::from(deployment.num_draft_tokens);
        let most_decodes = 2 * u64::from(deployment.max_num_seqs) * tokens_of_decode;
        let (sizes, by_default) = match engine.name() {
            "sglang" if tokens_of_decode > 1 => (SizesOf::SglangVerifying, MAX_DECODES_SGLANG.into()),
            "sglang" => (SizesOf::Sglang, MAX_DECODES_SGLANG.into()),
            "trtllm" => (SizesOf::Trtllm { enable_padding: deployment.enable_padding }, TRTLLM_GRAPH_SIZE.into()),
            _ => (SizesOf::Vllm, most_decodes.min(MAX_CAPTURE_TOKENS)),
        };
        let limit = deployment.cudagraph_capture_sizes.last().copied().or(deployment.max_cudagraph_capture_size);
        let limit = limit.map_or(by_default, u64::from);
        let limit = if engine.is_vllm() { limit } else { limit * tokens_of_decode };
        let captures = modes.iter().any(|mode| matches!(mode, Full | Piecewise));
        CudaGraphs {
            modes,
            limit_tokens: captures.then(|| limit.min(u64::from(deployment.max_num_batched_tokens))),
            given: deployment.cudagraph_capture_sizes.clone(),
            sizes,
            uncaptured,
            tokens_of_decode,
        }
    }

    /// The captured size that holds `tokens`; `None` where no graph does.
    ///
    /// ```
    /// use ridgepoint::{Deployment, Engine};
    /// use ridgepoint::physics::CudaGraphs;
    /// let graphs = CudaGraphs::new(&Deployment::default(), true, &Engine::default());
    /// assert_eq!(graphs.padded_tokens(3), Some(4));
    /// assert_eq!(graphs.padded_tokens(249), Some(256));
    /// assert_eq!(graphs.padded_tokens(257), Some(272));
    /// assert_eq!(graphs.padded_tokens(513), None);
    /// ```
    pub fn padded_tokens(&self, tokens: u64) -> Option<u64> {
        let limit = self.limit_tokens.filter(|limit| tokens <= *limit)?;
        // vLLM's sizes are tokens, rounded up to whole decodes; the others' are decodes.
        let of_decode = self.tokens_of_decode;
        let (least, unit) = match self.sizes {
            SizesOf::Vllm => ((tokens.div_ceil(of_decode).max(1) - 1) * of_decode + 1, 1),
            _ => (tokens.div_ceil(of_decode), of_decode),
        };
        let size = if self.given.is_empty() {
            self.sizes.next(least)?
        } else {
            let at = self.given.partition_point(|size| u64::from(*size) < least);
            self.given.get(at).map(|size| u64::from(*size))?
        };
        let padded = (size * unit).next_multiple_of(of_decode);
        (padded <= limit).then_some(padded)
    }

    /// How a step of `tokens` tokens is launched.
    pub fn mode(&self, tokens: u64, is_decode_only: bool) -> GraphMode {
        let [alone, mixed] = self.modes;
        match if is_decode_only { alone } else { mixed } {
            GraphMode::Full | GraphMode::Piecewise if self.padded_tokens(tokens).is_none() => self.uncaptured,
            mode => mode,
        }
    }

    /// The largest captured size, tokens; 0 without graphs.
    pub fn limit_tokens(&self) -> u64 {
        self.sizes().last().copied().unwrap_or(0)
    }

    /// Counts the graphs that the engine captures when it starts. Graphs of decodes alone are captured up to `max_num_seqs` tokens, because
    /// no such step has more; all other graphs are captured in every size.
    ///
    /// # Source
    /// vLLM, `CudagraphDispatcher.initialize_cudagraph_keys` (`vllm/v1/cudagraph_dispatcher.py`), one token per decode.
    pub fn captures(&self, max_num_seqs: u32) -> Captures {
        let sizes = self.sizes();
        let all = sizes.len() as u64;
        let of_decodes =
            sizes.iter().filter(|tokens| **tokens <= u64::from(max_num_seqs) * self.tokens_of_decode).count() as u64;
        match self.modes {
            [GraphMode::Full, GraphMode::Full] => Captures { piecewise: 0, full: all },
            [GraphMode::Full, GraphMode::Piecewise] => Captures { piecewise: all, full: of_decodes },
            [GraphMode::Full, _] => Captures { piecewise: 0, full: of_decodes },
            [_, GraphMode::Piecewise] => Captures { piecewise: all, full: 0 },
            _ => Captures::default(),
        }
    }

    /// All captured sizes, ascending.
    pub fn sizes(&self) -> Vec<u64> {
        let limit = self.limit_tokens.unwrap_or(0);
        (1..=limit).filter(|tokens| self.padded_tokens(*tokens) == Some(*tokens)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vllm() -> Engine {
        Engine::default()
    }

    fn graphs(max_num_seqs: u32) -> CudaGraphs {
        CudaGraphs::new(&Deployment { max_num_seqs, ..Deployment::default() }, true, &vllm())
    }

    #[test]
    fn default_sizes_are_those_of_vllm() {
        let mut expected = vec![1, 2, 4];
        expected.extend((8..256).step_by(8));
        expected.extend((256..=512).step_by(16));
        assert_eq!(graphs(256).sizes(), expected);
        assert_eq!(graphs(1024).sizes(), expected);
    }

    #[test]
    fn few_sequences_capture_few_sizes() {
        assert_eq!(graphs(1).sizes(), [1, 2]);
        assert_eq!(graphs(5).sizes(), [1, 2, 4, 8]);
        // 2·125 = 250: 248 is the last multiple of 8 below it, and 249 tokens have no graph.
        assert_eq!(graphs(125).sizes().last(), Some(&248));
        assert_eq!(graphs(125).padded_tokens(249), None);
        assert_eq!(graphs(130).sizes().last(), Some(&256));
    }

    #[test]
    fn padding_is_the_next_captured_size() {
        for max_num_seqs in [1, 3, 20, 125, 130, 200, 256] {
            let graphs = graphs(max_num_seqs);
            let sizes = graphs.sizes();
            for tokens in 1..600 {
                let next = sizes.iter().copied().find(|s| *s >= tokens);
                assert_eq!(graphs.padded_tokens(tokens), next, "{max_num_seqs} sequences, {tokens} tokens");
            }
        }
    }

    #[test]
    fn modes_follow_batch_and_flags() {
        assert_eq!(graphs(256).mode(9, true), GraphMode::Full);
        assert_eq!(graphs(256).mode(9, false), GraphMode::Piecewise);
        assert_eq!(graphs(256).mode(513, true), GraphMode::None);
        let eager = CudaGraphs::new(&Deployment { enforce_eager: true, ..Deployment::default() }, true, &vllm());
        assert_eq!(eager.mode(9, true), GraphMode::Eager);
        assert_eq!(eager.padded_tokens(9), None);
    }

    #[test]
    fn modes_are_those_that_vllm_resolves_to() {
        use GraphMode::{Full, None, Piecewise};
        // With attention that a graph can hold, and without: decodes alone, with a chunk, each within the sizes and beyond.
        for (mode, with_full, without) in [
            (CudagraphMode::FullAndPiecewise, [Full, Piecewise], [Piecewise; 2]),
            (CudagraphMode::Full, [Full; 2], [None; 2]),
            (CudagraphMode::FullDecodeOnly, [Full, None], [None; 2]),
            (CudagraphMode::Piecewise, [Piecewise; 2], [Piecewise; 2]),
            (CudagraphMode::None, [None; 2], [None; 2]),
        ] {
            let deployment = Deployment { cudagraph_mode: Some(mode), ..Deployment::default() };
            for (has_full, expected) in [(true, with_full), (false, without)] {
                let graphs = CudaGraphs::new(&deployment, has_full, &vllm());
                assert_eq!([graphs.mode(9, true), graphs.mode(9, false)], expected, "{mode:?}");
                assert_eq!([graphs.mode(600, true), graphs.mode(600, false)], [None; 2], "{mode:?}");
            }
        }
    }

    #[test]
    fn graphs_of_decodes_are_captured_up_to_the_most_requests() {
        let captures = |deployment: &Deployment| {
            let Captures { piecewise, full } =
                CudaGraphs::new(deployment, true, &vllm()).captures(deployment.max_num_seqs);
            (piecewise, full)
        };
        // Sizes up to 512: 1, 2, 4, 31 multiples of 8 below 256, and 17 multiples of 16. The first 35 are at most 256.
        let of_mode = |mode| captures(&Deployment { cudagraph_mode: Some(mode), ..Deployment::default() });
        assert_eq!(of_mode(CudagraphMode::FullAndPiecewise), (51, 35));
        assert_eq!(of_mode(CudagraphMode::Full), (0, 51));
        assert_eq!(of_mode(CudagraphMode::FullDecodeOnly), (0, 35));
        assert_eq!(of_mode(CudagraphMode::Piecewise), (51, 0));
        assert_eq!(of_mode(CudagraphMode::None), (0, 0));
        assert_eq!(captures(&Deployment { enforce_eager: true, ..Deployment::default() }), (0, 0));
        // 1, 2, 4, 8 for five requests; decodes never have 8.
        assert_eq!(captures(&Deployment { max_num_seqs: 5, ..Deployment::default() }), (4, 3));
        let without = CudaGraphs::new(&Deployment::default(), false, &vllm()).captures(256);
        assert_eq!(without, Captures { piecewise: 51, full: 0 });
    }

    #[test]
    fn given_sizes_are_those_that_steps_are_padded_to() {
        let given = Deployment { cudagraph_capture_sizes: vec![3, 100, 700], ..Deployment::default() };
        let graphs = CudaGraphs::new(&given, true, &vllm());
        assert_eq!(graphs.sizes(), [3, 100, 700]);
        let padded = [1, 3, 4, 101, 700, 701].map(|tokens| graphs.padded_tokens(tokens));
        assert_eq!(padded, [Some(3), Some(3), Some(100), Some(700), Some(700), None]);
        let limited = Deployment { max_cudagraph_capture_size: Some(20), ..Deployment::default() };
        assert_eq!(CudaGraphs::new(&limited, true, &vllm()).sizes(), [1, 2, 4, 8, 16]);
    }

    #[test]
    fn sizes_hold_whole_verifications() {
        let of = |engine: &str, num_draft_tokens| {
            let deployment = Deployment { num_draft_tokens, max_num_seqs: 64, ..Deployment::default() };
            CudaGraphs::new(&deployment, true, &Engine::parse(engine, None).expect("an engine"))
        };
        // 1, 2, 4, 8, 16, … rounded up to multiples of 3, up to 2 · 64 · 3 = 384.
        assert_eq!(of("vllm", 2).sizes().get(..6), Some(&[3, 6, 9, 18, 24, 33][..]));
        assert_eq!(
            [5, 9, 10, 384, 385].map(|tokens| of("vllm", 2).padded_tokens(tokens)),
            [Some(6), Some(9), Some(18), Some(384), None]
        );
        // 9 requests of 4 tokens are padded to 10 requests.
        assert_eq!(of("sglang", 3).padded_tokens(36), Some(40));
        assert_eq!([of("trtllm", 1).padded_tokens(62), of("trtllm", 1).padded_tokens(66)], [Some(62), None]);
    }

    #[test]
    fn other_engines_capture_decodes_alone() {
        use GraphMode::{Eager, Full};
        let of = |engine: &str, deployment: Deployment| {
            CudaGraphs::new(&deployment, true, &Engine::parse(engine, None).expect("an engine"))
        };
        let sglang = of("sglang", Deployment { max_cudagraph_capture_size: Some(512), ..Deployment::default() });
        assert_eq!([sglang.mode(8, true), sglang.mode(8, false), sglang.mode(513, true)], [Full, Eager, Eager]);
        assert_eq!([5, 13, 257, 500].map(|tokens| sglang.padded_tokens(tokens)), [8, 16, 272, 512].map(Some));
        let exact = of("trtllm", Deployment::default());
        let modes = [31, 32, 33, 64, 128, 129].map(|tokens| exact.mode(tokens, true));
        assert_eq!(modes, [Full, Full, Eager, Full, Full, Eager]);
        let padded =
            Deployment { enable_padding: true, max_cudagraph_capture_size: Some(512), ..Deployment::default() };
        let padded = of("trtllm", padded);
        assert_eq!([3, 33, 129, 257].map(|tokens| padded.padded_tokens(tokens)), [4, 40, 256, 512].map(Some));
    }
}
