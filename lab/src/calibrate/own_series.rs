//! The series that a GPU's own tables have: checks score these alone.

use std::collections::BTreeMap;

use ridgepoint::unstable::efficiency::Tables;
use ridgepoint::unstable::efficiency::family::KernelFamily;
use ridgepoint::unstable::efficiency::table::SeriesHeader;
use ridgepoint::{Error, Hardware, Result};

/// Why a row is not scored if the tables have no series of its kernel.
pub(super) const NO_SERIES: &str = "no table series for this kernel";

/// Header entries of all series that the GPU's own tables have, by name. If several tables have a series, the nearest engine's counts.
///
/// # Errors
/// Those of reading tables; `ErrorKind::MissingTable` if the GPU has none of this operator.
pub(super) fn own_series(
    family: &'static KernelFamily,
    hardware: &Hardware,
    tables: &Tables,
) -> Result<BTreeMap<String, SeriesHeader>> {
    let own = tables.own_tables(family)?;
    if own.is_empty() {
        let hint = "the check needs tables of this very GPU; calibrate them first";
        return Err(Error::missing_table(&hardware.name, family.operator, hint));
    }
    let mut series = BTreeMap::new();
    // The nearest engine comes last here, and replaces entries of others.
    own.iter().rev().for_each(|(_, header)| series.extend(header.series.clone()));
    Ok(series)
}

#[cfg(test)]
mod tests {
    use ridgepoint::Engine;
    use ridgepoint::unstable::efficiency::family::DECODE;

    use super::*;

    /// The H100 has two tables with decodes of vLLM 0.24: the table of vLLM 0.14 holds plain heads, and that of 0.24 sparse attention.
    #[test]
    fn series_of_every_own_table_are_checked() {
        let hardware = Hardware::find("h100_sxm").expect("a built-in GPU");
        let engine = Engine::parse("vllm", Some("0.24")).expect("a version");
        let own = own_series(&DECODE, &hardware, &Tables::new(&hardware, &engine, None)).expect("own tables");
        for name in ["vllm-0.14/fp8/d128/full", "vllm-0.24/bfloat16/d128/full", "vllm-0.24/fp8/indexer/full"] {
            assert!(own.contains_key(name), "{name} of {:?}", own.keys());
        }
    }
}
