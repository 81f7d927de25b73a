//! The identities of a table's series: the kernel that each was measured for.

use crate::dtype::DType;

/// Identity of a series: written in table files as `name`, read back with `parse`.
pub trait Key: Clone + PartialEq + std::fmt::Debug + Send + Sync + 'static {
    /// The series name, without commas or blanks.
    fn name(&self) -> String;
    /// The key of a series name; `None` where it is not one.
    fn parse(name: &str) -> Option<Self>;
    /// Series that share their kernel-model coefficients have the same group name.
    fn group(&self) -> String {
        self.name()
    }
}

/// Kernels of dense GEMMs that have tables of their own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GemmKind {
    /// 16-bit weights and activations.
    Bfloat16,
    /// 8-bit float, one scale per tensor or token, activations quantised on the way in.
    Fp8,
    /// 8-bit float with 128 × 128 scale blocks.
    Fp8Block,
}

impl GemmKind {
    /// The name in tables and measurement files.
    pub fn name(self) -> &'static str {
        match self {
            GemmKind::Bfloat16 => "bfloat16",
            GemmKind::Fp8 => "fp8",
            GemmKind::Fp8Block => "fp8_block",
        }
    }

    /// Bytes of a weight, and of an activation as the matrix unit reads it.
    pub fn operand_bytes(self) -> f64 {
        if self == GemmKind::Bfloat16 { 2.0 } else { 1.0 }
    }
}

impl Key for GemmKind {
    fn name(&self) -> String {
        GemmKind::name(*self).to_owned()
    }

    fn parse(name: &str) -> Option<Self> {
        [GemmKind::Bfloat16, GemmKind::Fp8, GemmKind::Fp8Block].into_iter().find(|k| GemmKind::name(*k) == name)
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
    pub head_dim: u64,
    /// Sliding window; `None` for full attention.
    pub window: Option<u64>,
}

impl Key for AttentionKey {
    fn name(&self) -> String {
        let window = self.window.map_or_else(|| "full".to_owned(), |w| format!("w{w}"));
        format!("{}/{}/d{}/{window}", self.engine, self.kv_dtype, self.head_dim)
    }

    fn parse(name: &str) -> Option<Self> {
        let mut parts = name.split('/');
        let engine = parts.next()?.to_owned();
        let kv_dtype = match parts.next()? {
            "bfloat16" => DType::Bfloat16,
            "fp8" => DType::Fp8,
            _ => return None,
        };
        let head_dim = parts.next()?.strip_prefix('d')?.parse().ok()?;
        let window = match parts.next()? {
            "full" => None,
            w => Some(w.strip_prefix('w')?.parse().ok()?),
        };
        if parts.next().is_some() { None } else { Some(AttentionKey { engine, kv_dtype, head_dim, window }) }
    }
}

/// Kernels of routed experts that have tables of their own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MoeKind {
    /// 16-bit weights and activations.
    Bfloat16,
    /// 8-bit float with per-tensor scales.
    Fp8,
    /// 8-bit float with 128 × 128 scale blocks.
    Fp8Block,
    /// 4-bit weights, 16-bit activations (Marlin).
    Int4WeightOnly,
}

impl MoeKind {
    const ALL: [MoeKind; 4] = [MoeKind::Bfloat16, MoeKind::Fp8, MoeKind::Fp8Block, MoeKind::Int4WeightOnly];

    /// The name in tables and measurement files.
    pub fn name(self) -> &'static str {
        match self {
            MoeKind::Bfloat16 => "bfloat16",
            MoeKind::Fp8 => "fp8",
            MoeKind::Fp8Block => "fp8_block",
            MoeKind::Int4WeightOnly => "int4_wo",
        }
    }

    /// Bytes of one weight with its share of scales.
    pub fn weight_bytes(self) -> f64 {
        match self {
            MoeKind::Bfloat16 => 2.0,
            MoeKind::Fp8 | MoeKind::Fp8Block => 1.0,
            MoeKind::Int4WeightOnly => 0.5 + 2.0 / 128.0,
        }
    }

    /// Bytes of an activation as the matrix unit reads it.
    pub fn activation_bytes(self) -> f64 {
        if matches!(self, MoeKind::Fp8 | MoeKind::Fp8Block) { 1.0 } else { 2.0 }
    }
}

/// How tokens spread over experts in a measurement.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Routing {
    /// Evenly.
    Balanced,
    /// By a power law of this exponent.
    PowerLaw(f64),
}

impl Routing {
    /// The name in tables and measurement files: `balanced`, `power_law_1.01`.
    pub fn name(self) -> String {
        match self {
            Routing::Balanced => "balanced".to_owned(),
            Routing::PowerLaw(exponent) => format!("power_law_{exponent}"),
        }
    }

    /// Reads [`Routing::name`] back.
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
    /// Kernel.
    pub kind: MoeKind,
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

impl Key for MoeKey {
    fn name(&self) -> String {
        format!(
            "{}/{}/h{}/i{}/k{}/e{}",
            self.kind.name(),
            self.routing.name(),
            self.hidden_size,
            self.intermediate_size,
            self.top_k,
            self.num_experts
        )
    }

    fn parse(name: &str) -> Option<Self> {
        let parts: Vec<&str> = name.split('/').collect();
        let [kind, routing, hidden, intermediate, top_k, experts] = parts[..] else { return None };
        Some(MoeKey {
            kind: MoeKind::ALL.into_iter().find(|k| k.name() == kind)?,
            routing: Routing::parse(routing)?,
            hidden_size: hidden.strip_prefix('h')?.parse().ok()?,
            intermediate_size: intermediate.strip_prefix('i')?.parse().ok()?,
            top_k: top_k.strip_prefix('k')?.parse().ok()?,
            num_experts: experts.strip_prefix('e')?.parse().ok()?,
        })
    }

    fn group(&self) -> String {
        format!("{}/{}", self.kind.name(), self.routing.name())
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

impl Key for AllReduceKind {
    fn name(&self) -> String {
        match self {
            AllReduceKind::Graph => "graph".to_owned(),
            AllReduceKind::Eager => "eager".to_owned(),
        }
    }

    fn parse(name: &str) -> Option<Self> {
        [AllReduceKind::Graph, AllReduceKind::Eager].into_iter().find(|k| k.name() == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn series_names_are_read_back() {
        let attention =
            AttentionKey { engine: "vllm-0.14".into(), kv_dtype: DType::Fp8, head_dim: 128, window: Some(1024) };
        assert_eq!(AttentionKey::parse(&attention.name()), Some(attention));
        let moe = MoeKey {
            kind: MoeKind::Int4WeightOnly,
            routing: Routing::PowerLaw(1.01),
            hidden_size: 7168,
            intermediate_size: 2048,
            top_k: 8,
            num_experts: 384,
        };
        assert_eq!(MoeKey::parse(&moe.name()), Some(moe));
        assert_eq!(MoeKey::parse("bfloat16/balanced/h1"), None);
    }
}
