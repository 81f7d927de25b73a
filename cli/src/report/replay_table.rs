//! The table of `simulate`: what was replayed, what clients saw of it by stage, what the engine did, and what deserves a
//! second look.

use ridgepoint::replay::{Distribution, StageMetrics};

use super::replay::SimulationReport;
use super::step_table::served;
use super::text::{count, percent, plural, rendered, table, width, wrap};

/// The whole report.
pub fn render(report: &SimulationReport<'_>) -> String {
    let width = width();
    let mut out = wrap("", &served(report.model, report.hardware, report.deployment), width);
    out.push_str(&wrap("KV blocks  ", &kv_blocks(report), width));
    out.push_str(&wrap("load       ", report.load, width));
    out.push_str(&wrap("times      ", report.latency_model, width));
    out.push('\n');
    out.push_str(&latencies(report));
    out.push('\n');
    out.push_str(&throughput(report));
    out.push('\n');
    for (mark, text) in engine(report) {
        out.push_str(&wrap(mark, &text, width));
    }
    let warnings = report.all_warnings();
    if !(report.notes.is_empty() && warnings.is_empty()) {
        out.push('\n');
    }
    for note in report.notes {
        out.push_str(&wrap("note: ", note, width));
    }
    for warning in &warnings {
        out.push_str(&wrap("warning: ", warning, width));
    }
    out
}

fn kv_blocks(report: &SimulationReport<'_>) -> String {
    let engine = report.engine;
    let usable = u64::from(engine.usable_blocks());
    format!(
        "{} of {}, room for {} of requests ({})",
        count(u64::from(engine.num_gpu_blocks)),
        plural(u64::from(engine.block_size), "token"),
        plural(usable * u64::from(engine.block_size), "token"),
        report.kv_blocks_from
    )
}

/// The whole run, and its stages where there are several: a single one says the same.
fn rows<'a>(report: &SimulationReport<'a>) -> Vec<(String, &'a StageMetrics)> {
    let metrics = report.metrics;
    let mut rows = vec![("all".to_owned(), &metrics.run)];
    if metrics.stages.len() > 1 {
        rows.extend(metrics.stages.iter().map(|of| (of.stage.map_or_else(String::new, |stage| stage.to_string()), of)));
    }
    rows
}

fn latencies(report: &SimulationReport<'_>) -> String {
    let mut made = table(&["stage", "ms", ">mean", ">p50", ">p90", ">p99", ">90 % interval of the mean"]);
    for (name, of) in rows(report) {
        let metrics = [("TTFT", of.ttft_ms), ("TPOT", of.tpot_ms), ("ITL", of.itl_ms), ("E2E", of.e2e_ms)];
        for (index, (metric, distribution)) in metrics.into_iter().enumerate() {
            let shown = |value: fn(&Distribution) -> f64| number(distribution.as_ref().map(value));
            made.add_row([
                if index == 0 { name.clone() } else { String::new() },
                metric.to_owned(),
                shown(|of| of.mean),
                shown(|of| of.p50),
                shown(|of| of.p90),
                shown(|of| of.p99),
                distribution.map_or_else(|| number(None), |of| interval(report, metric, of.mean)),
            ]);
        }
    }
    rendered(made, &["p50"])
}

fn interval(report: &SimulationReport<'_>, metric: &str, mean_ms: f64) -> String {
    let spread = &report.spread;
    let (lower, upper) = if metric == "TTFT" { spread.of_ttft(mean_ms) } else { spread.of_steps(mean_ms) };
    format!("{} to {}", number(Some(lower)), number(Some(upper)))
}

fn throughput(report: &SimulationReport<'_>) -> String {
    let mut made = table(&[
        "stage",
        ">sent",
        ">finished",
        ">refused",
        ">stopped",
        ">seconds",
        ">requests/s",
        ">output tokens/s",
        ">all tokens/s",
    ]);
    for (name, of) in rows(report) {
        made.add_row([
            name,
            count(of.requests),
            count(of.finished),
            count(of.rejected),
            count(of.unfinished),
            number(of.duration_s),
            number(of.requests_per_s),
            number(of.output_tokens_per_s),
            number(of.total_tokens_per_s),
        ]);
    }
    rendered(made, &["all tokens/s", "stopped", "refused", "seconds"])
}

