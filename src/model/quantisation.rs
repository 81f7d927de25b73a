//! Reads how a checkpoint stores its weights: `quantization_config` of `config.json` and `hf_quant_config.json` become one
//! [`Quantisation`], which knows the format of each module.
#![expect(clippy::indexing_slicing, reason = "the position is that of a layer that was found or added")]

use serde_json::Value;

use super::other_methods::{nearest_precision, way_out};
use super::pattern::{Matcher, ModuleName};
use super::sizes::optional_size;
use crate::dtype::{DType, WeightFormat};
use crate::input::{Keys, Log};

const ALGORITHMS: &str = "FP8, FP8_PER_CHANNEL_PER_TOKEN, FP8_PB_WO, NVFP4, W4A16_NVFP4, W4A16_AWQ, W8A16, W8A8_SQ_PER_CHANNEL, \
                          MIXED_PRECISION";

/// Keys with the modules that are not quantised.
const SKIPPING_KEYS: [&str; 7] = [
    "modules_to_not_convert",
    "ignored_layers",
    "ignore",
    "exclude_modules",
    "llm_int8_skip_modules",
    "skip_modules",
    "exclude",
];

/// Scale blocks of modelopt's block-wise fp8, rows and columns.
const MODELOPT_FP8_BLOCK: u32 = 128;

/// Most bytes of patterns times layers. Each is compared with some 40 names per layer, so that this takes about a second.
const MAX_PATTERN_WORK: u64 = 4_000_000;

/// Modules that a rule covers by kind rather than by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RuleScope {
    /// Every linear layer of the decoder, experts included, but not the LM head.
    Linear,
    /// Routed experts alone.
    Experts,
}

/// The storage rules of a checkpoint.
#[derive(Debug, Default)]
pub(super) struct Quantisation {
    pub(super) skipped: Matcher,
    pub(super) named: Vec<(Matcher, WeightFormat)>,
    pub(super) general: Option<(RuleScope, WeightFormat)>,
    /// Number format of the KV cache that the checkpoint asks for.
    pub(super) kv_cache: Option<DType>,
}

impl Quantisation {
    /// Gives the modules that a pattern under `key` names a format of their own.
    pub(super) fn store(&mut self, section: &Keys<'_>, key: &'static str, pattern: &str, format: WeightFormat) {
        let mut named = Matcher::default();
        named.add(section, key, pattern);
        self.named.push((named, format));
    }

    /// Reads `quantization_config` (or its older name). Without one, reads `hf_quant_config.json`, as engines do; where both are there and
    /// differ, a note says so. A scale per output channel has a group of `hidden_size`.
    ///
    /// # Source
    /// vLLM, `get_quant_config` (`vllm/model_executor/model_loader/weight_utils.py`).
    pub(super) fn read(config: Option<&Keys<'_>>, hf: Option<&Keys<'_>>, hidden_size: u64) -> Self {
        let channel = u32::try_from(hidden_size).unwrap_or(u32::MAX);
        let Some(section) = config else {
            return hf.map(|section| SectionReader { section, channel }.modelopt()).unwrap_or_default();
        };
        let quantisation = SectionReader { section, channel }.method();
        if let Some(hf) = hf {
            note_differences(section, &quantisation, hf);
        }
        quantisation
    }

    /// Storage of a module of the decoder's layers; `None` where it is not quantised.
    pub(super) fn layer_format(&self, module: &ModuleName, is_expert: bool) -> Option<WeightFormat> {
        let general = self.general.filter(|(reach, _)| *reach == RuleScope::Linear || is_expert);
        let general = general.filter(|_| !self.skipped.matches(module)).map(|(_, format)| format);
        self.named_only_format(module).or(general)
    }

    /// Storage of a module that general rules do not reach (the LM head): quantised only where named.
    pub(super) fn named_only_format(&self, module: &ModuleName) -> Option<WeightFormat> {
        let named = self.named.iter().find(|(matcher, _)| matcher.matches(module));
        named.filter(|_| !self.skipped.matches(module)).map(|(_, format)| *format)
    }

