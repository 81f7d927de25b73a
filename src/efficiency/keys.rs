//! The identities of a table's series: the kernel that each was measured for.

use std::fmt::{Debug, Display, Formatter, Result};

use crate::dtype::{DType, MatmulFormat, WeightFormat};
use crate::model::Recurrence;
use crate::physics::StateKernel;

/// Identity of a series. Its `Display` is the series' name in table files, without commas or blanks.
pub trait Key: Clone + PartialEq + Debug + Display + Send + Sync + 'static {
    /// The key of a series name; `None` for any other text.
    fn parse(name: &str) -> Option<Self>;
    /// Series that share their kernel-model coefficients have the same group name.
    fn group(&self) -> String {
        self.to_string()
    }
}

impl MatmulFormat {
    /// Returns the format under which tables hold these kernels: bfloat16 for float16, `None` where no table has any.
    pub fn tabulated(self) -> Option<Self> {
        match self {
            MatmulFormat::Bfloat16 | MatmulFormat::Float16 => Some(MatmulFormat::Bfloat16),
            MatmulFormat::Fp8
            | MatmulFormat::Fp8Block
            | MatmulFormat::Int4WeightOnly
            | MatmulFormat::Nvfp4
            | MatmulFormat::Mxfp4
            | MatmulFormat::Mxfp4Mxfp8 => Some(self),
            MatmulFormat::Int8 | MatmulFormat::Int8WeightOnly | MatmulFormat::Nvfp4WeightOnly => None,
        }
    }
}

impl Key for MatmulFormat {
    fn parse(name: &str) -> Option<Self> {
        let format = MatmulFormat::parse(name)?;
        // A series has the one name of its format, not another that people write.
        (format.tabulated() == Some(format) && format.to_string() == name).then_some(format)
    }
}

/// Format of the operands as the matrix unit reads them.
pub fn operand_dtype(format: MatmulFormat) -> DType {
    match format {
        MatmulFormat::Fp8 | MatmulFormat::Fp8Block | MatmulFormat::Mxfp4Mxfp8 => DType::Fp8,
        MatmulFormat::Nvfp4 => DType::Fp4,
        _ => DType::Bfloat16,
    }
}

/// A batch of matrix products of one shape, each with weights of its own.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct BatchedGemmKey {
    /// Number format of weights and inputs.
    pub format: MatmulFormat,
    /// Outputs of each product.
    pub n: u64,
    /// Inputs of each product.
    pub k: u64,
}

impl Display for BatchedGemmKey {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        let BatchedGemmKey { format, n, k } = self;
        write!(f, "{format}/n{n}/k{k}")
    }
}

impl Key for BatchedGemmKey {
    fn parse(name: &str) -> Option<Self> {
        let parts: Vec<&str> = name.split('/').collect();
        let [format, n, k] = parts[..] else { return None };
        Some(BatchedGemmKey {
            format: Key::parse(format)?,
            n: n.strip_prefix('n')?.parse().ok()?,
            k: k.strip_prefix('k')?.parse().ok()?,
        })
    }

    fn group(&self) -> String {
        self.format.to_string()
    }
}

/// Bytes of a measured weight with its share of the scales: integers of four bits have a 16-bit scale per 128.
pub(super) fn weight_bytes(format: MatmulFormat) -> f64 {
    match format {
        MatmulFormat::Int4WeightOnly => WeightFormat::Int4 { group_size: 128 }.bytes_per_weight(),
        MatmulFormat::Nvfp4 => WeightFormat::Nvfp4.bytes_per_weight(),
        MatmulFormat::Mxfp4 | MatmulFormat::Mxfp4Mxfp8 => WeightFormat::Mxfp4.bytes_per_weight(),
        _ => operand_dtype(format).bytes(),
    }
}

/// Widths of the heads of an attention kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum HeadSize {
    /// Keys and values of this width.
    Plain(u64),
    /// Latent attention as DeepSeek-V3 has it: decodes attend to latents of 576 whose first 512 are the values, prompts to keys of 192
    /// and values of 128.
    Latent,
    /// Latents of the same widths, of which each query reads those that an indexer picked: decodes and chunks alike.
    Sparse,
    /// Keys of an indexer, 128 wide in fp8 with a scale, and no values.
    Indexer,
}

impl HeadSize {
    /// The head size that measurement files name instead of a width: `dsa` or `indexer`.
    pub fn named(name: &str) -> Option<Self> {
        [HeadSize::Sparse, HeadSize::Indexer].into_iter().find(|of| of.to_string() == name)
    }
}

