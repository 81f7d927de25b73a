//! The source of a measured row, as calibration needs it.

use crate::measurements::{SourceFile, SourceFormat};

/// A source as rows need it.
#[derive(Debug)]
pub struct RowSource {
    /// Engine and minor version, as `vllm-0.14`.
    pub(super) engine: String,
    /// A row of the public tables.
    pub(super) is_public: bool,
    /// Kernel that the file names; empty if it names none.
    pub(super) kernel: String,
    /// Name in the header of a table.
    pub(super) name: String,
}

impl RowSource {
    /// The source of a file.
    pub(super) fn new(source: &SourceFile) -> Self {
        RowSource {
            engine: source.engine(),
            is_public: source.format == SourceFormat::Parquet,
            kernel: source.kernel_source.clone().unwrap_or_default(),
            name: describe(source),
        }
    }
}

/// Source of all public kernel tables. The source of one's own measurements is in their `meta.toml`.
fn describe(source: &SourceFile) -> String {
    let publisher = match source.format {
        SourceFormat::Parquet => "ai-dynamo/aiconfigurator (Apache-2.0): ",
        SourceFormat::Csv => "",
    };
    let parts = [&source.framework, &source.version, &source.kernel_source, &source.device];
    let [framework, version, kernel, device] = parts.map(|part| part.as_deref().unwrap_or("?"));
    format!("{publisher}{framework} {version} {kernel}, {device}, {}", source.file)
}
