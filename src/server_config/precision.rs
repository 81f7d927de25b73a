//! `precision` of a server against what the checkpoint itself stores. Uses `model`, `dtype`.

use std::fmt;
use std::path::Path;

use super::ServerConfig;
use crate::dtype::{DType, WeightFormat};
use crate::error::{Error, Result};
use crate::model::Model;

/// How a server is said to store its weights.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Precision {
    /// Not quantised: bfloat16 or float16.
    Bits16,
    /// 8-bit float, with scales of any kind.
    Fp8,
    /// 8-bit integer.
    Int8,
    /// 4-bit integer.
    Int4,
    /// 4-bit float.
    Fp4,
}

impl Precision {
    pub(super) const EXPECTED: &'static str =
        "bf16 (bfloat16, fp16, float16, half), fp8, int8 (w8a8), int4 (w4a16, awq, gptq) or fp4 (nvfp4, mxfp4)";

    /// The precision of this name, in any case.
    pub fn parse(name: &str) -> Option<Self> {
        match name.to_lowercase().as_str() {
            "bf16" | "bfloat16" | "fp16" | "float16" | "half" => Some(Precision::Bits16),
            "fp8" => Some(Precision::Fp8),
            "int8" | "w8a8" => Some(Precision::Int8),
            "int4" | "w4a16" | "awq" | "gptq" => Some(Precision::Int4),
            "fp4" | "nvfp4" | "mxfp4" => Some(Precision::Fp4),
            _ => None,
        }
    }

    /// The precision that weights are stored in; `None` for 32 bits.
    fn of(weights: WeightFormat) -> Option<Self> {
        match weights {
            WeightFormat::Plain(DType::Bfloat16 | DType::Float16) => Some(Precision::Bits16),
            WeightFormat::Plain(_) => None,
            WeightFormat::Fp8 | WeightFormat::Fp8Block { .. } => Some(Precision::Fp8),
            WeightFormat::Int8 | WeightFormat::Int8WeightOnly { .. } => Some(Precision::Int8),
            WeightFormat::Int4 { .. } => Some(Precision::Int4),
            WeightFormat::Mxfp4 | WeightFormat::Nvfp4 => Some(Precision::Fp4),
        }
    }

    /// What names of such checkpoints end in.
    fn suffix(self) -> &'static str {
        match self {
            Precision::Bits16 => "BF16",
            Precision::Fp8 => "FP8",
            Precision::Int8 => "quantized.w8a8",
            Precision::Int4 => "quantized.w4a16",
            Precision::Fp4 => "NVFP4",
        }
    }
}

impl fmt::Display for Precision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Precision::Bits16 => "bf16",
            Precision::Fp8 => "fp8",
            Precision::Int8 => "int8",
            Precision::Int4 => "int4",
            Precision::Fp4 => "fp4",
        })
    }
}

/// Storage of most of the model: the experts of its most frequent kind of layer, or that layer's dense block.
fn stored(model: &Model) -> Option<WeightFormat> {
    let group = model.layers().iter().max_by_key(|group| group.count)?;
    let experts = group.moe.as_ref().map(|moe| moe.weights);
    experts.or(group.dense.as_ref().map(|dense| dense.weights))
}

pub(super) fn find(server: &ServerConfig, data_dir: Option<&Path>) -> Result<(Model, Vec<String>)> {
    let model = Model::find_in(data_dir, &server.model)?;
    let (Some(asked), Some(format)) = (server.precision, stored(&model)) else { return Ok((model, Vec::new())) };
    let own = Precision::of(format);
    if own == Some(asked) {
        return Ok((model, Vec::new()));
    }
    if asked == Precision::Bits16 {
        let note = format!(
            "precision = {asked}: {} stores its weights as {format}, which is what is predicted; {asked} can only be that of its activations",
            model.name()
        );
        return Ok((model, vec![note]));
    }
    let refused = |reason: String| {
        Error::invalid(
            server.origin.clone(),
            vec![format!("precision = {asked}, but {} stores its weights as {format}: {reason}", model.name())],
        )
    };
    if own != Some(Precision::Bits16) {
        return Err(refused("name the checkpoint that was served, or leave precision out".to_owned()));
    }
    let is_path = Path::new(&server.model).exists();
    let variant = if is_path { None } else { quantised(&server.model, asked, data_dir) };
    let Some(variant) = variant else {
        return Err(refused("give the config.json of the quantised checkpoint, or leave precision out".to_owned()));
    };
    let note = format!(
        "precision = {asked}: {} stores its weights as {format}, so {} is predicted in its place",
        model.name(),
        variant.name()
    );
    Ok((variant, vec![note]))
}

fn quantised(name: &str, precision: Precision, data_dir: Option<&Path>) -> Option<Model> {
    let variant = Model::find_in(data_dir, &format!("{name}-{}", precision.suffix())).ok()?;
    let is_so = stored(&variant).and_then(Precision::of) == Some(precision);
    is_so.then_some(variant)
}
