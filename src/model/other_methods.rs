//! Reads `quantization_config` of bitsandbytes, AutoRound, torchao, HQQ, Quark and others. Each is read as the predicted format with the same
//! bytes per weight and activations of the same width.

use serde_json::Value;

use super::quantisation::{Quantisation, RuleScope, SectionReader, num_bits};
use super::sizes::optional_size;
use crate::dtype::{DType, WeightFormat};
use crate::input::Keys;

/// Methods that are not read, and the nearest precision that is predicted.
const UNREAD: [(&str, &str); 13] = [
    ("gguf", "int4"),
    ("aqlm", "int4"),
    ("vptq", "int4"),
    ("spqr", "int4"),
    ("quip", "int4"),
    ("bitnet", "int4"),
    ("higgs", "int4"),
    ("fp_quant", "nvfp4"),
    ("quanto", "w8a16"),
    ("squeezellm", "int4"),
    ("exl2", "int4"),
    ("exl3", "int4"),
    ("mlx", "int4"),
];

/// The way out of a section that is not read.
pub(super) fn way_out(precision: &str) -> String {
    format!(
        "name the unquantised model with `precision` {precision}, the nearest format that is predicted, or a checkpoint in fp8, gptq, awq, \
         compressed-tensors, bitsandbytes or modelopt"
    )
}

/// The precision nearest to a method that is not read.
pub(super) fn nearest_precision(method: &str, bits: Option<u64>) -> &'static str {
    if let Some((_, nearest)) = UNREAD.iter().find(|(known, _)| *known == method) {
        return nearest;
    }
    match bits {
        Some(bits) if bits <= 6 => "int4",
        Some(_) => "w8a16",
        None if method.contains("fp8") => "fp8",
        None if method.contains("fp4") => "nvfp4",
        None if method.contains("int8") => "w8a8",
        None => "int4",
    }
}

/// The section of an MLX checkpoint: bits and a group size without a method, at the top level.
pub(super) fn refuse_mlx(outer: &Keys<'_>) {
    let key = "quantization";
    let Some(section) = outer.get(key).and_then(Value::as_object) else { return };
    let bits = section.get("bits").and_then(Value::as_u64);
    if bits.is_some() || section.contains_key("group_size") {
        let nearest = nearest_precision("", bits);
        let stored = bits.map_or(String::new(), |bits| format!(" of {bits} bits"));
        outer.log.problem(format!(
            "{key} at the top level means an MLX checkpoint{stored}, which runs on Apple's chips alone: {}",
            way_out(nearest)
        ));
        return;
    }
    outer.log.problem(format!(
        "{key} at the top level is not read: state its scheme as quantization_config, with its quant_method"
    ));
}

