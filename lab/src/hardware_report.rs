//! The built-in GPUs with their tables, and the series of one GPU.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use ridgepoint::correction::builtin_corrections;
use ridgepoint::hardware::builtin_names;
use ridgepoint::input::files_in;
use ridgepoint::unstable::efficiency::Tables;
use ridgepoint::unstable::efficiency::family::FAMILIES;
use ridgepoint::unstable::efficiency::table::{Header, SeriesHeader};
use ridgepoint::{Engine, Error, Hardware};
use serde::Serialize;

/// The result of `hardware`.
#[derive(Serialize)]
#[serde(untagged)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum HardwareReport {
    /// All GPUs.
    List {
        /// By name.
        hardware: Vec<GpuEntry>,
    },
    /// One GPU with its tables.
    One(Box<GpuEntry>),
}

/// A GPU as it is listed.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct GpuEntry {
    /// Its figures and their sources.
    #[serde(flatten)]
    pub hardware: Hardware,
    /// Operators that have an efficiency table of this very GPU.
    pub tables: Vec<String>,
    /// Whether a built-in correction was fitted on steps of this very GPU.
    pub correction: bool,
    /// Names of those corrections.
    pub corrections: Vec<String>,
    /// The tables by operator, of a GPU that is shown alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub table_headers: Option<BTreeMap<String, GpuTable>>,
    /// Other built-in cards of the same chip.
    #[serde(skip)]
    pub other_cards: Vec<String>,
    /// Whether the text lists series in place of the GPU's figures.
    #[serde(skip)]
    pub lists_series: bool,
}

/// The efficiency table of one operator.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct GpuTable {
    /// The engine whose kernels were measured; `None` for NCCL's and for a table of the data folder.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<String>"))]
    pub engine: Option<Engine>,
    /// Measured rows used, over all series.
    pub rows: usize,
    /// Publishers of the measurements.
    pub sources: BTreeSet<String>,
    /// Command that wrote the table.
    pub command: String,
    /// Series by name: rows, lines, source and the errors of rows left out.
    pub series: BTreeMap<String, SeriesHeader>,
}

impl GpuTable {
    fn new(engine: Option<Engine>, command: String, series: BTreeMap<String, SeriesHeader>) -> Self {
        let rows = series.values().map(|series| series.rows).sum();
        let sources = series.values().map(|series| series.source.clone()).collect();
        GpuTable { engine, rows, sources, command, series }
    }

    /// The engine whose kernels were measured, or a dash.
    pub fn engine(&self) -> String {
        self.engine.as_ref().map_or_else(|| "-".to_owned(), Engine::to_string)
    }
}

/// The tables of a GPU by operator: that of the nearest version of vLLM by its operator, others by their engine as well.
fn tables_by_name(tables: &Tables) -> ridgepoint::Result<BTreeMap<String, GpuTable>> {
    let mut by_name = BTreeMap::new();
    for family in FAMILIES {
        for (place, (engine, header)) in tables.own_tables(family)?.into_iter().enumerate() {
            let Header { operator, command, series, .. } = Arc::unwrap_or_clone(header);
            let name = match engine.as_ref().filter(|_| place > 0) {
                Some(engine) => format!("{operator} of {engine}"),
                None => operator,
            };
            by_name.insert(name, GpuTable::new(engine, command, series));
        }
    }
    Ok(by_name)
}

impl HardwareReport {
    /// All GPUs.
    ///
    /// # Errors
    /// A hardware or table file that is malformed.
    pub fn list(data_dir: Option<&Path>) -> ridgepoint::Result<Self> {
        let entry = |name: &String| {
            Ok(GpuEntry { table_headers: None, ..detail(ridgepoint_replay::find_hardware(data_dir, name)?, data_dir)? })
        };
        let entries = names(data_dir)?.iter().map(entry).collect::<ridgepoint::Result<_>>()?;
        Ok(HardwareReport::List { hardware: entries })
    }

    /// One GPU with its tables.
    ///
    /// # Errors
    /// A table file that is malformed.
    pub fn one(hardware: Hardware, data_dir: Option<&Path>) -> ridgepoint::Result<Self> {
        Ok(HardwareReport::One(Box::new(detail(hardware, data_dir)?)))
    }
}

impl GpuEntry {
    /// Keeps the series that have all these texts in their table, engine, name or source, for a list of them.
    ///
    /// # Errors
    /// Texts that no series has, and a GPU without tables.
    pub fn choose_series(&mut self, texts: &[String]) -> ridgepoint::Result<()> {
        let name = &self.hardware.name;
        let texts: Vec<String> = texts.iter().map(|text| text.to_lowercase()).collect();
        let all = self.table_headers.take().unwrap_or_default();
        let num_series: usize = all.values().map(|of| of.series.len()).sum();
        let mut chosen = BTreeMap::new();
        for (table, mut of) in all {
            let engine = of.engine();
            of.series.retain(|key, header| {
                let about = format!("{table} {engine} {key} {}", header.source).to_lowercase();
                texts.iter().all(|text| about.contains(text.as_str()))
            });
            if !of.series.is_empty() {
                chosen.insert(table, GpuTable::new(of.engine, of.command, of.series));
            }
        }
        if chosen.is_empty() {
            let (value, reason) = match num_series {
                0 => (name.clone(), "has no tables of its own".to_owned()),
                n => {
                    let way_out = "without a text, --series lists them all";
                    (texts.join(" "), format!("is in none of the {n} series of {name}: {way_out}"))
                }
            };
            return Err(Error::invalid_argument("--series", value, reason));
        }
        (self.table_headers, self.lists_series) = (Some(chosen), true);
        Ok(())
    }
}

/// Names of the built-in GPUs and of those of the data folder.
///
/// # Errors
/// A folder that cannot be read.
pub fn names(data_dir: Option<&Path>) -> ridgepoint::Result<BTreeSet<String>> {
    let mut names: BTreeSet<String> = builtin_names().into_iter().map(str::to_owned).collect();
    for path in files_in(data_dir, "hardware", "toml")? {
        names.extend(path.file_stem().map(|stem| stem.to_string_lossy().into_owned()));
    }
    Ok(names)
}

/// A GPU with its tables.
///
/// # Errors
/// A table file that is malformed.
pub fn detail(hardware: Hardware, data_dir: Option<&Path>) -> ridgepoint::Result<GpuEntry> {
    let tables = Tables::new(&hardware, &Engine::default(), data_dir);
    let table_headers = tables_by_name(&tables)?;
    let fitted = builtin_corrections()?.iter().filter(|of| of.source.hardware.contains(&hardware.name));
    let corrections: Vec<String> = fitted.map(|correction| correction.name.clone()).collect();
    Ok(GpuEntry {
        tables: table_headers.keys().filter(|name| !name.contains(' ')).cloned().collect(),
        correction: !corrections.is_empty(),
        corrections,
        other_cards: hardware.other_cards()?,
        hardware,
        table_headers: Some(table_headers),
        lists_series: false,
    })
}

/// The operators that have tables.
pub fn operators() -> [&'static str; FAMILIES.len()] {
    FAMILIES.map(|family| family.operator)
}
