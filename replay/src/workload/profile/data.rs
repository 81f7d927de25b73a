//! `data` of a profile: prompts and lengths.

use ridgepoint::input::{Keys, NumberRange};

use super::INFERENCE_PERF;
use crate::workload::lengths::NormalLengths;
use crate::workload::limits::{MAX_DURATION_S, MAX_TOKENS};
use crate::workload::prompts::Prompts;

/// Most distinct prompts of a shared prefix.
const MAX_PROMPTS: u32 = 10_000_000;
/// Words of the text from which synthetic prompts are cut. Each word has at least one token.
///
/// # Source
/// inference-perf 0.3.0, `datagen/synthetic_datagen.py`.
const SYNTHETIC_WORDS: u32 = 4174;

const SECTIONS: [&str; 4] = ["shared_prefix", "input_distribution", "output_distribution", "sessions"];

/// The `data.type` of sessions. It is an addition to inference-perf's.
pub(super) const SESSIONS: &str = "sessions";

/// The turns of a profile's sessions, whose new tokens and outputs are `input_distribution` and `output_distribution`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Turns {
    pub(super) turns: u32,
    pub(super) prefix_len: u32,
    pub(super) think_time_s: f64,
}

/// Reads `data`; no prompts mean a problem. `most_requests` is the size of the largest stage.
pub(super) fn read(data: Keys<'_>, most_requests: u64) -> Option<(Prompts, Option<Turns>)> {
    let kind = data.or_default("type", data.text("type"), "mock", INFERENCE_PERF);
    data.ignore(&["path"]);
    data.refuse("trace", "is not supported: give the trace itself as a file of requests");
    let (used, prompts): (&[&str], _) = match kind {
        "shared_prefix" => (&SECTIONS[..1], shared_prefix(&data)),
        "random" | "synthetic" => (&SECTIONS[1..3], lengths(&data, kind, most_requests)),
        SESSIONS => (&SECTIONS[1..], lengths(&data, kind, most_requests)),
        "mock" => {
            data.log
                .note("data.type mock: prompts count as 3 tokens and outputs as inference-perf's default, 30 tokens");
            (&[], Some(Prompts::Mock))
        }
        _ => {
            data.problem(
                "type",
                "is not supported, because its lengths come from texts: use shared_prefix, random, synthetic, mock or sessions, or \
                 give the requests as a list (csv or jsonl)",
            );
            (&SECTIONS, None)
        }
    };
    for key in SECTIONS.iter().filter(|key| !used.contains(key)) {
        data.refuse(key, format!("is not used by data.type {kind}: remove it"));
    }
    if prompts.is_none() {
        data.ignore(&SECTIONS);
    }
    let turns = (kind == SESSIONS).then(|| turns(&data));
    data.finish();
    Some((prompts?, turns))
}

fn turns(data: &Keys<'_>) -> Turns {
    data.require(&[SESSIONS]);
    let sessions = data.section_or_empty(SESSIONS);
    let turns = Turns {
        turns: sessions.whole("turns", 1..=MAX_TOKENS).unwrap_or(1),
        prefix_len: sessions.whole("prefix_len", 0..=MAX_TOKENS).unwrap_or(0),
        think_time_s: sessions.number("think_time_s", NumberRange::from_zero(MAX_DURATION_S, "s")).unwrap_or(0.0),
    };
    sessions.require(&["turns"]);
    sessions.finish();
    turns
}

/// Names of keys since inference-perf 0.4.0, as pairs of alias and key.
const ALIASES: &[(&str, &str)] =
    &[("num_unique_system_prompts", "num_groups"), ("num_users_per_system_prompt", "num_prompts_per_group")];

/// inference-perf's groups, and prompts of each.
const DEFAULT_PROMPTS: u32 = 10;

