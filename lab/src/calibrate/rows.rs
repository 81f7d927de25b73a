//! Places measurements on the tables' grids, or among the calls that no table holds. Every other row is left out with a
//! named reason.
#![expect(clippy::indexing_slicing, reason = "a row's source is the position of one that was read with it")]

use std::any::Any;
use std::collections::BTreeMap;

use ridgepoint::internals::efficiency::Tables;
use ridgepoint::internals::efficiency::family::{Family, FamilyVisitor, for_each_family};
use ridgepoint::{Engine, Hardware};

use super::build::Row;
use super::exclusions::{Effect, Exclusions, MeasuredPlace};
use super::family::{Calibrated, Placed};
use super::latent_block::{LATENT_BLOCK, LatentBlock};
use super::mixed_attention::MixedAttention;
use super::off_table::{CHECKS, MIXED, OffTable, SMALL_KERNELS, SmallCall};
use super::report::{LeftOut, OperatorReport, leave_out};
use super::source::Source;
use super::too_fast::leave_out_too_fast;
use crate::measurements::{LatentBlockCall, Measurements, MixedCall, SmallKernelCall};

/// Rows of every operator, and how many were left out for which reason.
#[derive(Default)]
pub struct Rows {
    families: Vec<Box<dyn FamilyRows>>,
    /// Calls that no table holds and a check scores.
    pub off_table: OffTable,
    /// Engine of the first source that names a known one.
    pub engine: Option<Engine>,
    /// Rows that neither a table nor a check takes, by operator.
    left_out: BTreeMap<&'static str, LeftOut>,
}

/// The rows of one family that have a place in its table.
pub trait FamilyRows: Any {
    /// Operator of the family.
    fn operator(&self) -> &'static str;
    /// Number of rows.
    fn count(&self) -> usize;
    /// Builds and cross-validates the table. A shape of several sources takes the median of their times. No table is made if no row can
    /// be predicted from the others. `tick` is called once a fold, twice [`FOLDS`](super::cross_validate::FOLDS) times in all.
    ///
    /// # Errors
    /// Those of building: a number format that the chip has no unit for.
    fn calibrate(
        &self,
        hardware: &Hardware,
        command: &str,
        tick: &(dyn Fn() + Sync),
    ) -> ridgepoint::Result<OperatorReport>;
    /// Scores the tables of the rows' own GPU on rows they did not use, and borrowed tables on all rows. A shape of several sources takes the
    /// median of their times.
    ///
    /// Rows at cells without a measurement in the table are looked up as they are. Rows that the table was made from (their
    /// cell is a measured one) are cross-validated: the table is built anew from such rows, each time without a tenth of
    /// them. If a series has fewer than half of the rows it was made from, that would judge another table, so its used rows
    /// are left out with that reason. The trees also learn from rows whose series no table holds ([`Calibrated::is_read`]). `tick` is
    /// called once a fold.
    ///
    /// # Errors
    /// Those of reading tables; `ErrorKind::MissingTable` if the GPU has none of this operator.
    fn check(
        &self,
        hardware: &Hardware,
        tables: &Tables,
        tick: &(dyn Fn() + Sync),
    ) -> ridgepoint::Result<OperatorReport>;
}

/// Rows of one family that have a place in its table, and what exclusions say of their series.
pub(super) struct PlacedRows<F: Family> {
    pub(super) rows: Vec<Row<F>>,
    /// Series that no table holds, by name, with the reason.
    pub(super) unlisted: BTreeMap<String, String>,
    /// Distances with which a table marks series, by name.
    pub(super) stand_in_distances: BTreeMap<String, f64>,
}

impl<F: Family> Default for PlacedRows<F> {
    fn default() -> Self {
        PlacedRows { rows: Vec::new(), unlisted: BTreeMap::new(), stand_in_distances: BTreeMap::new() }
    }
}

const OTHER_ENGINE: &str = "kernels of another engine or version than those of the folder that was named first";

/// The calls that have a place. The reasons of the others go to `left_out`.
fn placed<T>(calls: impl Iterator<Item = std::result::Result<T, String>>, left_out: &mut LeftOut) -> Vec<T> {
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
        let sources: Vec<Source> = measurements.sources.iter().map(Source::new).collect();
        let engine = sources.iter().find_map(|source| Engine::parse(&source.engine, None));
        let rows = Rows { engine, ..Rows::default() };
        let mut placing = Placing { measurements, sources, hardware, exclusions, rows };
        for_each_family(&mut placing)?;
        let Placing { mut rows, sources, .. } = placing;
        let Rows { left_out, off_table, .. } = &mut rows;
        let mixed = measurements.of::<MixedCall>().iter();
        off_table.mixed =
            placed(mixed.map(|row| MixedAttention::new(row, &sources[row.source])), left_out.entry(MIXED).or_default());
        let blocks = measurements.of::<LatentBlockCall>().iter();
        let blocks = blocks.map(|row| LatentBlock::new(row, &sources[row.source]));
        off_table.latent_blocks = placed(blocks, left_out.entry(LATENT_BLOCK).or_default());
        let small = measurements.of::<SmallKernelCall>().iter().map(SmallCall::new);
        off_table.small_kernels = placed(small, left_out.entry(SMALL_KERNELS).or_default());
        Ok(rows)
    }

    /// The rows of every family, in the order of reports.
    pub fn families(&self) -> impl Iterator<Item = &dyn FamilyRows> {
        self.families.iter().map(|rows| &**rows)
    }

    /// The rows of one family.
    pub fn of<F: Calibrated>(&self) -> &[Row<F>] {
        let rows = self.families().find_map(|rows| (rows as &dyn Any).downcast_ref::<PlacedRows<F>>());
        rows.map_or(&[], |placed| &placed.rows)
    }

    /// Rows of one operator that were left out before anything was built or predicted, where tables `are_built` with those
    /// that only a check takes.
    pub fn left_out_of(&self, operator: &str, are_built: bool) -> LeftOut {
        let mut left_out = self.left_out.get(operator).cloned().unwrap_or_default();
        for check in CHECKS.iter().filter(|check| are_built && check.operator == operator) {
            leave_out(&mut left_out, check.why_off_table, (check.count)(&self.off_table));
        }
        left_out
    }
}

