//! The sampler's work that follows from a request's own sampling parameters, and its work for all requests of a step.

use std::ops::{BitOr, BitOrAssign};

use super::SamplingParams;
use super::sampling::{GREEDY_BELOW, is_penalty};
use crate::input::{Keys, NumberRange};

/// The sampler's work in a step. It does the work that any request needs for all rows of logits: one request with top-p has the logits of
/// all requests sorted.
///
/// Work of several requests is joined by `|`; the default is that of none.
///
/// # Source
/// vLLM 0.32.0: `Sampler.sample` (`vllm/v1/sample/sampler.py`); a parameter that no request of the batch sets is `None` in
/// `InputBatch._make_sampling_metadata` (`vllm/v1/worker/gpu_input_batch.py`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct SamplerWork(u8);

impl SamplerWork {
    const GREEDY: SamplerWork = SamplerWork(1);
    const RANDOM: SamplerWork = SamplerWork(2);
    const TOP_P: SamplerWork = SamplerWork(4);
    const TOP_K: SamplerWork = SamplerWork(8);
    const PENALTIES: SamplerWork = SamplerWork(16);
    /// Number of different works.
    pub const COUNT: usize = 32;

    fn needs(self, other: SamplerWork) -> bool {
        self.0 & other.0 != 0
    }

    /// Returns whether a token is drawn for some request.
    pub fn is_random(self) -> bool {
        !self.is_greedy() || self.needs(SamplerWork::RANDOM)
    }

    /// Returns whether the most likely token is taken for some request.
    pub fn is_greedy(self) -> bool {
        self.needs(SamplerWork::GREEDY)
    }

    /// Returns whether some request truncates the candidates by top-p.
    pub fn has_top_p(self) -> bool {
        self.needs(SamplerWork::TOP_P)
    }

    /// Returns whether some request truncates the candidates by top-k.
    pub fn has_top_k(self) -> bool {
        self.needs(SamplerWork::TOP_K)
    }

    /// Returns whether some request has a repetition, presence or frequency penalty.
    pub fn has_penalties(self) -> bool {
        self.needs(SamplerWork::PENALTIES)
    }

    /// Number of the work, below [`COUNT`](Self::COUNT).
    pub fn index(self) -> usize {
        usize::from(self.0) % SamplerWork::COUNT
    }

    fn without(self, other: SamplerWork) -> Self {
        SamplerWork(self.0 & !other.0)
    }
}

impl BitOr for SamplerWork {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        SamplerWork(self.0 | other.0)
    }
}

impl BitOrAssign for SamplerWork {
    fn bitor_assign(&mut self, other: Self) {
        *self = *self | other;
    }
}

/// Sampling parameters that a request sets itself, as far as the sampler's work depends on them. The server's hold where it sets none,
/// as the default does.
///
/// ```
/// use ridgepoint::model::{OwnSampling, SamplingParams};
///
/// let server = SamplingParams { top_p: Some(0.9), ..SamplingParams::default() };
/// let greedy = OwnSampling::from(&SamplingParams { temperature: Some(0.0), ..SamplingParams::default() });
/// assert!(OwnSampling::default().over(&server).has_top_p());
/// assert!(!greedy.over(&server).has_top_p(), "greedy requests sort nothing");
/// // In one step the logits of both are sorted.
/// assert!((greedy.over(&server) | OwnSampling::default().over(&server)).has_top_p());
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct OwnSampling {
    /// Work that the request's own parameters decide on.
    decided: SamplerWork,
    /// The part of it that the request needs.
    needed: SamplerWork,
}

impl OwnSampling {
    /// Penalties that a request can set and `generation_config.json` cannot.
    pub const PENALTIES: [&str; 2] = ["presence_penalty", "frequency_penalty"];

    /// Reads the parameters of a request, under vLLM's names.
    pub fn read(keys: &Keys<'_>) -> Self {
        let penalties = OwnSampling::PENALTIES.map(|key| keys.number(key, OwnSampling::PENALTY_RANGE));
        OwnSampling::from(&SamplingParams::read_all(keys)).with_penalties(penalties)
    }

    /// Values of a presence or a frequency penalty.
    ///
    /// # Source
    /// vLLM, `SamplingParams._verify_args` (`vllm/sampling_params.py`).
    pub const PENALTY_RANGE: NumberRange = NumberRange::between(-2.0, 2.0, "");

    /// Adds presence and frequency penalties; one other than 0 penalises, whatever the repetition penalty.
    pub fn with_penalties(mut self, penalties: [Option<f64>; 2]) -> Self {
        if penalties.into_iter().flatten().any(|penalty| penalty != 0.0) {
            self.decide(Some(true), SamplerWork::PENALTIES, SamplerWork::PENALTIES);
        }
        self
    }

