//! TensorRT-LLM's `speculative_config`.
//!
//! # Source
//! `DecodingBaseConfig` and its subclasses (`tensorrt_llm/llmapi/llm_args.py`), 1.0 to 1.3; the names are those of public launch lines and
//! their files, and others were not checked against a source.

use ridgepoint::input::Keys;
use ridgepoint::model::DraftMethod;

use super::{CONFIG, NO_DRAFTS, Speculative, config, drafts};

const KIND: &str = "decoding_type";
const LAYERS: &str = "num_nextn_predict_layers";
const DRAFTS: &str = "max_draft_len";
const TREE: &str = "max_total_draft_tokens";
const MODEL: &str = "speculative_model";
const RELAXED: &str = "use_relaxed_acceptance_for_thinking";

const MODELLED: &str = "MTP, Eagle, Eagle3, Draft_Target and NGram are modelled";
const EVERY_STEP: &str = "is not modelled: tokens are drafted in every step";
const CHAIN: &str = "is not modelled: drafts are a chain";

/// Keys without influence on times, or on any that is predicted. Whether a draft is accepted is no prediction.
const IGNORED: [&str; 19] = [
    "relaxed_topk",
    "relaxed_delta",
    "begin_thinking_phase_token",
    "end_thinking_phase_token",
    "mtp_eagle_one_model",
    "use_mtp_vanilla",
    "num_nextn_predict_layers_from_model_config",
    "load_format",
    "allow_advanced_sampling",
    "greedy_sampling",
    "posterior_threshold",
    "num_eagle_layers",
    "eagle3_layers_to_capture",
    "eagle3_model_arch",
    "max_matching_ngram_size",
    "is_keep_all",
    "is_use_oldest",
    "is_public_pool",
    "acceptance_window",
];

/// Reads the object.
pub(super) fn read(keys: &Keys<'_>) -> Option<Speculative> {
    let config = config(keys)?;
    let of = Keys::of_map(&keys.path_of(CONFIG), &config, keys.log);
    let of = of.with_aliases(&[("speculative_model_dir", MODEL)]);
    let method = of.text(KIND).and_then(method_of);
    if method.is_none() {
        let is = if of.has(KIND) { "is not modelled" } else { "is missing" };
        of.problem(KIND, format_args!("{is}: {MODELLED}"));
    }
    let model = of.text(MODEL).map(str::to_owned);
    let number = method.and_then(|method| number(&of, method));
    if of.flag(RELAXED) == Some(true) {
        let key = of.path_of(RELAXED);
        of.log.note(format!("{key} = true is not modelled: the acceptance is the one that is given"));
    }
    // Both of Eagle's layouts are taken alike.
    if of.flag("eagle3_one_model") == Some(false) {
        let key = of.path_of("eagle3_one_model");
        of.log.note(format!("{key} = false is not modelled: the head drafts within the model's step"));
    }
    for key in ["max_concurrency", "draft_len_schedule", "acceptance_length_threshold"] {
        of.refuse(key, EVERY_STEP);
    }
    for key in ["eagle_choices", "use_dynamic_tree"] {
        of.refuse(key, CHAIN);
    }
    of.ignore(&IGNORED);
    // Without a method nothing says which of them count.
    of.ignore(&[LAYERS, DRAFTS, TREE]);
    of.finish();
    let method = method?;
    let model = match method {
        DraftMethod::Mtp | DraftMethod::Ngram => None,
        DraftMethod::Eagle | DraftMethod::Eagle3 | DraftMethod::DraftModel => {
            if model.is_none() {
                keys.problem(CONFIG, format_args!("has no {MODEL}: give the name or the path of what drafts"));
            }
            Some(model?)
        }
    };
    Some(Speculative { method, num_speculative_tokens: number?, tree: None, model, acceptance: None })
}

/// The method of a name. The PyTorch backend runs heads of EAGLE-3 by either name.
fn method_of(name: &str) -> Option<DraftMethod> {
    match name.to_lowercase().replace('_', "").as_str() {
        "mtp" => Some(DraftMethod::Mtp),
        "eagle" | "eagle3" => Some(DraftMethod::Eagle3),
        "drafttarget" => Some(DraftMethod::DraftModel),
        "ngram" => Some(DraftMethod::Ngram),
        _ => None,
    }
}

/// Reads the number of drafts, which MTP has another name for.
fn number(of: &Keys<'_>, method: DraftMethod) -> Option<u32> {
    let (layers, most) = (drafts(of, LAYERS), drafts(of, DRAFTS));
    let all = of.whole(TREE, 1..=u32::MAX);
    if [LAYERS, DRAFTS].iter().zip([layers, most]).any(|(key, read)| of.has(key) && read.is_none()) {
        return None;
    }
    let number = match (method, layers, most) {
        (DraftMethod::Mtp, Some(layers), Some(most)) if layers != most => {
            of.problem(LAYERS, format_args!("contradicts {DRAFTS}: keep one"));
            None
        }
        (DraftMethod::Mtp, layers, most) => layers.or(most).or(Some(1)),
        (_, _, None) => {
            of.problem(DRAFTS, NO_DRAFTS);
            None
        }
        (_, _, most) => most,
    }?;
    if all.is_some_and(|all| all != number) {
        of.problem(TREE, CHAIN);
        return None;
    }
    Some(number)
}
