//! Calibration of routed experts.

use ridgepoint::dtype::MatmulFormat;
use ridgepoint::physics::Shape;
use ridgepoint::unstable::efficiency::family::{MoeKey, Routing};
use ridgepoint::unstable::efficiency::kernel_model::{Chip, MoeModel};

use super::super::family::{Calibrated, NO_MODEL, Placed, logs};
use super::super::source::Source;
use crate::measurements::{MoeCall, Timed};

/// TensorRT-LLM's kernels of low latency, and the most tokens for which it launches them (AIConfigurator 0.4,
/// `sdk/perf_database.py`). The public tables have both kinds at all sizes.
const LOW_LATENCY: &str = "moe_torch_flow_min_latency";
const MAX_LOW_LATENCY_TOKENS: u64 = 128;

/// On Blackwell TensorRT-LLM serves with kernels of its own (TRTLLM-Gen). The public rows time those with quantised activations for mxfp4 alone,
/// else CUTLASS and DeepGEMM: with them the TPOT of its closed loops on B200 is off by 21 % in the median, with vLLM's experts by 12 %.
const NOT_SERVED: &str = "kernels that the engine does not serve with on Blackwell";

/// SGLang's fused kernel of Triton reads mxfp4 weights that were unpacked to 16 bits. A layer of gpt-oss-120b has 6.4 GB of such experts, which
/// an H100 reads in the measured 2.6 ms at 2.5 TB/s; with 4 bits its rate would be 0.7 TB/s. Off Blackwell, SGLang serves gpt-oss with
/// `triton_kernels`, which read 4 bits (`sglang/srt/server_args.py`).
const UNPACKED: &str = "kernels that read 4-bit weights unpacked to 16 bits";
const UNPACKING_KERNEL: &str = "sglang_fused_moe_triton";

const NOT_LAUNCHED: &str = "kernels that the engine does not launch for so many tokens";

impl Calibrated for MoeModel {
    const SHARES_FOREST: bool = false;

    /// The bound assumes that tokens choose experts evenly. Skewed or grouped routing reads fewer, and experts without a gate are two
    /// thirds as large.
    const MAX_EFFICIENCY: f64 = 2.0;

    fn label(key: &MoeKey) -> String {
        key.format.to_string()
    }

    fn is_read(key: &MoeKey, all: &[&MoeKey]) -> bool {
        let assumed = Routing::assumed(key.num_experts);
        let under_assumed = MoeKey { routing: assumed, ..*key };
        key.routing == assumed || key.routing == Routing::SKEWED && !all.contains(&&under_assumed)
    }

    fn features(key: &MoeKey, shape: &Self::Shape, _: &Chip) -> Vec<f64> {
        let skew = match key.routing {
            Routing::Balanced => 0.5,
            Routing::PowerLaw(exponent) => exponent,
        };
        let active = shape.active_experts().max(1e-6);
        let work = shape.work();
        logs(&[
            skew,
            shape.tokens,
            shape.hidden,
            shape.intermediate,
            shape.top_k,
            shape.experts,
            shape.local_experts,
            shape.pairs(),
            active,
            shape.pairs() / active,
            shape.tokens * shape.top_k,
            shape.tokens * shape.top_k / shape.experts,
            shape.hidden * shape.intermediate,
            work.flops,
            work.bytes,
            work.flops / work.bytes,
            shape.experts / shape.local_experts,
            key.intermediate_size as f64 / shape.intermediate,
        ])
    }

    fn place(row: &Timed<MoeCall>, source: &Source) -> Result<Placed<Self>, String> {
        let call = &row.call;
        let is_trtllm = source.engine.starts_with("trtllm");
        if is_trtllm && source.is_public && source.name.contains("B200") && call.dtype != MatmulFormat::Mxfp4Mxfp8 {
            return Err(NOT_SERVED.to_owned());
        }
        if call.dtype == MatmulFormat::Mxfp4 && source.kernel.starts_with(UNPACKING_KERNEL) {
            return Err(UNPACKED.to_owned());
        }
        let has_both = call.dtype == MatmulFormat::Nvfp4 && is_trtllm;
        if has_both && (source.kernel == LOW_LATENCY) != (call.num_tokens <= MAX_LOW_LATENCY_TOKENS) {
            return Err(NOT_LAUNCHED.to_owned());
        }
        let point = vec![call.moe_tp_size as f64, call.moe_ep_size as f64, call.num_tokens as f64];
        Ok(Placed::OnGrid(moe_key(call).ok_or(NO_MODEL)?, point))
    }
}

/// `None` for a number format that no table has.
fn moe_key(call: &MoeCall) -> Option<MoeKey> {
    Some(MoeKey {
        format: call.dtype.tabulated()?,
        routing: Routing::parse(&call.distribution)?,
        hidden_size: call.hidden_size,
        intermediate_size: call.intermediate_size,
        top_k: call.top_k,
        num_experts: call.num_experts,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_power_law_over_few_experts_is_read_where_nothing_even_was_measured() {
        let key = |name: &str| <MoeKey as ridgepoint::unstable::efficiency::family::Key>::parse(name).unwrap();
        let [even, skewed, steeper, many] = [
            "bfloat16/balanced/h4096/i14336/k2/e8",
            "bfloat16/power_law_1.01/h4096/i14336/k2/e8",
            "bfloat16/power_law_1.2/h4096/i14336/k2/e8",
            "bfloat16/power_law_1.01/h2048/i768/k8/e128",
        ]
        .map(key);
        let read = |key: &MoeKey, all: &[&MoeKey]| MoeModel::is_read(key, all);
        assert!(read(&even, &[&even, &skewed]) && !read(&skewed, &[&even, &skewed]));
        assert!(read(&skewed, &[&skewed, &steeper]) && !read(&steeper, &[&skewed, &steeper]));
        assert!(read(&many, &[&even, &many]));
    }
}
