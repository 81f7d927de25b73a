//! `ridgepoint models` and `ridgepoint hardware`: what is built in, with what is in the data directory before it.
//! Gathers the facts; `report` lays them out.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use ridgepoint::hardware::{builtin_aliases, builtin_names};
use ridgepoint::internals::correction::{Used, builtin_corrections};
use ridgepoint::internals::efficiency::Tables;
use ridgepoint::internals::efficiency::family::Family;
use ridgepoint::internals::efficiency::kernel_model::{AllReduceModel, DecodeModel, GemmModel, MoeModel, PrefillModel};
use ridgepoint::internals::efficiency::table::Header;
use ridgepoint::model::{Attention, ParameterCounts, builtin_models};
use ridgepoint::physics::Memory;
use ridgepoint::{CorrectionChoice, EfficiencyMode, Error, Hardware, Model};
use serde::Serialize;

use super::args::{Common, Format, HardwareArgs, Models};
use super::output::{Failure, Output};
use crate::report;

/// A model as it is listed.
#[derive(Serialize)]
pub struct ModelEntry {
    /// Short name.
    pub name: String,
    /// `model_type` of the configuration.
    pub model_type: String,
    /// Parameters: all, those that one token meets, those of the embedding.
    pub parameters: ParameterCounts,
    /// Layers.
    pub num_layers: u64,
    /// `gqa`, `mla` or both.
    pub attention: String,
    /// How weights are stored, the layers' formats in their order.
    pub weight_formats: Vec<String>,
    /// All weights as stored, bytes.
    pub weight_bytes: f64,
    /// Longest context.
    pub max_position_embeddings: u64,
    /// Hugging Face ids of this architecture; the facts were published under the first.
    pub hf_ids: Vec<String>,
    /// The built-in correction that predictions take: the model's own, the global one, or none.
    pub correction: Used,
}

impl ModelEntry {
    fn new(model: &Model, hf_ids: &[String]) -> ridgepoint::Result<Self> {
        let mut attention = BTreeSet::new();
        let mut formats: Vec<String> = Vec::new();
        for group in model.layers() {
            let (kind, storage) = match &group.attention {
                Attention::Gqa(gqa) => ("gqa", vec![gqa.qkv_weights, gqa.o_weights]),
                Attention::Mla(mla) => ("mla", vec![mla.weights]),
            };
            attention.insert(kind);
            let dense = group.dense.iter().map(|dense| dense.weights);
            let experts = group.moe.iter().map(|moe| moe.weights);
            for format in storage.into_iter().chain(dense).chain(experts).map(|format| format.to_string()) {
                if !formats.contains(&format) {
                    formats.push(format);
                }
            }
        }
        Ok(ModelEntry {
            name: model.name().to_owned(),
            model_type: model.model_type().to_owned(),
            parameters: model.parameters(),
            num_layers: model.num_layers(),
            attention: attention.into_iter().collect::<Vec<_>>().join("+"),
            weight_formats: formats,
            weight_bytes: model.weight_bytes(),
            max_position_embeddings: model.max_position_embeddings(),
            hf_ids: hf_ids.to_vec(),
            correction: Used::of(CorrectionChoice::Auto.resolve(model.name(), EfficiencyMode::Tables)?.as_deref()),
        })
    }
}

/// Lists models, or shows one.
///
/// # Errors
/// A model that is unknown, unreadable or can't be split as asked.
pub fn models(args: &Models, common: &Common) -> Result<Output, Failure> {
    let data_dir = common.data_dir.as_deref();
    let Some(name) = &args.name else {
        let mut entries = Vec::new();
        for path in files_in(data_dir, "models", "json")? {
            entries.push(ModelEntry::new(&Model::load(&path)?, &[])?);
        }
        for builtin in builtin_models() {
            entries.push(ModelEntry::new(&Model::builtin(builtin.name())?, builtin.hf_ids())?);
        }
        return match common.format {
            Format::Table => Ok(Output::of(report::models::list(&entries))),
            Format::Json => Output::json(&BTreeMap::from([("models", entries)])),
        };
    };
    let model = Model::find_in(data_dir, name)?;
    let ids = builtin_models().iter().find(|builtin| builtin.name() == model.name());
    let entry = ModelEntry::new(&model, ids.map_or(&[], |builtin| builtin.hf_ids()))?;
    let deployment = args.parallel.deployment();
    let memory = Memory::new(&model, &deployment)?;
    match common.format {
        Format::Table => Ok(Output::of(report::models::one(&entry, &model, &deployment, &memory))),
        Format::Json => Output::json(&report::models::detail(&entry, &model, &deployment, &memory)),
    }
}

