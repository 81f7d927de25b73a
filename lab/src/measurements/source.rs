//! The sources of rows. Public tables name them in four columns of every row, one's own files in `meta.toml`.

use ridgepoint::Result;
use ridgepoint::internals::input::Row;

/// The format a measurement was read from.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum SourceFormat {
    /// One of the public kernel tables.
    Parquet,
    /// One's own measurements.
    #[default]
    Csv,
}

/// Where rows come from. `None` stands for what the file does not say.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SourceFile {
    /// File name, without its directory.
    pub file: String,
    /// Format of the file.
    pub format: SourceFormat,
    /// Serving engine whose kernels were timed.
    pub framework: Option<String>,
    /// Its version.
    pub version: Option<String>,
    /// GPU, as the driver names it: `NVIDIA H100 80GB HBM3`.
    pub device: Option<String>,
    /// Kernel, as the engine names it.
    pub kernel_source: Option<String>,
    /// Driver version.
    pub driver: Option<String>,
    /// Day of the measurement.
    pub date: Option<String>,
    /// Command that took it.
    pub command: Option<String>,
}

/// Engine and minor version of a source: patch releases and development builds share their kernels. Written `vllm-0.14`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct EngineVersion {
    /// Name of the engine in lower case.
    pub engine: String,
    /// Major and minor version.
    pub minor: String,
}

impl std::fmt::Display for EngineVersion {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}-{}", self.engine, self.minor)
    }
}

impl SourceFile {
    /// A source of which only the file is known.
    #[cfg_attr(not(feature = "parquet"), allow(dead_code))]
    pub(super) fn unknown(file: &str, format: SourceFormat) -> Self {
        SourceFile { file: file.to_owned(), format, ..SourceFile::default() }
    }

    /// The engine and its minor version.
    pub fn engine(&self) -> EngineVersion {
        let plain = |text: &str| text.chars().filter(|c| c.is_alphanumeric() || ".-".contains(*c)).collect();
        let version: Vec<&str> = self.version.as_deref().unwrap_or("0.0").split('.').take(2).collect();
        EngineVersion {
            engine: plain(&self.framework.as_deref().unwrap_or("unknown").to_lowercase()),
            minor: plain(&version.join(".")),
        }
    }
}

/// Finds or adds the source of each row of a file.
pub(super) struct RowSources<'a> {
    sources: &'a mut Vec<SourceFile>,
    template: SourceFile,
}

impl<'a> RowSources<'a> {
    /// `template` holds what is the same for all rows of the file; new sources are added to `sources`.
    pub(super) fn new(template: SourceFile, sources: &'a mut Vec<SourceFile>) -> Self {
        RowSources { sources, template }
    }

    /// The index of the row's source.
    ///
    /// # Errors
    /// A row of a public table that does not name its source.
    pub(super) fn of(&mut self, row: &Row<'_>) -> Result<usize> {
        let mut source = self.template.clone();
        if self.template.format == SourceFormat::Parquet {
            let text = |column| row.read(column, "a text", |text| Some(text.to_owned())).map(Some);
            (source.framework, source.version) = (text("framework")?, text("version")?);
            (source.device, source.kernel_source) = (text("device")?, text("kernel_source")?);
        }
        // A file has a handful of sources, and rows of one source follow each other.
        let known = self.sources.iter().rposition(|known| *known == source);
        Ok(known.unwrap_or_else(|| {
            self.sources.push(source);
            self.sources.len() - 1
        }))
    }
}