/// Assigns measurements to the tables and checks that take them.
struct Placing<'a> {
    measurements: &'a Measurements,
    sources: Vec<Source>,
    hardware: &'a Hardware,
    exclusions: &'a Exclusions,
    rows: Rows,
}

impl<F: Calibrated> FamilyVisitor<F> for Placing<'_> {
    fn visit(&mut self) -> ridgepoint::Result<()> {
        let mut firsts = FirstEngines { hardware: self.hardware, engines: BTreeMap::new() };
        let (mut placed, mut left_out) = (PlacedRows::<F>::default(), LeftOut::new());
        for row in self.measurements.of::<F::Call>() {
            let source = &self.sources[row.source];
            let place = match F::place(row, source) {
                Err(reason) => {
                    leave_out(&mut left_out, &reason, 1);
                    continue;
                }
                Ok(place) => place,
            };
            let (series, point) = match &place {
                Placed::OnGrid(key, point) => (key.to_string(), point.as_slice()),
                Placed::OffTable(call) => (call.key.to_string(), &[][..]),
            };
            let (operator, axes, hardware) = (F::OPERATOR, F::AXES, self.hardware);
            let measured = MeasuredPlace { operator, hardware, source, series: &series, axes, point };
            let exclusion = self.exclusions.of(&measured);
            match place {
                _ if exclusion.is_some_and(|of| of.effect == Effect::Rows) => {
                    leave_out(&mut left_out, exclusion.map_or("", |of| of.reason.as_str()), 1);
                }
                Placed::OffTable(call) => self.rows.off_table.push(call),
                Placed::OnGrid(key, point) => {
                    let row = Row { key, point, time_us: row.latency_us, source: source.name.clone() };
                    match firsts.check::<F>(row, source) {
                        Ok(row) => placed.rows.push(row),
                        Err(reason) => leave_out(&mut left_out, &reason, 1),
                    }
                    match exclusion.map(|of| (of.effect, of)) {
                        Some((Effect::Series, of)) => drop(placed.unlisted.insert(series, of.reason.clone())),
                        Some((Effect::StandIn(us), _)) => drop(placed.stand_in_distances.insert(series, us)),
                        _ => {}
                    }
                }
            }
        }
        placed.rows = leave_out_too_fast::<F>(placed.rows, self.hardware, &mut left_out)?;
        self.rows.families.push(Box::new(placed));
        self.rows.left_out.insert(F::OPERATOR, left_out);
        Ok(())
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
    fn check<F: Family>(&mut self, row: Row<F>, source: &Source) -> Result<Row<F>, String> {
        let dtype = F::compute_dtype(&row.key);
        if self.hardware.peak_dense_flop_per_s(dtype).is_err() {
            return Err(format!("the GPU has no unit for {dtype}"));
        }
        let first = self.engines.entry(row.key.to_string()).or_insert_with(|| source.engine.clone());
        if *first == source.engine { Ok(row) } else { Err(OTHER_ENGINE.to_owned()) }
    }
}

#[cfg(test)]
mod tests {
    use ridgepoint::internals::dtype::MatmulFormat;
    use ridgepoint::internals::efficiency::kernel_model::GemmModel;

    use super::*;

    #[test]
    fn a_series_takes_the_rows_of_the_first_engine_and_version() {
        let hardware = Hardware::find("h100_sxm").unwrap();
        let mut firsts = FirstEngines { hardware: &hardware, engines: BTreeMap::new() };
        let mut check = |engine: &str, key| {
            let name = engine.to_owned();
            let source = Source { engine: name.clone(), is_public: true, kernel: String::new(), name: name.clone() };
            let row = Row::<GemmModel> { key, point: vec![64.0, 64.0, 1.0], time_us: 9.0, source: name };
            firsts.check(row, &source).is_ok()
        };
        assert!(check("vllm-0.14", MatmulFormat::Bfloat16));
        assert!(!check("vllm-0.24", MatmulFormat::Bfloat16) && !check("sglang-0.5", MatmulFormat::Bfloat16));
        assert!(check("vllm-0.24", MatmulFormat::Fp8) && check("vllm-0.14", MatmulFormat::Bfloat16));
    }
}
