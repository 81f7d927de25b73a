//! The lookup tables as a file that other languages read; `docs/export.md` says how. Uses `model`, `hardware`, `correction`, the
//! step model.

use serde::Serialize;

use super::attention::{ChunkAttention, DecodeAttention};
use super::rows::{ROW_CELLS, RowCells, RowTable};
use crate::correction::{CorrectionInfo, HostTimes};
use crate::deployment::Deployment;
use crate::efficiency::EfficiencyMode;
use crate::efficiency::kernel_model::QUERY_TILE;
use crate::efficiency::surface::CountAxis;
use crate::error::{Error, Result};
use crate::hardware::Hardware;
use crate::model::{Model, Window};
use crate::step_model::StepModel;

/// Version of the layout and of how it is read.
const VERSION: u32 = 2;

/// The tables of one step model, and what they were made from. Times in µs, correction included.
#[derive(Debug, Serialize)]
pub struct ExportedTables<'a> {
    version: u32,
    ridgepoint_version: &'static str,
    model: &'a str,
    hardware: &'a str,
    deployment: &'a Deployment,
    efficiency: EfficiencyMode,
    correction: CorrectionInfo,
    host: HostTimes,
    windows: &'a [Window],
    max_decodes: u64,
    request_us: f64,
    chunk_us: f64,
    query_tile_tokens: f64,
    row_cells: RowCells,
    by_decodes: &'a RowTable,
    by_tokens: &'a RowTable,
    by_decodes_beside_chunks: &'a RowTable,
    by_sampled: &'a RowTable,
    by_chunk_tokens: &'a RowTable,
    by_chunk_context_tokens: &'a RowTable,
    by_chunk_kv_tokens: &'a RowTable,
    decode_knots: &'a CountAxis,
    decode_attention: &'a [DecodeAttention],
    chunk_attention: &'a [ChunkAttention],
}

impl StepModel {
    /// The lookup tables behind [`StepModel::step_time_us`]. `model`, `hardware` and `deployment` are those of this step model.
    ///
    /// # Errors
    /// A step model without tables: with [`Options::operators_only`](crate::Options), or a model that does not fit them.
    #[doc(hidden)]
    pub fn exported<'a>(
        &'a self,
        model: &'a Model,
        hardware: &'a Hardware,
        deployment: &'a Deployment,
    ) -> Result<ExportedTables<'a>> {
        let Some(tables) = &self.tables else {
            let problem = "has no lookup tables: it mixes too many kinds of attention window, or a time overflows";
            return Err(Error::invalid(&model.name, vec![problem.to_owned()]));
        };
        let [by_chunk_tokens, by_chunk_context_tokens, by_chunk_kv_tokens] = &tables.chunks;
        Ok(ExportedTables {
            version: VERSION,
            ridgepoint_version: env!("CARGO_PKG_VERSION"),
            model: &model.name,
            hardware: &hardware.name,
            deployment,
            efficiency: self.mode,
            correction: CorrectionInfo::of(self.correction()),
            host: self.correction().map_or_else(HostTimes::default, |correction| correction.host),
            windows: self.plan.windows(),
            max_decodes: tables.operators.most_decodes,
            request_us: tables.request_us,
            chunk_us: tables.chunk_us,
            query_tile_tokens: QUERY_TILE,
            row_cells: ROW_CELLS,
            by_decodes: &tables.decodes,
            by_tokens: &tables.tokens,
            by_decodes_beside_chunks: &tables.decodes_beside,
            by_sampled: &tables.sampled,
            by_chunk_tokens,
            by_chunk_context_tokens,
            by_chunk_kv_tokens,
            decode_knots: &tables.operators.requests,
            decode_attention: &tables.decode_attention,
            chunk_attention: &tables.chunk_attention,
        })
    }
}
