//! Number formats of activations, of the KV cache and of stored weights. Uses nothing else of the crate.

use serde::de::DeserializeOwned;
use serde::de::value::{Error as NameError, StrDeserializer};
use serde::{Deserialize, Serialize};

/// Number format of activations, of the KV cache or of a matrix unit's operands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum DType {
    /// 32-bit IEEE float.
    #[serde(alias = "fp32")]
    Float32,
    /// 16-bit IEEE float.
    #[serde(alias = "fp16", alias = "half")]
    Float16,
    /// bfloat16.
    #[serde(alias = "bf16")]
    Bfloat16,
    /// 8-bit float (e4m3 or e5m2).
    #[serde(alias = "fp8_e4m3", alias = "fp8_e5m2", alias = "float8_e4m3fn", alias = "float8_e5m2")]
    Fp8,
    /// 8-bit integer.
    Int8,
    /// 4-bit float (e2m1, as in NVFP4 and MXFP4).
    Fp4,
}

impl DType {
    /// Bytes of one element, scales not counted.
    pub fn bytes(self) -> f64 {
        match self {
            DType::Float32 => 4.0,
            DType::Float16 | DType::Bfloat16 => 2.0,
            DType::Fp8 | DType::Int8 => 1.0,
            DType::Fp4 => 0.5,
        }
    }

    /// Returns the format of a name such as `bfloat16` or `bf16`, in any case.
    pub fn parse(name: &str) -> Option<Self> {
        named(&name.to_lowercase())
    }

    /// Returns the format of a `kv_cache_dtype`, where `auto` leaves the choice to vLLM: `Some(None)`.
    pub fn parse_or_auto(name: &str) -> Option<Option<Self>> {
        if name == "auto" { Some(None) } else { DType::parse(name).filter(|dtype| dtype.is_of_kv_cache()).map(Some) }
    }

    /// Whether vLLM stores a KV cache in it.
    ///
    /// # Source
    /// vLLM 0.15.1, `CacheDType` (`vllm/config/cache.py`).
    pub(crate) fn is_of_kv_cache(self) -> bool {
        matches!(self, DType::Float16 | DType::Bfloat16 | DType::Fp8)
    }
}

impl std::fmt::Display for DType {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.serialize(f)
    }
}

/// Returns the variant of an enum whose `Deserialize` accepts `name`.
fn named<T: DeserializeOwned>(name: &str) -> Option<T> {
    T::deserialize(StrDeserializer::<NameError>::new(name)).ok()
}

/// Number format of a matrix multiplication: how weights are stored, and the precision of the activations they meet.
/// Coarser than [`WeightFormat`]: kernels are measured per format, whatever the size of scale groups.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum MatmulFormat {
    /// bfloat16 weights and activations.
    #[serde(alias = "bf16")]
    Bfloat16,
    /// float16 weights and activations.
    #[serde(alias = "fp16", alias = "half")]
    Float16,
    /// 8-bit float, one scale per tensor, or per token and channel.
    #[serde(alias = "fp8_static", alias = "fp8_e4m3", alias = "float8_e4m3fn")]
    Fp8,
    /// 8-bit float with a scale per 128 × 128 block of weights.
    Fp8Block,
    /// 8-bit integer weights and activations.
    #[serde(alias = "w8a8")]
    Int8,
    /// 8-bit integer weights, 16-bit activations.
    #[serde(rename = "int8_wo", alias = "w8a16")]
    Int8WeightOnly,
    /// 4-bit integer weights, 16-bit activations.
    #[serde(rename = "int4_wo", alias = "int4", alias = "w4a16", alias = "awq", alias = "gptq")]
    Int4WeightOnly,
    /// NVIDIA fp4.
    #[serde(alias = "fp4")]
    Nvfp4,
    /// NVIDIA fp4 weights, 16-bit activations.
    #[serde(rename = "nvfp4_wo", alias = "w4a16_nvfp4")]
    Nvfp4WeightOnly,
    /// OCP microscaling fp4 weights, 16-bit activations.
    #[serde(alias = "w4a16_mxfp4")]
    Mxfp4,
    /// OCP microscaling fp4 weights and fp8 activations.
    #[serde(rename = "mxfp4_mxfp8", alias = "w4a8_mxfp4_mxfp8")]
    Mxfp4Mxfp8,
}

impl MatmulFormat {
    /// Returns the format of a name such as `fp8` or `w4a16`, in any case.
    pub fn parse(name: &str) -> Option<Self> {
        named(&name.to_lowercase())
    }

    /// Bits of a weight, and whether it is a float. People say `fp8` of block scales too, and `fp4` of both fp4 formats.
    pub fn bits(self) -> (u32, bool) {
        match self {
            MatmulFormat::Bfloat16 | MatmulFormat::Float16 => (16, true),
            MatmulFormat::Fp8 | MatmulFormat::Fp8Block => (8, true),
            MatmulFormat::Int8 | MatmulFormat::Int8WeightOnly => (8, false),
            MatmulFormat::Int4WeightOnly => (4, false),
            MatmulFormat::Nvfp4 | MatmulFormat::Nvfp4WeightOnly | MatmulFormat::Mxfp4 | MatmulFormat::Mxfp4Mxfp8 => {
                (4, true)
            }
        }
    }
}

