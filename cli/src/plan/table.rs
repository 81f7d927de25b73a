//! The answer of `plan` on a page.

use ridgepoint_lab::sweep::Row;
use ridgepoint_lab::sweep::plan::{NearestMiss, NotPlanned, PlanReport, PlannedDeployment};

use crate::outcome::Report;
use crate::text::{Page, Rows, count, json_name, number, percent, plural, shown};

/// Reasons of servers that are left out which are shown; JSON has all.
const MAX_REASONS: usize = 6;
/// Points of the front that are shown.
const MAX_FRONT: usize = 8;

impl Report for PlanReport {
    fn lay_out(&self, page: &mut Page) {
        let unit = if self.load_is_users { "users" } else { "requests/s" };
        match (self.deployments.first(), &self.nearest_miss) {
            (Some(best), _) => held(self, best, unit, page),
            (None, Some(miss)) => missed(miss, page),
            (None, None) => page.line("No deployment was judged: no server can run, or none holds at any load."),
        }
        page.blank();
        left_out(&self.left_out, page);
        front(self, unit, page);
        let judged =
            format!("{} screened, {} replayed whole", plural(self.servers as u64, "server"), count(self.judged));
        page.paragraph("judged: ", &judged);
        page.warnings(&self.warnings);
    }
}

fn held(of: &PlanReport, best: &PlannedDeployment, unit: &str, page: &mut Page) {
    page.line(&format!(
        "Deployments that hold {} {unit} within {}:",
        shown(Some(of.load), |load| number(Some(load))),
        of.slo
    ));
    page.blank();
    let rows = Rows::of(&of.deployments)
        .left("deployment", |of| {
            let servers = servers(of.replicas, of.prefill_replicas);
            format!(
                "{servers} x {} {} TP {}",
                of.metrics.gpus_per_server(),
                of.hardware,
                of.metrics.tensor_parallel_size
            )
        })
        .left("model", |of| of.metrics.model.clone())
        .left("engine", |of| of.engine.clone())
        .left("router", |of| of.router.as_ref().map_or_else(|| "-".to_owned(), json_name))
        .right("GPUs", |of| count(of.num_gpus))
        .right("cost/h", |of| number(of.cost_per_hour))
        .right("per 1M output", |of| number(of.cost_per_million_output_tokens))
        .left("nearest limit", |of| of.binding_limit.clone().unwrap_or_default())
        .left("behind it", |of| of.binding_resource.as_ref().map(json_name).unwrap_or_default())
        .right("margin", |of| shown(of.margin_pct, |margin| format!("{margin:.1} %")))
        .right("TTFT p99 ms", |of| number(of.metrics.ttft_p99_ms))
        .right("TPOT mean ms", |of| number(of.metrics.tpot_mean_ms))
        .right("output tokens/s/GPU", |of| number(of.metrics.output_tokens_per_s_per_gpu))
        .right("measured", |of| shown(of.metrics.measured_share, percent));
    let mut spare = vec!["output tokens/s/GPU", "per 1M output", "router", "model", "TPOT mean ms"];
    if best.cost_per_hour.is_none() {
        spare.insert(0, "cost/h");
        spare.insert(0, "per 1M output");
    }
    page.rows(&rows, &spare);
    page.blank();
    page.fact("start each", &best.serve_command);
    if let Some(prefill) = &best.prefill_command {
        page.fact("prefill", prefill);
    }
    page.fact("margins", &best.margins);
    if let Some(highest) = best.highest_load {
        let more = 100.0 * (highest / of.load - 1.0);
        let at_least = if best.highest_load_is_open { "at least " } else { "" };
        page.fact("headroom", &format!("it holds up to {at_least}{} {unit}, {more:.0} % more", number(Some(highest))));
    }
    page.fact(
        "judged by",
        &format!("{} of {} requests each", plural(best.metrics.seeds.unwrap_or(1), "replay"), count(best.num_requests)),
    );
    let Row { ttft_lower_ms, ttft_upper_ms, tpot_lower_ms, tpot_upper_ms, .. } = &best.metrics;
    if let (Some(low), Some(high)) = (ttft_lower_ms, ttft_upper_ms) {
        page.fact("interval", &format!("of the mean TTFT {} to {} ms", number(Some(*low)), number(Some(*high))));
    }
    if let (Some(low), Some(high)) = (tpot_lower_ms, tpot_upper_ms) {
        page.fact("", &format!("of the mean TPOT {} to {} ms", number(Some(*low)), number(Some(*high))));
    }
    if let Some(warnings) = &best.metrics.warnings {
        page.warnings(&warnings.split("; ").map(str::to_owned).collect::<Vec<_>>());
    }
}

/// The number of replicas; of prefill and of decode where they are apart.
fn servers(replicas: u32, prefill_replicas: u32) -> String {
    match prefill_replicas {
        0 => count(replicas),
        prefill => format!("({prefill} prefill + {replicas} decode)"),
    }
}

fn missed(of: &NearestMiss, page: &mut Page) {
    let NearestMiss { replicas, prefill_replicas, hardware, miss_pct, limits_broken, .. } = of;
    let each = of.metrics.gpus_per_server();
    let servers = servers(*replicas, *prefill_replicas);
    page.line(&format!(
        "No deployment holds. The nearest, {servers} x {each} {hardware}, misses by {miss_pct:.1} %: {limits_broken}."
    ));
    page.fact("start each", &of.serve_command);
    for help in &of.help {
        page.paragraph("would help: ", help);
    }
}

fn left_out(of: &[NotPlanned], page: &mut Page) {
    let mut reasons: Vec<(&str, Vec<&str>)> = Vec::new();
    for NotPlanned { server, reason } in of {
        match reasons.iter_mut().find(|(known, _)| known == reason) {
            Some((_, servers)) => servers.push(server),
            None => reasons.push((reason, vec![server])),
        }
    }
    for (reason, servers) in reasons.iter().take(MAX_REASONS) {
        let others = if servers.len() > 1 { format!(" and {} more", servers.len() - 1) } else { String::new() };
        page.paragraph("left out: ", &format!("{}{others}: {reason}", servers.first().copied().unwrap_or_default()));
    }
    if reasons.len() > MAX_REASONS {
        page.line(&format!("({} more reasons in --format json)", reasons.len() - MAX_REASONS));
    }
}

fn front(of: &PlanReport, unit: &str, page: &mut Page) {
    if of.front.len() < 2 {
        return;
    }
    page.blank();
    page.line("What one server can do: more output tokens/s per GPU, or more per user (short loads, limits aside):");
    page.blank();
    let every = of.front.len().div_ceil(MAX_FRONT).max(1);
    let rows = Rows::of(of.front.iter().step_by(every))
        .left("server", |of| of.server.clone())
        .left("engine", |of| of.engine.clone())
        .right(unit, |of| number(Some(of.load)))
        .right("tokens/s/GPU", |of| number(Some(of.tokens_per_s_per_gpu)))
        .right("tokens/s/user", |of| number(Some(of.tokens_per_s_per_user)));
    page.rows(&rows, &["engine"]);
    page.blank();
}
