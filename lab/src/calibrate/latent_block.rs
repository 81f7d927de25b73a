//! Measured blocks of latent attention. No table is built from them: a check predicts each as the sum of a step's operators.
#![expect(clippy::cast_possible_truncation, reason = "the requests of a block are limited")]

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use ridgepoint::physics::{OperatorId, OperatorKind, StepPlan};
use ridgepoint::unstable::efficiency::{Tables, Timer};
use ridgepoint::{DType, Deployment, EfficiencyMode, Hardware, Model, Request, Result};

use super::report::{LOOKED_UP, OperatorReport, RowPrediction, RowsLeftOut, TOO_LONG, leave_out};
use super::source::RowSource;
use crate::measurements::{LatentBlockCall, Timed};

/// Report name of blocks of latent attention.
pub const LATENT_BLOCK: &str = "latent_block";

/// Why short public blocks are not scored.
const FLOOR: &str =
    "timed outside a CUDA graph and less than twice as long as the shortest such block: launches may hide the kernels";
/// How much longer than the shortest a public block must be.
const TIMES_THE_FLOOR: f64 = 2.0;

const MAX_REQUESTS: u64 = 1 << 14;
const TOO_MANY: &str = "more than 16,384 requests in a block";

/// One dense layer of DeepSeek-V3 in 16 bits with so many heads.
fn model(num_heads: u64) -> Result<Model> {
    let config = format!(
        r#"{{"model_type": "deepseek_v3", "hidden_size": 7168, "intermediate_size": 18432, "num_hidden_layers": 1,
        "num_attention_heads": {num_heads}, "num_key_value_heads": {num_heads}, "q_lora_rank": 1536, "kv_lora_rank": 512,
        "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128, "vocab_size": 129280,
        "max_position_embeddings": 163840, "n_routed_experts": 256, "num_experts_per_tok": 8, "moe_intermediate_size": 2048,
        "first_k_dense_replace": 1, "tie_word_embeddings": false, "torch_dtype": "bfloat16"}}"#
    );
    Model::from_config_str(LATENT_BLOCK, LATENT_BLOCK, &config, None)
}

/// A measured block.
#[derive(Debug, Clone)]
pub struct LatentBlock {
    num_heads: u64,
    kv_dtype: DType,
    num_requests: usize,
    /// Each of the requests.
    request: Request,
    is_public: bool,
    time_us: f64,
}

impl LatentBlock {
    /// Reads the block of a row. The error says why it cannot be predicted.
    pub(super) fn new(row: &Timed<LatentBlockCall>, source: &RowSource) -> std::result::Result<Self, String> {
        let too_long = |_| TOO_LONG;
        let scheduled = u32::try_from(row.call.num_scheduled_tokens).map_err(too_long)?;
        let computed = u32::try_from(row.call.num_computed_tokens).map_err(too_long)?;
        if row.call.batch_size > MAX_REQUESTS {
            return Err(TOO_MANY.to_owned());
        }
        Ok(LatentBlock {
            num_heads: row.call.num_heads,
            kv_dtype: row.call.kv_dtype,
            num_requests: row.call.batch_size as usize,
            request: Request::new(computed, scheduled, true),
            is_public: source.is_public,
            time_us: row.latency_us,
        })
    }

    fn label(&self) -> String {
        let phase = if self.request.num_scheduled_tokens == 1 { "decodes" } else { "prompts" };
        format!("{phase} {}", self.kv_dtype)
    }
}

/// The shortest block of each label and number of heads, µs.
fn shortest_us(blocks: &[LatentBlock]) -> BTreeMap<(String, u64), f64> {
    let mut shortest: BTreeMap<(String, u64), f64> = BTreeMap::new();
    for block in blocks.iter().filter(|block| block.is_public) {
        let us = shortest.entry((block.label(), block.num_heads)).or_insert(f64::INFINITY);
        *us = us.min(block.time_us);
    }
    shortest
}

/// Predicts the blocks that have one number of heads and one format of the KV cache.
struct BlockTimer<'a> {
    plan: StepPlan,
    timers: BTreeMap<OperatorId, Timer>,
    hardware: &'a Hardware,
    tables: &'a Tables,
}

