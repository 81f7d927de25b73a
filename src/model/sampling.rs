//! The publisher's sampling parameters: the sampling keys of `generation_config.json`, and the work they cause in the
//! sampler.

use serde::Serialize;
use serde_json::Value;

use crate::input::{Keys, NumberRange};

/// Below this temperature vLLM takes the most likely token (`_SAMPLING_EPS` in `vllm/sampling_params.py`).
const GREEDY_BELOW: f64 = 1e-5;
/// Default `top_k` of transformers 4. vLLM adopts only values that differ from those defaults.
const DEFAULT_TOP_K: i64 = 50;

/// Sampling parameters that vLLM gives to requests without their own if its `generation_config` is `auto`, the default.
///
/// `None` is a key that the file leaves out. vLLM adopts these five keys alone: presence and frequency penalties come only
/// from requests, and `do_sample` has no effect.
///
/// # Source
/// vLLM 0.16.0: `get_diff_sampling_param` in `vllm/config/model.py`, ranges in `_verify_args` of `vllm/sampling_params.py`.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
#[non_exhaustive]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SamplingDefaults {
    /// Divisor of the logits, at least 0; below 1e-5 the most likely token is taken.
    pub temperature: Option<f64>,
    /// Share of the probability that the candidates must reach, in (0, 1]; 1 keeps all.
    pub top_p: Option<f64>,
    /// Most candidates, as the file has it; 0 and -1 keep all, and so does 50 (see [`Self::truncates`]).
    pub top_k: Option<i64>,
    /// Least probability of a candidate relative to the likeliest one, in [0, 1]; 0 keeps all.
    pub min_p: Option<f64>,
    /// Factor against tokens that have occurred, above 0; 1 changes nothing.
    pub repetition_penalty: Option<f64>,
}

impl SamplingDefaults {
    /// Returns whether top-p or top-k truncates the candidates, for which the sampler orders the logits of every token.
    ///
    /// With `top_p` below 1 the sampler sorts the whole vocabulary; `top_k` alone selects the largest logits. Greedy sampling
    /// truncates nothing. `min_p` needs a maximum instead of an order, so it does not count. A `top_k` of 50 is the default of
    /// transformers 4, and vLLM ignores values equal to those defaults.
    ///
    /// # Source
    /// vLLM 0.16.0: `apply_top_k_top_p` in `vllm/v1/sample/ops/topk_topp_sampler.py`, `vllm/v1/worker/gpu_input_batch.py`;
    /// `to_diff_dict` in transformers' `generation/configuration_utils.py`.
    ///
    /// ```
    /// let llama = ridgepoint::Model::builtin("llama-3.1-8b")?;
    /// assert!(llama.sampling.is_some_and(|s| s.top_p == Some(0.9) && s.truncates() && !s.penalises()));
    /// # Ok::<(), ridgepoint::Error>(())
    /// ```
    pub fn truncates(&self) -> bool {
        self.truncates_by_top_p() || self.truncates_by_top_k()
    }

    /// [`Self::truncates`] by top-p, which needs a sort.
    pub(crate) fn truncates_by_top_p(&self) -> bool {
        !self.is_greedy() && self.top_p.is_some_and(|p| p < 1.0)
    }

    /// [`Self::truncates`] by top-k.
    pub(crate) fn truncates_by_top_k(&self) -> bool {
        !self.is_greedy() && self.top_k.is_some_and(|k| k >= 1 && k != DEFAULT_TOP_K)
    }

    /// Whether the most likely token is taken.
    pub(crate) fn is_greedy(&self) -> bool {
        self.temperature.is_some_and(|temperature| temperature < GREEDY_BELOW)
    }

    /// Returns whether the sampler penalises tokens that have occurred, for which it counts them in every step. Greedy
    /// sampling does so too.
    ///
    /// # Source
    /// vLLM 0.16.0: `vllm/v1/sample/sampler.py` (penalties come before the greedy choice), `vllm/v1/sample/ops/penalties.py`.
    pub fn penalises(&self) -> bool {
        self.repetition_penalty.is_some_and(|penalty| penalty.total_cmp(&1.0).is_ne())
    }

    /// Reads the keys of a `generation_config.json`.
    pub(super) fn read(keys: &Keys<'_>) -> Self {
        SamplingDefaults {
            temperature: keys.number("temperature", NumberRange::from_zero(f64::MAX, "")),
            top_p: keys.number("top_p", NumberRange::above_zero(1.0, "")),
            top_k: keys.read("top_k", "a whole number of at least 1, or 0 or -1 for no limit", |value| {
                Value::as_i64(value).filter(|k| *k >= -1)
            }),
            min_p: keys.number("min_p", NumberRange::from_zero(1.0, "")),
            repetition_penalty: keys.number("repetition_penalty", NumberRange::POSITIVE),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONE: SamplingDefaults =
        SamplingDefaults { temperature: None, top_p: None, top_k: None, min_p: None, repetition_penalty: None };

    #[test]
    fn top_p_below_one_and_top_k_from_one_truncate() {
        for (top_p, top_k, expected) in [
            (None, None, false),
            (Some(1.0), None, false),
            (Some(0.999), None, true),
            (None, Some(-1), false),
            (None, Some(0), false),
            (None, Some(1), true),
            (Some(1.0), Some(20), true),
        ] {
            assert_eq!(SamplingDefaults { top_p, top_k, ..NONE }.truncates(), expected, "{top_p:?} {top_k:?}");
        }
    }

    #[test]
    fn the_default_top_k_of_transformers_does_not_reach_the_sampler() {
        assert!(!SamplingDefaults { top_k: Some(50), ..NONE }.truncates());
        assert!(SamplingDefaults { top_k: Some(51), ..NONE }.truncates());
        assert!(SamplingDefaults { top_k: Some(50), top_p: Some(0.9), ..NONE }.truncates());
    }

    #[test]
    fn greedy_sampling_truncates_nothing_but_penalises_all_the_same() {
        let qwen = SamplingDefaults { top_p: Some(0.8), top_k: Some(20), repetition_penalty: Some(1.05), ..NONE };
        let greedy = SamplingDefaults { temperature: Some(0.0), ..qwen };
        assert_eq!((qwen.truncates(), qwen.penalises()), (true, true));
        assert_eq!((greedy.truncates(), greedy.penalises()), (false, true));
        // 1e-5 is where vLLM begins to sample; it raises such temperatures to 0.01 itself.
        assert!(SamplingDefaults { temperature: Some(1e-5), ..qwen }.truncates());
    }

    #[test]
    fn min_p_and_neutral_values_ask_for_nothing() {
        let neutral = SamplingDefaults {
            temperature: Some(0.7),
            top_p: Some(1.0),
            top_k: Some(0),
            min_p: Some(0.1),
            repetition_penalty: Some(1.0),
        };
        assert_eq!((neutral.truncates(), neutral.penalises()), (false, false));
        assert!(SamplingDefaults { repetition_penalty: Some(0.95), ..NONE }.penalises());
    }
}
