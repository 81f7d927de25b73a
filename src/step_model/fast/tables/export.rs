//! The lookup tables as a file that other languages read; `docs/export.md` says how. Uses `model`, `hardware`, `correction`, the
//! step model.

use std::collections::BTreeMap;

use serde::Serialize;

use super::StepTables;
use super::rows::{DENSE_ROWS, TILE_ROWS, TILED_ROWS, WIDE_ROWS};
use crate::correction::{CorrectionInfo, HostTimes};
use crate::deployment::Deployment;
use crate::efficiency::EfficiencyMode;
use crate::efficiency::kernel_model::QUERY_TILE;
use crate::error::{Error, Result};
use crate::hardware::Hardware;
use crate::model::{Model, Window};
use crate::step_model::StepModel;

/// Version of the layout and of how it is read.
const VERSION: u32 = 5;

/// The tables of one step model, and the model, GPU and settings behind them. Times in µs, correction included.
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
    query_tile_tokens: f64,
    row_cells: BTreeMap<&'static str, u64>,
    #[serde(flatten)]
    tables: &'a StepTables,
}

impl StepModel {
    /// The lookup tables behind [`StepModel::step_time_us`]. `model`, `hardware` and `deployment` are those of this step model.
    ///
    /// # Errors
    /// A step model without tables: with [`Options::operators_only`](crate::Options), or a model that does not fit them. A model
    /// whose layers keep a state.
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
        if !tables.state_scans.is_empty() {
            let problem =
                "has layers with a state (gated delta nets or Mamba-2), which exported tables have no room for";
            return Err(Error::invalid(&model.name, vec![problem.to_owned()]));
        }
        Ok(ExportedTables {
            version: VERSION,
            ridgepoint_version: env!("CARGO_PKG_VERSION"),
            model: &model.name,
            hardware: &hardware.name,
            deployment,
            efficiency: self.mode,
            correction: CorrectionInfo::of(self.correction()),
            host: self.correction().map_or_else(HostTimes::default, |correction| correction.host),
            windows: &self.plan.windows,
            query_tile_tokens: QUERY_TILE,
            row_cells: BTreeMap::from([
                ("dense_rows", DENSE_ROWS),
                ("tiled_rows", TILED_ROWS),
                ("rows_per_tile", TILE_ROWS),
                ("rows_per_wide_cell", WIDE_ROWS),
            ]),
            tables,
        })
    }
}