    /// The sampler's work for the request, where the server has these parameters for requests that set none.
    pub fn over(&self, server: &SamplingParams) -> SamplerWork {
        let server = OwnSampling::from(server);
        let default = SamplerWork::RANDOM.without(server.decided) | server.needed;
        let work = default.without(self.decided) | self.needed;
        if work.is_greedy() { work.without(SamplerWork::TOP_P | SamplerWork::TOP_K) } else { work }
    }

    /// Decides on `of`, of which `needed` is needed if `is_on`.
    fn decide(&mut self, is_on: Option<bool>, of: SamplerWork, needed: SamplerWork) {
        if let Some(is_on) = is_on {
            self.decided |= of;
            self.needed = self.needed.without(of) | if is_on { needed } else { SamplerWork::default() };
        }
    }
}

impl From<&SamplingParams> for OwnSampling {
    fn from(params: &SamplingParams) -> Self {
        let mut own = OwnSampling::default();
        let choice = SamplerWork::GREEDY | SamplerWork::RANDOM;
        if let Some(temperature) = params.temperature {
            let needed = if temperature < GREEDY_BELOW { SamplerWork::GREEDY } else { SamplerWork::RANDOM };
            own.decide(Some(true), choice, needed);
        }
        own.decide(params.top_p.map(|p| p < 1.0), SamplerWork::TOP_P, SamplerWork::TOP_P);
        own.decide(params.top_k.map(|k| k >= 1), SamplerWork::TOP_K, SamplerWork::TOP_K);
        own.decide(params.repetition_penalty.map(is_penalty), SamplerWork::PENALTIES, SamplerWork::PENALTIES);
        own
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::input::Log;

    const QWEN: SamplingParams = SamplingParams {
        temperature: Some(0.7),
        top_p: Some(0.8),
        top_k: Some(20),
        min_p: None,
        repetition_penalty: Some(1.05),
    };

    /// The work of a request with these parameters under Qwen's: random, greedy, top-p, top-k, penalties.
    fn work(json: &str) -> [bool; 5] {
        let log = Log::default();
        let value = serde_json::from_str(json).unwrap();
        let keys = Keys::new("", &value, &log);
        let own = OwnSampling::read(&keys);
        keys.finish();
        let (own, _) = log.finish("test", Some(own)).unwrap();
        parts(own.over(&QWEN))
    }

    fn parts(work: SamplerWork) -> [bool; 5] {
        [work.is_random(), work.is_greedy(), work.has_top_p(), work.has_top_k(), work.has_penalties()]
    }

    #[test]
    fn a_requests_own_parameters_go_before_the_servers_one_by_one() {
        let (on, off) = (true, false);
        assert_eq!(work("{}"), [on, off, on, on, on]);
        assert_eq!(work(r#"{"temperature": 0}"#), [off, on, off, off, on]);
        assert_eq!(work(r#"{"temperature": 1.2, "top_p": 1}"#), [on, off, off, on, on]);
        assert_eq!(work(r#"{"top_k": -1, "repetition_penalty": 1}"#), [on, off, on, off, off]);
        assert_eq!(work(r#"{"repetition_penalty": 1, "presence_penalty": 0, "frequency_penalty": 0.1}"#)[4], on);
        assert_eq!(work(r#"{"repetition_penalty": 1, "presence_penalty": 0}"#)[4], off);
    }

    #[test]
    fn a_step_does_what_any_request_needs() {
        let own = |params: SamplingParams| OwnSampling::from(&params).over(&SamplingParams::default());
        let greedy = own(SamplingParams { temperature: Some(0.0), ..SamplingParams::default() });
        let top_k = own(SamplingParams { top_k: Some(5), ..SamplingParams::default() });
        assert_eq!(parts(greedy | top_k), [true, true, false, true, false]);
        assert_eq!(parts(SamplerWork::default()), [true, false, false, false, false]);
    }

    #[test]
    fn unknown_and_impossible_parameters_are_problems() {
        for (json, named) in [
            (r#"{"presence_penalty": 3}"#, "presence_penalty"),
            (r#"{"top_p": 0}"#, "top_p"),
            (r#"{"temprature": 0}"#, "temprature is not a known key"),
        ] {
            let log = Log::default();
            let value = serde_json::from_str(json).unwrap();
            let keys = Keys::new("", &value, &log);
            let own = OwnSampling::read(&keys);
            keys.finish();
            let error = log.finish("test", Some(own)).unwrap_err().to_string();
            assert!(error.contains(named), "{error}");
        }
    }
}
