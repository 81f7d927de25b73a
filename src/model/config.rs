//! Reads a `config.json` into a checked [`Model`]. Uses the other files of this module.

use serde_json::{Map, Value};

use super::context_length::context_length;
use super::draft::MTP_NOTE;
use super::family::{AttentionRule, Family, FfnRule};
use super::other_methods::refuse_mlx;
use super::quantisation::Quantisation;
use super::sampling::SamplingParams;
use super::shape::{LayerGroup, Model};
use super::sizes::{LayerReader, size};
use super::storage::Storage;
use super::tower::Towers;
use super::unsupported::{FamilyChoice, is_set};
use super::{attention, classes, derived_keys, family, ffn, hybrid, other_files, tower, unsupported};
use crate::dtype::{DType, WeightFormat};
use crate::error::{Error, Result};
use crate::input::{Keys, Log, parse_json, parse_python_json, shown};

/// Keys under which multimodal models keep the configuration of their language model.
const TEXT_SECTIONS: [&str; 3] = ["text_config", "language_config", "llm_config"];
/// More layers than any model has; bounds the work of reading a file.
const MAX_LAYERS: u64 = 10_000;
/// Parts of a name that promise quantised weights.
const QUANTISED_NAMES: [&str; 9] = ["fp8", "awq", "gptq", "fp4", "w4a16", "w8a16", "w8a8", "int4", "int8"];
/// Other names of keys, as pairs of alias and key.
const ALIASES: &[(&str, &str)] = &[
    ("num_local_experts", "num_experts"),
    ("n_routed_experts", "num_experts"),
    ("moe_num_experts", "num_experts"),
    ("num_experts_per_token", "num_experts_per_tok"),
    ("experts_per_token", "num_experts_per_tok"),
    ("top_k_experts", "num_experts_per_tok"),
    ("moe_topk", "num_experts_per_tok"),
    ("_sliding_window_pattern", "sliding_window_pattern"),
    ("attention_head_dim", "head_dim"),
];
const QUANTISATION_ALIASES: &[(&str, &str)] = &[("w_bit", "bits"), ("q_group_size", "group_size")];

impl Model {
    /// Parses and checks a configuration. `name` becomes the name of the model, and errors call the text `origin`, usually a
    /// path. `hf_quant_config` is the text of the file of that name next to it, if there is one.
    ///
    /// # Errors
    /// `ErrorKind::Parse` with line and column for malformed JSON. `ErrorKind::UnsupportedModel` with the key for layers
    /// whose physics is not known. `ErrorKind::Invalid` with all missing, wrong or contradictory values.
    ///
    /// ```
    /// let json = r#"{"model_type": "llama", "hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 32,
    ///     "num_attention_heads": 32, "num_key_value_heads": 32, "vocab_size": 32000,
    ///     "max_position_embeddings": 4096, "torch_dtype": "float16"}"#;
    /// let model = ridgepoint::Model::from_config_str("llama-2-7b", "example", json, None)?;
    /// assert_eq!(model.parameters().total, 6_738_415_616);
    /// # Ok::<(), ridgepoint::Error>(())
    /// ```
    pub fn from_config_str(name: &str, origin: &str, json: &str, hf_quant_config: Option<&str>) -> Result<Model> {
        Model::from_config_as(name, origin, json, hf_quant_config, None)
    }

    /// [`Model::from_config_str`] for a configuration whose layers are those of the family `as_family`, a known `model_type`, whatever its
    /// own `model_type` says. A note says so.
    ///
    /// # Errors
    /// Those of [`Model::from_config_str`], and `ErrorKind::Invalid` for a family that is not known.
    ///
    /// ```
    /// let json = r#"{"model_type": "mine", "hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 32,
    ///     "num_attention_heads": 32, "vocab_size": 32000, "max_position_embeddings": 4096, "torch_dtype": "float16"}"#;
    /// let model = ridgepoint::Model::from_config_as("mine", "config.json", json, None, Some("llama"))?;
    /// assert_eq!(model.parameters().total, 6_738_415_616);
    /// # Ok::<(), ridgepoint::Error>(())
    /// ```
    pub fn from_config_as(
        name: &str,
        origin: &str,
        json: &str,
        hf_quant_config: Option<&str>,
        as_family: Option<&str>,
    ) -> Result<Model> {
        let config = parse_python_json(origin, json)?;
        let hf = hf_quant_config
            .map(|json| parse_python_json(&format!("{origin}: hf_quant_config.json"), json))
            .transpose()?;
        from_value(name, origin, &config, hf.as_ref(), as_family)
    }