fn engine(report: &SimulationReport<'_>) -> Vec<(&'static str, String)> {
    let (counters, shares) = (report.counters, report.shares());
    let share = |share: Option<f64>| share.map_or_else(|| "-".to_owned(), percent);
    let cache = match shares.cache_hit_share {
        _ if !report.engine.enable_prefix_caching => "off".to_owned(),
        None => "nothing asked for".to_owned(),
        Some(hits) => format!("{} of the prompt tokens found", percent(hits)),
    };
    vec![
        (
            "steps      ",
            format!(
                "{}, {} tokens each on average, {} of them in prompts; GPUs busy {} of the time",
                count(counters.steps),
                number(shares.mean_step_tokens),
                share(shares.prefill_token_share),
                share(shares.gpu_busy_share)
            ),
        ),
        (
            "queues     ",
            format!(
                "at most {} running and {} waiting; {}, {} computed again",
                count(u64::from(counters.max_running)),
                count(u64::from(counters.max_waiting)),
                plural(counters.preemptions, "preemption"),
                plural(counters.recomputed_tokens, "token")
            ),
        ),
        ("KV cache   ", format!("at most {} in use; prefix cache: {cache}", share(shares.peak_kv_share))),
    ]
}

fn number(value: Option<f64>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| format!("{value:.2}"))
}

#[cfg(test)]
mod tests {
    use super::super::replay::fixtures::{empty, three};
    use super::*;

    /// The cells of the line that begins with `start`.
    fn line<'a>(text: &'a str, start: &str) -> Vec<&'a str> {
        let found = text.lines().find(|line| line.trim_start().starts_with(start));
        found.map(|line| line.split_whitespace().collect()).unwrap_or_default()
    }

    #[test]
    fn every_stage_has_its_rows() {
        let text = render(&three().report());
        // TTFT 20 and 40 ms; at rank 0.9 of two values 20 + 0.9 × 20.
        // The interval: × and ÷ exp(1.645 · 0.1) = 1.1788, of steps exp(1.645 · 0.04) = 1.0680.
        let shown = |start: &str| line(&text, start).join(" ");
        assert_eq!(shown("all  "), "all TTFT 30.00 30.00 38.00 39.80 25.45 to 35.36");
        assert_eq!(shown("TPOT"), "TPOT 15.00 15.00 19.00 19.90 14.04 to 16.02");
        assert_eq!(shown("ITL"), "ITL - - - - -");
        assert_eq!(shown("1 "), "1 TTFT 40.00 40.00 40.00 40.00 33.93 to 47.15");
        // 1,022 tokens in 1.24 s.
        let throughput: Vec<&str> =
            text.lines().filter(|line| line.starts_with("all ")).nth(1).unwrap_or("").split_whitespace().collect();
        assert_eq!(throughput, ["all", "3", "2", "1", "0", "1.24", "1.61", "17.74", "824.19"]);
        for part in [
            "llama-3.1-8b on one NVIDIA H100",
            "KV blocks  1,001 of 16 tokens, room for 16,000 tokens of requests (--num-gpu-blocks-override)",
            "steps      22, 35.00 tokens each on average, 97.4 % of them in prompts; GPUs busy 25.0 % of the time",
            "queues     at most 1 running and 2 waiting; 1 preemption, 0 tokens computed again",
            "KV cache   at most 6.4 % in use; prefix cache: 25.0 % of the prompt tokens found",
            "note: a note\nwarning: a warning\nwarning: 1 of 3 requests refused",
        ] {
            assert!(text.contains(part), "{part} is not in\n{text}");
        }
    }

    #[test]
    fn nothing_replayed_is_dashes_and_no_nan() {
        let mut owned = empty();
        let text = render(&owned.report());
        assert_eq!(line(&text, "all  "), ["all", "TTFT", "-", "-", "-", "-", "-"]);
        assert!(!text.contains("NaN") && !text.contains("inf"), "{text}");
        assert!(text.contains("prefix cache: nothing asked for") && text.contains("no request finished"), "{text}");
        owned.engine.enable_prefix_caching = false;
        assert!(render(&owned.report()).contains("prefix cache: off"));
    }
}