    /// Refuses patterns that would take long to compare with the modules of so many layers; nothing is quantised then.
    pub(super) fn within_reason(self, num_layers: u64, log: &Log) -> Self {
        let work = self.skipped.work() + self.named.iter().map(|(matcher, _)| matcher.work()).sum::<usize>();
        if (work as u64).saturating_mul(num_layers) <= MAX_PATTERN_WORK {
            return self;
        }
        log.problem(format!(
            "the patterns of quantization_config, {work} bytes, are too many for {num_layers} layers: list the modules by name"
        ));
        Quantisation::default()
    }

    /// True where nothing is quantised.
    pub(super) fn is_empty(&self) -> bool {
        self.named.is_empty() && self.general.is_none()
    }
}

/// One section being read.
pub(super) struct SectionReader<'a> {
    pub(super) section: &'a Keys<'a>,
    /// Inputs of a scale per output channel.
    pub(super) channel: u32,
}

impl SectionReader<'_> {
    fn method(&self) -> Quantisation {
        match self.section.text("quant_method").unwrap_or("") {
            "fp8" => self.fp8(),
            "fbgemm_fp8" | "ptpc_fp8" | "w8a8_fp8" => self.general(RuleScope::Linear, Some(WeightFormat::Fp8)),
            "mxfp4" => self.general(RuleScope::Experts, Some(WeightFormat::Mxfp4)),
            "w8a8_int8" => self.general(RuleScope::Linear, Some(WeightFormat::Int8)),
            "gptq" | "gptq_marlin" | "gptqmodel" => self.gptq(),
            "awq" | "awq_marlin" => self.general(RuleScope::Linear, self.integer_weights()),
            "compressed-tensors" | "compressed_tensors" => self.compressed_tensors(),
            method if method.starts_with("modelopt") => self.modelopt(),
            // Older files of modelopt leave the method out.
            "" if self.section.has("quant_algo") => self.modelopt(),
            method => self.other_method(method).unwrap_or_else(|| {
                let what = if self.section.has("quant_method") { "is not supported" } else { "is missing" };
                let bits = self.section.get("bits").and_then(Value::as_u64);
                let nearest = nearest_precision(method, bits);
                self.section.problem("quant_method", format!("{what}: {}", way_out(nearest)));
                Quantisation::default()
            }),
        }
    }

    pub(super) fn general(&self, reach: RuleScope, format: Option<WeightFormat>) -> Quantisation {
        let mut skipped = Matcher::default();
        for key in SKIPPING_KEYS {
            for pattern in self.section.texts(key).unwrap_or_default() {
                skipped.add(self.section, key, pattern);
            }
        }
        let general = format.map(|format| (reach, format));
        Quantisation { skipped, general, kv_cache: self.kv_cache(), ..Quantisation::default() }
    }

    fn fp8(&self) -> Quantisation {
        let key = "weight_block_size";
        let is_in_blocks = self.section.wholes(key).is_some_and(|sides| !sides.is_empty());
        let format = if is_in_blocks { block(self.section, key) } else { Some(WeightFormat::Fp8) };
        self.general(RuleScope::Linear, format)
    }

    fn gptq(&self) -> Quantisation {
        let format = self.integer_weights();
        let mut quantisation = self.general(RuleScope::Linear, format);
        if let (true, Some(format)) = (self.section.flag("lm_head") == Some(true), format) {
            quantisation.store(self.section, "lm_head", "lm_head", format);
        }
        if let Some(dynamic) = self.section.section("dynamic") {
            for (pattern, _) in dynamic.entries() {
                match pattern.strip_prefix("-:") {
                    Some(rest) => quantisation.skipped.add(self.section, "dynamic", &format!("re:{rest}")),
                    None => self.section.problem("dynamic", format!("has '{pattern}': only '-:' rules are supported")),
                }
            }
        }
        quantisation
    }

    /// Integer weights with 16-bit activations, as GPTQ and AWQ have them.
    pub(super) fn integer_weights(&self) -> Option<WeightFormat> {
        self.integer_format(self.section, num_bits(self.section, "bits")?)
    }

    pub(super) fn integer_format(&self, section: &Keys<'_>, bits: u64) -> Option<WeightFormat> {
        // These formats say -1 for one scale per output channel.
        let group_size = match section.get("group_size").map(Value::as_i64) {
            None | Some(Some(-1)) => self.channel,
            Some(_) => section.whole("group_size", 1..=u32::MAX)?,
        };
        match bits {
            4 => Some(WeightFormat::Int4 { group_size }),
            8 => Some(WeightFormat::Int8WeightOnly { group_size }),
            _ => {
                let way_out = way_out(nearest_precision("", Some(bits)));
                section.log.problem(format!("{bits} bit integer weights are not supported, 4 and 8 are: {way_out}"));
                None
            }
        }
    }

    /// The objects in `key`, which lists the schemes or modules of a method.
    fn listed(&self, key: &str) -> Vec<(&str, Keys<'_>)> {
        self.section.require(&[key]);
        let all = self.section.section_or_empty(key);
        all.entries().filter_map(|(name, _)| Some((name.as_str(), all.section(name)?))).collect()
    }

    fn compressed_tensors(&self) -> Quantisation {
        let mut quantisation = self.general(RuleScope::Linear, None);
        for (_, group) in self.listed("config_groups") {
            let Some(format) = self.group_format(&group) else { continue };
            let mut named = Matcher::default();
            for target in group.texts("targets").unwrap_or_default() {
                match target {
                    "Linear" => quantisation.general = quantisation.general.or(Some((RuleScope::Linear, format))),
                    _ => named.add(&group, "targets", target),
                }
            }
            quantisation.named.push((named, format));
        }
        if self.section.section("sparsity_config").is_some_and(|s| s.text("format").is_some_and(|f| f != "dense")) {
            self.section.log.note("sparsity_config is ignored: the model is taken as dense");
        }
        quantisation
    }

    fn group_format(&self, group: &Keys<'_>) -> Option<WeightFormat> {
        let weights = group.section("weights")?;
        let bits = num_bits(&weights, "num_bits")?;
        let strategy = weights.text("strategy").unwrap_or("tensor");
        let activation_bits = group.section("input_activations").and_then(|a| num_bits(&a, "num_bits"));
        match (weights.text("type").unwrap_or("int"), bits, strategy) {
            ("float", 8, "block") => {
                weights.require(&["block_structure"]);
                block(&weights, "block_structure")
            }
            ("float", 8, "tensor" | "channel") => Some(WeightFormat::Fp8),
            ("float", 4, _) => match optional_size(&weights, "group_size") {
                Some(16) if activation_bits == Some(4) => Some(WeightFormat::Nvfp4),
                Some(16) => Some(WeightFormat::Nvfp4WeightOnly),
                Some(32) => Some(WeightFormat::Mxfp4),
                _ => {
                    weights.problem("group_size", "must be 16 (NVFP4) or 32 (MXFP4) for 4 bit floats");
                    None
                }
            },
            ("int", 8, _) if activation_bits == Some(8) => Some(WeightFormat::Int8),
            ("int", 4 | 8, _) if activation_bits.is_none_or(|bits| bits >= 16) => self.integer_format(&weights, bits),
            (kind, bits, strategy) => {
                let activations = activation_bits.map_or("16 bit".to_owned(), |b| format!("{b} bit"));
                weights.log.problem(format!(
                    "{} = {bits} bit {kind} per {strategy} with {activations} activations is not supported; supported \
                     are 8 bit float (tensor, channel, block), 4 bit float (group), 8 bit int, and 4 or 8 bit int \
                     with 16 bit activations",
                    group.path_of("weights")
                ));
                None
            }
        }
    }

    /// modelopt's keys, as in `hf_quant_config.json` and in `quantization_config`.
    fn modelopt(&self) -> Quantisation {
        let Some(algorithm) = self.section.text("quant_algo") else { return self.general(RuleScope::Linear, None) };
        if algorithm.eq_ignore_ascii_case("MIXED_PRECISION") {
            return self.mixed_precision();
        }
        self.general(RuleScope::Linear, self.algorithm(self.section, algorithm))
    }

    fn mixed_precision(&self) -> Quantisation {
        let mut quantisation = self.general(RuleScope::Linear, None);
        for (name, module) in self.listed("quantized_layers") {
            module.require(&["quant_algo"]);
            let Some(format) = module.text("quant_algo").and_then(|name| self.algorithm(&module, name)) else {
                continue;
            };
            let at = quantisation.named.iter().position(|(_, known)| *known == format).unwrap_or_else(|| {
                quantisation.named.push((Matcher::default(), format));
                quantisation.named.len() - 1
            });
            quantisation.named[at].0.add(self.section, "quantized_layers", name);
        }
        quantisation
    }

    fn algorithm(&self, section: &Keys<'_>, algorithm: &str) -> Option<WeightFormat> {
        match algorithm.to_ascii_uppercase().as_str() {
            "FP8" | "FP8_PER_CHANNEL_PER_TOKEN" => Some(WeightFormat::Fp8),
            "FP8_PB_WO" | "FP8_BLOCK_SCALES" => {
                Some(WeightFormat::Fp8Block { rows: MODELOPT_FP8_BLOCK, columns: MODELOPT_FP8_BLOCK })
            }
            "NVFP4" | "NVFP4_AWQ" => Some(WeightFormat::Nvfp4),
            "W4A16_NVFP4" => Some(WeightFormat::Nvfp4WeightOnly),
            "W4A16_AWQ" | "W4A16" => self.integer_format(section, 4),
            "W8A16" => self.integer_format(section, 8),
            "W8A8_SQ_PER_CHANNEL" | "INT8_SQ" => Some(WeightFormat::Int8),
            _ => {
                section.problem("quant_algo", format!("is not supported: supported are {ALGORITHMS}"));
                None
            }
        }
    }

    fn kv_cache(&self) -> Option<DType> {
        let by_name = self.section.read("kv_cache_quant_algo", "FP8, INT8 or NVFP4", |value| {
            match value.as_str()?.to_ascii_uppercase().as_str() {
                "FP8" => Some(DType::Fp8),
                "INT8" => Some(DType::Int8),
                "NVFP4" => Some(DType::Fp4),
                _ => None,
            }
        });
        by_name.or_else(|| {
            let scheme = match self.section.get("kv_cache_scheme") {
                Some(Value::String(name)) if name.eq_ignore_ascii_case("FP8") => return Some(DType::Fp8),
                _ => self.section.section("kv_cache_scheme")?,
            };
            match (scheme.text("type").unwrap_or("float"), num_bits(&scheme, "num_bits")?) {
                ("float", 8) => Some(DType::Fp8),
                ("int", 8) => Some(DType::Int8),
                ("float", 4) => Some(DType::Fp4),
                _ => {
                    self.section.problem("kv_cache_scheme", "is not supported: 8 bit float or int and 4 bit float are");
                    None
                }
            }
        })
    }
}

