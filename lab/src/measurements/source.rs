//! The sources of rows. Public tables name them in four columns of every row, one's own files in `meta.toml`.

use std::collections::HashMap;

use ridgepoint::internals::input::Row;

/// The format a measurement was read from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SourceFormat {
    /// One of the public kernel tables.
    Parquet,
    /// One's own measurements.
    Csv,
}

/// Where rows come from. `None` stands for what the file does not say.
#[derive(Debug, Clone, PartialEq, Eq)]
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
        SourceFile {
            file: file.to_owned(),
            format,
            framework: None,
            version: None,
            device: None,
            kernel_source: None,
            driver: None,
            date: None,
            command: None,
        }
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

const COLUMNS: [&str; 4] = ["framework", "version", "device", "kernel_source"];

/// Finds or adds the source of each row of a file.
pub(super) struct RowSources<'a> {
    sources: &'a mut Vec<SourceFile>,
    template: SourceFile,
    known: HashMap<[Option<String>; 4], usize>,
}

impl<'a> RowSources<'a> {
    /// `template` holds what is the same for all rows of the file; new sources are added to `sources`.
    pub(super) fn new(template: SourceFile, sources: &'a mut Vec<SourceFile>) -> Self {
        RowSources { sources, template, known: HashMap::new() }
    }

    /// The index of the row's source.
    pub(super) fn of(&mut self, row: &Row<'_>) -> usize {
        let texts = match self.template.format {
            SourceFormat::Csv => Default::default(),
            SourceFormat::Parquet => COLUMNS.map(|column| row.text(column).map(|text| text.into_owned())),
        };
        if let Some(source) = self.known.get(&texts) {
            return *source;
        }
        let mut source = self.template.clone();
        if self.template.format == SourceFormat::Parquet {
            [source.framework, source.version, source.device, source.kernel_source] = texts.clone();
        }
        self.sources.push(source);
        self.known.insert(texts, self.sources.len() - 1);
        self.sources.len() - 1
    }
}
