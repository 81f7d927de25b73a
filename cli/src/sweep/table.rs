//! The tables of `sweep`: the best configuration of each model on each GPU, and the list of a dry run.

use ridgepoint_lab::sweep::{Best, EnginesSideBySide, Reason, Row, SweepList, SweepSummary, TierSizes};

use ridgepoint_replay::LoadState;

use super::{ShardOfGrid, SweepContent, SweepResult};
use crate::outcome::Report;
use crate::text::{Page, Rows, count, json_name, number, percent, plural, shown};

/// Reasons that are shown; the file has all.
const MAX_REASONS: usize = 5;
/// Servers and loads whose sizes of the host's tier are shown; JSON has all.
const MAX_TIER_TABLES: usize = 5;
/// Servers and loads whose engines are shown; JSON has all.
const MAX_ENGINE_TABLES: usize = 8;
/// Rows and servers of a reason that are shown.
const MAX_LISTED: usize = 6;

impl Report for SweepResult {
    fn lay_out(&self, page: &mut Page) {
        match &self.content {
            SweepContent::Summary(summary) => summarise(summary, page),
            SweepContent::List(list) => listed(list, page),
        }
        if let Some(ShardOfGrid { number, of, grid_configurations }) = self.shard {
            let grid = plural(grid_configurations as u64, "configuration");
            page.paragraph("", &format!("This is shard {number}/{of} of a grid of {grid}."));
        }
    }
}

fn summarise(of: &SweepSummary, page: &mut Page) {
    best_table(&of.best, page);
    of.engines.iter().take(MAX_ENGINE_TABLES).for_each(|of| engine_table(of, page));
    of.tiers.iter().take(MAX_TIER_TABLES).for_each(|sizes| tier_table(sizes, of.tiers.len() > 1, page));
    if of.tiers.len() > MAX_TIER_TABLES {
        let more = of.tiers.len() - MAX_TIER_TABLES;
        page.paragraph(
            "host tier: ",
            &format!("{more} more servers or loads with several sizes, as --format json has them"),
        );
        page.blank();
    }
    let statuses: Vec<String> =
        of.statuses.iter().map(|(status, number)| format!("{} {status}", count(*number))).collect();
    let reused = match of.reused {
        0 => String::new(),
        reused => format!("; {} kept of an earlier run", count(reused)),
    };
    let configurations = plural(of.configurations as u64, "configuration");
    page.paragraph("", &format!("{configurations}: {}{reused}. Rows in {}.", statuses.join(", "), of.out));
    let states = [
        (
            of.overloaded,
            "overload: ",
            "with more load than the server keeps up with: queues grow for as long as it lasts",
        ),
        (of.at_limit, "at the limit: ", "whose queue has not settled: latencies depend on the length of the load"),
    ];
    for (number, name, text) in states.into_iter().filter(|(number, ..)| *number > 0) {
        let configurations = plural(number as u64, "configuration");
        page.paragraph(name, &format!("{configurations} {text}; none of them is ranked"));
    }
    let ties = of.best.iter().filter(|best| best.same_max_num_seqs.0 < best.same_max_num_seqs.1);
    for Best { row, same_max_num_seqs: (least, most), .. } in ties {
        let row = format!("row {} ({} on {})", row.configuration, row.model, row.hardware);
        page.paragraph("ties: ", &format!("{row}: max_num_seqs {least} to {most} all the same"));
    }
    let fails = of.lowest_rate_fails.iter().map(|reason| ("lowest rate fails: ", reason)).take(MAX_REASONS);
    let refused = of.reasons.iter().map(|reason| ("cannot run: ", reason)).take(MAX_REASONS);
    for (name, Reason { configurations, rows, servers, reason }) in fails.chain(refused) {
        let count = plural(*configurations as u64, "row");
        let (rows, servers) = (first_few(rows), first_few(servers));
        page.paragraph(name, &format!("{count} ({rows}) of {servers}: {reason}"));
    }
    if of.reasons.len() > MAX_REASONS {
        page.line(&format!("({} more reasons in {})", of.reasons.len() - MAX_REASONS, of.out));
    }
}

/// The first few of a list: `3, 7, …`.
fn first_few<T: ToString>(all: &[T]) -> String {
    let mut shown: Vec<String> = all.iter().take(MAX_LISTED).map(ToString::to_string).collect();
    if all.len() > MAX_LISTED {
        shown.push("…".to_owned());
    }
    shown.join(", ")
}