impl SectionReader<'_> {
    /// Reads a method that this module knows; `None` for any other.
    pub(super) fn other_method(&self, method: &str) -> Option<Quantisation> {
        Some(match method {
            "bitsandbytes" => self.bitsandbytes(),
            "auto-round" | "auto_round" | "autoround" | "intel/auto-round" | "inc" => self.auto_round(),
            "torchao" => self.torchao(),
            "hqq" => self.hqq(),
            "quark" => self.quark(),
            "eetq" | "experts_int8" => {
                let scope = if method == "eetq" { RuleScope::Linear } else { RuleScope::Experts };
                self.general(scope, Some(WeightFormat::Int8WeightOnly { group_size: self.channel }))
            }
            _ => return None,
        })
    }

    /// Notes that the kernels of a method were not measured.
    fn stands_in(&self, method: &str, format: WeightFormat) {
        self.section.log.note(format!(
            "{method} weights are predicted as {format}, which takes the same bytes; kernels of {method} were not measured and may be slower"
        ));
    }

    /// Blocks of 64 weights in 4 bits, with a scale in 32 bits, or in 8 bits and one in 32 for 256 of them (`bnb_4bit_use_double_quant`):
    /// 4.5 and 4.127 bits a weight, which 16-bit scales of 32 and of 128 weights take too. Eight bits have a scale per channel.
    ///
    /// # Source
    /// Dettmers et al. 2023, QLoRA (arXiv:2305.14314), section 3.
    fn bitsandbytes(&self) -> Quantisation {
        let four = ["load_in_4bit", "_load_in_4bit"].into_iter().any(|key| self.section.flag(key) == Some(true));
        let eight = ["load_in_8bit", "_load_in_8bit"].into_iter().any(|key| self.section.flag(key) == Some(true));
        let format = match (four, eight) {
            (true, _) if self.section.flag("bnb_4bit_use_double_quant") == Some(true) => {
                WeightFormat::Int4 { group_size: 128 }
            }
            (true, _) => WeightFormat::Int4 { group_size: 32 },
            (false, true) => WeightFormat::Int8,
            (false, false) => {
                let problem = "of bitsandbytes has neither load_in_4bit nor load_in_8bit: state one";
                self.section.problem("quant_method", problem);
                return Quantisation::default();
            }
        };
        self.stands_in("bitsandbytes", format);
        self.general(RuleScope::Linear, Some(format))
    }

    /// GPTQ's layout with bits per layer.
    fn auto_round(&self) -> Quantisation {
        let data = self.section.text("data_type").unwrap_or("int");
        let format = match data {
            kind if kind.starts_with("mx_fp") && num_bits(self.section, "bits") == Some(4) => Some(WeightFormat::Mxfp4),
            kind if kind.starts_with("nv_fp") => {
                let is_wide = optional_size(self.section, "act_bits").is_some_and(|bits| bits >= 16);
                Some(if is_wide { WeightFormat::Nvfp4WeightOnly } else { WeightFormat::Nvfp4 })
            }
            kind if kind.starts_with("fp8") => Some(WeightFormat::Fp8),
            kind if kind.starts_with("int") => self.integer_weights(),
            _ => {
                self.section.problem("data_type", format!("is not supported: {}", way_out("int4")));
                None
            }
        };
        let mut quantisation = self.general(RuleScope::Linear, format);
        let layers = self.section.section_or_empty("extra_config");
        for (name, _) in layers.entries() {
            let Some(layer) = layers.section(name) else { continue };
            match optional_size(&layer, "bits") {
                Some(bits) if bits >= 16 => quantisation.skipped.add(self.section, "extra_config", name),
                Some(bits) if data.starts_with("int") => {
                    let Some(format) = self.integer_format(&layer, bits) else { continue };
                    quantisation.store(self.section, "extra_config", name, format);
                }
                _ => {}
            }
        }
        quantisation
    }

    /// Reads one configuration for all linear layers, or one for each module that `module_fqn_to_config` names.
    fn torchao(&self) -> Quantisation {
        let key = "quant_type";
        // Older files name the function and its arguments.
        if let Some(Value::String(name)) = self.section.get(key) {
            let arguments = self.section.section_or_empty("quant_type_kwargs");
            let format = self.torchao_format(name, &arguments);
            return self.general(RuleScope::Linear, format);
        }
        self.section.require(&[key]);
        let types = self.section.section_or_empty(key);
        let Some(config) = types.section("default") else {
            self.section.problem(key, "has no default: state one");
            return Quantisation::default();
        };
        let data = config.section_or_empty("_data");
        let by_name = data.section("module_fqn_to_config").or_else(|| data.section("fqn_to_config"));
        let Some(by_name) = by_name else {
            let format = config.text("_type").and_then(|name| self.torchao_format(name, &data));
            return self.general(RuleScope::Linear, format);
        };
        let format_of = |of: &Keys<'_>| self.torchao_format(of.text("_type")?, &of.section_or_empty("_data"));
        let mut quantisation =
            self.general(RuleScope::Linear, by_name.section("_default").and_then(|of| format_of(&of)));
        for (name, value) in by_name.entries().filter(|(name, _)| *name != "_default") {
            if value.is_null() {
                quantisation.skipped.add(self.section, key, name);
            } else if let Some(format) = by_name.section(name).and_then(|of| format_of(&of)) {
                quantisation.store(self.section, key, name, format);
            }
        }
        quantisation
    }

    fn torchao_format(&self, name: &str, data: &Keys<'_>) -> Option<WeightFormat> {
        let group = |default: u32| data.whole("group_size", 1..=u32::MAX).unwrap_or(default);
        let plain = name.replace('_', "").to_lowercase();
        let format = match plain.trim_end_matches("config") {
            "int4weightonly" => WeightFormat::Int4 { group_size: group(128) },
            "int8dynamicactivationint4weight" | "float8dynamicactivationint4weight" => {
                WeightFormat::Int4 { group_size: group(32) }
            }
            "int8weightonly" => WeightFormat::Int8WeightOnly { group_size: group(self.channel) },
            "int8dynamicactivationint8weight" => WeightFormat::Int8,
            "float8weightonly" | "float8dynamicactivationfloat8weight" | "float8staticactivationfloat8weight" => {
                WeightFormat::Fp8
            }
            "nvfp4inference" | "nvfp4dynamicactivationnvfp4weight" => WeightFormat::Nvfp4,
            "nvfp4weightonly" => WeightFormat::Nvfp4WeightOnly,
            _ => {
                let nearest = nearest_precision(&plain, None);
                let shown: String = name.chars().take(60).collect();
                self.section.log.problem(format!(
                    "{} = {shown} of torchao is not supported: {}",
                    self.section.path_of("quant_type"),
                    way_out(nearest)
                ));
                return None;
            }
        };
        self.stands_in("torchao", format);
        Some(format)
    }

    /// A scale and a zero point of 16 bits each per group, which take what one scale per half of a group does.
    fn hqq(&self) -> Quantisation {
        let nested = self.section.section("quant_config").and_then(|of| of.section("weight_quant_params"));
        let params = nested.as_ref().unwrap_or(self.section);
        let Some(bits) = num_bits(params, "nbits") else { return Quantisation::default() };
        let group = params.whole("group_size", 1..=u32::MAX).unwrap_or(self.channel);
        let group_size = (group / 2).max(1);
        let format = match bits {
            4 => WeightFormat::Int4 { group_size },
            8 => WeightFormat::Int8WeightOnly { group_size },
            _ => {
                params.problem("nbits", format!("of HQQ is not supported, 4 and 8 are: {}", way_out("int4")));
                return Quantisation::default();
            }
        };
        self.stands_in("HQQ", format);
        self.general(RuleScope::Linear, Some(format))
    }

    /// One scheme for all layers, others for those that patterns name, and a scheme of the KV cache.
    fn quark(&self) -> Quantisation {
        let key = "global_quant_config";
        self.section.require(&[key]);
        let global = self.section.section_or_empty(key);
        let mut quantisation = self.general(RuleScope::Linear, self.quark_format(&global));
        let layers = self.section.section_or_empty("layer_quant_config");
        for (pattern, _) in layers.entries() {
            let Some(layer) = layers.section(pattern) else { continue };
            if layer.section("weight").is_none() {
                quantisation.skipped.add(self.section, "layer_quant_config", pattern);
            } else if let Some(format) = self.quark_format(&layer) {
                quantisation.store(self.section, "layer_quant_config", pattern, format);
            }
        }
        let cache = self.section.section_or_empty("kv_cache_quant_config");
        let mut schemes = cache.entries().filter_map(|(name, _)| cache.section(name)?.section("output_tensors"));
        let is_fp8 = schemes.next().is_some_and(|scheme| scheme.text("dtype").is_some_and(|of| of.starts_with("fp8")));
        if is_fp8 {
            quantisation.kv_cache = Some(DType::Fp8);
        }
        quantisation
    }

    fn quark_format(&self, scheme: &Keys<'_>) -> Option<WeightFormat> {
        let weight = scheme.section("weight")?;
        weight.require(&["dtype"]);
        let dtype = weight.text("dtype")?;
        let inputs = scheme.section("input_tensors");
        let input = inputs.as_ref().and_then(|of| of.text("dtype"));
        let group = weight.whole("group_size", 1..=u32::MAX).unwrap_or(self.channel);
        match (dtype, input) {
            ("fp8_e4m3" | "fp8_e5m2" | "fp8", _) => Some(WeightFormat::Fp8),
            ("fp4" | "mxfp4" | "mx", _) => Some(WeightFormat::Mxfp4),
            ("int8", Some("int8")) => Some(WeightFormat::Int8),
            ("int8" | "uint8", None) => Some(WeightFormat::Int8WeightOnly { group_size: group }),
            ("int4" | "uint4", None) => Some(WeightFormat::Int4 { group_size: group }),
            _ => {
                let input = input.unwrap_or("16 bit");
                let nearest = nearest_precision(dtype, None);
                weight.problem("dtype", format!("with activations in {input} is not supported: {}", way_out(nearest)));
                None
            }
        }
    }
}
