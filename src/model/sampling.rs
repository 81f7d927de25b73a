//! Sampling parameters, of `generation_config.json` and of a server that overrides it, and the work they cause in the sampler.

use std::convert::Infallible;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{OwnSampling, SamplerWork};
use crate::input::{Keys, NumberRange, object_or_text};

/// Below this temperature vLLM takes the most likely token (`_SAMPLING_EPS` in `vllm/sampling_params.py`).
pub(super) const GREEDY_BELOW: f64 = 1e-5;
/// Default `top_k` of transformers 4. vLLM adopts only values that differ from those defaults.
const DEFAULT_TOP_K: i64 = 50;

/// Sampling parameters that vLLM gives to requests without their own.
///
/// `None` is a key that is not set. vLLM adopts these five keys alone: presence and frequency penalties come only
/// from requests, and `do_sample` has no effect.
///
/// # Source
/// vLLM 0.16.0: `get_diff_sampling_param` in `vllm/config/model.py`, ranges in `_verify_args` of `vllm/sampling_params.py`.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SamplingParams {
    /// Divisor of the logits, at least 0; below 1e-5 the most likely token is taken.
    pub temperature: Option<f64>,
    /// Share of the probability that the candidates must reach, in (0, 1]; 1 keeps all.
    pub top_p: Option<f64>,
    /// Most candidates; 0 and -1 keep all. A 50 in `generation_config.json` is left out, as vLLM does with the default of transformers 4.
    pub top_k: Option<i64>,
    /// Least probability of a candidate relative to the likeliest one, in [0, 1]; 0 keeps all.
    pub min_p: Option<f64>,
    /// Factor against tokens that have occurred, above 0; 1 changes nothing.
    pub repetition_penalty: Option<f64>,
}

/// Values of `top_k`, in words.
pub const TOP_K: &str = "a whole number of at least 1, or 0 or -1 for no limit";

/// Whether vLLM takes it for a `top_k`.
pub fn is_top_k(k: i64) -> bool {
    k >= -1
}

/// Whether a repetition penalty changes anything.
pub(super) fn is_penalty(repetition_penalty: f64) -> bool {
    repetition_penalty.total_cmp(&1.0).is_ne()
}

impl SamplingParams {
    /// Returns whether top-p or top-k truncates the candidates, for which the sampler orders the logits of every token.
    ///
    /// With `top_p` below 1 the sampler sorts the whole vocabulary; `top_k` alone selects the largest logits. Greedy sampling
    /// truncates nothing. `min_p` needs a maximum instead of an order, so it does not count.
    ///
    /// # Source
    /// vLLM 0.16.0: `apply_top_k_top_p` in `vllm/v1/sample/ops/topk_topp_sampler.py`, `vllm/v1/worker/gpu_input_batch.py`.
    ///
    /// ```
    /// let llama = ridgepoint::Model::builtin("llama-3.1-8b")?;
    /// assert!(llama.sampling.is_some_and(|s| s.top_p == Some(0.9) && s.truncates() && !s.penalises()));
    /// # Ok::<(), ridgepoint::Error>(())
    /// ```
    pub fn truncates(&self) -> bool {
        let work = self.work();
        work.has_top_p() || work.has_top_k()
    }

    /// The sampler's work for requests that set no parameters.
    pub(crate) fn work(&self) -> SamplerWork {
        OwnSampling::default().over(self)
    }

    /// Returns whether the sampler penalises tokens that have occurred, for which it counts them in every step. Greedy
    /// sampling does so too.
    ///
    /// # Source
    /// vLLM 0.16.0: `vllm/v1/sample/sampler.py` (penalties come before the greedy choice), `vllm/v1/sample/ops/penalties.py`.
    pub fn penalises(&self) -> bool {
        self.work().has_penalties()
    }

    /// These parameters, with those that `over` sets in their place.
    pub(crate) fn overridden_by(&self, over: &Self) -> Self {
        SamplingParams {
            temperature: over.temperature.or(self.temperature),
            top_p: over.top_p.or(self.top_p),
            top_k: over.top_k.or(self.top_k),
            min_p: over.min_p.or(self.min_p),
            repetition_penalty: over.repetition_penalty.or(self.repetition_penalty),
        }
    }

    /// Reads the keys of a `generation_config.json`.
    ///
    /// # Source
    /// `to_diff_dict` in transformers' `generation/configuration_utils.py`: values equal to the defaults do not reach vLLM.
    pub(super) fn read(keys: &Keys<'_>) -> Self {
        let read = SamplingParams::read_all(keys);
        SamplingParams { top_k: read.top_k.filter(|k| *k != DEFAULT_TOP_K), ..read }
    }

