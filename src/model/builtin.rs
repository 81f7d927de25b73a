//! The built-in models (`models/*.json`) and finding a model by name or path. Uses `catalog`, `error` and this
//! module's `names` and `config`.

use std::borrow::Cow;
use std::path::Path;
use std::sync::LazyLock;

use include_dir::{Dir, include_dir};
use serde_json::{Value, json};

use super::config;
use super::names::{ParsedName, Scheme};
use super::shape::Model;
use crate::error::{Error, Result};
use crate::input;

static FILES: Dir<'static> = include_dir!("$CARGO_MANIFEST_DIR/models");

static BUILTIN: LazyLock<Vec<BuiltinModel>> = LazyLock::new(|| {
    let mut models: Vec<BuiltinModel> = FILES
        .files()
        .filter(|file| file.path().extension().is_some_and(|e| e == "json"))
        .filter_map(|file| {
            let name = file.path().file_stem()?.to_str()?;
            Some(BuiltinModel::new(name, file.contents_utf8()?.into()))
        })
        .collect();
    models.sort_by(|a, b| a.name.cmp(&b.name));
    models
});

/// A model whose configuration is at hand under a short name.
#[derive(Debug, Clone)]
pub struct BuiltinModel {
    name: String,
    hf_ids: Vec<String>,
    json: Cow<'static, str>,
}

impl BuiltinModel {
    fn new(name: &str, json: Cow<'static, str>) -> Self {
        let ids = serde_json::from_str::<Value>(&json).ok().and_then(|config| {
            let ids = config.get("ridgepoint")?.get("hf_ids")?.as_array()?;
            Some(ids.iter().filter_map(Value::as_str).map(str::to_owned).collect())
        });
        BuiltinModel { name: name.to_owned(), hf_ids: ids.unwrap_or_default(), json }
    }

    /// Short name, as `llama-3.1-8b`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Hugging Face ids whose architecture this is; the first is where the configuration's facts were published.
    pub fn hf_ids(&self) -> &[String] {
        &self.hf_ids
    }

    /// The configuration as text.
    pub fn json(&self) -> &str {
        &self.json
    }

    fn names(&self) -> impl Iterator<Item = ParsedName> + '_ {
        std::iter::once(&self.name).chain(&self.hf_ids).map(|name| ParsedName::new(name))
    }

    fn load(&self) -> Result<Model> {
        Model::from_config_str(&self.name, &format!("models/{}.json", self.name), &self.json, None)
    }
}

/// All built-in models, by name.
pub fn builtin_models() -> &'static [BuiltinModel] {
    &BUILTIN
}

/// Short names of all built-in models, in order.
pub fn builtin_names() -> Vec<&'static str> {
    BUILTIN.iter().map(|model| model.name.as_str()).collect()
}

impl Model {
    /// A built-in model by short name or Hugging Face id, in any case, with or without organisation. Suffixes that
    /// leave the architecture alone (`-Instruct`, `-hf`, `-v0.1`, `-2407`) are passed over; those of quantised variants
    /// (`-FP8`, `-AWQ`, `w4a16`) choose the built-in variant or, with a note, a plain scheme on the base model.
    ///
    /// # Errors
    /// `ErrorKind::UnknownModel` with near matches where no built-in model has exactly this name.
    ///
    /// ```
    /// let model = ridgepoint::Model::builtin("meta-llama/Llama-3.1-70B-Instruct")?;
    /// assert_eq!((model.name(), model.num_layers()), ("llama-3.1-70b", 80));
    /// # Ok::<(), ridgepoint::Error>(())
    /// ```
    pub fn builtin(name: &str) -> Result<Model> {
        find_among(&BUILTIN, name)?.ok_or_else(|| unknown(name))
    }

    /// Reads a `config.json`, or the one in a directory, with `hf_quant_config.json` and `generation_config.json` beside it.
    ///
    /// # Errors
    /// `ErrorKind::Io` where there is no such file, else as [`Model::from_config_str`] and [`Model::with_generation_config`].
    pub fn load(path: impl AsRef<Path>) -> Result<Model> {
        let given = path.as_ref();
        let file = if given.is_dir() { given.join("config.json") } else { given.to_owned() };
        let read = |file: &Path| std::fs::read_to_string(file).map_err(|source| Error::io(file, source));
        let json = read(&file)?;
        let beside = |name: &str| Some(file.with_file_name(name)).filter(|beside| beside.is_file() && *beside != file);
        let hf = beside("hf_quant_config.json").map(|file| read(&file)).transpose()?;
        let model =
            Model::from_config_str(&given.display().to_string(), &file.display().to_string(), &json, hf.as_deref())?;
        match beside("generation_config.json") {
            Some(file) => model.with_generation_config(&file.display().to_string(), &read(&file)?),
            None => Ok(model),
        }
    }

    /// A model by path (a file, or a directory with a `config.json`) or else by built-in name.
    ///
    /// # Errors
    /// As [`Model::load`] for a path and [`Model::builtin`] for a name.
    pub fn find(name_or_path: &str) -> Result<Model> {
        Model::find_in(None, name_or_path)
    }

