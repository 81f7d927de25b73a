//! vLLM's own estimates of FLOPs and bytes, which `/metrics` counts, compared with ours for the same steps.

use super::read::CapturedRun;
use crate::evaluate::steps::reconstruct;
use crate::ingest::{counted, totals};
use ridgepoint::{Error, Result, StepModel};
use serde::Serialize;

/// FLOPs or bytes of a GPU over a run.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct WorkCount {
    /// `flops` or `bytes`.
    pub name: &'static str,
    /// vLLM's estimate.
    pub vllm: f64,
    /// Ours, for the same steps.
    pub ridgepoint: f64,
    /// Ours over vLLM's.
    pub ratio: f64,
}

/// The counts of both, where the capture has `/metrics` of before and after with these estimates and every step with its requests. A note
/// says what is missing.
///
/// # Errors
/// Replies of `/metrics` that are not of before and after a run.
///
/// # Source
/// vLLM 0.32, `vllm/v1/metrics/perf.py`: reads and writes of projections, attention, MLP and LM head, all in the model's types. A query counts
/// as many keys as its chunk sees at the chunk's end, so that attention of prompts has up to twice the FLOPs of a causal mask.
pub(super) fn work_counts(
    run: &CapturedRun,
    steps: &StepModel,
    block_size: u32,
    notes: &mut Vec<String>,
) -> Result<Vec<WorkCount>> {
    let problem = |problem| Error::invalid("/metrics", vec![problem]);
    let totals = totals(&run.metrics, &[], None).map_err(problem)?;
    let server = |name: &str| counted(&totals, name).unwrap_or(0.0);
    let [flops, read, written] =
        ["flops", "read_bytes", "write_bytes"].map(|name| server(&format!("estimated_{name}_per_gpu")));
    if flops <= 0.0 {
        return Ok(Vec::new());
    }
    let traced = run.steps.as_ref().map_or(&[][..], |steps| &steps.trace.steps);
    let (mut known, mut our_flops, mut our_bytes) = (0_u64, 0.0, 0.0);
    for (batch, _) in traced.iter().filter_map(|step| reconstruct::requests(step, block_size)) {
        let estimate = steps.estimate_unchecked(&batch);
        known += 1;
        our_flops += estimate.total_flops;
        our_bytes += estimate.total_bytes;
    }
    if (known as f64 - server("steps")).abs() > 0.5 {
        notes.push(format!(
            "vLLM's FLOPs and bytes are of {} steps, and {known} have requests in the capture: they are not compared",
            server("steps")
        ));
        return Ok(Vec::new());
    }
    let count = |name, vllm, ridgepoint| WorkCount { name, vllm, ridgepoint, ratio: ridgepoint / vllm };
    Ok(vec![count("flops", flops, our_flops), count("bytes", read + written, our_bytes)])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ingest::step_table::TableRun;
    use crate::ingest::{Cleaning, MetricsReply, StepRecord, StepTrace, periods};
    use ridgepoint::{Deployment, Hardware, Model, Request};

    const TINY: &str = r#"{"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 256, "intermediate_size": 768,
        "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 64, "vocab_size": 4096,
        "max_position_embeddings": 4096, "tie_word_embeddings": false, "dtype": "bfloat16"}"#;

    fn tiny() -> StepModel {
        let model = Model::from_config_str("tiny", "tiny.json", TINY, None).unwrap();
        let deployment = Deployment { enforce_eager: true, ..Deployment::default() };
        StepModel::new(&model, &Hardware::find("h100").unwrap(), &deployment).unwrap()
    }

    /// A run of one step with these requests, of which vLLM counts so many FLOPs, 1,000 bytes read and 500 written.
    fn run(requests: Vec<Request>, flops: f64) -> CapturedRun {
        let step = StepRecord { requests: Some(requests), ..StepRecord::default() };
        let trace = StepTrace { steps: vec![step], ..StepTrace::default() };
        let periods = periods(&trace, &Cleaning::default());
        let counts = [
            ("steps", 1.0),
            ("estimated_flops_per_gpu", flops),
            ("estimated_read_bytes_per_gpu", 1000.0),
            ("estimated_write_bytes_per_gpu", 500.0),
        ];
        let metrics = vec![MetricsReply::default(), MetricsReply::of(&counts)];
        CapturedRun { metrics, steps: Some(TableRun { trace, periods }), ..CapturedRun::default() }
    }

    #[test]
    fn flops_are_those_of_vllm_but_for_the_causal_mask() {
        // vLLM's formulas by hand, as T tokens that see C keys and L logits: projections 2·T·256·(8 + 4)·64·4, MLP 2·256·3·768·T·4, attention
        // 2·2·4·T·C·64·4, LM head 2·L·256·4096.
        let vllm = |t: f64, c: f64, l: f64| t * 1_572_864.0 + t * 4_718_592.0 + t * c * 4_096.0 + l * 2_097_152.0;
        let beyond = |request, flops| {
            let found = work_counts(&run(vec![request], flops), &tiny(), 16, &mut Vec::new()).unwrap();
            assert_eq!((found[0].name, found[1].name, found[1].vllm), ("flops", "bytes", 1500.0));
            assert!((found[0].ratio * flops - found[0].ridgepoint).abs() < 1.0, "{found:?}");
            (found[0].ridgepoint - flops, found[1].ridgepoint)
        };
        // Bytes of vLLM's, 8,473,088, and in ours beyond them: embedding, norms, rotary embedding, keys and values into the cache, attention's
        // output, the last norm, sampling.
        let bytes = 8_473_088.0 + 1_024.0 + 16_384.0 + 6_144.0 + 2_048.0 + 2_048.0 + 2_048.0 + 173_056.0;
        let (more, ours) = beyond(Request::decode(9), vllm(1.0, 10.0, 1.0));
        assert!(more.abs() < 1.0 && (ours - bytes).abs() < 1.0, "{more} {ours}");
        // 512 queries see 256.5 keys on average.
        let (causal, _) = beyond(Request::prefill(512, 0), vllm(512.0, 512.0, 1.0));
        assert!((causal - 512.0 * (256.5 - 512.0) * 4_096.0).abs() < 1.0, "{causal}");
    }

    #[test]
    fn steps_that_were_not_all_captured_are_not_compared() {
        let mut notes = Vec::new();
        let found = work_counts(&run(Vec::new(), 1e9), &tiny(), 16, &mut notes).unwrap();
        assert!(found.is_empty() && notes[0].contains("of 1 steps, and 0 have requests"), "{notes:?}");
        assert!(work_counts(&CapturedRun::default(), &tiny(), 16, &mut notes).unwrap().is_empty());
    }
}
