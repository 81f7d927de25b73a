//! The built-in models (`models/*.json`), and how a name or path finds a model.

use std::borrow::Cow;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use include_dir::{Dir, include_dir};
use serde_json::Value;

use super::config;
use super::names::{ParsedName, Scheme};
use super::recipe::Recipe;
use super::refused_names::refused;
use super::shape::Model;
use crate::dtype::MatmulFormat;
use crate::error::{Error, Result};
use crate::input::{FileKind, embedded, files_in, near_matches, parse_json, read_text};

static FILES: Dir<'static> = include_dir!("$CARGO_MANIFEST_DIR/models");

static BUILTIN: LazyLock<Vec<BuiltinModel>> = LazyLock::new(|| {
    embedded(&FILES, "json").into_iter().map(|(name, json)| BuiltinModel::new(name, json.into())).collect()
});

/// A model configuration with a short name.
#[derive(Debug, Clone)]
pub struct BuiltinModel {
    /// Short name, as `llama-3.1-8b`.
    pub name: String,
    /// Hugging Face ids with this architecture; the first one published the configuration.
    pub hf_ids: Vec<String>,
    /// The configuration as text.
    pub json: Cow<'static, str>,
}

impl BuiltinModel {
    fn new(name: &str, json: Cow<'static, str>) -> Self {
        let ids = serde_json::from_str::<Value>(&json).ok().and_then(|config| {
            let ids = config.get("ridgepoint")?.get("hf_ids")?.as_array()?;
            Some(ids.iter().filter_map(Value::as_str).map(str::to_owned).collect())
        });
        BuiltinModel { name: name.to_owned(), hf_ids: ids.unwrap_or_default(), json }
    }

    fn names(&self) -> impl Iterator<Item = ParsedName> + '_ {
        std::iter::once(&self.name).chain(&self.hf_ids).map(|name| ParsedName::new(name))
    }

    fn load(&self) -> Result<Model> {
        Model::from_config_str(&self.name, &format!("models/{}.json", self.name), &self.json, None)
    }
}

/// Returns all built-in models, sorted by name.
pub fn builtin_models() -> &'static [BuiltinModel] {
    &BUILTIN
}

/// Returns the short names of all built-in models, sorted.
pub fn builtin_names() -> Vec<&'static str> {
    BUILTIN.iter().map(|model| model.name.as_str()).collect()
}

impl Model {
    /// Returns a built-in model by short name or Hugging Face id, in any case, with or without organisation. Suffixes that do
    /// not change the architecture (`-Instruct`, `-hf`, `-v0.1`) are ignored, with a note where the name is not a listed one. Suffixes of quantised variants
    /// (`-FP8`, `-AWQ`, `w4a16`) choose the built-in variant or, with a note, the publisher's usual scheme on the base model.
    ///
    /// # Errors
    /// `ErrorKind::UnknownModel` with near matches if no built-in model has exactly this name, and
    /// `ErrorKind::UnsupportedModel` for published models whose layers are not supported.
    ///
    /// ```
    /// let model = ridgepoint::Model::builtin("meta-llama/Llama-3.1-70B-Instruct")?;
    /// assert_eq!((model.name.as_str(), model.num_layers()), ("llama-3.1-70b", 80));
    /// # Ok::<(), ridgepoint::Error>(())
    /// ```
    pub fn builtin(name: &str) -> Result<Model> {
        find_among(&BUILTIN, name)?.ok_or_else(|| refused(name).unwrap_or_else(|| unknown(name)))
    }

    /// Reads a `config.json`, or the one in a directory, with the `hf_quant_config.json` and `generation_config.json` next to
    /// it.
    ///
    /// # Errors
    /// `ErrorKind::Io` if there is no such file, and those of [`Model::from_config_str`] and [`Model::with_generation_config`].
    pub fn load(path: impl AsRef<Path>) -> Result<Model> {
        Model::load_as(path, None)
    }