    /// [`Model::find`] that also knows the configurations in `data_dir/models/*.json`; they win over built-in ones.
    ///
    /// # Errors
    /// As [`Model::find`], and `ErrorKind::Io` where `data_dir/models` can't be read.
    pub fn find_in(data_dir: Option<&Path>, name_or_path: &str) -> Result<Model> {
        let path = Path::new(name_or_path);
        let looks_like_path = path.extension().is_some_and(|e| e.eq_ignore_ascii_case("json"))
            || path.is_absolute()
            || name_or_path.starts_with('.');
        if looks_like_path || path.is_file() || path.join("config.json").is_file() {
            return Model::load(path);
        }
        if let Some(dir) = data_dir.map(|dir| dir.join("models")).filter(|dir| dir.is_dir())
            && let Some(model) = find_among(&read_dir(&dir)?, name_or_path)?
        {
            return Ok(model);
        }
        Model::builtin(name_or_path)
    }
}

fn read_dir(dir: &Path) -> Result<Vec<BuiltinModel>> {
    let mut models = Vec::new();
    for entry in std::fs::read_dir(dir).map_err(|source| Error::io(dir, source))? {
        let path = entry.map_err(|source| Error::io(dir, source))?.path();
        if path.extension().is_some_and(|e| e == "json")
            && let Some(name) = path.file_stem().and_then(|stem| stem.to_str())
        {
            // Files of this kind are often named `organisation--model.json`.
            let json = std::fs::read_to_string(&path).map_err(|source| Error::io(&path, source))?;
            models.push(BuiltinModel::new(&name.replace("--", "/"), json.into()));
        }
    }
    models.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(models)
}

fn unknown(name: &str) -> Error {
    let bare = name.rsplit('/').next().unwrap_or(name);
    let near = input::near_matches(bare, BUILTIN.iter().map(|model| model.name.as_str()));
    Error::unknown_model(name, near)
}

/// In order: the very name; a shipped variant with the same base and scheme; the base with a plain scheme.
fn find_among(models: &[BuiltinModel], name: &str) -> Result<Option<Model>> {
    let wanted = ParsedName::new(name);
    let publisher_known = |model: &BuiltinModel| {
        // Quantised builds of one base differ between publishers, so another's is not taken for theirs.
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
        .or_else(|| choose(&|n| n.whole == wanted.whole))
        .or_else(|| choose(&|n| n.base == wanted.base && n.scheme == wanted.scheme));
    if let Some(model) = exact {
        return model.load().map(Some);
    }
    let Some(scheme) = wanted.scheme else { return Ok(None) };
    if scheme == Scheme::Fp8
        && let Some(model) = choose(&|n| n.base == wanted.base && n.scheme.is_some_and(Scheme::is_fp8))
    {
        return model.load().map(Some);
    }
    let mut bases = models.iter().filter(|m| m.names().any(|n| n.base == wanted.base && n.scheme.is_none()));
    match (bases.next(), bases.next()) {
        (Some(base), None) => assumed(base, scheme, name).map(Some),
        _ => Ok(None),
    }
}

/// The base model with the plain form of a scheme in place of its own.
fn assumed(base: &BuiltinModel, scheme: Scheme, name: &str) -> Result<Model> {
    let origin = format!("models/{}.json", base.name);
    let mut value = config::parse(&origin, &base.json)?;
    let own = value.get("quantization_config").and_then(|q| q.get("quant_method")).and_then(Value::as_str);
    if (own == Some("fp8") && scheme.is_fp8()) || (own.is_none() && scheme == Scheme::Bfloat16) {
        return base.load();
    }
    let channelwise = |bits: u32| {
        let part = |strategy: &str| json!({"num_bits": bits, "type": "int", "strategy": strategy});
        json!({"quant_method": "compressed-tensors", "config_groups": {"group_0": {
            "targets": ["Linear"], "weights": part("channel"), "input_activations": part("token")}}})
    };
    let (label, what, quantisation) = match scheme {
        Scheme::Fp8 | Scheme::Fp8Dynamic | Scheme::Fp8Static => {
            ("fp8", "fp8 with one scale per tensor or channel", json!({"quant_method": "fp8"}))
        }
        Scheme::Fp8Block => {
            let block = json!({"quant_method": "fp8", "weight_block_size": [128, 128]});
            ("fp8-block", "fp8 in blocks of 128 x 128", block)
        }
        Scheme::Int4 => {
            ("int4", "int4 in groups of 128", json!({"quant_method": "gptq", "bits": 4, "group_size": 128}))
        }
        Scheme::Int8WeightOnly => {
            ("w8a16", "int8 weights in groups of 128", json!({"quant_method": "gptq", "bits": 8, "group_size": 128}))
        }
        Scheme::Int8 => ("w8a8", "int8 with one scale per channel", channelwise(8)),
        Scheme::Nvfp4 => ("nvfp4", "NVFP4", json!({"quant_method": "modelopt", "quant_algo": "NVFP4"})),
        Scheme::Bfloat16 => ("bf16", "bfloat16", Value::Null),
    };
    if let Some(map) = value.as_object_mut() {
        map.insert("quantization_config".to_owned(), quantisation);
    }
    let mut model = config::from_value(&format!("{}-{label}", base.name), &origin, &value, None)?;
    model.notes.push(format!(
        "'{name}' is not built in: taken as {} with all linear layers but router and LM head in {what}; give the path \
         of its config.json to use its real scheme",
        base.name
    ));
    Ok(model)
}