impl std::fmt::Display for MatmulFormat {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.serialize(f)
    }
}

/// Storage of a weight matrix, from `quantization_config` or `hf_quant_config.json`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum WeightFormat {
    /// Not quantised: stored as the model's `torch_dtype`.
    Plain(DType),
    /// 8-bit float, one scale per tensor or per output channel.
    Fp8,
    /// 8-bit float with one 32-bit scale per block of `rows` × `columns` (DeepSeek style, usually 128 × 128).
    Fp8Block {
        /// Rows (output channels) of a scale block.
        rows: u32,
        /// Columns (input channels) of a scale block.
        columns: u32,
    },
    /// 8-bit integer weights and activations, one scale per output channel.
    Int8,
    /// 4-bit integer weights, 16-bit activations, one 16-bit scale per group of `group_size` inputs
    /// (GPTQ, AWQ, compressed-tensors `pack-quantized`).
    Int4 {
        /// Inputs that share a scale.
        group_size: u32,
    },
    /// 8-bit integer weights, 16-bit activations (GPTQ 8 bit, compressed-tensors `pack-quantized` 8 bit).
    Int8WeightOnly {
        /// Inputs that share a scale.
        group_size: u32,
    },
    /// OCP microscaling fp4: one 8-bit scale per 32 weights.
    Mxfp4,
    /// NVIDIA fp4: one 8-bit scale per 16 weights.
    Nvfp4,
    /// NVIDIA fp4 weights, 16-bit activations (modelopt's `W4A16_NVFP4`).
    Nvfp4WeightOnly,
}

impl WeightFormat {
    /// Bytes of one weight with its share of the scales.
    ///
    /// ```
    /// use ridgepoint::dtype::WeightFormat;
    /// assert_eq!(WeightFormat::Mxfp4.bytes_per_weight(), 0.5 + 1.0 / 32.0);
    /// assert_eq!(WeightFormat::Int4 { group_size: 128 }.bytes_per_weight(), 0.5 + 2.0 / 128.0);
    /// ```
    pub fn bytes_per_weight(self) -> f64 {
        match self {
            WeightFormat::Plain(dtype) => dtype.bytes(),
            WeightFormat::Fp8 | WeightFormat::Int8 => 1.0,
            WeightFormat::Fp8Block { rows, columns } => 1.0 + 4.0 / (f64::from(rows) * f64::from(columns)),
            WeightFormat::Int4 { group_size } => 0.5 + 2.0 / f64::from(group_size),
            WeightFormat::Int8WeightOnly { group_size } => 1.0 + 2.0 / f64::from(group_size),
            WeightFormat::Mxfp4 => 0.5 + 1.0 / 32.0,
            WeightFormat::Nvfp4 | WeightFormat::Nvfp4WeightOnly => 0.5 + 1.0 / 16.0,
        }
    }
}

impl From<WeightFormat> for MatmulFormat {
    /// 32-bit floats are served as bfloat16.
    fn from(format: WeightFormat) -> Self {
        match format {
            WeightFormat::Plain(DType::Float16) => MatmulFormat::Float16,
            WeightFormat::Plain(_) => MatmulFormat::Bfloat16,
            WeightFormat::Fp8 => MatmulFormat::Fp8,
            WeightFormat::Fp8Block { .. } => MatmulFormat::Fp8Block,
            WeightFormat::Int8 => MatmulFormat::Int8,
            WeightFormat::Int8WeightOnly { .. } => MatmulFormat::Int8WeightOnly,
            WeightFormat::Int4 { .. } => MatmulFormat::Int4WeightOnly,
            WeightFormat::Mxfp4 => MatmulFormat::Mxfp4,
            WeightFormat::Nvfp4 => MatmulFormat::Nvfp4,
            WeightFormat::Nvfp4WeightOnly => MatmulFormat::Nvfp4WeightOnly,
        }
    }
}

impl std::fmt::Display for WeightFormat {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            WeightFormat::Plain(dtype) => write!(f, "{dtype}"),
            WeightFormat::Fp8 => f.write_str("fp8"),
            WeightFormat::Fp8Block { rows, columns } => write!(f, "fp8_block{rows}x{columns}"),
            WeightFormat::Int8 => f.write_str("int8"),
            WeightFormat::Int4 { group_size } => write!(f, "int4_g{group_size}"),
            WeightFormat::Int8WeightOnly { group_size } => write!(f, "int8_wo_g{group_size}"),
            WeightFormat::Mxfp4 => f.write_str("mxfp4"),
            WeightFormat::Nvfp4 => f.write_str("nvfp4"),
            WeightFormat::Nvfp4WeightOnly => f.write_str("nvfp4_wo"),
        }
    }
}
