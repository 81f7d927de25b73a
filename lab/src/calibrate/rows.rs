//! Places measurements on the tables' grids, or among the calls that no table holds. Every other row is left out with a
//! named reason.
#![expect(clippy::indexing_slicing, reason = "a row's source is the position of one that was read with it")]

use std::collections::BTreeMap;

use ridgepoint::unstable::efficiency::family::KernelFamily;
use ridgepoint::{Engine, Hardware};

use super::build::CalibrationRow;
use super::exclusions::{Effect, Exclusions, MeasuredPlace};
use super::families::{allreduce, attention, batched_gemm, gemm, linear_attention, moe, nccl};
use super::family::{CalibratedFamily, Placed};
use super::latent_block::{LATENT_BLOCK, LatentBlock};
use super::mixed_attention::MixedAttention;
use super::off_table::{CHECKS, MIXED, OffTable, SMALL_KERNELS, SmallCall};
use super::report::{RowsLeftOut, leave_out};
use super::source::RowSource;
use super::too_fast::leave_out_too_fast;
use crate::measurements::{Measurements, Timed};

/// Rows of every operator, and how many were left out for which reason.
#[derive(Default)]
pub struct Rows {
    families: Vec<FamilyRows>,
    /// Calls that no table holds and a check scores.
    pub off_table: OffTable,
    /// Engine of the first source that names a known one.
    pub engine: Option<Engine>,
    /// Rows that neither a table nor a check takes, by operator.
    left_out: BTreeMap<&'static str, RowsLeftOut>,
}

/// Rows of one family that have a place in its table, and what exclusions say of their series.
pub struct FamilyRows {
    /// The family.
    pub of: &'static CalibratedFamily,
    /// The rows.
    pub(super) rows: Vec<CalibrationRow>,
    /// Series that no table holds, by name, with the reason.
    pub(super) unlisted: BTreeMap<String, String>,
    /// Distances with which a table marks series, by name.
    pub(super) stand_in_distances: BTreeMap<String, f64>,
}

const OTHER_ENGINE: &str = "kernels of another engine or version than those of the folder that was named first";

/// The calls that have a place. The reasons of the others go to `left_out`.
fn placed<T>(calls: impl Iterator<Item = std::result::Result<T, String>>, left_out: &mut RowsLeftOut) -> Vec<T> {
    calls.filter_map(|call| call.map_err(|reason| leave_out(left_out, &reason, 1)).ok()).collect()
}

impl Rows {
    /// Places every measurement but those of `exclusions`.
    ///
    /// # Errors
    /// `ErrorKind::Invalid` if most rows of an operator are faster than the roofline allows, as in another unit; a row
    /// without a place is counted.
    pub fn from_measurements(
        measurements: &Measurements,
        hardware: &Hardware,
        exclusions: &Exclusions,
    ) -> ridgepoint::Result<Self> {
        let sources: Vec<RowSource> = measurements.sources.iter().map(RowSource::new).collect();
        let engine = sources.iter().find_map(|source| Engine::parse(&source.engine, None));
        let rows = Rows { engine, ..Rows::default() };
        let mut placing = Placing { sources: &sources, hardware, exclusions, rows };
        let calls = &measurements.calls;
        placing.family(&gemm::FAMILY, &calls.gemm, gemm::place)?;
        placing.family(&batched_gemm::FAMILY, &calls.batched_gemm, batched_gemm::place)?;
        placing.family(&attention::PREFILL_FAMILY, &calls.prefill, attention::place_prefill)?;
        placing.family(&attention::DECODE_FAMILY, &calls.decode, attention::place_decode)?;
        placing.family(&moe::FAMILY, &calls.moe, moe::place)?;
        placing.family(&allreduce::FAMILY, &calls.all_reduce, allreduce::place)?;
        placing.family(&nccl::FAMILY, &calls.exchange, nccl::place)?;
        placing.family(&linear_attention::FAMILY, &calls.state, linear_attention::place)?;
        let Placing { mut rows, .. } = placing;
        let Rows { left_out, off_table, .. } = &mut rows;
        let mixed = calls.mixed.iter().map(|row| MixedAttention::new(row, &sources[row.source]));
        off_table.mixed = placed(mixed, left_out.entry(MIXED).or_default());
        let blocks = calls.latent_block.iter().map(|row| LatentBlock::new(row, &sources[row.source]));
        off_table.latent_blocks = placed(blocks, left_out.entry(LATENT_BLOCK).or_default());
        let small = calls.small_kernels.iter().map(SmallCall::new);
        off_table.small_kernels = placed(small, left_out.entry(SMALL_KERNELS).or_default());
        Ok(rows)
    }

    /// The rows of every family, in the order of reports.
    pub fn families(&self) -> &[FamilyRows] {
        &self.families
    }

    /// The rows of one family.
    pub fn of(&self, family: &KernelFamily) -> &[CalibrationRow] {
        let rows = self.families.iter().find(|rows| rows.of.family.operator == family.operator);
        rows.map_or(&[], |rows| &rows.rows)
    }

    /// Rows of one operator that were left out before anything was built or predicted, where tables `are_built` with those
    /// that only a check takes.
    pub fn left_out_of(&self, operator: &str, are_built: bool) -> RowsLeftOut {
        let mut left_out = self.left_out.get(operator).cloned().unwrap_or_default();
        for check in CHECKS.iter().filter(|check| are_built && check.operator == operator) {
            leave_out(&mut left_out, check.why_off_table, (check.count)(&self.off_table));
        }
        left_out
    }
}