fn shared_prefix(data: &Keys<'_>) -> Option<Prompts> {
    data.require(&["shared_prefix"]);
    let plain = data.section("shared_prefix")?;
    let prefix = data.section("shared_prefix")?.with_aliases(ALIASES);
    let count = |key: &str, range, default: u32| {
        u64::from(prefix.or_default(key, prefix.whole(key, range), default, INFERENCE_PERF))
    };
    let given = ["num_groups", "num_prompts_per_group"].map(|key| count(key, 1..=MAX_PROMPTS, DEFAULT_PROMPTS));
    let system_prompt_len = count("system_prompt_len", 0..=MAX_TOKENS, 100);
    let question_len = count("question_len", 0..=MAX_TOKENS, 50);
    let output_len = count("output_len", 1..=MAX_TOKENS, 50);
    let [groups, users] = match prefix.flag("enable_multi_turn_chat") {
        Some(true) => prompts_of_old_versions(&plain, given),
        _ => given,
    };
    if groups * users > u64::from(MAX_PROMPTS) {
        prefix.problem(
            "num_groups",
            format!("and num_prompts_per_group make {} prompts, at most {MAX_PROMPTS} are possible", groups * users),
        );
    }
    let prompt_len = system_prompt_len + question_len;
    if !(1..=u64::from(MAX_TOKENS)).contains(&prompt_len) {
        let reason =
            format!("and question_len make prompts of {prompt_len} tokens, from 1 to {MAX_TOKENS} are possible");
        prefix.problem("system_prompt_len", reason);
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

/// The groups, and prompts of each, of a profile with `enable_multi_turn_chat: true`; `given` are those that it asks for.
///
/// Prompts of measured runs with such profiles did not grow, and there were as many as inference-perf makes by default. In the run with a report,
/// whose profile asks for 11 × 4 prompts, the mean and quantiles of prompt lengths over 3,000 and over 6,000 requests are those of 100 prompts
/// sent equally often. So the version that sent them does not know that key, nor the names that came after it.
///
/// # Source
/// `SharedPrefix` in `inference_perf/config.py`: up to 0.2.0 it has neither, 0.3.0 has the key, 0.4.0 the names too; all ignore keys that they
/// do not know.
fn prompts_of_old_versions(plain: &Keys<'_>, [groups, users]: [u64; 2]) -> [u64; 2] {
    let known = |key: &str, given: u64| if plain.has(key) { given } else { u64::from(DEFAULT_PROMPTS) };
    let (groups, users) = (known("num_groups", groups), known("num_prompts_per_group", users));
    plain.log.note(format!(
        "data.shared_prefix.enable_multi_turn_chat = true: read as inference-perf up to 0.2.0 does, which ignores that key and the names \
         num_unique_system_prompts and num_users_per_system_prompt: {groups} × {users} prompts that do not grow. Leave it out for the numbers \
         under these names; for prompts that grow use data.type sessions"
    ));
    [groups, users]
}

fn lengths(data: &Keys<'_>, kind: &str, most_requests: u64) -> Option<Prompts> {
    data.require(&["input_distribution", "output_distribution"]);
    let read = |key| distribution(data.section(key)?, most_requests);
    let (input, output) = (read("input_distribution"), read("output_distribution"));
    let (input, output) = (input?, output?);
    if kind != "synthetic" {
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

fn distribution(section: Keys<'_>, most_requests: u64) -> Option<NormalLengths> {
    let count =
        |key: &str, default: u32| section.or_default(key, section.whole(key, 1..=MAX_TOKENS), default, INFERENCE_PERF);
    let number = |key: &str, default: f64| {
        let range = NumberRange::from_zero(f64::from(MAX_TOKENS), "tokens");
        section.or_default(key, section.number(key, range), default, INFERENCE_PERF)
    };
    let (min, max) = (count("min", 10), count("max", 1024));
    let (mean, std_dev) = (number("mean", 512.0), number("std_dev", 200.0));
    if f64::from(min) > mean || mean > f64::from(max) {
        let path = section.path_of("mean");
        section.log.problem(format!("{path} = {mean} must lie from min = {min} to max = {max}"));
    }
    if section.whole("total_count", 1..=u64::MAX).is_some_and(|total| total < most_requests) {
        let reason = format!("is less than the {most_requests} requests of the largest stage: raise or remove it");
        section.problem("total_count", reason);
    }
    section.finish();
    Some(NormalLengths { min, max, mean, std_dev, ..NormalLengths::fixed(1) })
}
