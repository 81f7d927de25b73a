//! How far an export is from the step model that it was compiled from: random batches of what engines run. Uses `request`.

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;
use serde::Serialize;

use crate::request::Request;

/// Batches that an export is judged on.
pub(super) const BATCHES: usize = 600;
const SEED: u64 = 0x1d6e_907b;

/// Absolute errors of random batches, percent of the step model's time.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct ExportError {
    /// How many batches: half of decodes alone, most of the others of decodes and chunks.
    pub batches: usize,
    /// Median.
    pub median_ape_pct: f64,
    /// 90th percentile.
    pub p90_ape_pct: f64,
    /// Largest.
    pub max_ape_pct: f64,
}

impl ExportError {
    /// Of pairs of the exported and the step model's time.
    pub(super) fn of(pairs: impl Iterator<Item = (f64, f64)>) -> Self {
        let mut errors: Vec<f64> = pairs.map(|(exported, time)| 100.0 * (exported / time - 1.0).abs()).collect();
        errors.sort_by(f64::total_cmp);
        let at = |share: f64| {
            let rank = (share * errors.len().saturating_sub(1) as f64).round() as usize;
            errors.get(rank).copied().unwrap_or(0.0)
        };
        let rounded_up = |pct: f64| (pct * 100.0).ceil() / 100.0;
        ExportError {
            batches: errors.len(),
            median_ape_pct: rounded_up(at(0.5)),
            p90_ape_pct: rounded_up(at(0.9)),
            max_ape_pct: rounded_up(at(1.0)),
        }
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
            batch.push(Request { samples, ..Request::prefill(scheduled, computed) });
        }
        if batch.is_empty() {
            batch.push(Request::prefill(1, 0));
        }
    }
    batch
}
