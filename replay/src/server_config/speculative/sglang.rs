//! SGLang's arguments of speculative decoding.
//!
//! # Source
//! `ServerArgs._handle_speculative_decoding` and `auto_choose_speculative_params` (`python/sglang/srt/server_args.py`, 0.5.9).

use ridgepoint::arguments::Given;
use ridgepoint::input::Keys;
use ridgepoint::model::DraftMethod;

use super::{DraftTree, MAX_SPECULATIVE_TOKENS, Speculative};
use crate::speculation::MOST_TREE_TOKENS;

const ALGORITHM: &str = "speculative_algorithm";
const DRAFT: &str = "speculative_draft_model_path";
const STEPS: &str = "speculative_num_steps";
const TOPK: &str = "speculative_eagle_topk";
const TOKENS: &str = "speculative_num_draft_tokens";
const WINDOW: &str = "speculative_ngram_max_match_window_size";

/// The argument that means speculative decoding.
pub(super) const NAMES: [&str; 1] = [ALGORITHM];

/// SGLang's own number of steps for most models, of one draft each.
const OWN_STEPS: u32 = 3;
/// SGLang's own length of the matches of n-grams.
const OWN_WINDOW: u32 = 12;
/// Parts of the names of models for which SGLang's own choice is a tree of drafts, and that tree: passes, width, tokens.
const TREES: [&str; 2] = ["llama", "grok"];
const OWN_TREE: (u32, u32, u32) = (5, 4, 8);

/// Reads the arguments.
pub(super) fn read(given: &Given, keys: &Keys<'_>) -> Option<Speculative> {
    if !keys.has(ALGORITHM) {
        let unused: Vec<&str> = [DRAFT, STEPS, TOPK, TOKENS].into_iter().filter(|key| keys.has(key)).collect();
        if !unused.is_empty() {
            keys.log.note(format!("without {ALGORITHM}, nothing is drafted, and not read: {}", unused.join(", ")));
        }
        return None;
    }
    let algorithm: String = given.get(ALGORITHM)?;
    let (served, draft): (Option<String>, Option<String>) = (given.get("model"), given.get(DRAFT));
    let is_own = |draft: &String| {
        let name = draft.to_lowercase();
        served.as_ref() == Some(draft) || name.contains("nextn") || name.contains("mtp")
    };
    let method = match (algorithm.as_str(), &draft) {
        ("NGRAM", _) => DraftMethod::Ngram,
        ("STANDALONE", _) => DraftMethod::DraftModel,
        ("EAGLE3", _) => DraftMethod::Eagle3,
        ("EAGLE", Some(draft)) if !is_own(draft) => DraftMethod::Eagle,
        _ => DraftMethod::Mtp,
    };
    let drafted = drafts(given, keys, &algorithm, served.as_deref());
    let model = match method {
        DraftMethod::Ngram => None,
        DraftMethod::Mtp => {
            if let Some(draft) = draft.filter(|draft| served.as_ref() != Some(draft)) {
                keys.log.note(format!("{DRAFT} = {draft} is not read: the layers that draft are the model's own"));
            }
            None
        }
        DraftMethod::Eagle | DraftMethod::Eagle3 | DraftMethod::DraftModel => {
            if draft.is_none() {
                keys.problem(ALGORITHM, format_args!("needs {DRAFT}"));
            }
            Some(draft?)
        }
    };
    let (num_speculative_tokens, tree) = drafted?;
    Some(Speculative { method, num_speculative_tokens, tree, model, acceptance: None })
}

/// Reads the number of passes that draft for a step, and the tree that their drafts are.
fn drafts(given: &Given, keys: &Keys<'_>, algorithm: &str, served: Option<&str>) -> Option<(u32, Option<DraftTree>)> {
    if [STEPS, TOPK, TOKENS, WINDOW].iter().any(|key| keys.has(key) && !given.has(key)) {
        return None;
    }
    let [steps, topk, tokens]: [Option<u32>; 3] = [STEPS, TOPK, TOKENS].map(|key| given.get(key));
    if algorithm == "NGRAM" {
        return Some((of_ngrams(keys, tokens.or(given.get(WINDOW)).unwrap_or(OWN_WINDOW))?, None));
    }
    match (steps, topk, tokens) {
        (None, None, None) => {
            let name = served.unwrap_or_default().to_lowercase();
            if algorithm != "STANDALONE" && TREES.iter().any(|part| name.contains(part)) {
                let (steps, topk, tokens) = OWN_TREE;
                keys.log.note(format!(
                    "{STEPS} = {steps}, {TOPK} = {topk} and {TOKENS} = {tokens} are the defaults of sglang"
                ));
                return Some((steps, Some(DraftTree { width: topk, num_draft_tokens: tokens - 1 })));
            }
            keys.log.note(format!("{STEPS} = {OWN_STEPS} is the default of sglang"));
            Some((OWN_STEPS, None))
        }
        (None, ..) => {
            keys.problem(ALGORITHM, format_args!("needs {STEPS} where {TOPK} or {TOKENS} is given"));
            None
        }
        (Some(_), None, _) => {
            keys.problem(ALGORITHM, format_args!("needs {TOPK} where {STEPS} is given: give 1"));
            None
        }
        (Some(steps), Some(1), tokens) => {
            if let Some(tokens) = tokens.filter(|tokens| *tokens != steps + 1) {
                keys.log.note(format!("{TOKENS} = {tokens}: sglang takes {}, one more than {STEPS}", steps + 1));
            }
            Some((steps, None))
        }
        (Some(steps), Some(width), Some(tokens)) => {
            // The first one is no draft.
            let most = MOST_TREE_TOKENS + 1;
            if !(2..=most).contains(&tokens) {
                keys.problem(TOKENS, format_args!("must be from 2 to {most}"));
                return None;
            }
            Some((steps, Some(DraftTree { width, num_draft_tokens: tokens - 1 })))
        }
        (Some(_), Some(_), None) => {
            keys.problem(ALGORITHM, format_args!("needs {TOKENS} where {TOPK} is above 1"));
            None
        }
    }
}

/// The drafts among the tokens that a step verifies; the first one is no draft.
fn of_ngrams(keys: &Keys<'_>, tokens: u32) -> Option<u32> {
    let most = MAX_SPECULATIVE_TOKENS + 1;
    if (2..=most).contains(&tokens) {
        return Some(tokens - 1);
    }
    let key = if keys.has(TOKENS) { TOKENS } else { WINDOW };
    keys.problem(key, format_args!("must be a whole number from 2 to {most} with NGRAM"));
    None
}