fn best_table(best: &[Best], page: &mut Page) {
    let Some(first) = best.first() else { return };
    let has_limits = first.row.slo.is_some();
    page.line(&match &first.row.slo {
        Some(slo) => format!("Highest request rate per GPU that meets {slo}:"),
        None => "Most output tokens per second and GPU:".to_owned(),
    });
    page.blank();
    let rate_name = match (has_limits, first.row.turns) {
        (false, _) => "requests/s done",
        (true, None) => "max. requests/s",
        (true, Some(_)) => "max. sessions/s",
    };
    let rate = move |row: &Row| if has_limits { row.request_rate_per_s } else { row.requests_per_s };
    let spread =
        |row: &Row| format!("{}×{}×{}", row.tensor_parallel_size, row.pipeline_parallel_size, row.data_parallel_size);
    // Nothing faster was tried.
    let is_lower_bound = |row: &Row| row.status == "highest_rate_holds";
    let rows = Rows::of(best)
        .left("model", |of| of.row.model.clone())
        .left("GPU", |of| of.row.hardware.clone())
        .left("best of", |of| of.of.to_string())
        .left("TP×PP×DP", |of| spread(&of.row))
        .right("seqs", |of| of.row.max_num_seqs.to_string())
        .right("tokens", |of| of.row.max_num_batched_tokens.to_string())
        .left("KV", |of| of.row.kv_cache_dtype.clone())
        .right(rate_name, |of| format!("{}{}", if is_lower_bound(&of.row) { ">= " } else { "" }, number(rate(&of.row))))
        .right("per GPU", |of| number(rate(&of.row).map(|rate| rate / of.row.gpus as f64)))
        .right("output tokens/s/GPU", |of| number(of.row.output_tokens_per_s_per_gpu))
        .right("TTFT p99 ms", |of| number(of.row.ttft_p99_ms))
        .right("ITL p99 ms", |of| number(of.row.itl_p99_ms))
        .left("binds", |of| binds(&of.row))
        .right("row", |of| of.row.configuration.to_string());
    let mut spare = vec!["best of", "KV", "output tokens/s/GPU", "seqs", "tokens", "ITL p99 ms", "row", "TTFT p99 ms"];
    if best.iter().all(|of| of.row.model == first.row.model) {
        spare.insert(5, "model");
    }
    if !has_limits {
        spare.insert(0, "binds");
    }
    page.rows(&rows, &spare);
    page.blank();
    if let (true, Some(seeds)) = (has_limits, first.row.seeds) {
        let requests = first.row.num_requests;
        page.paragraph("", &format!("{} of {} requests.", held(seeds), count(requests)));
        page.blank();
    }
    warnings(best, page);
}

/// What it means that a rate holds.
fn held(seeds: u64) -> String {
    match seeds {
        1 => "At these rates the limits hold and the queue does not grow in one replay".to_owned(),
        _ => format!(
            "At these rates the queue does not grow, the limits hold on average over {seeds} seeds, and another seed exceeds one by more \
             than 3 % in at most one case of twenty; each replay is one"
        ),
    }
}

/// What keeps the rate of a row from being higher, and the resource behind it.
fn binds(row: &Row) -> String {
    let Some(binds) = &row.binds else { return "nothing tried".to_owned() };
    match row.resource.as_ref().map(json_name) {
        Some(resource) if resource != *binds => format!("{binds}: {resource}"),
        _ => binds.clone(),
    }
}

/// The warnings of the best rows, each once.
fn warnings(best: &[Best], page: &mut Page) {
    let mut known: Vec<&str> = Vec::new();
    for Best { row, .. } in best {
        let all = row.warnings.iter().flat_map(|text| text.split("; "));
        let new: Vec<&str> = all.filter(|warning| !known.contains(warning)).collect();
        if !new.is_empty() {
            page.paragraph(&format!("row {}: ", row.configuration), &new.join("; "));
        }
        known.extend(new);
    }
    if !known.is_empty() {
        page.blank();
    }
}