impl Display for HeadSize {
    /// The name in series: `d128`, `mla`, `dsa`, `indexer`.
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        match self {
            HeadSize::Plain(width) => write!(f, "d{width}"),
            HeadSize::Latent => f.write_str("mla"),
            HeadSize::Sparse => f.write_str("dsa"),
            HeadSize::Indexer => f.write_str("indexer"),
        }
    }
}

/// Attention kernels of one engine version, KV format, head size and window.
#[derive(Debug, Clone, PartialEq)]
pub struct AttentionKey {
    /// Engine and minor version, as `vllm-0.14`.
    pub engine: String,
    /// Format of the KV cache.
    pub kv_dtype: DType,
    /// Width of a head.
    pub head_size: HeadSize,
    /// Sliding window; `None` for full attention.
    pub window: Option<u64>,
}

impl Display for AttentionKey {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        let window = self.window.map_or_else(|| "full".to_owned(), |w| format!("w{w}"));
        write!(f, "{}/{}/{}/{window}", self.engine, self.kv_dtype, self.head_size)
    }
}

impl Key for AttentionKey {
    fn parse(name: &str) -> Option<Self> {
        let parts: Vec<&str> = name.split('/').collect();
        let [engine, kv_dtype, head_size, window] = parts[..] else { return None };
        Some(AttentionKey {
            engine: engine.to_owned(),
            kv_dtype: [DType::Bfloat16, DType::Fp8].into_iter().find(|dtype| dtype.to_string() == kv_dtype)?,
            head_size: match head_size {
                "mla" => HeadSize::Latent,
                other => match HeadSize::named(other) {
                    Some(named) => named,
                    None => HeadSize::Plain(other.strip_prefix('d')?.parse().ok()?),
                },
            },
            window: match window {
                "full" => None,
                tokens => Some(tokens.strip_prefix('w')?.parse().ok()?),
            },
        })
    }
}

/// Experts up to which routers are taken to spread tokens evenly: a power law sends 37 % of the choices to one of eight.
const FEW_EXPERTS: u64 = 16;

/// How tokens spread over experts in a measurement.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Routing {
    /// Evenly.
    Balanced,
    /// By a power law of this exponent.
    PowerLaw(f64),
}

impl Display for Routing {
    /// The name in tables and measurement files: `balanced`, `power_law_1.01`.
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        match self {
            Routing::Balanced => f.write_str("balanced"),
            Routing::PowerLaw(exponent) => write!(f, "power_law_{exponent}"),
        }
    }
}

impl Routing {
    /// The spread that is assumed of routers of many experts.
    pub const SKEWED: Routing = Routing::PowerLaw(1.01);

    /// The spread that is assumed of a trained router, and the one that tables hold (docs/design.md, "Routing").
    pub fn assumed(num_experts: u64) -> Self {
        if num_experts <= FEW_EXPERTS { Routing::Balanced } else { Routing::SKEWED }
    }

    /// The routing of a name in tables and measurement files.
    pub fn parse(name: &str) -> Option<Self> {
        match name {
            "balanced" => Some(Routing::Balanced),
            _ => name.strip_prefix("power_law_")?.parse().ok().map(Routing::PowerLaw),
        }
    }
}

/// The expert layer of one model architecture under one routing.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MoeKey {
    /// Number format of weights and activations.
    pub format: MatmulFormat,
    /// Spread of tokens over experts.
    pub routing: Routing,
    /// Width of the residual stream.
    pub hidden_size: u64,
    /// Width of a whole expert.
    pub intermediate_size: u64,
    /// Experts per token.
    pub top_k: u64,
    /// Experts of the layer.
    pub num_experts: u64,
}

impl Display for MoeKey {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        let MoeKey { format, routing, hidden_size, intermediate_size, top_k, num_experts } = self;
        write!(f, "{format}/{routing}/h{hidden_size}/i{intermediate_size}/k{top_k}/e{num_experts}")
    }
}

impl Key for MoeKey {
    fn parse(name: &str) -> Option<Self> {
        let parts: Vec<&str> = name.split('/').collect();
        let [format, routing, hidden, intermediate, top_k, experts] = parts[..] else { return None };
        Some(MoeKey {
            format: Key::parse(format)?,
            routing: Routing::parse(routing)?,
            hidden_size: hidden.strip_prefix('h')?.parse().ok()?,
            intermediate_size: intermediate.strip_prefix('i')?.parse().ok()?,
            top_k: top_k.strip_prefix('k')?.parse().ok()?,
            num_experts: experts.strip_prefix('e')?.parse().ok()?,
        })
    }

