//! The tables of `sweep`: the best configuration of each model on each GPU, and what a dry run would do.

use ridgepoint_lab::sweep::{Best, Listed, Reason, Row, SweepSummary};

use crate::text::{count, plural, rendered, table, width, wrap};

/// Reasons that are shown; the file has all.
const MAX_REASONS: usize = 5;

/// The result of a sweep.
pub fn render(of: &SweepSummary<'_>) -> String {
    let width = width();
    let mut out = best_table(&of.best);
    let statuses: Vec<String> =
        of.statuses.iter().map(|(status, number)| format!("{} {status}", count(*number as u64))).collect();
    let reused = match of.reused {
        0 => String::new(),
        reused => format!("; {} kept of an earlier run", count(reused as u64)),
    };
    out.push_str(&wrap(
        "",
        &format!(
            "{}: {}{reused}. Rows in {}.",
            plural(of.configurations as u64, "configuration"),
            statuses.join(", "),
            of.out
        ),
        width,
    ));
    if of.overloaded > 0 {
        let text = format!(
            "{} with more load than the server keeps up with (keeps_up is false): queues grow for as long as it lasts, and at a given rate \
             such a row is never the best",
            plural(of.overloaded as u64, "configuration")
        );
        out.push_str(&wrap("overload: ", &text, width));
    }
    for best in of.best.iter().filter(|best| best.same_max_num_seqs.0 != best.same_max_num_seqs.1) {
        let (least, most) = best.same_max_num_seqs;
        let text = format!(
            "row {} ({} on {}): max_num_seqs {least} to {most} all the same",
            best.row.configuration, best.row.model, best.row.hardware
        );
        out.push_str(&wrap("ties: ", &text, width));
    }
    if of.statuses.contains_key("lowest_rate_fails") {
        let text =
            "a limit breaks at slo.lowest_rate_per_s already; the column limits_broken has the limit and its value";
        out.push_str(&wrap("lowest_rate_fails: ", text, width));
    }
    for reason in of.reasons.iter().take(MAX_REASONS) {
        out.push_str(&wrap("cannot run: ", &format!("{}: {}", whose(reason), reason.reason), width));
    }
    if of.reasons.len() > MAX_REASONS {
        out.push_str(&format!("({} more reasons in {})\n", of.reasons.len() - MAX_REASONS, of.out));
    }
    out
}

/// The rows of a reason with their models and parallel sizes: `2 rows (3, 7) of llama-3.1-70b TP 1`.
fn whose(reason: &Reason<'_>) -> String {
    const MOST: usize = 6;
    let listed = |texts: Vec<String>| {
        let more = if texts.len() > MOST { ", …" } else { "" };
        format!("{}{more}", texts.into_iter().take(MOST).collect::<Vec<_>>().join(", "))
    };
    format!(
        "{} ({}) of {}",
        plural(reason.configurations as u64, "row"),
        listed(reason.rows.iter().map(u64::to_string).collect()),
        listed(reason.servers.clone())
    )
}

