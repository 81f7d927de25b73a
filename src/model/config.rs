//! From the text of a `config.json` to a checked [`Model`]. Uses `dtype`, `error` and all of this module.

use serde_json::Value;

use super::family::{AttentionRule, Family, FfnRule};
use super::fields::{Log, Section};
use super::quantisation::Quantisation;
use super::sampling::SamplingDefaults;
use super::shape::{LayerGroup, Model};
use super::storage::Storage;
use super::{attention, family, ffn, parameters, unsupported};
use crate::dtype::{DType, WeightFormat};
use crate::error::{Error, Result};

/// Keys under which multimodal models keep the configuration of their language model.
const TEXT_SECTIONS: [&str; 3] = ["text_config", "language_config", "llm_config"];
/// More layers than any model has; bounds the work of reading a file.
const MAX_LAYERS: u64 = 10_000;
/// Marks in a name that promise quantised weights.
const QUANTISED_NAMES: [&str; 7] = ["fp8", "awq", "gptq", "nvfp4", "w4a16", "w8a8", "int4"];

impl Model {
    /// Parses and checks a configuration. `name` is what the model is called in output, `origin` (a path, usually) what
    /// errors start with; `hf_quant_config` is the text of the file of that name beside it, if there is one.
    ///
    /// # Errors
    /// `ErrorKind::Parse` with line and column for malformed JSON, `ErrorKind::UnsupportedModel` naming the key for layers
    /// whose physics is not known, `ErrorKind::Invalid` with all problems for missing, wrong or contradictory values.
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
        let config = parse(origin, json)?;
        let hf = hf_quant_config.map(|json| parse(&format!("{origin}: hf_quant_config.json"), json)).transpose()?;
        from_value(name, origin, &config, hf.as_ref())
    }
}

/// JSON text to a value; faults carry line and column.
pub(super) fn parse(origin: &str, json: &str) -> Result<Value> {
    serde_json::from_str(json).map_err(|error| {
        let text = error.to_string();
        let cause = text.split(" at line ").next().unwrap_or(&text);
        Error::parse(
            format!("{origin}: line {} column {}", error.line(), error.column()),
            format!("not well-formed JSON: {cause}"),
        )
    })
}

/// [`Model::from_config_str`] on parsed JSON.
pub(super) fn from_value(name: &str, origin: &str, config: &Value, hf: Option<&Value>) -> Result<Model> {
    let log = Log::default();
    let model = read(name, origin, config, hf, &log)?;
    let (mut problems, notes) = log.into_parts();
    let Some(mut model) = model.filter(|_| problems.is_empty()) else {
        return Err(Error::invalid(origin, problems));
    };
    let total = parameters::total(&model);
    if total >= parameters::MAX_EXACT {
        problems.push(format!("the sizes multiply to {total:.3e} parameters; at most 2^53 are accepted"));
        return Err(Error::invalid(origin, problems));
    }
    model.notes = notes;
    Ok(model)
}

/// Reads everything, leaving faults in `log`; `None` only after a fault.
fn read(name: &str, origin: &str, config: &Value, hf: Option<&Value>, log: &Log) -> Result<Option<Model>> {
    let malformed = |message: &str| Error::parse(origin, message);
    let map = config.as_object().ok_or_else(|| malformed("a config.json must be a JSON object"))?;
    let outer = Section::new("", map, log);
    let nested = TEXT_SECTIONS.into_iter().find_map(|key| outer.section(key));
    let is_nested = nested.is_some();
    let text = nested.unwrap_or_else(|| outer.clone());
    let Some(model_type) = text.text("model_type").or_else(|| outer.text("model_type")) else {
        let known = family::known_model_types();
        log.problem(format!("model_type is missing; it says which keys mean what, and known are {known}"));
        return Ok(None);
    };
    let family = unsupported::family_of(origin, model_type, &text, &outer)?;
    let text = text.with_defaults(family.defaults);
    let hf = match hf {
        None => None,
        Some(hf) => {
            let map = hf.as_object().ok_or_else(|| malformed("hf_quant_config.json must be a JSON object"))?;
            let whole = Section::new("hf_quant_config", map, log);
            Some(whole.section("quantization").unwrap_or(whole))
        }
    };
    Ok(Reading { name, model_type, family, outer, text, is_nested }.model(hf.as_ref()))
}

/// A configuration of a supported family being read.
struct Reading<'a> {
    name: &'a str,
    model_type: &'a str,
    family: &'static Family,
    outer: Section<'a>,
    text: Section<'a>,
    is_nested: bool,
}