/// A GPU as it is listed.
#[derive(Serialize)]
pub struct GpuEntry {
    /// Its figures and their sources.
    #[serde(flatten)]
    pub hardware: Hardware,
    /// Other names it is found by.
    pub aliases: Vec<String>,
    /// Operators that have an efficiency table of this very GPU.
    pub tables: Vec<&'static str>,
    /// Whether a built-in correction was fitted on steps of this very GPU.
    pub correction: bool,
    /// Names of those corrections.
    pub corrections: Vec<String>,
}

/// The efficiency table of one operator.
#[derive(Serialize)]
pub struct GpuTable {
    /// Measured rows used, over all series.
    pub rows: usize,
    /// Who measured.
    pub sources: Vec<String>,
    /// Command that wrote the table.
    pub command: String,
    /// Series by name: rows, lines, source and the errors of rows left out.
    pub series: BTreeMap<String, ridgepoint::internals::efficiency::table::SeriesHeader>,
}

impl GpuTable {
    fn new(header: &Header) -> Self {
        let sources: BTreeSet<String> = header.series.values().map(|series| series.source.clone()).collect();
        GpuTable {
            rows: header.series.values().map(|series| series.rows).sum(),
            sources: sources.into_iter().collect(),
            command: header.command.clone(),
            series: header.series.clone(),
        }
    }
}

/// Lists GPUs, or shows one.
///
/// # Errors
/// A GPU that is unknown, a hardware or table file that is at fault.
pub fn hardware(args: &HardwareArgs, common: &Common) -> Result<Output, Failure> {
    let data_dir = common.data_dir.as_deref();
    let Some(name) = &args.name else {
        let mut names: BTreeSet<String> = builtin_names().into_iter().map(str::to_owned).collect();
        for path in files_in(data_dir, "hardware", "toml")? {
            names.extend(path.file_stem().map(|stem| stem.to_string_lossy().into_owned()));
        }
        let mut entries = Vec::new();
        for name in names {
            entries.push(gpu(Hardware::find_in(data_dir, &name)?, data_dir)?.0);
        }
        return match common.format {
            Format::Table => Ok(Output::of(report::hardware::list(&entries))),
            Format::Json => Output::json(&BTreeMap::from([("hardware", entries)])),
        };
    };
    let (entry, tables) = gpu(Hardware::find_in(data_dir, name)?, data_dir)?;
    match common.format {
        Format::Table => Ok(Output::of(report::hardware::one(&entry, &tables))),
        Format::Json => Output::json(&report::hardware::detail(&entry, &tables)),
    }
}

type GpuTables = BTreeMap<&'static str, GpuTable>;

fn gpu(hardware: Hardware, data_dir: Option<&Path>) -> Result<(GpuEntry, GpuTables), Failure> {
    let tables = Tables::new(&hardware, data_dir);
    let mut own = GpuTables::new();
    add_table::<GemmModel>(&tables, &mut own)?;
    add_table::<PrefillModel>(&tables, &mut own)?;
    add_table::<DecodeModel>(&tables, &mut own)?;
    add_table::<MoeModel>(&tables, &mut own)?;
    add_table::<AllReduceModel>(&tables, &mut own)?;
    let aliases = builtin_aliases(hardware.name()).unwrap_or_default();
    let fitted = builtin_corrections()?.iter().filter(|of| of.source.hardware.iter().any(|gpu| gpu == hardware.name()));
    let corrections: Vec<String> = fitted.map(|correction| correction.name.clone()).collect();
    let tables = own.keys().copied().collect();
    let entry = GpuEntry { hardware, aliases, tables, correction: !corrections.is_empty(), corrections };
    Ok((entry, own))
}

fn add_table<F: Family>(tables: &Tables, found: &mut GpuTables) -> ridgepoint::Result<()> {
    if let Some(header) = tables.own_header::<F>()? {
        found.insert(F::OPERATOR, GpuTable::new(header));
    }
    Ok(())
}

/// The data directory's files of one kind, sorted.
fn files_in(data_dir: Option<&Path>, folder: &str, extension: &str) -> ridgepoint::Result<Vec<PathBuf>> {
    let Some(dir) = data_dir.map(|dir| dir.join(folder)).filter(|dir| dir.is_dir()) else { return Ok(Vec::new()) };
    let entries = std::fs::read_dir(&dir).map_err(|error| Error::io(&dir, error))?;
    let mut paths = Vec::new();
    for entry in entries {
        let path = entry.map_err(|error| Error::io(&dir, error))?.path();
        if path.extension().is_some_and(|e| e == extension) {
            paths.push(path);
        }
    }
    paths.sort();
    Ok(paths)
}