    /// Returns the same model with the sampling parameters of a `generation_config.json`, whose text errors call `origin`.
    /// Other keys of the file (token ids, lengths) are ignored.
    ///
    /// # Errors
    /// `ErrorKind::Parse` for text that is not a JSON object. `ErrorKind::Invalid` with all wrong values, or if the
    /// configuration itself has other parameters under `ridgepoint.generation_config`.
    ///
    /// ```
    /// let json = r#"{"model_type": "llama", "hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 32,
    ///     "num_attention_heads": 32, "num_key_value_heads": 32, "vocab_size": 32000,
    ///     "max_position_embeddings": 4096, "torch_dtype": "float16"}"#;
    /// let model = ridgepoint::Model::from_config_str("mine", "config.json", json, None)?;
    /// assert!(model.sampling.is_none());
    /// let model = model.with_generation_config("generation_config.json", r#"{"eos_token_id": 2, "top_p": 0.9}"#)?;
    /// assert!(model.sampling.is_some_and(|sampling| sampling.truncates()));
    /// # Ok::<(), ridgepoint::Error>(())
    /// ```
    pub fn with_generation_config(mut self, origin: &str, json: &str) -> Result<Self> {
        let value = parse_json(origin, json)?;
        let map = object(origin, &value)?;
        let log = Log::default();
        let sampling = SamplingParams::read(&Keys::of_map("", map, &log));
        if self.sampling.is_some_and(|own| own != sampling) {
            log.problem(format!(
                "its sampling parameters differ from ridgepoint.generation_config in the configuration of {}: remove one",
                self.name
            ));
        }
        self.sampling = Some(log.finish(origin, Some(sampling))?.0);
        Ok(self)
    }
}

/// Reads and checks a parsed configuration.
pub(super) fn from_value(
    name: &str,
    origin: &str,
    config: &Value,
    hf: Option<&Value>,
    as_family: Option<&str>,
) -> Result<Model> {
    let log = Log::default();
    let model = read(name, origin, config, hf, as_family, &log)?;
    let (mut model, notes) = log.finish(origin, Some(model))?;
    model.notes = notes;
    Ok(model)
}

fn object<'a>(origin: &str, value: &'a Value) -> Result<&'a Map<String, Value>> {
    value.as_object().ok_or_else(|| Error::parse(origin, format!("must be a JSON object, not {}", shown(value))))
}

/// The section of the language model, with its path; `None` where the outermost object is that.
fn text_section<'a>(outer: &Keys<'a>) -> Option<(&'static str, Keys<'a>)> {
    let of = |whole: &Keys<'a>| TEXT_SECTIONS.into_iter().find_map(|key| Some((key, whole.section(key)?)));
    // Qwen's omni models have a part that thinks and one that talks.
    of(outer).or_else(|| of(&outer.section("thinker_config")?))
}

/// Reads everything and leaves problems in `log`.
fn read(
    name: &str,
    origin: &str,
    config: &Value,
    hf: Option<&Value>,
    as_family: Option<&str>,
    log: &Log,
) -> Result<Model> {
    let map = object(origin, config)?;
    if let Some(what) = other_files::recognised(map) {
        return Err(Error::invalid(origin, vec![what]));
    }
    let outer = Keys::of_map("", map, log).with_aliases(ALIASES);
    let nested = text_section(&outer);
    let is_nested = nested.is_some();
    let (path, text) = nested.unwrap_or_else(|| ("", outer.clone()));
    let named = text.text("model_type").or_else(|| outer.text("model_type"));
    classes::refuse_parts(name, origin, named.unwrap_or_default(), &outer)?;
    let own = outer.section("ridgepoint").and_then(|own| own.text("as_family"));
    let choice = FamilyChoice { named, asked: as_family.or(own) };
    let (model_type, family) = unsupported::family_of(origin, &choice, &text, &outer)?;
    classes::note_class(name, &outer, model_type, family);
    let with_defaults = with_defaults(&text, family, model_type, is_nested);
    let text = Keys::of_map(path, &with_defaults, log).with_aliases(ALIASES);
    let hf = hf.map(|hf| object(&format!("{origin}: hf_quant_config.json"), hf)).transpose()?;
    let hf = hf.map(|map| {
        let whole = Keys::of_map("hf_quant_config", map, log);
        whole.section("quantization").unwrap_or(whole)
    });
    Ok(ConfigReader { name, model_type, family, outer, text, is_nested }.model(hf.as_ref()))
}