impl<'a> BlockTimer<'a> {
    fn new(block: &LatentBlock, hardware: &'a Hardware, tables: &'a Tables) -> Result<Self> {
        let kv_cache_dtype = Some(block.kv_dtype);
        let deployment = Deployment { kv_cache_dtype, enforce_eager: true, ..Deployment::default() };
        let plan = StepPlan::for_engine(&model(block.num_heads)?, &deployment, tables.engine())?;
        Ok(BlockTimer { plan, timers: BTreeMap::new(), hardware, tables })
    }

    /// The sum of the operators between the layer's norms and its feed-forward part, µs.
    fn time_us(&mut self, block: &LatentBlock) -> Result<f64> {
        let mut operators = Vec::new();
        let requests = vec![block.request; block.num_requests];
        self.plan.operators(&self.plan.batch_sums(&requests)?, &mut operators);
        let from_norms = operators.iter().skip_while(|of| of.id.kind != OperatorKind::Norms).skip(1);
        let mut sum_us = 0.0;
        for operator in from_norms.take_while(|of| of.id.kind != OperatorKind::GateUpProj) {
            let timer = match self.timers.entry(operator.id) {
                Entry::Occupied(known) => known.into_mut(),
                Entry::Vacant(new) => {
                    new.insert(Timer::new(operator, self.hardware, self.tables, EfficiencyMode::Tables)?)
                }
            };
            sum_us += operator.count as f64 * timer.time(operator).time_us;
        }
        Ok(sum_us)
    }
}

/// Scores whole blocks of latent attention against the sum of their operators.
///
/// # Errors
/// Those of reading tables, and of contexts that are longer than the model's.
pub fn check(blocks: &[LatentBlock], hardware: &Hardware, tables: &Tables) -> Result<OperatorReport> {
    let shortest_us = shortest_us(blocks);
    let mut timers: BTreeMap<(u64, DType), BlockTimer<'_>> = BTreeMap::new();
    let (mut predictions, mut left_out) = (Vec::with_capacity(blocks.len()), RowsLeftOut::new());
    for block in blocks {
        let label = block.label();
        let floor_us = shortest_us.get(&(label.clone(), block.num_heads)).copied().unwrap_or(0.0);
        if block.is_public && block.time_us < TIMES_THE_FLOOR * floor_us {
            leave_out(&mut left_out, FLOOR, 1);
            continue;
        }
        let timer = match timers.entry((block.num_heads, block.kv_dtype)) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => new.insert(BlockTimer::new(block, hardware, tables)?),
        };
        predictions.push(RowPrediction::new("", label, block.time_us, timer.time_us(block)?));
    }
    if predictions.is_empty() {
        return Ok(OperatorReport { left_out, ..OperatorReport::default() });
    }
    Ok(OperatorReport::new(&predictions, |_| true, LOOKED_UP, left_out))
}

#[cfg(test)]
mod tests {
    use super::*;
    use ridgepoint::Engine;

    #[test]
    fn public_blocks_shorter_than_twice_the_shortest_are_left_out() {
        let hardware = Hardware::find("h100").expect("built in");
        let tables = Tables::new(&hardware, &Engine::default(), None);
        let block = |num_heads, time_us, is_public| LatentBlock {
            num_heads,
            kv_dtype: DType::Bfloat16,
            num_requests: 4,
            request: Request::decode(4000),
            is_public,
            time_us,
        };
        // The shortest of 16 heads takes 100 µs. Those of 128 heads have a floor of their own, and one's own timings have none.
        let latent_blocks = [
            block(16, 100.0, true),
            block(16, 199.0, true),
            block(16, 201.0, true),
            block(128, 201.0, true),
            block(16, 50.0, false),
        ];
        let report = check(&latent_blocks, &hardware, &tables).expect("tables");
        assert_eq!(report.left_out, RowsLeftOut::from([(FLOOR.to_owned(), 3)]));
        assert_eq!(report.total.map(|total| total.rows), Some(2));
    }
}
