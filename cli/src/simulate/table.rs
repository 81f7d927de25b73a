//! The table of `simulate`: the server, client metrics by stage, the engine's work, and warnings.

use ridgepoint_lab::simulate::{GIVEN, Simulation};
use ridgepoint_replay::StageMetrics;
use ridgepoint_replay::{Factors, Intervals, TTFT_TAIL_REMARK};

use super::{cold, kv_metrics, offload, pools, replicas, sessions, speculation};
use crate::outcome::Report;
use crate::text::{Page, Rows, count, number, percent, plural, shown};

impl Report for Simulation {
    fn lay_out(&self, page: &mut Page) {
        if let Some(capacity) = &self.kv_capacity {
            page.line(&capacity.to_string());
            if self.kv_blocks_from == GIVEN {
                page.line(&format!("not used: num_gpu_blocks = {} was given", self.engine.num_gpu_blocks));
            }
            page.blank();
        }
        page.paragraph("", &self.title);
        page.paragraph("KV blocks  ", &kv_blocks(self));
        page.paragraph("load       ", &self.load);
        page.paragraph("times      ", &self.latency_model);
        if let Some(start) = &self.cold {
            cold::lay_out(start, page);
        }
        page.blank();
        latencies(self, page);
        if let Some(found) = &self.interval_coverage {
            page.paragraph("intervals  ", &found.remark);
        }
        page.paragraph("tails      ", TTFT_TAIL_REMARK);
        page.blank();
        if let Some(turns) = &self.sessions {
            sessions::lay_out(turns, page);
            page.blank();
        }
        throughput(self, page);
        page.blank();
        if let Some(of) = &self.replicas {
            replicas::lay_out(of, page);
            page.blank();
        }
        if let Some(of) = &self.pools {
            pools::lay_out(of, page);
            page.blank();
        }
        engine_lines(self, page);
        if let Some(tier) = &self.kv_offload {
            offload::lay_out(tier, page);
        }
        if let Some(speculation) = &self.speculation {
            speculation::lay_out(speculation, self.engine.max_num_seqs, page);
        }
        if let Some(metrics) = &self.kv_metrics {
            page.blank();
            kv_metrics::lay_out(metrics, page);
        }
        page.warnings(&self.warnings);
    }
}

fn kv_blocks(of: &Simulation) -> String {
    let (blocks, block_size) = (count(of.engine.num_gpu_blocks), u64::from(of.engine.block_size));
    let (usable, states) = (of.engine.usable_blocks(), of.engine.state_blocks_per_request);
    let room = match states {
        0 => format!("room for {} of requests", plural(u64::from(usable) * block_size, "token")),
        // Each request holds the blocks of its states and at least one of tokens.
        _ => {
            let requests = plural(u64::from(usable / (states + 1)), "request");
            format!("{} of each request for its states: room for at most {requests}", count(states))
        }
    };
    format!("{blocks} of {}, {room} ({})", plural(block_size, "token"), of.kv_blocks_from)
}

/// The whole run, and its stages if there are several.
fn stages(of: &Simulation) -> impl Iterator<Item = (String, &StageMetrics)> {
    let shown = if of.stages.len() > 2 { of.stages.len() } else { 1 };
    let name = |of: &StageMetrics| of.stage.map_or_else(|| "all".to_owned(), |stage| stage.to_string());
    of.stages.iter().take(shown).map(move |of| (name(of), of))
}

fn latencies(simulation: &Simulation, page: &mut Page) {
    let of = |factors: fn(&Intervals) -> Option<Factors>| simulation.intervals.as_ref().and_then(factors);
    let metrics = stages(simulation).flat_map(|(stage, metrics)| {
        [
            (stage, "TTFT", metrics.ttft_ms, of(|of| of.ttft)),
            (String::new(), "TPOT", metrics.tpot_ms, of(|of| of.tpot)),
            (String::new(), "ITL", metrics.itl_ms, of(|of| of.itl)),
            (String::new(), "E2E", metrics.e2e_ms, of(|of| of.e2e)),
        ]
    });
    let interval =
        |(mean, of): (f64, Factors)| format!("{:.2} to {:.2}", mean * of.lower_factor, mean * of.upper_factor);
    let rows = Rows::of(metrics)
        .left("stage", |(stage, ..)| stage.clone())
        .left("ms", |(_, metric, ..)| (*metric).to_owned())
        .distribution("mean", |(_, _, of, _)| *of)
        .right("interval of the mean", |(_, _, of, factors)| shown(of.map(|of| of.mean).zip(*factors), interval));
    page.rows(&rows, &["p50"]);
}

fn throughput(simulation: &Simulation, page: &mut Page) {
    let rows = Rows::of(stages(simulation))
        .left("stage", |(stage, _)| stage.clone())
        .right("sent", |(_, of)| count(of.requests))
        .right("finished", |(_, of)| count(of.finished))
        .right("refused", |(_, of)| count(of.rejected))
        .right("stopped", |(_, of)| count(of.unfinished))
        .right("seconds", |(_, of)| number(of.duration_s))
        .right("requests/s", |(_, of)| number(of.requests_per_s))
        .right("output tokens/s", |(_, of)| number(of.output_tokens_per_s))
        .right("all tokens/s", |(_, of)| number(of.total_tokens_per_s));
    page.rows(&rows, &["all tokens/s", "stopped", "refused", "seconds"]);
    if let Some(all) = &simulation.all_replicas {
        let (replicas, requests) = (count(simulation.deployment.data_parallel_size), number(all.requests_per_s));
        let tokens = number(all.output_tokens_per_s);
        page.line(&format!("All {replicas} replicas: {requests} requests/s, {tokens} output tokens/s."));
    }
}

fn engine_lines(of: &Simulation, page: &mut Page) {
    let (counted, shares) = (&of.counters.counted, &of.counters);
    let share = |share: Option<f64>| shown(share, percent);
    let (prompts, busy) = (share(shares.prefill_token_share), share(shares.gpu_busy_share));
    let (steps, tokens) = (count(counted.steps), number(shares.mean_step_tokens));
    let steps = format!(
        "{steps}, {tokens} tokens each on average; {prompts} of the tokens are of prompts; GPUs busy {busy} of the time"
    );
    page.paragraph("steps      ", &steps);
    let (running, waiting) = (count(counted.max_running), count(counted.max_waiting));
    let preemptions = plural(counted.preemptions, "preemption");
    let recomputed = plural(counted.recomputed_tokens, "token");
    let queues = format!("at most {running} running and {waiting} waiting; {preemptions}, {recomputed} recomputed");
    page.paragraph("queues     ", &queues);
    let cache = match shares.cache_hit_share {
        _ if !of.engine.scheduler.enable_prefix_caching => "off".to_owned(),
        None => "never looked up".to_owned(),
        Some(hits) => format!("{} of the prompt tokens found", percent(hits)),
    };
    // Pools have a share each.
    let peak = shares.peak_kv_share.map(|share| format!("at most {} in use; ", percent(share))).unwrap_or_default();
    page.paragraph("KV cache   ", &format!("{peak}prefix cache: {cache}"));
}
