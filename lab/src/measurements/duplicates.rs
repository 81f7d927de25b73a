//! What happens to a shape that a file holds twice: refused in one's own files, where it is a mistake, and the
//! median kept in the public tables, which measure some shapes again. Uses `error` and `table`.

use std::collections::HashMap;
use std::hash::Hash;

use super::row::{
    AllReduceBackend, AllReduceRow, DecodeRow, Distribution, GemmRow, MoeRow, PrefillRow, SmallKernelRow, SourceFormat,
};
use super::table::{BadCell, Table};
use crate::stats::median;
use ridgepoint::DType;
use ridgepoint::Result;
use ridgepoint::model::Window;

/// A row's shape: everything but its time.
pub(super) trait Keyed {
    type Key: Hash + Eq;
    fn key(&self) -> Self::Key;
    fn latency_us(&mut self) -> &mut f64;
}

/// Leaves each shape of the file once, in the order of first appearance, and describes what was merged.
pub(super) fn merge<R: Keyed>(table: &Table, rows: Vec<R>) -> Result<(Vec<R>, Option<String>)> {
    let mut position: HashMap<R::Key, (usize, usize)> = HashMap::with_capacity(rows.len());
    let mut kept: Vec<R> = Vec::with_capacity(rows.len());
    let mut repeated: HashMap<usize, Vec<f64>> = HashMap::new();
    for (row_index, mut row) in rows.into_iter().enumerate() {
        match position.get(&row.key()) {
            None => {
                position.insert(row.key(), (kept.len(), row_index));
                kept.push(row);
            }
            Some((_, first)) if table.format == SourceFormat::Csv => {
                return Err(table.bad_row(BadCell::new(
                    row_index,
                    "all but latency_us",
                    format!("the shape of row {}", first + 1),
                    "each shape once: keep the median of repeated measurements",
                )));
            }
            Some((kept_index, _)) => {
                let first_us = *kept[*kept_index].latency_us();
                repeated.entry(*kept_index).or_insert_with(|| vec![first_us]).push(*row.latency_us());
            }
        }
    }
    if repeated.is_empty() {
        return Ok((kept, None));
    }
    let (num_shapes, mut num_rows, mut largest_spread) = (repeated.len(), 0, 1.0_f64);
    for (index, times_us) in repeated {
        num_rows += times_us.len();
        let slowest = times_us.iter().copied().fold(0.0, f64::max);
        let fastest = times_us.iter().copied().fold(f64::INFINITY, f64::min);
        largest_spread = largest_spread.max(slowest / fastest);
        let first_us = kept[index].latency_us();
        *first_us = median(times_us).unwrap_or(*first_us);
    }
    let note = format!(
        "{}: {num_shapes} shapes were measured more than once ({num_rows} rows, slowest over fastest up to \
         {largest_spread:.2}); the median of each was kept",
        table.origin
    );
    Ok((kept, Some(note)))
}

impl Keyed for GemmRow {
    type Key = (u16, super::GemmDtype, [u64; 3]);
    fn key(&self) -> Self::Key {
        (self.source, self.dtype, [self.m, self.n, self.k])
    }
    fn latency_us(&mut self) -> &mut f64 {
        &mut self.latency_us
    }
}

impl Keyed for PrefillRow {
    type Key = (u16, DType, Window, [u64; 6]);
    fn key(&self) -> Self::Key {
        let heads = [self.num_heads, self.num_kv_heads, self.head_dim];
        let tokens = [self.batch_size, self.num_scheduled_tokens, self.num_computed_tokens];
        (self.source, self.kv_dtype, self.window, [heads[0], heads[1], heads[2], tokens[0], tokens[1], tokens[2]])
    }
    fn latency_us(&mut self) -> &mut f64 {
        &mut self.latency_us
    }
}

impl Keyed for DecodeRow {
    type Key = (u16, DType, Window, [u64; 6]);
    fn key(&self) -> Self::Key {
        let heads = [self.num_heads, self.num_kv_heads, self.head_dim];
        let tokens = [self.batch_size, self.kv_tokens_mean.to_bits(), self.kv_tokens_max];
        (self.source, self.kv_dtype, self.window, [heads[0], heads[1], heads[2], tokens[0], tokens[1], tokens[2]])
    }
    fn latency_us(&mut self) -> &mut f64 {
        &mut self.latency_us
    }
}

impl Keyed for MoeRow {
    type Key = (u16, super::MoeDtype, [u64; 7], Option<u64>);
    fn key(&self) -> Self::Key {
        let sizes = [
            self.num_tokens,
            self.hidden_size,
            self.intermediate_size,
            self.top_k,
            self.num_experts,
            self.moe_tp_size,
            self.moe_ep_size,
        ];
        let alpha = match self.distribution {
            Distribution::Balanced => None,
            Distribution::PowerLaw(alpha) => Some(alpha.to_bits()),
        };
        (self.source, self.dtype, sizes, alpha)
    }
    fn latency_us(&mut self) -> &mut f64 {
        &mut self.latency_us
    }
}

impl Keyed for AllReduceRow {
    type Key = (u16, AllReduceBackend, u64, u64);
    fn key(&self) -> Self::Key {
        (self.source, self.backend, self.num_gpus, self.message_bytes.to_bits())
    }
    fn latency_us(&mut self) -> &mut f64 {
        &mut self.latency_us
    }
}

impl Keyed for SmallKernelRow {
    type Key = (u16, String, [u64; 3]);
    fn key(&self) -> Self::Key {
        (self.source, self.kernel.clone(), [self.num_tokens, self.width, self.launches])
    }
    fn latency_us(&mut self) -> &mut f64 {
        &mut self.latency_us
    }
}
