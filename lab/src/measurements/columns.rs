//! What the files of every operator share: columns, their public names, and cells that are read alike.
#![expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "floats saturate; readers check ranges")]

use std::fmt::{Arguments, Debug};
use std::hash::Hash;

use ridgepoint::dtype::MatmulFormat;
use ridgepoint::units::US_PER_MS;
use ridgepoint::{DType, Result};
use ridgepoint_replay::input::{Columns, Row};

use super::source::SourceFormat;
use crate::measured_time::{MICROSECONDS, MILLISECONDS};

/// Larger counts are not exact as `f64`.
pub(super) const MAX_COUNT: u64 = 1 << 53;
pub(super) const MATMUL_FORMATS: &str =
    "bfloat16, float16, fp8, fp8_block, int8, int8_wo, int4_wo, nvfp4, mxfp4, mxfp4_mxfp8";
pub(super) const KV_DTYPES: &str = "bfloat16, float16, fp8 or another number format";

/// Optional columns of every public table: where its rows come from, and constants that are checked where present.
const PUBLIC_EXTRAS: &str = "framework,version,device,op_name,kernel_source,power,power_limit";

/// A public kernel table of an operator.
pub struct PublicTable {
    /// File name.
    pub(super) file: &'static str,
    /// Columns, under the names of one's own files where both have them.
    #[cfg_attr(not(feature = "parquet"), allow(dead_code))]
    pub(super) columns: Columns,
    /// Columns that hold one value throughout; another value would be another operator.
    pub(super) constants: &'static [(&'static str, &'static str)],
    /// Columns whose rows of another value are of other kernels, which no table takes.
    pub(super) only: &'static [(&'static str, &'static str)],
}

/// The columns of a public table, with those that it has besides the sizes.
pub(super) const fn public_columns(
    required: &'static str,
    aliases: &'static [(&'static str, &'static str)],
) -> Columns {
    Columns { optional: PUBLIC_EXTRAS, aliases, ..Columns::exactly(required) }
}

/// A call that files hold.
pub trait Call: Clone + Debug + Eq + Hash + 'static {
    /// Stem of the csv file and of its sections in `meta.toml`.
    const STEM: &'static str;
    /// Columns of the csv file, which may have others.
    const CSV: &'static str;
    /// The public tables.
    const PUBLIC: &'static [PublicTable];

    /// Reads the call of a row.
    fn read(row: &Row<'_>, format: SourceFormat) -> Result<Self>;
}

/// Reads the time of a row, µs. Public tables have milliseconds.
pub(super) fn latency_us(row: &Row<'_>, format: SourceFormat) -> Result<f64> {
    match format {
        SourceFormat::Parquet => Ok(US_PER_MS * row.number("latency_us", MILLISECONDS)?),
        SourceFormat::Csv => row.number("latency_us", MICROSECONDS),
    }
}

pub(super) fn size(row: &Row<'_>, column: &str) -> Result<u64> {
    row.whole(column, 1..=MAX_COUNT)
}

/// Reads the ranks of a collective, at least 2: one GPU has nothing to `exchange`.
pub(super) fn num_gpus(row: &Row<'_>, exchange: &str) -> Result<u64> {
    match size(row, "num_gpus")? {
        1 => Err(row.bad("num_gpus", format!("at least 2: one GPU has nothing to {exchange}"))),
        ranks => Ok(ranks),
    }
}

/// Reads the message of a collective, bytes. Public tables count elements of the format in `dtype_column`, which `parse` reads.
pub(super) fn message_bytes(
    row: &Row<'_>,
    format: SourceFormat,
    dtype_column: &str,
    parse: impl FnOnce(&str) -> Option<DType>,
) -> Result<u64> {
    match format {
        SourceFormat::Csv => size(row, "message_bytes"),
        SourceFormat::Parquet => {
            let element_bytes = row.read(dtype_column, KV_DTYPES, parse)?.bytes();
            Ok((size(row, "message_size")? as f64 * element_bytes).ceil() as u64)
        }
    }
}

/// Checks that `part`, the value of `column`, divides the `whole` in `named`.
pub(super) fn check_divides(row: &Row<'_>, column: &str, part: u64, whole: u64, named: Arguments<'_>) -> Result<()> {
    if whole.is_multiple_of(part) { Ok(()) } else { Err(row.bad(column, format_args!("a divisor of {named}"))) }
}

pub(super) fn matmul_format(row: &Row<'_>) -> Result<MatmulFormat> {
    row.read("dtype", MATMUL_FORMATS, MatmulFormat::parse)
}
