//! The CUDA graph that a step replays, and the number of tokens that it is padded to.

use serde::Serialize;

use crate::deployment::Deployment;

/// No graph is captured for more tokens than this, whatever `max_num_seqs` is (vLLM's default).
const MAX_CAPTURE_TOKENS: u64 = 512;

/// How a step's kernels are launched.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum GraphMode {
    /// One graph holds the whole decode step, padded to the next captured size.
    Full,
    /// Graphs between the attention calls, padded to the next captured size; attention is launched from the host.
    Piecewise,
    /// More tokens than the largest captured size: compiled kernels launched from the host, no padding.
    None,
    /// `enforce_eager`: every kernel is launched from the host, no padding.
    #[default]
    Eager,
}

/// The graphs that an engine has captured.
///
/// # Formula
/// Sizes 1, 2, 4, multiples of 8 below 256, multiples of 16 from 256, up to
/// `min(2·max_num_seqs, 512, max_num_batched_tokens)`.
///
/// # Source
/// vLLM, `VllmConfig._set_cudagraph_sizes` (`vllm/config/vllm.py`), defaults without speculative decoding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CudaGraphs {
    /// Upper limit of the captured sizes; `None` with `enforce_eager`.
    limit_tokens: Option<u64>,
}

impl CudaGraphs {
    /// The graphs that vLLM captures for this deployment.
    pub fn new(deployment: &Deployment) -> Self {
        let limit = (2 * u64::from(deployment.max_num_seqs))
            .min(MAX_CAPTURE_TOKENS)
            .min(u64::from(deployment.max_num_batched_tokens));
        CudaGraphs { limit_tokens: (!deployment.enforce_eager).then_some(limit) }
    }

    /// The captured size that holds `tokens`; `None` where no graph does.
    ///
    /// ```
    /// use ridgepoint::Deployment;
    /// use ridgepoint::physics::CudaGraphs;
    /// let graphs = CudaGraphs::new(&Deployment::default());
    /// assert_eq!(graphs.padded_tokens(3), Some(4));
    /// assert_eq!(graphs.padded_tokens(249), Some(256));
    /// assert_eq!(graphs.padded_tokens(257), Some(272));
    /// assert_eq!(graphs.padded_tokens(513), None);
    /// ```
    pub fn padded_tokens(&self, tokens: u64) -> Option<u64> {
        let limit = self.limit_tokens.filter(|limit| tokens <= *limit)?;
        let padded = match tokens {
            0..=2 => tokens.max(1),
            3..=4 => 4,
            5..=256 => tokens.next_multiple_of(8),
            _ => tokens.next_multiple_of(16),
        };
        (padded <= limit).then_some(padded)
    }

    /// How a step of `tokens` tokens is launched.
    pub fn mode(&self, tokens: u64, is_decode_only: bool) -> GraphMode {
        match (self.limit_tokens, self.padded_tokens(tokens)) {
            (None, _) => GraphMode::Eager,
            (Some(_), None) => GraphMode::None,
            (Some(_), Some(_)) if is_decode_only => GraphMode::Full,
            (Some(_), Some(_)) => GraphMode::Piecewise,
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

    fn graphs(max_num_seqs: u32) -> CudaGraphs {
        CudaGraphs::new(&Deployment { max_num_seqs, ..Deployment::default() })
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
        let eager = CudaGraphs::new(&Deployment { enforce_eager: true, ..Deployment::default() });
        assert_eq!(eager.mode(9, true), GraphMode::Eager);
        assert_eq!(eager.padded_tokens(9), None);
    }
}
