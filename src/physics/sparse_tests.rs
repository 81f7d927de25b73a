//! Hand-worked layers of sparse attention.
#![allow(clippy::float_cmp)]

use crate::deployment::Deployment;
use crate::dtype::DType;
use crate::model::Model;
use crate::request::Request;

use super::fixtures::{named, run};
use super::{Kernel, Memory, Operator, StepPlan};

fn operators_of(model: &str, deployment: &Deployment, batch: &[Request]) -> Vec<Operator> {
    run(&StepPlan::new(&Model::builtin(model).unwrap(), deployment).unwrap(), batch)
}

#[test]
fn a_decode_scores_all_tokens_and_attends_to_those_that_were_picked() {
    let operators =
        operators_of("deepseek-v3.2", &Deployment::tensor_parallel(8), &[Request::decode(9999), Request::decode(99)]);
    // Every rank has all 64 heads of the indexer, against 10,000 and 100 keys of 132 bytes.
    let indexer = named(&operators, "indexer_decode");
    assert_eq!(indexer.flops, 2.0 * 10_100.0 * 64.0 * 128.0);
    assert_eq!(indexer.bytes, 10_100.0 * 132.0 + 2.0 * 64.0 * 128.0);
    assert_eq!((indexer.count, indexer.compute_dtype), (61, DType::Fp8));
    // 16 heads, 2,048 and 100 latents of 576 values, 512 of which are summed.
    let attention = named(&operators, "attention_decode_sparse");
    assert_eq!(attention.flops, 2.0 * 2148.0 * 16.0 * (576.0 + 512.0));
    assert_eq!(attention.bytes, 2148.0 * 1152.0 + 2.0 * 16.0 * (576.0 + 512.0) * 2.0);
}

#[test]
fn each_query_of_a_chunk_picks_its_own_tokens() {
    let operators = operators_of("deepseek-v3.2", &Deployment::tensor_parallel(8), &[Request::prefill(10, 5000)]);
    let (indexer, attention) = (named(&operators, "indexer_prefill"), named(&operators, "attention_prefill_sparse"));
    assert_eq!(indexer.flops, 2.0 * (10.0 * 5000.0 + 55.0) * 64.0 * 128.0);
    assert_eq!(attention.flops, 2.0 * 10.0 * 2048.0 * 16.0 * (576.0 + 512.0));
    let Kernel::AttentionPrefill { kv_tokens, .. } = attention.kernel else { panic!("{attention:?}") };
    assert_eq!(kv_tokens, 5010);
    // Chunks are absorbed: nothing is projected up, and all ten rows meet the absorbed projections.
    assert!(!operators.iter().any(|o| ["kv_b_proj", "key_join"].contains(&o.name)));
    let Kernel::Gemm { m, n, k, copies, .. } = named(&operators, "q_absorb").kernel else { panic!() };
    assert_eq!((m, n, k, copies), (16, 512, 128, 16));
}

#[test]
fn an_indexer_has_two_replicated_projections_and_a_cache() {
    let operators = operators_of("glm-5", &Deployment::tensor_parallel(8), &[Request::decode(99)]);
    let shape = |name: &str| match named(&operators, name).kernel {
        Kernel::Gemm { m, n, k, .. } => (m, n, k),
        _ => panic!("{name}"),
    };
    assert_eq!(shape("indexer_q_proj"), (1, 32 * 128, 2048));
    assert_eq!(shape("indexer_k_proj"), (1, 128 + 32, 6144));
    // A 16-bit key in, a key of 132 bytes out.
    assert_eq!(named(&operators, "index_cache_write").bytes, 256.0 + 132.0);
}

#[test]
fn layers_that_share_picks_have_no_indexer() {
    let operators = operators_of("glm-5.2", &Deployment::tensor_parallel(8), &[Request::decode(99)]);
    // Layers 0, 1 and 2, and every fourth from 6 to 74.
    assert_eq!((named(&operators, "indexer_decode").count, named(&operators, "indexer_q_proj").count), (21, 21));
    assert_eq!(named(&operators, "attention_decode_sparse").count, 78);
}

#[test]
fn the_cache_holds_latents_and_index_keys() {
    let bytes = |model: &str, kv_cache_dtype| {
        let deployment = Deployment { kv_cache_dtype, ..Deployment::tensor_parallel(8) };
        Memory::new(&Model::builtin(model).unwrap(), &deployment).unwrap().kv_bytes_per_token()
    };
    // vLLM: 576 values of 16 bits, or 656 bytes in fp8, and 132 bytes of index key.
    assert_eq!(bytes("deepseek-v3.2", None), 61.0 * (1152.0 + 132.0));
    assert_eq!(bytes("deepseek-v3.2", Some(DType::Fp8)), 61.0 * (656.0 + 132.0));
    assert_eq!(bytes("glm-5.2", None), 78.0 * 1152.0 + 21.0 * 132.0);
}