    fn group(&self) -> String {
        format!("{}/{}", self.format, self.routing)
    }
}

/// A kernel of layers with a state.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StateKey {
    /// Which kernel.
    pub kernel: StateKernel,
    /// Update rule of the state, token by token.
    pub recurrence: Recurrence,
    /// Width of a key.
    pub key_head_dim: u64,
    /// Width of a head's values.
    pub head_dim: u64,
    /// Tokens that the convolution sees.
    pub conv_kernel: u64,
}

impl Display for StateKey {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        let StateKey { kernel, recurrence, key_head_dim, head_dim, conv_kernel } = self;
        write!(f, "{}/{}/k{key_head_dim}/v{head_dim}/c{conv_kernel}", recurrence.name(), kernel.name())
    }
}

impl Key for StateKey {
    fn parse(name: &str) -> Option<Self> {
        let parts: Vec<&str> = name.split('/').collect();
        let [recurrence, kernel, keys, values, conv] = parts[..] else { return None };
        Some(StateKey {
            kernel: StateKernel::parse(kernel)?,
            recurrence: Recurrence::parse(recurrence)?,
            key_head_dim: keys.strip_prefix('k')?.parse().ok()?,
            head_dim: values.strip_prefix('v')?.parse().ok()?,
            conv_kernel: conv.strip_prefix('c')?.parse().ok()?,
        })
    }
}

/// Whether the all-reduce ran inside a CUDA graph.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AllReduceKind {
    /// Inside a CUDA graph.
    Graph,
    /// Launched from the host.
    Eager,
}

impl Display for AllReduceKind {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        f.write_str(if *self == AllReduceKind::Graph { "graph" } else { "eager" })
    }
}

impl Key for AllReduceKind {
    fn parse(name: &str) -> Option<Self> {
        [AllReduceKind::Graph, AllReduceKind::Eager].into_iter().find(|kind| kind.to_string() == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_experts_are_taken_to_be_balanced() {
        assert_eq!([8, 16].map(Routing::assumed), [Routing::Balanced; 2]);
        assert_eq!(Routing::assumed(17), Routing::PowerLaw(1.01));
    }

    #[test]
    fn a_format_is_read_by_its_own_name_where_tables_have_it() {
        let read = <MatmulFormat as Key>::parse;
        assert_eq!(read("mxfp4_mxfp8"), Some(MatmulFormat::Mxfp4Mxfp8));
        assert_eq!(["bf16", "FP8", "float16", "int8"].map(read), [None; 4]);
        assert_eq!(MatmulFormat::Float16.tabulated(), Some(MatmulFormat::Bfloat16));
    }

    #[test]
    fn series_names_are_read_back() {
        let attention = AttentionKey {
            engine: "vllm-0.14".into(),
            kv_dtype: DType::Fp8,
            head_size: HeadSize::Plain(128),
            window: Some(1024),
        };
        let latent = AttentionKey { head_size: HeadSize::Latent, window: None, ..attention.clone() };
        assert_eq!(latent.to_string(), "vllm-0.14/fp8/mla/full");
        for key in [attention, latent] {
            assert_eq!(AttentionKey::parse(&key.to_string()), Some(key));
        }
        let moe = MoeKey {
            format: MatmulFormat::Int4WeightOnly,
            routing: Routing::PowerLaw(1.01),
            hidden_size: 7168,
            intermediate_size: 2048,
            top_k: 8,
            num_experts: 384,
        };
        assert_eq!(MoeKey::parse(&moe.to_string()), Some(moe));
        assert_eq!(MoeKey::parse("bfloat16/balanced/h1"), None);
        let scan = StateKey {
            kernel: StateKernel::ChunkScan,
            recurrence: Recurrence::GatedDeltaNet,
            key_head_dim: 128,
            head_dim: 64,
            conv_kernel: 4,
        };
        assert_eq!(scan.to_string(), "gated_delta_net/chunk_scan/k128/v64/c4");
        assert_eq!(StateKey::parse(&scan.to_string()), Some(scan));
        assert_eq!(StateKey::parse("gated_delta_net/scan/k128/v64/c4"), None);
        let absorbed = BatchedGemmKey { format: MatmulFormat::Bfloat16, n: 512, k: 128 };
        assert_eq!(absorbed.to_string(), "bfloat16/n512/k128");
        assert_eq!(BatchedGemmKey::parse(&absorbed.to_string()), Some(absorbed));
        assert_eq!(BatchedGemmKey::parse("bfloat16/n512"), None);
    }
}
