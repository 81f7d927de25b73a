//! The runbook's template, filled: what a client knows of each of its lines.

use std::fmt::Write;

use ridgepoint_probe::{Cause, Host, Report, RequestRecord, Rung, Snapshot, Spread};

use super::table::{figure, ms, remarks, whole};
use crate::text::{printable, shown};

/// The first words, by which a file of this kind is known.
pub const TITLE: &str = "# TTFT Baseline (Tier 1)";

/// A server's words as the words of a line of markdown: without control characters, markup and HTML.
fn escaped(text: &str) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let mut escaped = String::new();
    for c in printable(&line).chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '\\' | '|' | '`' | '*' | '[' | ']' => escaped.extend(['\\', c]),
            _ => escaped.push(c),
        }
    }
    escaped
}

/// The template.
pub fn text(report: &Report) -> String {
    let mut page = String::new();
    // Writing to a text does not fail.
    let _ = server(&mut page, report)
        .and_then(|()| runs(&mut page, report))
        .and_then(|()| sanity(&mut page, report))
        .and_then(|()| ladder(&mut page, report))
        .and_then(|()| interpretation(&mut page, report));
    page
}

fn server(page: &mut String, report: &Report) -> std::fmt::Result {
    let host = |of: &Snapshot| of.host.clone().unwrap_or_default();
    let gpu = host(&report.before).gpus.and_then(|gpus| Some(gpus.first()?.name.clone()));
    let unknown = || "not known to this client".to_owned();
    let used = |of: &Snapshot| {
        let mib = of.host.as_ref().and_then(Host::gpu_used_bytes).map(|bytes| bytes >> 20);
        shown(mib, |mib| mib.to_string())
    };
    writeln!(page, "{TITLE}\n\n## Server Config")?;
    writeln!(page, "- MODEL = {}\n- URL = {}", escaped(&report.model), escaped(&report.url))?;
    writeln!(page, "- GPU = {}", escaped(&gpu.unwrap_or_else(unknown)))?;
    writeln!(page, "- OS/kernel = {}", escaped(&report.server.system.clone().unwrap_or_else(unknown)))?;
    writeln!(page, "- vLLM version = {}", escaped(&report.server.version.clone().unwrap_or_else(unknown)))?;
    let longest = shown(report.server.max_model_len(&report.model), |tokens| tokens.to_string());
    writeln!(page, "- max_model_len = {longest}")?;
    writeln!(page, "- Launch flags = {}", unknown())?;
    let prompts =
        if report.is_same_prompt { "the same prompt each time" } else { "prompts that begin with words of their own" };
    writeln!(page, "- Notes = {prompts}, seed {}, max_tokens {}, temperature 0", report.seed, report.max_tokens)?;
    writeln!(page, "\n## Baseline GPU Snapshot")?;
    writeln!(page, "- GPU mem used before server start (MiB) = {}", unknown())?;
    writeln!(page, "- GPU mem used after server start, before any request (MiB) = {}", used(&report.before))?;
    writeln!(page, "- GPU mem used after cold_1 (MiB) = {}", used(&report.after_cold))
}

fn row(page: &mut String, name: &str, record: &RequestRecord, note: &str) -> std::fmt::Result {
    let seconds = |of: Option<f64>| shown(of, |ms| format!("{:.4}", ms / 1e3));
    let tokens =
        record.prompt_tokens.zip(record.completion_tokens).map(|(prompt, output)| prompt.saturating_add(output));
    let notes =
        [note.to_owned(), remarks(record)].into_iter().filter(|text| !text.is_empty()).collect::<Vec<_>>().join("; ");
    let (ttft, itl) = (ms(record.ttft_ms), ms(record.itl_ms.map(|of| of.median)));
    writeln!(page, "| {name} | {} | {ttft} | {itl} | {} | {notes} |", seconds(record.wall_ms), whole(tokens))
}

fn runs(page: &mut String, report: &Report) -> std::fmt::Result {
    let header = "| run | wall_s | ttft_ms | itl_ms, median | total_tokens | notes |\n|---|---:|---:|---:|---:|---|";
    writeln!(page, "\n## Cold vs Warm\n\n{header}")?;
    for (name, record, note) in
        [("cold_1", &report.cold, "first request"), ("warm_1", &report.warm_1, "the second one")]
    {
        record.iter().try_for_each(|record| row(page, name, record, note))?;
    }
    writeln!(page, "\n## Warm Variance (steady state)\n\n{header}")?;
    for (number, record) in (1..).zip(&report.warm) {
        row(page, &number.to_string(), record, "")?;
    }
    let warm = report.warm_summary();
    writeln!(page, "\nSummary:\n")?;
    writeln!(page, "| | min | median | max | spread % = (max-min)/median |\n|---|---:|---:|---:|---:|")?;
    let seconds = |of: Option<Spread>| {
        of.map(|of| Spread { min: of.min / 1e3, median: of.median / 1e3, max: of.max / 1e3, ..of })
    };
    for (name, of, digits) in
        [("wall_s", seconds(warm.wall_ms), 4), ("ttft_ms", warm.ttft_ms, 2), ("itl_ms", warm.itl_ms, 2)]
    {
        let cell = |figure: fn(&Spread) -> f64| shown(of.as_ref().map(figure), |value| format!("{value:.digits$}"));
        let spread = shown(of, |of| format!("{:.1}", of.spread_pct));
        let (min, median, max) = (cell(|of| of.min), cell(|of| of.median), cell(|of| of.max));
        writeln!(page, "| {name} | {min} | {median} | {max} | {spread} |")?;
    }
    Ok(())
}

