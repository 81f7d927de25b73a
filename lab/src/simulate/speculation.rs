//! Report of speculative decoding: what a step brings, up to which concurrency it pays, and the same load without it.

use ridgepoint::latency::{CalibratedRoofline, LatencyModel};
use ridgepoint::model::DraftMethod;
use ridgepoint::{Request, Step};
use ridgepoint_replay::server_config::ServedSpeculation;
use ridgepoint_replay::{EngineConfig, Intervals, Metrics, Replay};
use serde::Serialize;

/// Concurrencies are tried one by one up to this one, and from there in steps of this part.
const EACH_UP_TO: u32 = 32;
const STEPS: u32 = 32;

/// Speculative decoding in a replay. JSON keys are stable.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SpeculationReport {
    /// What drafts tokens.
    pub method: DraftMethod,
    /// Tokens that are drafted for a step.
    pub num_speculative_tokens: u32,
    /// Drafts of a request that a step verifies. A tree has more of them than `num_speculative_tokens`.
    pub num_draft_tokens: u32,
    /// Mean tokens that a verification brings, the sampled one included, by the acceptance.
    pub acceptance_length: f64,
    /// Range of it.
    pub acceptance_bounds: [f64; 2],
    /// Where the acceptance is from.
    pub acceptance_source: String,
    /// Tokens that a verification of the replay brought a request; `None` without any.
    pub tokens_per_step: Option<f64>,
    /// Mean context of a decode of the load, tokens.
    pub context_tokens: u32,
    /// The largest number of requests that decode together up to which a token comes sooner with drafts, at the lower and the upper bound
    /// of the acceptance, by steps of decodes alone; 0 if it never does, `max_num_seqs` if it always does.
    pub pays_up_to_concurrency: [u32; 2],
    /// The load with speculative decoding.
    pub with: DraftedLoad,
    /// The same load without it, if it was compared.
    pub without: Option<DraftedLoad>,
}

/// What clients see of a load.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DraftedLoad {
    /// Mean time to first token, ms.
    pub ttft_mean_ms: Option<f64>,
    /// Mean time per output token, ms.
    pub tpot_mean_ms: Option<f64>,
    /// Mean time between two deliveries of tokens, ms.
    pub itl_mean_ms: Option<f64>,
    /// Mean time to the last token, ms.
    pub e2e_mean_ms: Option<f64>,
    /// Output tokens per second.
    pub output_tokens_per_s: Option<f64>,
}

impl DraftedLoad {
    fn of(metrics: &Metrics) -> Self {
        let run = &metrics.run;
        DraftedLoad {
            ttft_mean_ms: run.ttft_ms.map(|of| of.mean),
            tpot_mean_ms: run.tpot_ms.map(|of| of.mean),
            itl_mean_ms: run.itl_ms.map(|of| of.mean),
            e2e_mean_ms: run.e2e_ms.map(|of| of.mean),
            output_tokens_per_s: run.output_tokens_per_s,
        }
    }
}

impl SpeculationReport {
    /// Returns the report of a replay; `without` has the replay of the same load without drafts.
    pub fn of(
        served: &ServedSpeculation,
        latency: &CalibratedRoofline,
        engine: &EngineConfig,
        (replay, metrics): (&Replay, &Metrics),
        without: Option<&Metrics>,
    ) -> Self {
        let counted = replay.counters;
        let verified = (counted.verifications > 0).then_some(counted.verifications as f64);
        let context_tokens = mean_context(replay);
        let pays = |length| pays_up_to(latency, engine, context_tokens, (served.num_draft_tokens, length));
        SpeculationReport {
            method: served.method,
            num_speculative_tokens: served.num_speculative_tokens,
            num_draft_tokens: served.num_draft_tokens,
            acceptance_length: served.acceptance_length,
            acceptance_bounds: served.acceptance_bounds,
            acceptance_source: served.source.clone(),
            tokens_per_step: verified.map(|number| 1.0 + counted.accepted_tokens as f64 / number),
            context_tokens,
            pays_up_to_concurrency: served.acceptance_bounds.map(pays),
            with: DraftedLoad::of(metrics),
            without: without.map(DraftedLoad::of),
        }
    }
}

/// Mean context of a decode: prompts and half of the outputs, weighed by the outputs.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a mean of lengths is a length")]
fn mean_context(replay: &Replay) -> u32 {
    let sums = replay.records.iter().fold((0.0, 0.0), |(tokens, contexts), record| {
        let (prompt, output) = (f64::from(record.num_prompt_tokens), f64::from(record.num_output_tokens));
        (tokens + output, contexts + output * (prompt + 0.5 * output))
    });
    if sums.0 > 0.0 { (sums.1 / sums.0).round() as u32 } else { 1 }
}

/// The largest concurrency up to which steps with `drafts` for each request, which bring `length` tokens on average, give tokens faster than
/// plain decodes.
#[expect(clippy::cast_possible_truncation, reason = "drafts are at most 32")]
fn pays_up_to(
    latency: &CalibratedRoofline,
    engine: &EngineConfig,
    context_tokens: u32,
    (drafts, length): (u32, f64),
) -> u32 {
    let scheduling_us =
        if engine.scheduler.async_scheduling { 0.0 } else { latency.host().scheduling_processing_time_us() };
    let time_us = |batch: &[Request]| latency.steps().step_time_us(batch) + scheduling_us;
    let context = context_tokens.clamp(1, engine.max_model_len.saturating_sub(drafts + 1).max(1));
    let pays = |number: u32| {
        let plain = vec![Request::decode(context); number as usize];
        let drafted = vec![Request::verification(context, drafts as u8); number as usize];
        let drafted_us = time_us(&drafted) + latency.steps().draft_time_us(&Step::from(&drafted));
        drafted_us / length < time_us(&plain)
    };
    let next = |number: u32| number + 1 + if number > EACH_UP_TO { number / STEPS } else { 0 };
    let tried = std::iter::successors(Some(1), |number| Some(next(*number)));
    let tried = tried.take_while(|number| *number < engine.max_num_seqs).chain([engine.max_num_seqs]);
    tried.take_while(|number| pays(*number)).last().unwrap_or(0)
}

/// Widens intervals of a replay by the range of the acceptance: a token takes as long as a step over the tokens that it brings.
pub fn widen(intervals: &mut Intervals, of: &ServedSpeculation) {
    let [least, most] = of.acceptance_bounds;
    for factors in [&mut intervals.tpot, &mut intervals.e2e].into_iter().flatten() {
        factors.lower_factor *= of.acceptance_length / most;
        factors.upper_factor *= of.acceptance_length / least;
    }
}
