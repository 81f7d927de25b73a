//! Speculative decoding as a server's arguments give it: what drafts tokens, how many of them a step verifies, and how many are accepted.

#[cfg(test)]
mod acceptance_tests;
mod served;
mod sglang;
#[cfg(test)]
mod tests;
mod trtllm;
mod vllm;

use ridgepoint::Engine;
use ridgepoint::arguments::{Argument, Engines, Given, Kind, Section};
use ridgepoint::input::{Keys, NumberRange, object_or_text};
use ridgepoint::model::{DraftMethod, MAX_SPECULATIVE_TOKENS};
use serde_json::{Map, Value};

pub use served::ServedSpeculation;

/// What is said of a number of drafts that is left out.
const NO_DRAFTS: &str = "is missing: a step drafts from 1 to 32 tokens";

/// Most running requests by default under SGLang with speculative decoding.
///
/// # Source
/// SGLang 0.5.9, `ServerArgs._handle_speculative_decoding` (`server_args.py`).
pub(super) const SGLANG_MAX_RUNNING: u32 = 48;

/// The object of vLLM's and TensorRT-LLM's arguments.
const CONFIG: &str = "speculative_config";

/// This project's own arguments about acceptance.
const LENGTH: &str = "acceptance_length";
const RATES: &str = "acceptance_rates";

const RATES_MUST_BE: &str = "a list of shares from 0 to 1 that do not increase, as in 0.8,0.6,0.5";

const SHORTHAND: (&str, &str) = (CONFIG, "keep one");

/// vLLM's and TensorRT-LLM's arguments, and those about acceptance.
pub(super) static SPECULATIVE_ARGUMENTS: &[Argument] = &[
    Argument::new(
        CONFIG,
        Section::Scheduler,
        "Speculative decoding as JSON, with the engine's own keys: method, num_speculative_tokens and model of vLLM, decoding_type, \
         num_nextn_predict_layers, max_draft_len and speculative_model of TensorRT-LLM",
        Kind::Any,
    )
    .alias(&["sc"])
    .engines(Engines::VLLM.and(Engines::TRTLLM))
    .value("JSON")
    .default("no speculative decoding"),
    Argument::new(
        "spec_method",
        Section::Scheduler,
        "What drafts tokens, in place of speculative_config: mtp, eagle, eagle3, draft_model or ngram",
        Kind::Text,
    )
    .value("NAME")
    .excludes(&[SHORTHAND])
    .default("what the name of spec_model says"),
    Argument::new(
        "spec_model",
        Section::Scheduler,
        "Name or path of the head or model that drafts tokens, in place of speculative_config",
        Kind::Text,
    )
    .alias(&["speculative_model"])
    .value("NAME|PATH")
    .excludes(&[SHORTHAND]),
    Argument::new(
        "spec_tokens",
        Section::Scheduler,
        "Tokens drafted for each step, in place of speculative_config",
        Kind::Whole(1, MAX_SPECULATIVE_TOKENS as u64),
    )
    .alias(&["num_speculative_tokens"])
    .excludes(&[SHORTHAND])
    .default("1 with mtp"),
    Argument::new(
        LENGTH,
        Section::Scheduler,
        "Mean tokens that a request gets of a step with speculative decoding, the sampled one included: `Mean acceptance length` in vLLM's log, \
         `accept len` in SGLang's",
        Kind::Number(NumberRange::between(1.0, MAX_SPECULATIVE_TOKENS as f64 + 1.0, "")),
    )
    .engines(Engines::ALL)
    .must_be("a number from 1 to 33, at most one more than the drafted tokens")
    .excludes(&[(RATES, "keep one")]),
    Argument::new(
        RATES,
        Section::Scheduler,
        "Share of steps in which the draft at each position is accepted, one for each drafted token, as in 0.8,0.6,0.5: `Per-position acceptance \
         rate` in vLLM's log",
        Kind::Own(|value| rates(value).map(Value::from)),
    )
    .engines(Engines::ALL)
    .must_be(RATES_MUST_BE)
    .value("RATES")
    .excludes(&[(LENGTH, "keep one")]),
];

/// Speculative decoding as a server's arguments give it.
#[derive(Debug, Clone, PartialEq)]
pub struct Speculative {
    /// What drafts tokens.
    pub method: DraftMethod,
    /// Tokens drafted for a step, from 1 to 32.
    pub num_speculative_tokens: u32,
    /// The tree that the drafts are; `None` for a chain.
    pub tree: Option<DraftTree>,
    /// Name or path of the config of the head or model that drafts; `None` of the model's own layers (MTP) and of n-grams.
    pub model: Option<String>,
    /// The acceptance; `None` where nothing is said about it.
    pub acceptance: Option<GivenAcceptance>,
}

