//! How far an export is from the step model that it was compiled from: random batches of what engines run. Uses `request`, `step_model`, `tables`.

use std::fmt;

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;
use serde::Serialize;

use super::tables::Export;
use crate::request::Request;
use crate::step_model::StepModel;

/// Batches that an export is judged on.
pub(super) const BATCHES: usize = 600;
const SEED: u64 = 0x1d6e_907b;

/// Errors of random batches by what is in them.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct ExportError {
    /// Decodes alone.
    pub decode_only: Errors,
    /// Prompt chunks, most of them beside decodes.
    pub with_chunks: Errors,
}

/// Absolute errors, percent of the step model's time.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct Errors {
    /// How many batches.
    pub batches: usize,
    /// Median.
    pub median_ape_pct: f64,
    /// 90th percentile.
    pub p90_ape_pct: f64,
    /// Largest.
    pub max_ape_pct: f64,
}

impl ExportError {
    /// Of an export against the model that it was compiled from.
    pub(super) fn of(export: &Export, steps: &StepModel, batches: &[Vec<Request>]) -> Self {
        let (decode_only, with_chunks): (Vec<&Vec<Request>>, Vec<&Vec<Request>>) =
            batches.iter().partition(|batch| batch.iter().all(Request::is_decode));
        let ape_pct =
            |batch: &Vec<Request>| 100.0 * (export.step_time_us(batch) / steps.step_time_us(batch) - 1.0).abs();
        let errors = |batches: Vec<&Vec<Request>>| Errors::of(batches.into_iter().map(ape_pct).collect());
        ExportError { decode_only: errors(decode_only), with_chunks: errors(with_chunks) }
    }
}

impl Errors {
    fn of(mut apes_pct: Vec<f64>) -> Self {
        apes_pct.sort_by(f64::total_cmp);
        let at = |share: f64| {
            let rank = (share * apes_pct.len().saturating_sub(1) as f64).round() as usize;
            let ape_pct = apes_pct.get(rank).copied().unwrap_or(0.0);
            (ape_pct * 100.0).ceil() / 100.0
        };
        Errors { batches: apes_pct.len(), median_ape_pct: at(0.5), p90_ape_pct: at(0.9), max_ape_pct: at(1.0) }
    }
}

/// `median error 0.2 %, 90th percentile 1.5 %, largest 4 % (300 batches)`.
impl fmt::Display for Errors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Errors { batches, median_ape_pct, p90_ape_pct, max_ape_pct } = self;
        write!(
            f,
            "median error {median_ape_pct} %, 90th percentile {p90_ape_pct} %, largest {max_ape_pct} % ({batches} batches)"
        )
    }
}

/// Limits of a deployment that batches keep.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    pub max_num_seqs: u32,
    pub max_num_batched_tokens: u32,
    pub max_model_len: u32,
}

/// Random batches, the same for the same limits: sizes and lengths spread evenly over their logarithm.
pub(super) fn batches(limits: Limits) -> Vec<Vec<Request>> {
    let mut random = Pcg64::seed_from_u64(SEED);
    (0..BATCHES).map(|index| batch(&mut random, limits, index % 10)).collect()
}

fn log_uniform(random: &mut Pcg64, from: u32, to: u32) -> u32 {
    let (from, to) = (f64::from(from.max(1)).ln(), f64::from(to.max(from).max(1)).ln());
    (from + random.random::<f64>() * (to - from)).exp().round() as u32
}

/// Of kinds 0 to 4 decodes alone, of 5 chunks alone, else both.
fn batch(random: &mut Pcg64, limits: Limits, kind: usize) -> Vec<Request> {
    let longest = limits.max_model_len.saturating_sub(1).clamp(1, 16_384);
    let mut batch = Vec::new();
    if kind != 5 {
        let most = limits.max_num_seqs.min(limits.max_num_batched_tokens);
        let decodes = log_uniform(random, 1, most);
        let usual = f64::from(log_uniform(random, 32, longest));
        for _ in 0..decodes {
            let computed = (usual * (0.5 + random.random::<f64>())).round() as u32;
            batch.push(Request::decode(computed.clamp(1, longest)));
        }
    }
    if kind >= 5 {
        let chunks = 1 + (random.random::<f64>() * 3.0) as u32;
        for _ in 0..chunks {
            let used: u32 = batch.iter().map(|request| request.num_scheduled_tokens).sum();
            let left = limits.max_num_batched_tokens.saturating_sub(used).min(longest);
            if left < 2 || batch.len() >= limits.max_num_seqs as usize {
                break;
            }
            let scheduled = log_uniform(random, 16.min(left), left);
            let room = limits.max_model_len.saturating_sub(scheduled).min(longest);
            let has_context = random.random::<f64>() < 0.5 && room > 16;
            let computed = if has_context { log_uniform(random, 16, room) } else { 0 };
            let samples = random.random::<f64>() < 0.5;
            batch.push(Request::new(computed, scheduled, samples));
        }
        if batch.is_empty() {
            batch.push(Request::prefill(1, 0));
        }
    }
    batch
}