/// Assigns measurements to the tables and checks that take them.
struct Placing<'a> {
    sources: &'a [RowSource],
    hardware: &'a Hardware,
    exclusions: &'a Exclusions,
    rows: Rows,
}

impl Placing<'_> {
    /// Places the calls of a family.
    fn family<C>(
        &mut self,
        of: &'static CalibratedFamily,
        calls: &[Timed<C>],
        place: fn(&Timed<C>, &RowSource) -> Result<Placed, String>,
    ) -> ridgepoint::Result<()> {
        let (unlisted, stand_in_distances) = (BTreeMap::new(), BTreeMap::new());
        let mut placed = FamilyRows { of, rows: Vec::new(), unlisted, stand_in_distances };
        let mut firsts = FirstEngines { hardware: self.hardware, engines: BTreeMap::new() };
        let mut left_out = RowsLeftOut::new();
        let sources = self.sources;
        for row in calls {
            let source = &sources[row.source];
            let row = place(row, source).and_then(|place| self.kept(place, row.latency_us, source, &mut placed));
            match row.and_then(|row| row.map_or(Ok(None), |row| firsts.check(row, source).map(Some))) {
                Ok(row) => placed.rows.extend(row),
                Err(reason) => leave_out(&mut left_out, &reason, 1),
            }
        }
        placed.rows = leave_out_too_fast(of, placed.rows, self.hardware, &mut left_out)?;
        self.rows.families.push(placed);
        self.rows.left_out.insert(of.family.operator, left_out);
        Ok(())
    }

    /// The row of a call that has a place in a table; `None` for a call of a check, which goes to those. What an exclusion says of
    /// the series goes to `placed`; an error is the reason of one that leaves out the row.
    fn kept(
        &mut self,
        place: Placed,
        time_us: f64,
        source: &RowSource,
        placed: &mut FamilyRows,
    ) -> Result<Option<CalibrationRow>, String> {
        let (series, point) = match &place {
            Placed::OnGrid(key, point) => (key.to_string(), point.as_slice()),
            Placed::OffTable(call) => (call.key.to_string(), &[][..]),
        };
        let KernelFamily { operator, axes, .. } = *placed.of.family;
        let measured = MeasuredPlace { operator, hardware: self.hardware, source, series: &series, axes, point };
        let exclusion = self.exclusions.of(&measured).map(|of| (of.effect, of.reason.clone()));
        if let Some((Effect::Rows, reason)) = exclusion {
            return Err(reason);
        }
        let Placed::OnGrid(key, point) = place else {
            if let Placed::OffTable(call) = place {
                self.rows.off_table.push(call);
            }
            return Ok(None);
        };
        match exclusion {
            Some((Effect::Series, reason)) => drop(placed.unlisted.insert(series, reason)),
            Some((Effect::StandIn(distance), _)) => drop(placed.stand_in_distances.insert(series, distance)),
            _ => {}
        }
        Ok(Some(CalibrationRow { key, point, time_us, source: source.name.clone() }))
    }
}

/// The engine and minor version that give each series of a family its rows: the first that have any. Others launch different kernels, which
/// are not averaged.
struct FirstEngines<'a> {
    hardware: &'a Hardware,
    engines: BTreeMap<String, String>,
}

impl FirstEngines<'_> {
    /// The row; an error is that the chip lacks the unit for it, or that another engine or version has its series.
    fn check(&mut self, row: CalibrationRow, source: &RowSource) -> Result<CalibrationRow, String> {
        let dtype = row.key.compute_dtype();
        if self.hardware.peak_dense_flop_per_s(dtype).is_err() {
            return Err(format!("the GPU has no unit for {dtype}"));
        }
        let first = self.engines.entry(row.key.to_string()).or_insert_with(|| source.engine.clone());
        if *first == source.engine { Ok(row) } else { Err(OTHER_ENGINE.to_owned()) }
    }
}

#[cfg(test)]
mod tests {
    use ridgepoint::dtype::MatmulFormat;
    use ridgepoint::unstable::efficiency::family::SeriesKey;

    use super::*;

    #[test]
    fn a_series_takes_the_rows_of_the_first_engine_and_version() {
        let hardware = Hardware::find("h100_sxm").unwrap();
        let mut firsts = FirstEngines { hardware: &hardware, engines: BTreeMap::new() };
        let mut check = |engine: &str, key| {
            let name = engine.to_owned();
            let source = RowSource { engine: name.clone(), is_public: true, kernel: String::new(), name: name.clone() };
            let row =
                CalibrationRow { key: SeriesKey::Gemm(key), point: vec![64.0, 64.0, 1.0], time_us: 9.0, source: name };
            firsts.check(row, &source).is_ok()
        };
        assert!(check("vllm-0.14", MatmulFormat::Bfloat16));
        assert!(!check("vllm-0.24", MatmulFormat::Bfloat16) && !check("sglang-0.5", MatmulFormat::Bfloat16));
        assert!(check("vllm-0.24", MatmulFormat::Fp8) && check("vllm-0.14", MatmulFormat::Bfloat16));
    }
}