/// A tree of drafts, of which a step accepts one path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DraftTree {
    /// Tokens of each pass that the next one goes on from.
    pub width: u32,
    /// Drafts that a step verifies.
    pub num_draft_tokens: u32,
}

/// How many drafts are accepted, as it was measured.
#[derive(Debug, Clone, PartialEq)]
pub enum GivenAcceptance {
    /// Mean tokens of a step, the sampled one included: from 1 to `num_speculative_tokens` + 1.
    Length(f64),
    /// Share of steps in which the draft at each position is accepted, one for each draft: from 0 to 1, and never above the one before.
    Rates(Vec<f64>),
}

impl Speculative {
    /// Reads the arguments of a server of `engine`; `None` without speculative decoding, or after a problem with it.
    pub(super) fn read(given: &Given, keys: &Keys<'_>, engine: &Engine) -> Option<Self> {
        let (found, names) = match engine.name() {
            "sglang" => (sglang::read(given, keys), &sglang::NAMES[..]),
            "trtllm" => (trtllm::read(keys), &[CONFIG][..]),
            _ => (vllm::read(given, keys), &vllm::NAMES[..]),
        };
        let name = names.iter().copied().next().filter(|_| !names.iter().any(|name| keys.has(name)));
        if let Some(name) = name {
            for key in [LENGTH, RATES].into_iter().filter(|key| keys.has(key)) {
                keys.problem(key, format_args!("needs {name}: nothing is drafted without it"));
            }
        }
        let found = found?;
        let drafts = found.num_speculative_tokens;
        let of_length = given.get(LENGTH).map(|length| GivenAcceptance::of_length(keys, LENGTH, length, drafts));
        let of_rates = given.get(RATES).map(|rates| GivenAcceptance::of_rates(keys, RATES, rates, drafts));
        match (of_length.or(of_rates), found.acceptance) {
            (Some(own), Some(other)) if own.as_ref() != Some(&other) => {
                let key = if given.has(LENGTH) { LENGTH } else { RATES };
                keys.problem(key, format_args!("and the synthetic acceptance of {CONFIG} differ: keep one"));
                None
            }
            (own, other) => Some(Speculative { acceptance: own.unwrap_or(other), ..found }),
        }
    }
}

impl Speculative {
    /// Drafts that a step verifies.
    pub fn num_draft_tokens(&self) -> u32 {
        self.tree.map_or(self.num_speculative_tokens, |tree| tree.num_draft_tokens)
    }
}

impl GivenAcceptance {
    /// Checks that the mean length of `key` is possible with this number of drafts.
    fn of_length(keys: &Keys<'_>, key: &str, length: f64, drafts: u32) -> Option<Self> {
        let most = drafts + 1;
        if (1.0..=f64::from(most)).contains(&length) {
            return Some(GivenAcceptance::Length(length));
        }
        keys.problem(
            key,
            format_args!("must be a number from 1 to {most}: the drafts of a step, {drafts}, and one more"),
        );
        None
    }

    /// Checks that `key` has one rate for each draft. The rates themselves are valid.
    fn of_rates(keys: &Keys<'_>, key: &str, rates: Vec<f64>, drafts: u32) -> Option<Self> {
        if u32::try_from(rates.len()) == Ok(drafts) {
            return Some(GivenAcceptance::Rates(rates));
        }
        let s = if drafts == 1 { "" } else { "s" };
        keys.problem(key, format_args!("must be {drafts} share{s} from 0 to 1, one for each drafted token"));
        None
    }
}

/// Reads rates: a list, its JSON, or text with commas or spaces.
fn rates(value: &Value) -> Option<Vec<f64>> {
    let rates: Vec<f64> = match value {
        Value::Number(_) => vec![value.as_f64()?],
        Value::Array(list) => list.iter().map(Value::as_f64).collect::<Option<_>>()?,
        Value::String(text) => {
            let inner = text.trim().trim_start_matches('[').trim_end_matches(']');
            let parts = inner.split([',', ' ']).map(str::trim).filter(|part| !part.is_empty());
            parts.map(|part| part.parse().ok()).collect::<Option<_>>()?
        }
        _ => return None,
    };
    let are_shares = rates.iter().all(|rate| (0.0..=1.0).contains(rate));
    (!rates.is_empty() && are_shares && rates.is_sorted_by(|one, next| one >= next)).then_some(rates)
}

/// Reads `speculative_config`, an object or its JSON; `None` if it is absent, or something else.
fn config(keys: &Keys<'_>) -> Option<Map<String, Value>> {
    keys.read(CONFIG, "an object or its JSON", object_or_text)
}

/// Reads the number of tokens that are drafted.
fn drafts(of: &Keys<'_>, key: &str) -> Option<u32> {
    of.whole(key, 1..=MAX_SPECULATIVE_TOKENS)
}
