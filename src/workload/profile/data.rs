//! `data` of a profile: prompts and lengths. Uses `section`, `limits`, `prompts`.

use serde_json::Value;

use super::section::{NumberRange, Section};
use crate::workload::limits::MAX_TOKENS;
use crate::workload::prompts::{NormalLengths, Prompts};

/// Most distinct prompts of a shared prefix.
const MAX_PROMPTS: u64 = 10_000_000;
/// Words of the text from which synthetic prompts are cut; a tokeniser makes at least a token of each.
///
/// # Source
/// inference-perf 0.3.0, `datagen/synthetic_datagen.py`.
const SYNTHETIC_WORDS: u32 = 4174;

const SECTIONS: [&str; 3] = ["shared_prefix", "input_distribution", "output_distribution"];

/// Reads `data`; problems go to its log, and then there may be no prompts. `most_requests` is the size of the largest
/// stage.
pub(super) fn read(data: Section<'_>, most_requests: u64) -> Option<Prompts> {
    let kind = data.text_or("type", "mock");
    data.ignore(&["path"]);
    data.refuse("trace", "is not supported: give the trace itself as a file of requests");
    let (used, prompts): (&[&str], _) = match kind {
        "shared_prefix" => (&SECTIONS[..1], shared_prefix(&data)),
        "random" | "synthetic" => (&SECTIONS[1..], lengths(&data, kind, most_requests)),
        "mock" => {
            data.log.note(
                "data.type mock: prompts count as 3 tokens and outputs as inference-perf's default, 30 tokens".into(),
            );
            (&[], Some(Prompts::Mock))
        }
        other => {
            let reason = "is not supported, as its lengths come from texts: use shared_prefix, random, synthetic or mock, \
                          or give the requests as a list (csv or jsonl)";
            data.problem("type", &Value::from(other), reason);
            (&SECTIONS, None)
        }
    };
    for key in SECTIONS.iter().filter(|key| !used.contains(key)) {
        data.refuse(key, &format!("is not used by data.type {kind}: remove it"));
    }
    if prompts.is_none() {
        data.ignore(&SECTIONS);
    }
    data.finish();
    prompts
}

fn shared_prefix(data: &Section<'_>) -> Option<Prompts> {
    if data.get("shared_prefix").is_none() {
        data.missing(
            "shared_prefix",
            "an object with num_groups, num_prompts_per_group, system_prompt_len, question_len and output_len",
        );
        return None;
    }
    let prefix = data.section("shared_prefix");
    let max = u64::from(MAX_TOKENS);
    let groups = prefix.count_or(["num_groups", "num_unique_system_prompts"], 1, MAX_PROMPTS, 10);
    let users = prefix.count_or(["num_prompts_per_group", "num_users_per_system_prompt"], 1, MAX_PROMPTS, 10);
    let system_prompt_len = prefix.count_or(["system_prompt_len"; 2], 0, max, 100);
    let question_len = prefix.count_or(["question_len"; 2], 0, max, 50);
    let output_len = prefix.count_or(["output_len"; 2], 1, max, 50);
    prefix.flag("enable_multi_turn_chat", false);
    if groups * users > MAX_PROMPTS {
        prefix.log.problem(format!(
            "{} and num_prompts_per_group make {} prompts, at most {MAX_PROMPTS} are possible",
            prefix.path_of("num_groups"),
            groups * users
        ));
    }
    if !(1..=max).contains(&(system_prompt_len + question_len)) {
        prefix.log.problem(format!(
            "{} and question_len make prompts of {} tokens, from 1 to {max} are possible",
            prefix.path_of("system_prompt_len"),
            system_prompt_len + question_len
        ));
    }
    prefix.finish();
    Some(Prompts::SharedPrefix {
        num_groups: u32::try_from(groups).ok()?,
        num_prompts_per_group: u32::try_from(users).ok()?,
        system_prompt_len: u32::try_from(system_prompt_len).ok()?,
        question_len: u32::try_from(question_len).ok()?,
        output_len: u32::try_from(output_len).ok()?,
    })
}

fn lengths(data: &Section<'_>, kind: &str, most_requests: u64) -> Option<Prompts> {
    let read = |key| {
        if data.get(key).is_none() {
            data.missing(key, "an object with min, max, mean and std_dev in tokens");
            return None;
        }
        distribution(data.section(key), most_requests)
    };
    let (input, output) = (read("input_distribution"), read("output_distribution"));
    let (input, output) = (input?, output?);
    if kind == "random" {
        return Some(Prompts::Random { input, output });
    }
    if input.max > SYNTHETIC_WORDS {
        data.log.note(format!(
            "data.input_distribution.max = {}: inference-perf cuts synthetic prompts from a text of {SYNTHETIC_WORDS} words \
             and sends the whole text for longer ones; here they are as long as drawn",
            input.max
        ));
    }
    Some(Prompts::Synthetic { input, output })
}

fn distribution(section: Section<'_>, most_requests: u64) -> Option<NormalLengths> {
    let tokens = u64::from(MAX_TOKENS);
    let min = section.count_or(["min"; 2], 1, tokens, 10);
    let max = section.count_or(["max"; 2], 1, tokens, 1024);
    let range = NumberRange::from_zero(f64::from(MAX_TOKENS), "tokens");
    let mean = section.number_or("mean", range, 512.0);
    let std_dev = section.number_or("std_dev", range, 200.0);
    if min as f64 > mean || mean > max as f64 {
        let path = section.path_of("mean");
        section.log.problem(format!("{path} = {mean} must lie from min = {min} to max = {max}"));
    }
    if let Some(total) = section.count("total_count", 1, u64::MAX)
        && total < most_requests
    {
        let path = section.path_of("total_count");
        section.log.problem(format!(
            "{path} = {total} is less than the {most_requests} requests of the largest stage: raise or remove it"
        ));
    }
    section.finish();
    Some(NormalLengths { min: u32::try_from(min).ok()?, max: u32::try_from(max).ok()?, mean, std_dev })
}