impl Reading<'_> {
    fn model(&self, hf: Option<&Section<'_>>) -> Option<Model> {
        let text = &self.text;
        let dtype = self.dtype();
        let plain = WeightFormat::Plain(dtype);
        let hidden_size = text.size("hidden_size");
        let num_layers = text.size_up_to("num_hidden_layers", MAX_LAYERS);
        let vocab_size = text.size("vocab_size");
        let max_position_embeddings = text.size("max_position_embeddings");
        let attentions = attention::layers(text, self.family, hidden_size, num_layers, plain);
        let blocks = ffn::layers(text, self.family, hidden_size, num_layers, plain);
        let tie_word_embeddings = self.tie_word_embeddings();
        let config = self.quantization_config();
        let quantisation = Quantisation::read(config.as_ref(), hf, hidden_size);
        self.note_what_is_left_out(&quantisation, config.is_some() || hf.is_some());
        let sampling = self.sampling();

        let hidden_size = hidden_size?;
        let norm_params = hidden_size.saturating_mul(self.norms(blocks.as_deref()?));
        let storage = Storage { quantisation: &quantisation, family: self.family, plain, log: text.log };
        let layers = attentions?.into_iter().zip(blocks?).enumerate().map(|(index, (attention, (dense, moe)))| {
            let mut layer = LayerGroup { count: 1, attention, dense, moe, norm_params };
            storage.apply(index, &mut layer);
            layer
        });
        Some(Model {
            name: self.name.to_owned(),
            model_type: self.model_type.to_owned(),
            hidden_size,
            vocab_size: vocab_size?,
            max_position_embeddings: max_position_embeddings?,
            tie_word_embeddings,
            dtype,
            lm_head_weights: storage.lm_head(),
            kv_cache_dtype: quantisation.kv_cache(),
            layers: grouped(layers),
            sampling,
            notes: Vec::new(),
        })
    }

    /// Norms of `hidden_size` weights per layer. Gemma 4 norms the dense block and the experts apart: three more.
    fn norms(&self, blocks: &[ffn::Block]) -> u64 {
        let beside = self.family.ffn == FfnRule::DenseBesideExperts && blocks.iter().any(|(_, moe)| moe.is_some());
        self.family.norms + if beside { 3 } else { 0 }
    }

    fn dtype(&self) -> DType {
        let found = [&self.text, &self.outer].into_iter().find_map(|section| {
            ["torch_dtype", "dtype"].into_iter().find_map(|key| section.text(key).map(|name| (section, key, name)))
        });
        let Some((section, key, name)) = found else {
            self.text.log.note("no torch_dtype: bfloat16 is assumed".to_owned());
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
                section.problem(key, &format!("= '{name}' is not supported; supported are bfloat16, float16, float32"));
                DType::Bfloat16
            }
        }
    }

    /// The outer level decides where both speak: it is the one that builds the whole model.
    fn tie_word_embeddings(&self) -> bool {
        let inner = self.text.flag("tie_word_embeddings", self.family.tied_by_default);
        if self.is_nested { self.outer.flag("tie_word_embeddings", inner) } else { inner }
    }

    fn quantization_config(&self) -> Option<Section<'_>> {
        let keys = ["quantization_config", "compression_config"];
        [&self.outer, &self.text].into_iter().find_map(|section| keys.iter().find_map(|key| section.section(key)))
    }

    /// The publisher's `generation_config.json`, which built-in configurations have among this project's own keys.
    fn sampling(&self) -> Option<SamplingDefaults> {
        let own = self.outer.section("ridgepoint")?.section("generation_config")?;
        Some(SamplingDefaults::read(&own))
    }

    fn note_what_is_left_out(&self, quantisation: &Quantisation, says_quantisation: bool) {
        let log = self.text.log;
        if self.is_nested {
            let whole = self.outer.text("model_type").unwrap_or("the model");
            log.note(format!("only the language part of {whole} is in the step; a vision or audio tower is not"));
        }
        for key in ["num_nextn_predict_layers", "num_mtp_modules", "mtp_num_hidden_layers"] {
            if self.text.is_set(key) {
                log.note(format!("the layers for multi-token prediction ({key}) are not in the step"));
            }
        }
        let name = self.name.to_lowercase();
        if quantisation.is_empty() && !says_quantisation && QUANTISED_NAMES.iter().any(|mark| name.contains(mark)) {
            log.note(format!(
                "'{}' sounds quantised, but there is no quantization_config and no hf_quant_config.json beside it: \
                 taken as unquantised",
                self.name
            ));
        }
        if self.family.attention == AttentionRule::Mla && self.text.get("head_dim").is_some() {
            log.note("head_dim is not used: the latent has its own head sizes".to_owned());
        }
    }
}

/// Alike layers together, in order of first appearance.
fn grouped(layers: impl Iterator<Item = LayerGroup>) -> Vec<LayerGroup> {
    let mut groups: Vec<LayerGroup> = Vec::new();
    for layer in layers {
        let known = groups.iter_mut().find(|group| LayerGroup { count: 1, ..(*group).clone() } == layer);
        match known {
            Some(group) => group.count += 1,
            None => groups.push(layer),
        }
    }
    groups
}