/// Notes where `hf_quant_config.json` says something else than the section of `config.json`, which is used.
fn note_differences(section: &Keys<'_>, used: &Quantisation, hf: &Keys<'_>) {
    // The file is not used, so its problems go into a log that nobody reads.
    let log = Log::default();
    let mut aside = hf.clone();
    aside.log = &log;
    let kv_cache = SectionReader { section: &aside, channel: 1 }.kv_cache();
    let (method, own) = (section.text("quant_method").unwrap_or("none"), section.text("quant_algo"));
    let other = aside.text("quant_algo");
    let same_algorithm = match (own, other) {
        (Some(own), Some(other)) => own.eq_ignore_ascii_case(other),
        (None, Some(_)) => method.starts_with("modelopt"),
        (_, None) => true,
    };
    if !same_algorithm {
        let (own, other) = (own.unwrap_or(method), other.unwrap_or("none"));
        section.log.note(format!(
            "quantization_config says {own}, hf_quant_config.json says {other}: the former is used, as engines do"
        ));
    }
    if kv_cache != used.kv_cache {
        let shown = |cache: Option<DType>| cache.map_or("no format".to_owned(), |format| format.to_string());
        section.log.note(format!(
            "hf_quant_config.json says {} of the KV cache, quantization_config says {}: the latter is used, as engines do",
            shown(kv_cache),
            shown(used.kv_cache)
        ));
    }
}

/// Reads the two sides of a scale block.
fn block(section: &Keys<'_>, key: &str) -> Option<WeightFormat> {
    section.read(key, "two positive sizes, such as [128, 128]", |value| {
        let side = |at: usize| u32::try_from(value.get(at)?.as_u64()?).ok().filter(|side| *side > 0);
        let is_pair = value.as_array().is_some_and(|sides| sides.len() == 2);
        is_pair.then_some(WeightFormat::Fp8Block { rows: side(0)?, columns: side(1)? })
    })
}

/// Reads a required number of bits.
pub(super) fn num_bits(section: &Keys<'_>, key: &str) -> Option<u64> {
    section.require(&[key]);
    optional_size(section, key)
}
