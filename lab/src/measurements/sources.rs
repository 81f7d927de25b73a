//! Which source each row of a file comes from: the public tables say it in four columns of every row, one's own files
//! in `meta.toml` beside them. Uses `row`, `table`.

use std::collections::HashMap;
use std::sync::Arc;

use super::row::{SourceFile, SourceFormat};
use super::table::{BadCell, CellResult, Column, Table};

const COLUMNS: [&str; 4] = ["framework", "version", "device", "kernel_source"];

/// Finds or adds the source of each row.
pub(super) struct RowSources<'a> {
    sources: &'a mut Vec<SourceFile>,
    template: SourceFile,
    columns: Vec<Column<'a>>,
    known: HashMap<Vec<Arc<str>>, u16>,
    last: Option<(Vec<Arc<str>>, u16)>,
}

impl<'a> RowSources<'a> {
    /// `template` holds what is the same for all rows of the file; new sources are added to `sources`.
    pub(super) fn new(table: &'a Table, template: SourceFile, sources: &'a mut Vec<SourceFile>) -> Self {
        // A public table without one of these columns is refused when its columns are checked.
        let columns = match table.format {
            SourceFormat::Csv => Vec::new(),
            SourceFormat::Parquet => COLUMNS.iter().filter_map(|name| table.column(name)).collect(),
        };
        RowSources { sources, template, columns, known: HashMap::new(), last: None }
    }

    /// The index of the row's source.
    pub(super) fn of(&mut self, row: usize) -> CellResult<u16> {
        if let Some((texts, source)) = &self.last {
            let mut same = true;
            for (column, text) in self.columns.iter().zip(texts) {
                // Equal texts of a column are shared, so that comparing addresses is enough.
                same &= Arc::ptr_eq(column.text(row)?, text);
            }
            if same {
                return Ok(*source);
            }
        }
        let texts = self.columns.iter().map(|column| column.text(row).cloned()).collect::<CellResult<Vec<_>>>()?;
        let source = match self.known.get(&texts) {
            Some(source) => *source,
            None => {
                let source = u16::try_from(self.sources.len()).map_err(|_| {
                    BadCell::new(row, "kernel_source", "source 65537", "at most 65536 sources in one folder")
                })?;
                self.sources.push(self.source_of(&texts));
                self.known.insert(texts.clone(), source);
                source
            }
        };
        self.last = Some((texts, source));
        Ok(source)
    }

    fn source_of(&self, texts: &[Arc<str>]) -> SourceFile {
        let mut source = self.template.clone();
        if let [framework, version, device, kernel_source] = texts {
            let said = |text: &Arc<str>| (!text.is_empty()).then(|| text.to_string());
            source.framework = said(framework);
            source.version = said(version);
            source.device = said(device);
            source.kernel_source = said(kernel_source);
        }
        source
    }
}