    /// [`Model::load`] for a file whose layers are those of the family `as_family`, as in [`Model::from_config_as`].
    ///
    /// # Errors
    /// Those of [`Model::load`], and `ErrorKind::Invalid` for a family that is not known.
    pub fn load_as(path: impl AsRef<Path>, as_family: Option<&str>) -> Result<Model> {
        let given = path.as_ref();
        let file = if given.is_dir() { given.join(main_file(given)) } else { given.to_owned() };
        if let Some(what) = file.extension().and_then(|ending| weight_file(ending.to_str()?)) {
            return Err(Error::invalid(file.display().to_string(), vec![what.to_owned()]));
        }
        let json = read_text(FileKind::ModelConfig, &file)?;
        // A folder may hold several models' files, each with the model's name in front.
        let stem = file.file_name().and_then(|name| name.to_str()?.strip_suffix("config.json")).unwrap_or_default();
        let next_to = |name: &str| {
            Some(file.with_file_name(format!("{stem}{name}"))).filter(|path| path.is_file() && *path != file)
        };
        let hf =
            next_to("hf_quant_config.json").map(|file| read_text(FileKind::QuantisationConfig, &file)).transpose()?;
        let (name, origin) = (given.display().to_string(), file.display().to_string());
        let mut model = Model::from_config_as(&name, &origin, &json, hf.as_deref(), as_family)?;
        // A path such as `.` does not say the folder's name, which may be the checkpoint's.
        let folder =
            std::path::absolute(&file).ok().and_then(|file| Some(file.parent()?.file_name()?.display().to_string()));
        if hf.is_none()
            && let Some(folder) = folder.filter(|folder| !model.name.contains(folder))
        {
            model.notes.extend(config::unquantised_note(&folder, &model));
        }
        match next_to("generation_config.json") {
            Some(file) => model
                .with_generation_config(&file.display().to_string(), &read_text(FileKind::GenerationConfig, &file)?),
            None => Ok(model),
        }
    }

    /// Finds a model by path (a file, or a directory with a `config.json`) or by built-in name.
    ///
    /// # Errors
    /// Those of [`Model::load`] for a path and of [`Model::builtin`] for a name.
    pub fn find(name_or_path: &str) -> Result<Model> {
        Model::find_in(None, name_or_path)
    }

    /// Finds a model like [`Model::find`], but looks at the configurations in `data_dir/models/*.json` before the built-in
    /// ones.
    ///
    /// # Errors
    /// Those of [`Model::find`], and `ErrorKind::Io` if `data_dir/models` can't be read.
    pub fn find_in(data_dir: Option<&Path>, name_or_path: &str) -> Result<Model> {
        Model::find_as(data_dir, name_or_path, None)
    }

    /// [`Model::find_in`] with the family of a file's layers, as in [`Model::load_as`]. A model that is named keeps its own, with a note.
    ///
    /// # Errors
    /// Those of [`Model::find_in`], and `ErrorKind::Invalid` for a family that is not known.
    pub fn find_as(data_dir: Option<&Path>, name_or_path: &str, as_family: Option<&str>) -> Result<Model> {
        let path = Path::new(name_or_path);
        let looks_like_path = path.extension().is_some_and(|e| e.eq_ignore_ascii_case("json"))
            || path.is_absolute()
            || name_or_path.starts_with('.');
        if looks_like_path || path.is_file() || path.join(main_file(path)).is_file() {
            return Model::load_as(path, as_family);
        }
        let mut model = Model::named_in(data_dir, name_or_path)?;
        if let Some(family) = as_family {
            model.notes.push(format!("as_family = {family} is not used: the layers of {} are known", model.name));
        }
        Ok(model)
    }

    /// Finds a model like [`Model::find_in`] by its name alone: a name that is a path is unknown.
    ///
    /// # Errors
    /// Those of [`Model::builtin`], and `ErrorKind::Io` if `data_dir/models` can't be read.
    ///
    /// ```
    /// use ridgepoint::{ErrorKind, Model};
    /// assert_eq!(Model::named_in(None, "llama-3.1-8b")?.name, "llama-3.1-8b");
    /// let error = Model::named_in(None, "models/llama-3.1-8b.json").unwrap_err();
    /// assert_eq!(error.kind(), ErrorKind::UnknownModel);
    /// # Ok::<(), ridgepoint::Error>(())
    /// ```
    pub fn named_in(data_dir: Option<&Path>, name: &str) -> Result<Model> {
        match find_among(&own(data_dir)?, name)? {
            Some(model) => Ok(model),
            None => Model::builtin(name),
        }
    }
}

/// The file that says most about the model in a folder: its configuration, or else one that tells what the folder is.
fn main_file(folder: &Path) -> &'static str {
    let others = ["adapter_config.json", "params.json"];
    let is_there = |name: &&str| folder.join(name).is_file();
    if is_there(&"config.json") { "config.json" } else { others.into_iter().find(is_there).unwrap_or("config.json") }
}

/// What a file of weights is, by the ending of its name.
fn weight_file(ending: &str) -> Option<&'static str> {
    match ending {
        "gguf" => Some(
            "is a GGUF file, whose sizes are not read: name the unquantised model, or give its config.json, with the nearest precision, such \
             as int4",
        ),
        "yaml" | "yml" => Some(
            "is YAML, as servers' files are: a model is a name or a config.json, and a server's file goes where the server is given",
        ),
        "safetensors" | "bin" | "pt" | "pth" => Some("is a file of weights: give the config.json next to it"),
        _ => None,
    }
}

