//! Checks of a parquet file's metadata and pages that the parquet crate (60.1) leaves to its caller: damaged files
//! would panic in it otherwise. Uses nothing else of the crate.

use parquet::basic::{Encoding, Type};
use parquet::column::page::{Page, PageMetadata, PageReader};
use parquet::column::reader::{ColumnReader, get_column_reader};
use parquet::errors::{ParquetError, Result};
use parquet::file::reader::RowGroupReader;

/// The reader of one column of a row group, over checked pages.
pub(super) fn checked_column(row_group: &dyn RowGroupReader, index: usize, file_bytes: u64) -> Result<ColumnReader> {
    let column = row_group.metadata().column(index);
    let start = column.dictionary_page_offset().unwrap_or_else(|| column.data_page_offset());
    let range = u64::try_from(start).ok().zip(u64::try_from(column.compressed_size()).ok());
    if range.and_then(|(start, length)| start.checked_add(length)).is_none_or(|end| end > file_bytes) {
        return Err(ParquetError::General("a column lies outside the file".into()));
    }
    let descriptor = column.column_descr_ptr();
    let pages = CheckedPages {
        pages: row_group.get_column_page_reader(index)?,
        is_text: descriptor.physical_type() == Type::BYTE_ARRAY,
        has_levels: descriptor.max_def_level() > 0,
        has_dictionary: false,
    };
    Ok(get_column_reader(descriptor, Box::new(pages)))
}

struct CheckedPages {
    pages: Box<dyn PageReader>,
    is_text: bool,
    has_levels: bool,
    has_dictionary: bool,
}

impl CheckedPages {
    fn check(&mut self, page: &Page) -> Result<()> {
        let damaged = |what: &str| Err(ParquetError::General(what.into()));
        match page {
            Page::DictionaryPage { buf, num_values, .. } => {
                self.has_dictionary = true;
                if self.is_text && !holds_texts(buf, *num_values) {
                    return damaged("a dictionary ends before its last text");
                }
            }
            _ if !self.has_dictionary
                && matches!(page.encoding(), Encoding::RLE_DICTIONARY | Encoding::PLAIN_DICTIONARY) =>
            {
                return damaged("a page refers to a dictionary that the column lacks");
            }
            Page::DataPage { def_level_encoding, .. } if self.has_levels && *def_level_encoding != Encoding::RLE => {
                return damaged("a page marks missing values in an outdated way");
            }
            _ => {}
        }
        // The rows need every value, so a page of texts that lacks some is of no use even where it is in order.
        if self.is_text && page.is_data_page() && page.encoding() == Encoding::PLAIN {
            let texts = self.values(page).unwrap_or_default();
            if !holds_texts(texts, page.num_values()) {
                return damaged("a page of texts ends early or has missing values");
            }
        }
        Ok(())
    }

    /// The bytes of a flat column's data page after its levels.
    fn values<'a>(&self, page: &'a Page) -> Option<&'a [u8]> {
        match page {
            Page::DataPage { buf, .. } if self.has_levels => {
                let (length, rest) = buf.split_first_chunk()?;
                rest.get(u32::from_le_bytes(*length) as usize..)
            }
            Page::DataPageV2 { buf, def_levels_byte_len, rep_levels_byte_len, .. } => {
                buf.get(def_levels_byte_len.checked_add(*rep_levels_byte_len)? as usize..)
            }
            _ => Some(page.buffer()),
        }
    }
}

/// True where `bytes` begin with that many texts, each after its length in four bytes.
fn holds_texts(mut bytes: &[u8], num_texts: u32) -> bool {
    (0..num_texts).all(|_| {
        let Some((length, rest)) = bytes.split_first_chunk() else { return false };
        bytes = rest.get(u32::from_le_bytes(*length) as usize..).unwrap_or_default();
        rest.len() >= u32::from_le_bytes(*length) as usize
    })
}

impl Iterator for CheckedPages {
    type Item = Result<Page>;

    fn next(&mut self) -> Option<Self::Item> {
        self.get_next_page().transpose()
    }
}

impl PageReader for CheckedPages {
    fn get_next_page(&mut self) -> Result<Option<Page>> {
        let page = self.pages.get_next_page()?;
        page.as_ref().map_or(Ok(()), |page| self.check(page))?;
        Ok(page)
    }

    fn peek_next_page(&mut self) -> Result<Option<PageMetadata>> {
        self.pages.peek_next_page()
    }

    fn skip_next_page(&mut self) -> Result<()> {
        self.pages.skip_next_page()
    }
}
