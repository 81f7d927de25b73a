//! How a model's publisher wants its tokens sampled: the sampling keys of `generation_config.json`, checked, and what they
//! make the sampler do. Uses `error` and this module's `fields` and `config`.

use serde::Serialize;
use serde_json::Value;

use super::config;
use super::fields::{Log, Section, shown};
use super::shape::Model;
use crate::error::{Error, Result};

/// Below this temperature vLLM takes the most likely token (`_SAMPLING_EPS` in `vllm/sampling_params.py`).
const GREEDY_BELOW: f64 = 1e-5;
/// What transformers 4 has for an absent `top_k`; vLLM takes over only values that differ from those defaults.
const DEFAULT_TOP_K: i64 = 50;

/// Sampling parameters that vLLM gives to requests without their own (`--generation-config auto`, its default).
///
/// `None` is a key that the file leaves out. vLLM takes over these five keys alone, so presence and frequency penalties come
/// only from requests, and `do_sample` decides nothing.
///
/// # Source
/// vLLM 0.16.0: `get_diff_sampling_param` in `vllm/config/model.py`, ranges in `_verify_args` of `vllm/sampling_params.py`.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
#[non_exhaustive]
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
    /// The candidates are cut by top-p or top-k, for which the sampler orders the logits of every sampled token.
    ///
    /// With `top_p` below 1 the whole vocabulary is sorted; `top_k` alone is a selection of the largest. Greedy sampling cuts
    /// nothing, and `min_p` needs a maximum instead of an order, so that it does not count. A `top_k` of 50 is what
    /// transformers 4 has by default: vLLM keeps only what differs from that, and samples without it.
    ///
    /// # Source
    /// vLLM 0.16.0: `apply_top_k_top_p` in `vllm/v1/sample/ops/topk_topp_sampler.py`, `vllm/v1/worker/gpu_input_batch.py`;
    /// `to_diff_dict` in transformers' `generation/configuration_utils.py`.
    ///
    /// ```
    /// let llama = ridgepoint::Model::builtin("llama-3.1-8b")?;
    /// assert!(llama.sampling().is_some_and(|s| s.top_p == Some(0.9) && s.truncates() && !s.penalises()));
    /// # Ok::<(), ridgepoint::Error>(())
    /// ```
    pub fn truncates(&self) -> bool {
        let by_top_p = self.top_p.is_some_and(|p| p < 1.0);
        let by_top_k = self.top_k.is_some_and(|k| k >= 1 && k != DEFAULT_TOP_K);
        !self.is_greedy() && (by_top_p || by_top_k)
    }

    /// Logits of tokens that have occurred are changed, for which the sampler counts them in every step; greedy sampling does
    /// so too.
    ///
    /// # Source
    /// vLLM 0.16.0: `vllm/v1/sample/sampler.py` (penalties come before the greedy choice), `vllm/v1/sample/ops/penalties.py`.
    pub fn penalises(&self) -> bool {
        self.repetition_penalty.is_some_and(|penalty| penalty.total_cmp(&1.0).is_ne())
    }

    /// The most likely token is taken.
    pub fn is_greedy(&self) -> bool {
        self.temperature.is_some_and(|temperature| temperature < GREEDY_BELOW)
    }

    /// Reads the keys of a `generation_config.json`, leaving faults in the section's log.
    pub(super) fn read(section: &Section<'_>) -> Self {
        let number = |key: &str, allowed: &str, is_allowed: fn(f64) -> bool| {
            checked(section, key, allowed, |value| value.as_f64().filter(|x| is_allowed(*x)))
        };
        SamplingDefaults {
            temperature: number("temperature", "a number of at least 0", |x| x >= 0.0),
            top_p: number("top_p", "a number above 0 and at most 1", |x| x > 0.0 && x <= 1.0),
            top_k: checked(section, "top_k", "a whole number of at least 1, or 0 or -1 for no limit", |value| {
                value.as_i64().filter(|k| *k >= -1)
            }),
            min_p: number("min_p", "a number from 0 to 1", |x| (0.0..=1.0).contains(&x)),
            repetition_penalty: number("repetition_penalty", "a number above 0", |x| x > 0.0),
        }
    }
}

fn checked<T>(section: &Section<'_>, key: &str, allowed: &str, read: impl Fn(&Value) -> Option<T>) -> Option<T> {
    let value = section.get(key)?;
    let found = read(value);
    if found.is_none() {
        section.problem(key, &format!("= {} must be {allowed}", shown(value)));
    }
    found
}

impl Model {
    /// The sampling parameters that the publisher recommends; `None` where no `generation_config.json` is known.
    pub fn sampling(&self) -> Option<&SamplingDefaults> {
        self.sampling.as_ref()
    }

    /// The same model with the sampling parameters in the text of its `generation_config.json`, which errors call `origin`.
    /// The file's other keys (token ids, lengths) are passed over.
    ///
    /// # Errors
    /// `ErrorKind::Parse` for what is no JSON object, `ErrorKind::Invalid` with all values that can't be, or where the
    /// configuration itself has other parameters under `ridgepoint.generation_config`.
    ///
    /// ```
    /// let json = r#"{"model_type": "llama", "hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 32,
    ///     "num_attention_heads": 32, "num_key_value_heads": 32, "vocab_size": 32000,
    ///     "max_position_embeddings": 4096, "torch_dtype": "float16"}"#;
    /// let model = ridgepoint::Model::from_config_str("mine", "config.json", json, None)?;
    /// assert!(model.sampling().is_none());
    /// let model = model.with_generation_config("generation_config.json", r#"{"eos_token_id": 2, "top_p": 0.9}"#)?;
    /// assert!(model.sampling().is_some_and(|sampling| sampling.truncates()));
    /// # Ok::<(), ridgepoint::Error>(())
    /// ```
    pub fn with_generation_config(mut self, origin: &str, json: &str) -> Result<Self> {
        let value = config::parse(origin, json)?;
        let Some(map) = value.as_object() else {
            let message = format!("a generation_config.json must be a JSON object, not {}", shown(&value));
            return Err(Error::parse(origin, message));
        };
        let log = Log::default();
        let sampling = SamplingDefaults::read(&Section::new("", map, &log));
        let (mut problems, _) = log.into_parts();
        if problems.is_empty() && self.sampling.is_some_and(|own| own != sampling) {
            problems.push(format!(
                "its sampling parameters differ from ridgepoint.generation_config in the configuration of {}: leave out one \
                 of them",
                self.name
            ));
        }
        if !problems.is_empty() {
            return Err(Error::invalid(origin, problems));
        }
        self.sampling = Some(sampling);
        Ok(self)
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