fn best_table(best: &[Best<'_>]) -> String {
    if best.is_empty() {
        return String::new();
    }
    let is_capacity = best.iter().any(|best| best.row.slo.is_some());
    let rate = if is_capacity { ">requests/s held" } else { ">requests/s done" };
    let mut made = table(&[
        "model",
        "GPU",
        "best of",
        "TP×PP×DP",
        ">seqs",
        ">tokens",
        "KV",
        rate,
        ">per GPU",
        ">output tokens/s/GPU",
        ">TTFT p99 ms",
        ">ITL p99 ms",
        ">row",
    ]);
    for Best { row, of, .. } in best {
        let (rate, per_gpu) = if is_capacity {
            (row.request_rate_per_s, row.request_rate_per_s_per_gpu)
        } else {
            (row.requests_per_s, row.requests_per_s.map(|rate| rate / row.gpus as f64))
        };
        made.add_row([
            row.model.clone(),
            row.hardware.clone(),
            of.to_string(),
            spread(row),
            row.max_num_seqs.to_string(),
            row.max_num_batched_tokens.to_string(),
            row.kv_cache_dtype.clone(),
            at_least(row, number(rate)),
            number(per_gpu),
            number(row.output_tokens_per_s_per_gpu),
            number(row.ttft_p99_ms),
            number(row.itl_p99_ms),
            row.configuration.to_string(),
        ]);
    }
    let mut out = match best.first().and_then(|best| best.row.slo.as_deref()) {
        Some(slo) => format!("Highest request rate per GPU that holds {slo}:\n\n"),
        None => "Most output tokens per second and GPU:\n\n".to_owned(),
    };
    out.push_str(&rendered(
        made,
        &["best of", "KV", "GPU", "output tokens/s/GPU", "row", "per GPU", "tokens", "seqs", "ITL p99 ms"],
    ));
    out.push('\n');
    out
}

/// Marks a rate that is a lower bound because nothing faster was tried.
fn at_least(row: &Row, rate: String) -> String {
    if row.status == "highest_rate_holds" { format!(">= {rate}") } else { rate }
}

fn spread(row: &Row) -> String {
    format!("{}×{}×{}", row.tensor_parallel_size, row.pipeline_parallel_size, row.data_parallel_size)
}

fn number(value: Option<f64>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| format!("{value:.2}"))
}

/// The list of a dry run.
pub fn listed(listed: &[Listed]) -> String {
    let mut made = table(&[">row", "model", "GPU", "varied"]);
    for of in listed {
        let varied = if of.is_known { format!("{} (known)", of.varied) } else { of.varied.clone() };
        made.add_row([of.configuration.to_string(), of.model.clone(), of.hardware.clone(), varied]);
    }
    let known = listed.iter().filter(|of| of.is_known).count();
    let mut out = rendered(made, &[]);
    out.push_str(&format!(
        "\n{}, {} of them known; nothing was run.\n",
        plural(listed.len() as u64, "configuration"),
        count(known as u64)
    ));
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(status: &str, per_gpu: f64) -> Row {
        Row {
            status: status.to_owned(),
            model: "qwen3-8b".to_owned(),
            hardware: "h100_sxm".to_owned(),
            slo: Some("ttft_p99_ms = 500".to_owned()),
            gpus: 2,
            tensor_parallel_size: 2,
            pipeline_parallel_size: 1,
            data_parallel_size: 1,
            request_rate_per_s: Some(2.0 * per_gpu),
            request_rate_per_s_per_gpu: Some(per_gpu),
            replays: 9,
            ..Row::default()
        }
    }

    #[test]
    fn the_best_and_the_reasons_are_shown() {
        let mut refused = row("cannot_run", 0.0);
        refused.reason = Some("the weights do not fit".to_owned());
        let rows = [row("ok", 3.25), refused.clone(), refused, row("highest_rate_holds", 4.5)];
        let json = SweepSummary::new(&rows, 1, "out.csv");
        assert_eq!((json.replays, json.ran_none()), (36, false));
        // However wide the terminal is.
        let text = render(&json).split_whitespace().collect::<Vec<_>>().join(" ");
        for said in [
            "Highest request rate per GPU that holds ttft_p99_ms = 500:",
            ">= 9.00",
            "4.50",
            "2×1×1",
            "4 configurations: 2 cannot_run, 1 highest_rate_holds, 1 ok; 1 kept of an earlier run. Rows in out.csv.",
            "cannot run: 2 rows (0, 0) of qwen3-8b TP 2: the weights do not fit",
        ] {
            assert!(text.contains(said), "'{said}' is not in\n{text}");
        }
        assert!(!text.contains("6.50"), "{text}");
    }

    #[test]
    fn nothing_that_runs_has_no_table() {
        let rows = [Row { status: "cannot_run".to_owned(), reason: Some("why".to_owned()), ..Row::default() }];
        let json = SweepSummary::new(&rows, 0, "out.csv");
        assert!(json.ran_none());
        assert_eq!(
            render(&json),
            "1 configuration: 1 cannot_run. Rows in out.csv.\ncannot run: 1 row (0) of TP 0: why\n"
        );
    }
}
