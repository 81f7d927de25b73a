//! What a parquet file claims to hold, checked before anything is decoded: its decoder makes room for whatever a file claims.
//!
//! # Source
//! apache/parquet-format, `parquet.thrift`: `PageHeader`; Thrift's compact protocol.

use parquet::basic::Compression;
use parquet::file::metadata::ParquetMetaData;

/// Most bytes that a byte of a snappy page stands for: its longest copy makes 64 bytes of 3.
const MAX_SNAPPY_EXPANSION: u64 = 22;
/// Most bytes of a page of other codecs, which shrink a run of equal bytes to a few. Writers aim at 1 MiB.
const MAX_PAGE_BYTES: u64 = 1 << 25;
/// Most cells per byte of the file; the public tables have below 5.
const MAX_CELLS_PER_BYTE: u64 = 20;
/// Cells of a file that is too small for a ratio.
const FREE_CELLS: u64 = 100_000;

/// Checks that every list of a file's footer has the elements that it claims: the decoder counts those that take no bytes.
///
/// # Errors
/// What can't be, in words.
pub(super) fn check_footer(file: &[u8]) -> Result<(), String> {
    let (rest, end) = file.split_last_chunk::<8>().ok_or("it is too short for a footer")?;
    let [length @ .., _, _, _, _] = end;
    let length = usize::try_from(u32::from_le_bytes(*length)).ok();
    let start = length.and_then(|length| rest.len().checked_sub(length)).ok_or("it claims a footer outside of it")?;
    let mut footer = Compact { bytes: rest.get(start..).unwrap_or_default() };
    // What is left would be read otherwise by the decoder, which knows the kinds of fields.
    footer
        .skip(STRUCT, MAX_DEPTH)
        .filter(|()| footer.bytes.is_empty())
        .ok_or_else(|| "its footer is damaged".to_owned())
}

/// Checks the claims of a file's row groups and of the pages in them.
///
/// # Errors
/// What can't be, in words.
pub(super) fn check(file: &[u8], metadata: &ParquetMetaData) -> Result<(), String> {
    let most_cells = (file.len() as u64).saturating_mul(MAX_CELLS_PER_BYTE).saturating_add(FREE_CELLS);
    let mut cells = 0_u64;
    for group in metadata.row_groups() {
        let rows = u64::try_from(group.num_rows()).map_err(|_| "it claims fewer than no rows")?;
        cells = cells.saturating_add(rows.saturating_mul(group.columns().len() as u64));
        if cells > most_cells {
            return Err(format!("it claims {cells} cells or more, too many for a file of {} bytes", file.len()));
        }
        for column in group.columns() {
            let (start, length) = column.byte_range();
            let range = usize::try_from(start).ok().zip(usize::try_from(start.saturating_add(length)).ok());
            let pages = range.and_then(|(start, end)| file.get(start..end)).ok_or("it claims pages outside of it")?;
            check_pages(pages, rows, column.compression())?;
        }
    }
    Ok(())
}

/// Walks over the pages of a column.
fn check_pages(mut bytes: &[u8], rows: u64, codec: Compression) -> Result<(), String> {
    while !bytes.is_empty() {
        let mut header = Compact { bytes };
        let page = header.page(rows).ok_or("the header of a page is damaged")?;
        let most_bytes = match codec {
            Compression::UNCOMPRESSED | Compression::SNAPPY => {
                page.compressed_bytes.saturating_mul(MAX_SNAPPY_EXPANSION).saturating_add(1024)
            }
            _ => MAX_PAGE_BYTES,
        };
        if page.bytes > most_bytes || page.values > page.most_values {
            let Page { bytes, compressed_bytes, values, .. } = page;
            return Err(format!("a page of {compressed_bytes} bytes claims {bytes} bytes and {values} values"));
        }
        let next = usize::try_from(page.compressed_bytes).ok().and_then(|length| header.bytes.get(length..));
        bytes = next.ok_or("a page claims to be longer than its column")?;
    }
    Ok(())
}

/// The claims of a page.
#[derive(Default)]
struct Page {
    bytes: u64,
    compressed_bytes: u64,
    values: u64,
    most_values: u64,
}

/// Structs and lists within each other; a file has ten.
const MAX_DEPTH: u8 = 24;

const I32: u8 = 5;
const STRUCT: u8 = 12;

/// A text of Thrift's compact protocol. Every reading fails at its end.
struct Compact<'b> {
    bytes: &'b [u8],
}