    /// Reads vLLM's argument `override_generation_config`: an object, or its JSON text.
    ///
    /// # Source
    /// vLLM, `ModelConfig.get_diff_sampling_param` (`vllm/config/model.py`).
    pub(crate) fn read_override(keys: &Keys<'_>) -> Self {
        let key = "override_generation_config";
        let map = keys.read(key, r#"a JSON object of sampling parameters, as in {"temperature": 0}"#, object_or_text);
        let map = map.unwrap_or_default();
        let section = Keys::of_map(&keys.path_of(key), &map, keys.log);
        if section.get("max_new_tokens").is_some() {
            keys.log.note(format!("{key}.max_new_tokens has no effect here: output lengths are those of the load"));
        }
        let read = SamplingParams::read_all(&section);
        section.finish();
        read
    }

    /// Reads all parameters under these keys.
    pub(super) fn read_all(keys: &Keys<'_>) -> Self {
        let top_k = || Ok(keys.read("top_k", TOP_K, |value| Value::as_i64(value).filter(|k| is_top_k(*k))));
        let read: Result<_, Infallible> = SamplingParams::read_each(|key, range| Ok(keys.number(key, range)), top_k);
        read.unwrap_or_default()
    }

    /// Reads each parameter by its name.
    ///
    /// # Errors
    /// Those of `number` and `top_k`.
    pub fn read_each<E>(
        number: impl Fn(&'static str, NumberRange) -> Result<Option<f64>, E>,
        top_k: impl FnOnce() -> Result<Option<i64>, E>,
    ) -> Result<Self, E> {
        Ok(SamplingParams {
            temperature: number("temperature", NumberRange::from_zero(f64::MAX, ""))?,
            top_p: number("top_p", NumberRange::above_zero(1.0, ""))?,
            top_k: top_k()?,
            min_p: number("min_p", NumberRange::from_zero(1.0, ""))?,
            repetition_penalty: number("repetition_penalty", NumberRange::POSITIVE)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::input::Log;

    const NONE: SamplingParams =
        SamplingParams { temperature: None, top_p: None, top_k: None, min_p: None, repetition_penalty: None };

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
            assert_eq!(SamplingParams { top_p, top_k, ..NONE }.truncates(), expected, "{top_p:?} {top_k:?}");
        }
    }

    /// What `read` makes of a JSON object, and the problems and notes.
    fn read(json: &str, read: fn(&Keys<'_>) -> SamplingParams) -> Result<(SamplingParams, Vec<String>), Vec<String>> {
        let log = Log::default();
        let value: Value = serde_json::from_str(json).unwrap();
        let read = read(&Keys::new("", &value, &log));
        log.finish("test", Some(read)).map_err(|error| error.problems().to_vec())
    }

    #[test]
    fn the_default_top_k_of_transformers_reaches_the_sampler_from_an_override_alone() {
        let of_file = read(r#"{"top_k": 50, "top_p": 0.9}"#, SamplingParams::read).unwrap().0;
        assert_eq!(of_file, SamplingParams { top_p: Some(0.9), ..NONE });
        let over = read(r#"{"override_generation_config": {"top_k": 50}}"#, SamplingParams::read_override).unwrap().0;
        assert_eq!(of_file.overridden_by(&over), SamplingParams { top_k: Some(50), ..of_file });
    }

    #[test]
    fn an_override_is_an_object_or_its_text_with_known_keys() {
        let over = |json| read(json, SamplingParams::read_override);
        let greedy = SamplingParams { temperature: Some(0.0), ..NONE };
        assert_eq!(over(r#"{"override_generation_config": "{\"temperature\": 0}"}"#), Ok((greedy, vec![])));
        assert_eq!(over("{}"), Ok((NONE, vec![])));
        let (_, notes) = over(r#"{"override_generation_config": {"max_new_tokens": 9}}"#).unwrap();
        assert!(notes[0].contains("max_new_tokens has no effect"), "{notes:?}");
        for (json, named) in [
            (r#"{"override_generation_config": 3}"#, "as in {\"temperature\": 0}"),
            (r#"{"override_generation_config": {"top_q": 1}}"#, "override_generation_config.top_q is not a known key"),
            (r#"{"override_generation_config": {"top_p": 2}}"#, "override_generation_config.top_p"),
        ] {
            let problems = over(json).unwrap_err();
            assert!(problems[0].contains(named), "{problems:?}");
        }
    }

    #[test]
    fn greedy_sampling_truncates_nothing_but_penalises_all_the_same() {
        let qwen = SamplingParams { top_p: Some(0.8), top_k: Some(20), repetition_penalty: Some(1.05), ..NONE };
        let greedy = SamplingParams { temperature: Some(0.0), ..qwen };
        assert_eq!((qwen.truncates(), qwen.penalises()), (true, true));
        assert_eq!((greedy.truncates(), greedy.penalises()), (false, true));
        // 1e-5 is where vLLM begins to sample; it raises such temperatures to 0.01 itself.
        assert!(SamplingParams { temperature: Some(1e-5), ..qwen }.truncates());
    }

    #[test]
    fn min_p_and_neutral_values_ask_for_nothing() {
        let neutral = SamplingParams {
            temperature: Some(0.7),
            top_p: Some(1.0),
            top_k: Some(0),
            min_p: Some(0.1),
            repetition_penalty: Some(1.0),
        };
        assert_eq!((neutral.truncates(), neutral.penalises()), (false, false));
        assert!(SamplingParams { repetition_penalty: Some(0.95), ..NONE }.penalises());
    }
}
