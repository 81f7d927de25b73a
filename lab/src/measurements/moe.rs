//! Timings of routed experts.

use ridgepoint::Result;
use ridgepoint::dtype::MatmulFormat;
use ridgepoint::unstable::efficiency::family::Routing;
use ridgepoint_replay::input::Row;

use super::columns::{Call, PublicTable, check_divides, matmul_format, public_columns, size};
use super::source::SourceFormat;

const DISTRIBUTIONS: &str = "balanced, or power_law_<alpha> with alpha above 0";

/// The routed experts' fused kernel on one GPU, without router and shared experts.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct MoeCall {
    /// Storage of the experts.
    pub dtype: MatmulFormat,
    /// Tokens that are routed, over all GPUs that share the experts: in the public data the time of a large call falls
    /// with `moe_ep_size` at the same count.
    pub num_tokens: u64,
    /// Width of the residual stream.
    pub hidden_size: u64,
    /// Width of one expert of the whole model; the GPU holds `intermediate_size / moe_tp_size` of it.
    pub intermediate_size: u64,
    /// Experts per token.
    pub top_k: u64,
    /// Experts of the whole layer; the GPU holds `num_experts / moe_ep_size` of them.
    pub num_experts: u64,
    /// GPUs that share every expert; divides `intermediate_size`.
    pub moe_tp_size: u64,
    /// GPUs that each hold some of the experts; divides `num_experts`.
    pub moe_ep_size: u64,
    /// How tokens were spread over the experts: `balanced`, or `power_law_<alpha>` if the experts' loads were drawn from
    /// a density that falls as load^−alpha.
    pub distribution: String,
}

impl Call for MoeCall {
    const STEM: &'static str = "moe";
    const CSV: &'static str = "dtype,num_tokens,hidden_size,intermediate_size,top_k,num_experts,\
        moe_tp_size,moe_ep_size,distribution,latency_us";
    const PUBLIC: &'static [PublicTable] = &[PublicTable {
        file: "moe_perf.parquet",
        columns: public_columns(
            Self::CSV,
            &[
                ("moe_dtype", "dtype"),
                ("inter_size", "intermediate_size"),
                ("topk", "top_k"),
                ("latency", "latency_us"),
            ],
        ),
        constants: &[("op_name", "moe")],
        only: &[],
    }];

    fn read(row: &Row<'_>, _: SourceFormat) -> Result<Self> {
        let is_possible = |routing: Routing| match routing {
            Routing::Balanced => true,
            Routing::PowerLaw(alpha) => alpha.is_finite() && alpha > 0.0,
        };
        let distribution = |name: &str| Routing::parse(name).filter(|of| is_possible(*of)).map(|_| name.to_owned());
        let call = MoeCall {
            dtype: matmul_format(row)?,
            num_tokens: size(row, "num_tokens")?,
            hidden_size: size(row, "hidden_size")?,
            intermediate_size: size(row, "intermediate_size")?,
            top_k: size(row, "top_k")?,
            num_experts: size(row, "num_experts")?,
            moe_tp_size: size(row, "moe_tp_size")?,
            moe_ep_size: size(row, "moe_ep_size")?,
            distribution: row.read("distribution", DISTRIBUTIONS, distribution)?,
        };
        if call.top_k > call.num_experts {
            return Err(row.bad("top_k", format!("at most num_experts = {}", call.num_experts)));
        }
        let MoeCall { num_experts, intermediate_size, .. } = call;
        check_divides(row, "moe_ep_size", call.moe_ep_size, num_experts, format_args!("num_experts = {num_experts}"))?;
        let width = format_args!("the experts' width {intermediate_size}");
        check_divides(row, "moe_tp_size", call.moe_tp_size, intermediate_size, width)?;
        Ok(call)
    }
}
