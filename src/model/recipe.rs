//! The assumed quantisation of a checkpoint that is not built in: its publisher's usual one, as far as that is known.

use serde_json::{Value, json};

use super::names::{Scheme, plain_scheme};
use crate::dtype::MatmulFormat;

/// The assumed quantisation of a checkpoint.
pub(super) struct Recipe {
    /// Suffix of the model's name.
    pub(super) label: &'static str,
    format: MatmulFormat,
    has_fp8_cache: bool,
    /// Patterns of modules that are not quantised, in addition to router and LM head.
    skipped: &'static [&'static str],
    /// The same in words.
    except: &'static str,
    /// Checkpoints that are quantised in this way; `None` where none is known.
    known_from: Option<&'static str>,
}

impl Recipe {
    /// Chooses the recipe for the `scheme` of a name by the checkpoint's `publisher`, which is in lower case, and the short name of its
    /// `base`.
    ///
    /// # Source
    /// `quantization_config` of Qwen/Qwen3-30B-A3B-FP8, Qwen3-32B-FP8 and Qwen3-235B-A22B-FP8, and `hf_quant_config.json` of
    /// nvidia/Llama-3.1-70B-Instruct-FP8 and of NVIDIA's NVFP4 checkpoints of Qwen3, DeepSeek-V3.1, Kimi-K2.6 and MiniMax-M2.5. Those of
    /// Meta as their model cards and the report on Llama 3 (arXiv:2407.21783, section 6.2) describe them; the files were not compared.
    pub(super) fn new(scheme: Scheme, publisher: &str, base: &str) -> Self {
        let format = scheme.format;
        let label = plain_scheme(format).map_or("bf16", |(label, ..)| label);
        let has_fp8_cache = scheme.scales == "kv";
        let recipe = Recipe { label, format, has_fp8_cache, skipped: &[], except: "", known_from: None };
        match (publisher, format, scheme.scales) {
            ("meta-llama", MatmulFormat::Fp8, "") if base == "llama-3.1-405b" => Recipe {
                skipped: &["*.self_attn", "model.layers.0", "model.layers.125"],
                except: " except attention and the first and last layer",
                known_from: Some("Meta's description of its fbgemm_fp8 checkpoint"),
                ..recipe
            },
            ("meta-llama", MatmulFormat::Fp8, "") if base == "llama-4-maverick" => Recipe {
                skipped: &["*.self_attn", "*.shared_expert", r"re:.*\.feed_forward\.(gate|up|down)_proj$"],
                except: " except attention, shared experts and dense blocks",
                known_from: Some("Meta's description of its compressed-tensors checkpoint"),
                ..recipe
            },
            ("qwen", MatmulFormat::Fp8, "") => {
                Recipe { format: MatmulFormat::Fp8Block, known_from: Some("Qwen's fp8 checkpoints of Qwen3"), ..recipe }
            }
            ("nvidia", MatmulFormat::Fp8 | MatmulFormat::Nvfp4, "") => Recipe {
                has_fp8_cache: true,
                known_from: Some("NVIDIA's checkpoints of Llama-3.1 and Qwen3"),
                ..recipe
            },
            _ => recipe,
        }
    }

    /// The `quantization_config` of such a checkpoint.
    pub(super) fn quantisation(&self) -> Value {
        let Some((_, algorithm, _)) = plain_scheme(self.format) else { return Value::Null };
        let cache = self.has_fp8_cache.then_some("FP8");
        json!({
            "quant_method": "modelopt",
            "quant_algo": algorithm,
            "group_size": 128,
            "kv_cache_quant_algo": cache,
            "exclude_modules": self.skipped
        })
    }

    /// The assumption in words, and the way out.
    pub(super) fn description(&self) -> String {
        let weights = plain_scheme(self.format).map_or("bfloat16", |(.., what)| what).to_owned() + self.except;
        let cache = if self.has_fp8_cache { "a KV cache in fp8" } else { "the base's KV cache" };
        let path = "give the path of its config.json to use its real scheme";
        match self.known_from {
            Some(others) => format!("{weights}, and {cache}, as in {others}; {path}"),
            None if self.has_fp8_cache => format!("{weights}, and {cache}; {path}"),
            None => format!("{weights}, and {cache}; {path}, which may store the cache in fp8"),
        }
    }
}