impl Compact<'_> {
    fn page(&mut self, rows: u64) -> Option<Page> {
        let (mut page, mut id) = (Page::default(), 0);
        while let Some(kind) = self.field(&mut id)? {
            match (id, kind) {
                (2, I32) => page.bytes = u64::try_from(self.integer()?).ok()?,
                (3, I32) => page.compressed_bytes = u64::try_from(self.integer()?).ok()?,
                // The headers of data pages and of a dictionary begin with the number of values.
                (5 | 7 | 8, STRUCT) => {
                    let mut inner = 0;
                    while let Some(kind) = self.field(&mut inner)? {
                        match (inner, kind) {
                            (1, I32) => page.values = u64::try_from(self.integer()?).ok()?,
                            _ => self.skip(kind, 8)?,
                        }
                    }
                    // A value of a dictionary takes a byte at least; flat columns have one value per row.
                    page.most_values = if id == 7 { page.bytes } else { rows };
                }
                _ => self.skip(kind, 8)?,
            }
        }
        Some(page)
    }

    /// The kind of the next field, whose number goes to `id`; the inner `None` ends a struct.
    fn field(&mut self, id: &mut i64) -> Option<Option<u8>> {
        let byte = self.byte()?;
        if byte == 0 {
            return Some(None);
        }
        *id = if byte >> 4 > 0 { id.checked_add(i64::from(byte >> 4))? } else { self.integer()? };
        Some(Some(byte & 15))
    }

    fn skip(&mut self, kind: u8, depth: u8) -> Option<()> {
        match kind {
            1 | 2 => {}
            3 => drop(self.byte()?),
            4..=6 => drop(self.varint()?),
            7 => self.pass(8)?,
            8 => {
                let length = self.varint()?;
                self.pass(length)?;
            }
            9 | 10 => {
                let head = self.byte()?;
                let length = if head >> 4 == 15 { self.varint()? } else { u64::from(head >> 4) };
                for _ in 0..length {
                    // Switches in a list take a byte each.
                    if matches!(head & 15, 1 | 2) {
                        self.pass(1)?
                    } else {
                        self.skip(head & 15, depth.checked_sub(1)?)?
                    }
                }
            }
            STRUCT => {
                let mut id = 0;
                while let Some(kind) = self.field(&mut id)? {
                    self.skip(kind, depth.checked_sub(1)?)?;
                }
            }
            _ => return None,
        }
        Some(())
    }

    fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.bytes.split_first()?;
        self.bytes = rest;
        Some(*first)
    }

    fn pass(&mut self, length: u64) -> Option<()> {
        self.bytes = self.bytes.get(usize::try_from(length).ok()?..)?;
        Some(())
    }

    fn varint(&mut self) -> Option<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            value |= u64::from(byte & 127) << shift;
            if byte < 128 {
                return Some(value);
            }
        }
        None
    }

    /// A whole number with its sign in the last bit.
    fn integer(&mut self) -> Option<i64> {
        let value = self.varint()?;
        Some((value >> 1).cast_signed() ^ -(value & 1).cast_signed())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A dictionary page of four bytes whose header claims these sizes.
    fn dictionary(bytes: u64, values: u64) -> Vec<u8> {
        let integer = |value: u64| -> Vec<u8> {
            let mut rest = value << 1;
            let mut coded = Vec::new();
            while rest >= 128 {
                coded.push(rest as u8 | 128);
                rest >>= 7;
            }
            coded.push(rest as u8);
            coded
        };
        let mut page = vec![0x15, 4, 0x15];
        page.extend(integer(bytes));
        page.extend([0x15, 8, 0x4c, 0x15]);
        page.extend(integer(values));
        page.extend([0x15, 0, 0, 0, 1, 2, 3, 4]);
        page
    }

    #[test]
    fn pages_that_claim_more_than_they_can_hold_are_refused() {
        let check = |page: &[u8]| check_pages(page, 10, Compression::SNAPPY);
        assert_eq!(check(&dictionary(4, 1)), Ok(()));
        assert_eq!(check(&[dictionary(4, 1), dictionary(1024, 4)].concat()), Ok(()));
        let many = check(&dictionary(960, 173_022_712)).unwrap_err();
        assert_eq!(many, "a page of 4 bytes claims 960 bytes and 173022712 values");
        assert!(check(&dictionary(1 << 20, 1)).is_err());
        let zstd = |page: &[u8]| check_pages(page, 10, Compression::ZSTD(parquet::basic::ZstdLevel::default()));
        assert_eq!(zstd(&dictionary(1 << 20, 1)), Ok(()));
        assert!(zstd(&dictionary(1 << 30, 1)).is_err());
        let whole = dictionary(4, 1);
        for length in 1..whole.len() {
            assert!(check(&whole[..length]).is_err(), "{length}");
        }
    }
}