fn sanity(page: &mut String, report: &Report) -> std::fmt::Result {
    let after = &report.after_warm;
    let gpus = after.host.as_ref().and_then(|host| host.gpus.as_deref()).unwrap_or_default();
    let list = |of: fn(&ridgepoint_probe::Gpu) -> Option<f64>, unit: &str| {
        let values: Vec<String> = gpus.iter().filter_map(of).map(|value| format!("{value:.0} {unit}")).collect();
        if values.is_empty() { "not at hand".to_owned() } else { values.join(", ") }
    };
    writeln!(page, "\n## Sanity Metrics\n\nOne look after the warm runs:\n")?;
    writeln!(page, "- GPU util = {}", list(|of| of.utilisation_pct, "%"))?;
    writeln!(page, "- GPU power = {}", list(|of| of.power_w, "W"))?;
    let metrics = after.metrics.as_ref();
    for (name, value) in [
        ("running requests", metrics.and_then(|of| of.running)),
        ("waiting requests", metrics.and_then(|of| of.waiting)),
        ("share of the KV cache in use", metrics.and_then(|of| of.kv_usage)),
        ("prompt tokens found in the prefix cache so far", metrics.and_then(|of| of.prefix_hits)),
    ] {
        writeln!(page, "- {name} = {}", shown(value, figure))?;
    }
    let missing: Vec<&str> = report.server.missing.iter().chain(&after.missing).map(String::as_str).collect();
    if missing.is_empty() { Ok(()) } else { writeln!(page, "- not at hand = {}", escaped(&missing.join("; "))) }
}

fn ladder(page: &mut String, report: &Report) -> std::fmt::Result {
    if report.ladder.is_empty() {
        return Ok(());
    }
    writeln!(page, "\n## Ladder\n")?;
    writeln!(
        page,
        "| prompt tokens | in flight | ok | ttft_ms, median | max | itl_ms, median | wall_ms, median | output tokens/s |"
    )?;
    writeln!(page, "|---:|---:|---:|---:|---:|---:|---:|---:|")?;
    for rung in &report.ladder {
        let Rung { input_len, concurrency, ok, requests, .. } = rung;
        let [ttft, itl, wall] = [rung.ttft_ms, rung.itl_ms, rung.wall_ms].map(|of| ms(of.map(|of| of.median)));
        let (longest, rate) =
            (ms(rung.ttft_ms.map(|of| of.max)), shown(rung.output_tokens_per_s, |of| format!("{of:.1}")));
        write!(page, "| {input_len} | {concurrency} | {ok} of {requests} | {ttft} | {longest} | ")?;
        writeln!(page, "{itl} | {wall} | {rate} |")?;
    }
    Ok(())
}

fn interpretation(page: &mut String, report: &Report) -> std::fmt::Result {
    let found = report.diagnosis();
    writeln!(page, "\n## Interpretation\n")?;
    writeln!(page, "1) What dominated cold_1? **{}**: {}\n", found.name, found.about)?;
    if !found.signals.is_empty() {
        writeln!(page, "| signal | value | limit | unit | reached | speaks for |\n|---|---:|---:|---|---|---|")?;
        for of in &found.signals {
            let reached = if of.is_met { "yes" } else { "no" };
            let (value, limit) = (figure(of.value), figure(of.limit));
            writeln!(page, "| {} | {value} | {limit} | {} | {reached} | {} |", of.name, of.unit, of.speaks_for)?;
        }
        writeln!(page)?;
    }
    writeln!(page, "Missing: {}.\n", escaped(&found.missing.join("; ")))?;
    let warm = report.warm_summary();
    let (spread, median) = (warm.ttft_ms.map(|of| of.spread_pct), warm.ttft_ms.map(|of| of.median));
    let stable = spread.map_or("It is not known", |spread| if spread <= 20.0 { "Yes" } else { "No" });
    let spread = shown(spread, |of| format!("{of:.1}"));
    writeln!(page, "2) Is warm stable? {stable}: TTFT spreads by {spread} % of its median.\n")?;
    let (median, penalty) = (ms(median), ms(report.penalty()));
    writeln!(page, "3) Baseline: a warm TTFT of {median} ms, and a cold penalty of {penalty} times.\n")?;
    let next = match found.name {
        Cause::PageCache => {
            "keep the weights in the page cache, or on faster storage: read the shards before the server starts"
        }
        Cause::HbmTransfer => "load the model before traffic comes: send one request after each start",
        Cause::RuntimeWarmUp => "send a request of each usual shape after each start, or capture graphs at start-up",
        Cause::KvAllocation => {
            "look at max_model_len and gpu_memory_utilization, and send one request after each start"
        }
        Cause::Queueing => "measure without other traffic, or look at max_num_seqs and max_num_batched_tokens",
        Cause::NotCold => "restart the server and probe again",
        Cause::NoPenalty => "nothing for the cold start; a ladder shows what load does",
        Cause::Undecided => "probe on the server's machine, where disks, page cache and GPUs can be seen",
    };
    writeln!(page, "4) Next: {next}.")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_a_server_are_words_of_a_line() {
        let odd = "a\u{1b}[31m\u{1b}]0;t\u{7}\0|<img src=x>\n# b `c` &amp; x_y";
        assert_eq!(escaped(odd), r"a\\u001b\[31m\\u001b\]0;t\\u0007\\u0000\|&lt;img src=x&gt; # b \`c\` &amp;amp; x_y");
    }
}
