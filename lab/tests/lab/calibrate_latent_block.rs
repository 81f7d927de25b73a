//! Whole blocks of latent attention are scored against the operators that a step of DeepSeek-V3 has.

use ridgepoint::unstable::efficiency::Tables;
use ridgepoint::{Deployment, Engine, Hardware, Model, Options, Request, StepModel};
use ridgepoint_lab::calibrate::exclusions::Exclusions;
use ridgepoint_lab::calibrate::latent_block::{self, LATENT_BLOCK};
use ridgepoint_lab::calibrate::rows::Rows;
use ridgepoint_lab::measurements::Measurements;

/// Times go through a csv file in full precision.
const REL_SAME_FORMULA: f64 = 1e-9;

/// Operators of a block, in the order of execution.
const DECODE: [&str; 9] = [
    "qkv_a_proj",
    "q_b_proj",
    "latent_norms",
    "rotary",
    "kv_cache_write",
    "q_absorb",
    "attention_decode",
    "v_up",
    "o_proj",
];

/// µs of one layer's block in a step of DeepSeek-V3 in 16 bits, on one of eight GPUs that share its 128 heads.
fn block_us(batch: &[Request]) -> f64 {
    let mut config: serde_json::Value = serde_json::from_str(include_str!("../../../models/deepseek-v3.json")).unwrap();
    config.as_object_mut().unwrap().remove("quantization_config");
    let model = Model::from_config_str("deepseek-v3-bf16", "a test", &config.to_string(), None).unwrap();
    let deployment = Deployment { enforce_eager: true, ..Deployment::tensor_parallel(8) };
    let engine = Engine::parse("vllm", Some("0.24")).unwrap();
    let options = Options { engine, ..Options::uncorrected() };
    let step = StepModel::with_options(&model, &h100(), &deployment, &options).unwrap().estimate_unchecked(batch);
    let us = |name: &&'static str| {
        let found = step.operators.iter().find(|of| of.name == *name).unwrap();
        found.time_us / found.count as f64
    };
    DECODE.iter().map(us).sum()
}

fn h100() -> Hardware {
    Hardware::find("h100").unwrap()
}

#[test]
fn a_block_takes_the_operators_between_its_layers_norms_and_feed_forward_part() {
    let predicted_us = block_us(&[Request::decode(4000); 32]);
    // Nine kernels, of which the output projection alone reads 29 MB.
    assert!(predicted_us > 9.0 * 1.85 + 8.7, "{predicted_us}");
    let dir = tempfile::tempdir().unwrap();
    let header = "num_heads,kv_cache_dtype,batch_size,num_scheduled_tokens,num_computed_tokens,latency_us\n";
    let rows = format!("{header}16,bfloat16,32,1,4000,{}\n16,bfloat16,20000,1,4000,9\n", predicted_us / 1.25);
    std::fs::write(dir.path().join("latent_block.csv"), rows).unwrap();
    std::fs::write(dir.path().join("meta.toml"), "framework = \"vLLM\"\nversion = \"0.24.0\"\n").unwrap();
    let rows =
        Rows::from_measurements(&Measurements::load(dir.path()).unwrap(), &h100(), &Exclusions::find(None).unwrap())
            .unwrap();
    let tables = Tables::new(&h100(), &Engine::parse("vllm", Some("0.24")).unwrap(), None);
    let report = latent_block::check(&rows.off_table.latent_blocks, &h100(), &tables).unwrap();
    let total = report.total.unwrap();
    assert_eq!((total.rows, report.by_dtype.keys().next().unwrap().as_str()), (1, "decodes bfloat16"));
    assert!((total.median_ape_pct - 25.0).abs() < 25.0 * REL_SAME_FORMULA, "{total:?}");
    // A block of more requests than a step holds is left out by name.
    let left_out = rows.left_out_of(LATENT_BLOCK, false);
    assert_eq!(left_out.get("more than 16,384 requests in a block"), Some(&1));
}