/// The keys of the language model under the names that are read, with what the family's configuration class supplies for absent ones.
fn with_defaults(text: &Keys<'_>, family: &Family, model_type: &str, is_nested: bool) -> Map<String, Value> {
    let mut map: Map<String, Value> = text.entries().map(|(key, value)| (key.clone(), value.clone())).collect();
    for (own, key) in family::renamed(model_type) {
        if let Some(value) = text.get(own).filter(|_| !text.has(key)) {
            map.insert(key.to_owned(), value.clone());
        }
    }
    derived_keys::add(model_type, &mut map, text.log);
    for key in family.on {
        if map.get(*key).is_none_or(Value::is_null) {
            map.insert((*key).to_owned(), Value::Bool(true));
        }
    }
    let of_class = if is_nested { family::nested_defaults(model_type) } else { &[] };
    for (key, default) in family.defaults.iter().chain(of_class).filter(|(key, _)| !text.has(key)) {
        text.log.note(format!("{} is absent; the family's default {default} is used", text.path_of(key)));
        map.insert((*key).to_owned(), Value::from(*default));
    }
    map
}

/// Keys with the number of layers for multi-token prediction.
const MTP_KEYS: [&str; 3] = ["num_nextn_predict_layers", "num_mtp_modules", "mtp_num_hidden_layers"];

/// A configuration of a supported family, while it is read.
struct ConfigReader<'a> {
    name: &'a str,
    model_type: &'a str,
    family: &'static Family,
    outer: Keys<'a>,
    text: Keys<'a>,
    is_nested: bool,
}

impl ConfigReader<'_> {
    fn model(&self, hf: Option<&Keys<'_>>) -> Model {
        let text = &self.text;
        let dtype = self.dtype();
        let plain = WeightFormat::Plain(dtype);
        let hidden_size = size(text, "hidden_size");
        let num_layers = self.num_layers();
        let kinds = hybrid::kinds(text, self.family.hybrid, num_layers);
        let layers = LayerReader { text, family: self.family, hidden_size, num_layers, kinds: &kinds, dtype, plain };
        let (attentions, blocks) = (attention::layers(&layers), ffn::layers(&layers));
        // MLX writes its section twice, without a method.
        let config = self.quantization_config().filter(|of| !self.outer.has("quantization") || of.has("quant_method"));
        if config.is_none() {
            refuse_mlx(&self.outer);
        }
        let quantisation = Quantisation::read(config.as_ref(), hf, hidden_size).within_reason(num_layers, text.log);
        let towers = tower::count(&self.outer, hidden_size);
        let is_noted_as_plain = self.note_omissions(&quantisation, config.is_some() || hf.is_some(), &towers);

        let norm_params = hidden_size.saturating_mul(self.norms(&blocks));
        let storage = Storage {
            quantisation: &quantisation,
            family: self.family,
            plain,
            is_fused_delta_net: self.model_type == "qwen3_next",
            log: text.log,
        };
        let layers = attentions.into_iter().zip(blocks).enumerate().map(|(index, (attention, (dense, moe)))| {
            let mut layer = LayerGroup { count: 1, attention, dense, moe, norm_params };
            storage.apply(index, &mut layer);
            layer
        });
        let (layers, group_of_layer) = grouped(layers);
        Model {
            name: self.name.to_owned(),
            model_type: self.model_type.to_owned(),
            hidden_size,
            vocab_size: size(text, "vocab_size"),
            max_position_embeddings: context_length(text, self.model_type),
            tie_word_embeddings: self.tie_word_embeddings(),
            dtype,
            lm_head_weights: storage.lm_head(),
            kv_cache_dtype: quantisation.kv_cache,
            tower_params: Some(towers.params).filter(|params| *params > 0),
            layers,
            group_of_layer,
            sampling: self.sampling(),
            notes: Vec::new(),
            is_noted_as_plain,
            num_mtp_layers: MTP_KEYS.iter().filter_map(|key| text.get(key)?.as_u64()).max().unwrap_or(0),
            draft: None,
            head: None,
        }
    }

    /// Number of layers: those listed where the number itself is left out.
    fn num_layers(&self) -> u64 {
        let key = "num_hidden_layers";
        if self.text.get(key).is_none()
            && let Some(listed) = hybrid::listed_layers(&self.text, self.family.hybrid)
        {
            return listed.min(MAX_LAYERS);
        }
        self.text.require(&[key]);
        self.text.whole(key, 1..=MAX_LAYERS).unwrap_or(1)
    }

    /// Number of norms of `hidden_size` weights per layer. Gemma 4 has three more, around the dense block and the experts.
    fn norms(&self, blocks: &[ffn::Block]) -> u64 {
        let in_parallel = self.family.ffn == FfnRule::DenseBesideExperts && blocks.iter().any(|(_, moe)| moe.is_some());
        self.family.norms + if in_parallel { 3 } else { 0 }
    }

    fn dtype(&self) -> DType {
        let found = [&self.text, &self.outer].into_iter().find_map(|section| {
            ["torch_dtype", "dtype"].into_iter().find_map(|key| section.text(key).map(|name| (section, key, name)))
        });
        let Some((section, key, name)) = found else {
            self.text.log.note("no torch_dtype: bfloat16 is assumed");
            return DType::Bfloat16;
        };
        match name.strip_prefix("torch.").unwrap_or(name) {
            "bfloat16" => DType::Bfloat16,
            "float16" | "half" => DType::Float16,
            "float32" | "float" | "auto" => {
                section.log.note(format!("{} is {name}: served as bfloat16", section.path_of(key)));
                DType::Bfloat16
            }
            _ => {
                section.problem(key, "is not supported: bfloat16, float16 and float32 are");
                DType::Bfloat16
            }
        }
    }

    /// The outer level decides if both have the key, because it builds the whole model.
    fn tie_word_embeddings(&self) -> bool {
        let outer = self.outer.flag("tie_word_embeddings");
        outer.or_else(|| self.text.flag("tie_word_embeddings")).unwrap_or(self.family.tied_by_default)
    }

    fn quantization_config(&self) -> Option<Keys<'_>> {
        let keys = ["quantization_config", "compression_config"];
        let found =
            [&self.outer, &self.text].into_iter().find_map(|section| keys.iter().find_map(|key| section.section(key)));
        found.map(|section| section.with_aliases(QUANTISATION_ALIASES))
    }

    /// The publisher's sampling parameters, which built-in configurations have among this project's own keys.
    fn sampling(&self) -> Option<SamplingParams> {
        let own = self.outer.section("ridgepoint")?.section("generation_config")?;
        Some(SamplingParams::read(&own))
    }

    /// Notes which towers take memory, and which are left out.
    fn note_towers(&self, towers: &Towers) {
        let (log, whole) = (self.text.log, self.outer.text("model_type").unwrap_or("the model"));
        if towers.params > 0 {
            let millions = towers.params / 1_000_000;
            log.note(format!(
                "of {whole} the language part is predicted; its vision or audio tower ({millions} M parameters) {}",
                tower::TAKES_MEMORY
            ));
        }
        if !towers.uncounted.is_empty() {
            let keys = towers.uncounted.join(", ");
            log.note(format!(
                "a vision or audio tower ({keys}) states no sizes that are read: its memory and its time are left out"
            ));
        } else if self.is_nested && towers.params == 0 {
            log.note(format!("only the language part of {whole} is predicted, without a vision or audio tower"));
        }
    }

    /// Notes what is not predicted. Returns whether a note says that a name promises a quantisation which is not there.
    fn note_omissions(&self, quantisation: &Quantisation, has_quantisation: bool, towers: &Towers) -> bool {
        let log = self.text.log;
        self.note_towers(towers);
        for key in MTP_KEYS {
            if self.text.get(key).is_some_and(is_set) {
                log.note(format!("{MTP_NOTE} ({key}) are not predicted"));
            }
        }
        let mut note = None;
        if quantisation.is_empty() && !has_quantisation {
            note = classes::names(self.name, &self.outer).find_map(sounds_quantised);
        }
        let is_noted = note.is_some();
        note.into_iter().for_each(|note| log.note(note));
        if self.family.attention == AttentionRule::Mla && self.text.has("head_dim") {
            log.note("head_dim is not used: the latent has its own head sizes");
        }
        is_noted
    }
}