/// Reads the configurations of a data folder. Such files are often named `organisation--model.json`.
fn own(data_dir: Option<&Path>) -> Result<Vec<BuiltinModel>> {
    let read = |path: &PathBuf| {
        let name = path.file_stem().unwrap_or_default().to_string_lossy().replace("--", "/");
        Ok(BuiltinModel::new(&name, read_text(FileKind::ModelConfig, path)?.into()))
    };
    files_in(data_dir, "models", "json")?.iter().map(read).collect()
}

fn is_builtin(name: &str) -> bool {
    BUILTIN.iter().any(|model| model.name == name)
}

/// Returns whether a built-in or own configuration has exactly this short name.
pub(super) fn is_listed(data_dir: Option<&Path>, name: &str) -> Result<bool> {
    Ok(is_builtin(name) || own(data_dir)?.iter().any(|model| model.name == name))
}

fn unknown(name: &str) -> Error {
    let base = ParsedName::new(name).base;
    let same = BUILTIN.iter().filter(|model| model.names().any(|known| known.base == base));
    let same: Vec<&str> = same.map(|model| model.name.as_str()).collect();
    if !same.is_empty() {
        return Error::unknown_format(name, &same);
    }
    let bare = name.rsplit('/').next().unwrap_or(name);
    let near = near_matches(bare, BUILTIN.iter().map(|model| model.name.as_str()));
    Error::unknown_model(name, &near)
}

/// Finds, in this order, the exact name, a variant with the same base and scheme, or the base with a plain scheme.
fn find_among(models: &[BuiltinModel], name: &str) -> Result<Option<Model>> {
    let wanted = ParsedName::new(name);
    let publisher_known = |model: &BuiltinModel| {
        // Quantised builds of one base differ between publishers, so another publisher's build is a different model.
        wanted.scheme.is_none()
            || wanted.organisation.is_none()
            || model.names().any(|n| n.organisation.is_some() && n.organisation == wanted.organisation)
    };
    let choose = |fits: &dyn Fn(&ParsedName) -> bool| -> Option<&BuiltinModel> {
        let mut hits = models.iter().filter(|m| publisher_known(m) && m.names().any(|n| fits(&n)));
        let first = hits.next()?;
        hits.next().is_none().then_some(first)
    };
    let exact = choose(&|n| n.organisation == wanted.organisation && n.whole == wanted.whole)
        .or_else(|| choose(&|n| n.whole == wanted.whole));
    if let Some(model) = exact {
        return model.load().map(Some);
    }
    if let Some(known) = choose(&|n| n.base == wanted.base && n.scheme == wanted.scheme) {
        let mut model = known.load()?;
        model.notes.push(format!(
            "'{name}' is not built in: taken as {}, whose name differs in a suffix; give the path of its config.json if it has others",
            known.name
        ));
        return Ok(Some(model));
    }
    let Some(scheme) = wanted.scheme else { return Ok(None) };
    if (scheme.format, scheme.scales) == (MatmulFormat::Fp8, "")
        && let Some(model) = choose(&|n| n.base == wanted.base && n.scheme.is_some_and(Scheme::is_fp8))
    {
        return model.load().map(Some);
    }
    // NVIDIA's unquantised checkpoints say BF16.
    let is_plain = |n: &ParsedName| n.scheme.is_none_or(|scheme| scheme.format == MatmulFormat::Bfloat16);
    let mut bases = models.iter().filter(|m| m.names().any(|n| n.base == wanted.base && is_plain(&n)));
    match (bases.next(), bases.next()) {
        (Some(base), None) => assumed(base, scheme, &wanted, name).map(Some),
        _ => Ok(None),
    }
}

/// Returns the base model with the scheme that the publisher of the name uses, or else the plain form of it.
fn assumed(base: &BuiltinModel, scheme: Scheme, wanted: &ParsedName, name: &str) -> Result<Model> {
    let origin = format!("models/{}.json", base.name);
    let mut value = parse_json(&origin, &base.json)?;
    let own = value.get("quantization_config").and_then(|q| q.get("quant_method")).and_then(Value::as_str);
    if (own == Some("fp8") && scheme.is_fp8()) || (own.is_none() && scheme.format == MatmulFormat::Bfloat16) {
        return base.load();
    }
    let publisher = wanted.organisation.clone().or_else(|| base.names().find_map(|known| known.organisation));
    let recipe = Recipe::new(scheme, publisher.as_deref().unwrap_or_default(), &base.name);
    if let Some(map) = value.as_object_mut() {
        map.insert("quantization_config".to_owned(), recipe.quantisation());
    }
    // A listed name is that of another checkpoint.
    let short = Some(format!("{}-{}", base.name, recipe.label)).filter(|short| !is_builtin(short));
    let mut model = config::from_value(short.as_deref().unwrap_or(name), &origin, &value, None, None)?;
    model.notes.push(format!(
        "'{name}' is not built in: taken as {} with all linear layers but router and LM head in {}",
        base.name,
        recipe.description()
    ));
    Ok(model)
}
