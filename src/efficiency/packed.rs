//! The built-in tables, compressed by the build script: a prediction unpacks the headers and the few series that it needs.

use std::ops::Range;

use crate::error::{Error, Result};

static BYTES: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/tables.bin"));
static TABLES: &[PackedTable] = include!(concat!(env!("OUT_DIR"), "/tables.rs"));

/// A table file of `bench_data/`.
#[derive(Debug)]
pub struct PackedTable {
    /// GPU: the outer folder.
    pub gpu: &'static str,
    /// Engine and version: the inner folder.
    pub engine: &'static str,
    /// Operator: the stem of the file.
    pub operator: &'static str,
    /// The header with the line of columns.
    pub header: Chunk,
    /// Lines by the number of their series.
    pub series: &'static [(usize, Chunk)],
}

/// A compressed text.
#[derive(Debug)]
pub struct Chunk {
    /// Its place among the bytes.
    bytes: Range<usize>,
    /// Bytes of the text.
    length: usize,
}

impl PackedTable {
    /// All built-in tables.
    pub fn all() -> impl Iterator<Item = &'static PackedTable> {
        TABLES.iter()
    }

    /// Path of the file.
    pub fn path(&self) -> String {
        format!("built-in bench_data/{}/{}/{}.csv", self.gpu, self.engine, self.operator)
    }

    /// The lines of a series; none if the table has no such series.
    pub fn lines(&self, id: usize) -> Result<String> {
        self.series.iter().find(|(of, _)| *of == id).map_or_else(|| Ok(String::new()), |(_, chunk)| self.text(chunk))
    }

    /// Unpacks a text.
    pub fn text(&self, chunk: &Chunk) -> Result<String> {
        let bytes = BYTES.get(chunk.bytes.clone()).unwrap_or_default();
        let text = miniz_oxide::inflate::decompress_to_vec_with_limit(bytes, chunk.length).ok();
        let text = text.and_then(|text| String::from_utf8(text).ok());
        text.ok_or_else(|| Error::parse(self.path(), "is damaged inside of this program: build it again"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_stay_small() {
        assert!(BYTES.len() < 8_000_000, "{} bytes", BYTES.len());
    }
}