/// The engines of a server under a load.
fn engine_table(of: &EnginesSideBySide, page: &mut Page) {
    page.paragraph("", &format!("Engines side by side, {}:", of.settings));
    let bounds = |of: Option<[f64; 2]>| shown(of, |[lower, upper]| format!("{lower:.1} to {upper:.1}"));
    let state = |of: LoadState| match of {
        LoadState::KeepsUp => "yes",
        LoadState::AtLimit => "at its limit",
        LoadState::Overloaded => "no",
    };
    let rows = Rows::of(&of.engines)
        .left("engine", |of| of.serving_engine.clone())
        .right("TTFT mean ms", |of| number(of.ttft_mean_ms))
        .right("interval", |of| bounds(of.ttft_bounds_ms))
        .right("TPOT mean ms", |of| number(of.tpot_mean_ms))
        .right("interval of TPOT", |of| bounds(of.tpot_bounds_ms))
        .right("output tokens/s/GPU", |of| number(of.output_tokens_per_s_per_gpu))
        .right("measured kernels", |of| shown(of.measured_share, percent))
        .left("keeps up", |of| shown(of.load_state, |of| state(of).to_owned()))
        .right("row", |of| of.configuration.to_string());
    page.rows(&rows, &["row", "keeps up"]);
    if !of.not_run.is_empty() {
        page.paragraph("", &format!("{} could not run.", of.not_run.join(" and ")));
    }
    page.blank();
}

/// The latencies of a load by size of the host's tier. With `is_named`, the table names the server and the load.
fn tier_table(of: &TierSizes, is_named: bool, page: &mut Page) {
    if is_named {
        page.paragraph("", &format!("{}:", of.settings));
    }
    let rows = Rows::of(&of.sizes)
        .right("host blocks", |of| count(of.num_cpu_blocks))
        .right("loaded", |of| shown(of.host_hit_share, percent))
        .right("load wait ms", |of| number(of.kv_load_wait_mean_ms))
        .right("prompt tokens computed", |of| shown(of.prefill_tokens, count))
        .right("TTFT mean ms", |of| number(of.ttft_mean_ms))
        .right("E2E mean ms", |of| number(Some(of.e2e_mean_ms)))
        .left("keeps up", |of| shown(of.keeps_up, |keeps_up| if keeps_up { "yes" } else { "no" }.to_owned()))
        .right("row", |of| of.configuration.to_string());
    page.rows(&rows, &["load wait ms", "keeps up"]);
    let mut text = match of.enough {
        Some(row) => format!("tiers larger than that of row {row} change the mean E2E latency by at most 1 %"),
        None => "the largest tier still changes the mean E2E latency by more than 1 %".to_owned(),
    };
    if of.not_run > 0 {
        text.push_str(&format!("; {} could not run", plural(of.not_run as u64, "size")));
    }
    page.paragraph("host tier: ", &text);
    page.blank();
}

fn listed(list: &SweepList, page: &mut Page) {
    let rows = Rows::of(&list.configurations)
        .right("row", |of| of.configuration.to_string())
        .left("model", |of| of.model.clone())
        .left("GPU", |of| of.hardware.clone())
        .left("varied", |of| if of.is_known { format!("{} (known)", of.varied) } else { of.varied.clone() });
    page.rows(&rows, &[]);
    page.blank();
    let known = list.configurations.iter().filter(|of| of.is_known).count();
    let configurations = plural(list.number as u64, "configuration");
    page.line(&format!("{configurations}, {} of them known; nothing was run.", count(known)));
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

    fn render(summary: SweepSummary) -> String {
        SweepResult { shard: None, content: SweepContent::Summary(summary) }.table()
    }

    #[test]
    fn the_best_and_the_reasons_are_shown() {
        let mut refused = row("cannot_run", 0.0);
        refused.reason = Some("the weights do not fit".to_owned());
        let rows = [row("ok", 3.25), refused.clone(), refused, row("highest_rate_holds", 4.5)];
        let json = SweepSummary::new(&rows, 1, "out.csv");
        assert_eq!((json.replays, json.ran_none()), (36, false));
        // However wide the terminal is.
        let text = render(json).split_whitespace().collect::<Vec<_>>().join(" ");
        for said in [
            "Highest request rate per GPU that meets ttft_p99_ms = 500:",
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
            render(json),
            "1 configuration: 1 cannot_run. Rows in out.csv.\ncannot run: 1 row (0) of TP 0: why\n"
        );
    }
}