/// A note on a checkpoint without a scheme whose name promises one.
fn sounds_quantised(name: &str) -> Option<String> {
    let lower = name.to_lowercase();
    QUANTISED_NAMES.iter().any(|mark| lower.contains(mark)).then(|| {
        format!(
            "'{name}' sounds quantised, but there is no quantization_config and no hf_quant_config.json next to it: taken as \
             unquantised; put the checkpoint's hf_quant_config.json next to its config.json"
        )
    })
}

/// The note on a `folder` whose name promises a scheme that its model has not, unless the model has it already.
pub(super) fn unquantised_note(folder: &str, model: &Model) -> Option<String> {
    let is_plain = matches!(model.main_weight_format(), Some(WeightFormat::Plain(_)));
    sounds_quantised(folder).filter(|_| is_plain && !model.is_noted_as_plain)
}

/// Groups equal layers, in order of first appearance, and returns the group of each layer.
fn grouped(layers: impl Iterator<Item = LayerGroup>) -> (Vec<LayerGroup>, Vec<usize>) {
    let (mut groups, mut group_of_layer) = (Vec::<LayerGroup>::new(), Vec::new());
    for layer in layers {
        let known = groups.iter().position(|group| LayerGroup { count: 1, ..group.clone() } == layer);
        match known.and_then(|known| groups.get_mut(known)) {
            Some(group) => group.count += 1,
            None => groups.push(layer),
        }
        group_of_layer.push(known.unwrap_or(groups.len() - 1));
    }
    (groups, group_of_layer)
}
