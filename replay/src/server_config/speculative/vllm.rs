//! vLLM's `speculative_config`, and the flags in its place.
//!
//! # Source
//! `SpeculativeConfig` (`vllm/config/speculative.py`) of vLLM 0.10 to 0.24, and keys of public launch lines.

use ridgepoint::arguments::Given;
use ridgepoint::input::Keys;
use ridgepoint::model::DraftMethod;

use super::{CONFIG, GivenAcceptance, NO_DRAFTS, RATES_MUST_BE, Speculative, config, drafts, rates};

const METHOD: &str = "spec_method";
const MODEL: &str = "spec_model";
const TOKENS: &str = "spec_tokens";

/// The arguments that mean speculative decoding.
pub(super) const NAMES: [&str; 4] = [CONFIG, METHOD, MODEL, TOKENS];

const LENGTH: &str = "synthetic_acceptance_length";
const RATES: &str = "synthetic_acceptance_rates";

const MODELLED: &str = "mtp, eagle, eagle3, draft_model and ngram are modelled";

/// Keys without influence on times, or on any that is predicted.
const IGNORED: [&str; 13] = [
    "max_model_len",
    "prompt_lookup_max",
    "prompt_lookup_min",
    "quantization",
    "revision",
    "code_revision",
    "draft_load_config",
    "attention_backend",
    "moe_backend",
    "disable_padded_drafter_batch",
    "enforce_eager",
    "draft_sample_method",
    "rejection_sample_method",
];

/// Parts of names of heads whose methods are not modelled.
const OTHER_HEADS: [&str; 4] = ["medusa", "mlp_speculator", "mlp-speculator", "dflash"];

/// Where a source has the three things that it says.
struct Names<'a> {
    keys: &'a Keys<'a>,
    method: &'static str,
    model: &'static str,
    tokens: &'static str,
}

/// Reads the object, or the flags in its place.
pub(super) fn read(given: &Given, keys: &Keys<'_>) -> Option<Speculative> {
    let served: Option<String> = given.get("model");
    if !keys.has(CONFIG) {
        let names = Names { keys, method: METHOD, model: MODEL, tokens: TOKENS };
        let is_given = NAMES.iter().any(|name| keys.has(name));
        return is_given.then(|| chosen(&names, given.get(TOKENS), served.as_deref()))?;
    }
    let config = config(keys)?;
    let of = Keys::of_map(&keys.path_of(CONFIG), &config, keys.log);
    let names = Names { keys: &of, method: "method", model: "model", tokens: "num_speculative_tokens" };
    let found = chosen(&names, drafts(&of, names.tokens), served.as_deref());
    of.ignore(&IGNORED);
    of.refuse("parallel_drafting", "is not modelled: drafts follow one another");
    of.refuse("speculative_token_tree", "is not modelled: drafts are a chain");
    of.refuse("disable_by_batch_size", "is not modelled: tokens are drafted in every step");
    let ranks = given.get("tensor_parallel_size").unwrap_or(1_u32);
    if of.whole("draft_tensor_parallel_size", 1..=u32::MAX).is_some_and(|of_draft| of_draft != ranks) {
        let key = of.path_of("draft_tensor_parallel_size");
        of.log.note(format!("{key} is not modelled: the draft is taken on all ranks of the server, {ranks}"));
    }
    let acceptance = found.as_ref().and_then(|found| synthetic(&of, found.num_speculative_tokens));
    // Without a number of drafts there is nothing to judge them by.
    of.ignore(&[LENGTH, RATES]);
    of.finish();
    Some(Speculative { acceptance, ..found? })
}

/// Chooses the method by its name, or by the model that drafts. `drafts` is the number of tokens where it is in order.
fn chosen(of: &Names<'_>, drafts: Option<u32>, served: Option<&str>) -> Option<Speculative> {
    let (given, model) = (of.keys.text(of.method), of.keys.text(of.model));
    let method = match (given, model) {
        (Some(name), _) => method_of(name).or_else(|| {
            of.keys.problem(of.method, format_args!("is not modelled: {MODELLED}"));
            None
        }),
        (None, _) if of.keys.has(of.method) => None,
        (None, Some(model)) => method_by(model, served).or_else(|| {
            of.keys.problem(of.model, format_args!("is of a method that is not modelled: {MODELLED}"));
            None
        }),
        (None, None) => {
            of.keys.problem(of.method, format_args!("is missing, and no {} says what drafts: {MODELLED}", of.model));
            None
        }
    };
    let is_given = of.keys.has(of.tokens);
    if !is_given && method.is_some_and(|method| method != DraftMethod::Mtp) {
        of.keys.problem(of.tokens, NO_DRAFTS);
    }
    let method = method?;
    let num_speculative_tokens = drafts.or((!is_given && method == DraftMethod::Mtp).then_some(1))?;
    let model = match (method, model) {
        (DraftMethod::Ngram, _) => None,
        (DraftMethod::Mtp, model) => {
            if let Some(model) = model.filter(|model| Some(*model) != served) {
                let key = of.keys.path_of(of.model);
                of.keys.log.note(format!("{key} = {model} is not read: the layers that draft are the model's own"));
            }
            None
        }
        (_, None) => {
            of.keys.problem(of.model, format_args!("is missing: {} is a model of its own", method.name()));
            return None;
        }
        (_, Some(model)) => Some(model.to_owned()),
    };
    Some(Speculative { method, num_speculative_tokens, tree: None, model, acceptance: None })
}

/// The method of a name; all models' names for layers of multi-token prediction end alike.
fn method_of(name: &str) -> Option<DraftMethod> {
    match name {
        "ngram_gpu" | "[ngram]" => Some(DraftMethod::Ngram),
        _ if name.ends_with("_mtp") => Some(DraftMethod::Mtp),
        _ => DraftMethod::ALL.into_iter().find(|method| method.name() == name),
    }
}

/// The method that a drafting model's name says.
fn method_by(model: &str, served: Option<&str>) -> Option<DraftMethod> {
    let name = model.to_lowercase();
    match name.as_str() {
        "ngram" | "[ngram]" => Some(DraftMethod::Ngram),
        _ if Some(model) == served => Some(DraftMethod::Mtp),
        _ if name.contains("eagle3") => Some(DraftMethod::Eagle3),
        _ if name.contains("eagle") => Some(DraftMethod::Eagle),
        _ if OTHER_HEADS.iter().any(|part| name.contains(part)) => None,
        _ => Some(DraftMethod::DraftModel),
    }
}

/// The acceptance that a server of vLLM is told to make up.
fn synthetic(of: &Keys<'_>, drafts: u32) -> Option<GivenAcceptance> {
    let length = of.read(LENGTH, "a number", serde_json::Value::as_f64);
    let rates = of.read(RATES, RATES_MUST_BE, rates);
    if of.has(LENGTH) && of.has(RATES) {
        of.problem(LENGTH, format_args!("cannot be given with {RATES}: keep one"));
        return None;
    }
    match (length, rates) {
        (Some(length), _) => GivenAcceptance::of_length(of, LENGTH, length, drafts),
        (None, rates) => rates.and_then(|rates| GivenAcceptance::of_rates(of, RATES, rates, drafts)),
    }
}
