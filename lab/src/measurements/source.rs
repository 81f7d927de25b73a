//! The sources of rows. Public tables name them in four columns of every row, one's own files in `meta.toml`.

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

impl SourceFile {
    /// The engine and its minor version, `vllm-0.14`: patch releases and development builds share their kernels.
    pub fn engine(&self) -> String {
        let plain =
            |text: &str| -> String { text.chars().filter(|c| c.is_alphanumeric() || ".-".contains(*c)).collect() };
        let version: Vec<&str> = self.version.as_deref().unwrap_or("0.0").split('.').take(2).collect();
        let engine = self.framework.as_deref().unwrap_or("unknown").to_lowercase();
        format!("{}-{}", plain(&engine), plain(&version.join(".")))
    }
}
