//! Steps that verify drafts, and the passes that draft: tables against operators, reads, weights and KV cache.
#![allow(clippy::float_cmp)]

use proptest::prelude::*;
use ridgepoint::kv_capacity::KvCapacity;
use ridgepoint::latency::{CalibratedRoofline, LatencyModel};
use ridgepoint::model::{DraftMethod, DraftShape};
use ridgepoint::physics::{BatchSums, Memory};
use ridgepoint::{CorrectionChoice, Deployment, Engine, Hardware, Model, Options, Request, Step, StepModel};

const MODELS: [&str; 3] = ["llama-3.1-8b", "deepseek-v2-lite", "gpt-oss-20b"];

fn steps(model: &str, deployment: &Deployment) -> StepModel {
    let options = Options { correction: CorrectionChoice::None, ..Options::default() };
    StepModel::with_options(&Model::find(model).unwrap(), &Hardware::find("h100").unwrap(), deployment, &options)
        .unwrap()
}

fn drafting(num_draft_tokens: u32) -> Deployment {
    Deployment { num_draft_tokens, ..Deployment::default() }
}

fn batch() -> impl Strategy<Value = Vec<Request>> {
    let verification = (1u32..6000, 0u8..6).prop_map(|(computed, drafts)| Request::verification(computed, drafts));
    let chunk = (0u32..4000, 2u32..900, any::<bool>())
        .prop_map(|(computed, chunk, samples)| Request::new(computed, chunk, samples));
    (prop::collection::vec(verification, 1..40), prop::collection::vec(chunk, 0..3))
        .prop_map(|(verifications, chunks)| verifications.into_iter().chain(chunks).collect())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn lookup_tables_hold_verifications(batch in batch(), which in 0usize..3) {
        let steps = steps(MODELS[which], &drafting(3));
        let (fast, sum) = (steps.step_time_us(&batch), steps.estimate_unchecked(&batch).step_time_us);
        prop_assert!((fast / sum - 1.0).abs() < 1e-3, "{fast} against {sum}");
        let mut state = steps.state();
        batch.iter().for_each(|request| state.add(request));
        prop_assert_eq!(steps.step_time_us(&state).to_bits(), fast.to_bits());
        batch.iter().rev().for_each(|request| state.remove(request));
        prop_assert_eq!(steps.step_time_us(&state), 0.0);
    }
}

#[test]
fn a_verification_is_summed_by_its_tokens() {
    let windows = steps("gpt-oss-20b", &drafting(2)).plan().windows.clone();
    let sums = BatchSums::unchecked(&[Request::verification(1000, 2), Request::decode(10)], &windows);
    assert_eq!((sums.num_decodes, sums.num_draft_tokens, sums.decode_rows()), (2, 2, 4));
    assert_eq!((sums.num_tokens, sums.num_sampled, sums.num_prefills), (4, 4, 0));
    for (window, of) in windows.iter().zip(&sums.windows) {
        // Three tokens see 1,001, 1,002 and 1,003 keys, or as many as the window has; the drafts see all but the last again.
        let expected = match window.size() {
            None => (3006 + 11, 2003),
            Some(size) => (3 * size + 11, 2 * size),
        };
        assert_eq!((of.decode_kv_tokens, of.draft_kv_tokens), expected, "{window:?}");
    }
}

#[test]
fn verifying_costs_less_than_decoding_each_draft_and_more_than_none() {
    for model in MODELS {
        let steps = steps(model, &drafting(3));
        for (number, context) in [(1, 100), (8, 4000), (64, 2000)] {
            let plain = steps.step_time_us(&vec![Request::decode(context); number]);
            let verified = steps.step_time_us(&vec![Request::verification(context, 3); number]);
            let apart = 4.0 * plain;
            // Kernels of few more rows were measured up to 2 % faster.
            assert!(
                0.98 * plain <= verified && verified < apart,
                "{model}, {number} at {context}: {plain}, {verified}"
            );
        }
        // A chunk of four tokens with a logit is the same work but for its kernels.
        let chunk = steps.step_time_us(&[Request::prefill(4, 4000)]);
        let verified = steps.step_time_us(&[Request::verification(4000, 3)]);
        assert!((0.5..2.0).contains(&(verified / chunk)), "{model}: {verified} against {chunk}");
    }
}

#[test]
fn grouped_queries_read_their_keys_once_and_latent_ones_by_tiles() {
    let kv_bytes = |model: &str, drafts: u8| {
        let steps = steps(model, &drafting(u32::from(drafts.max(1))));
        let estimate = steps.estimate(&[Request::verification(5000, drafts)]).unwrap();
        let attention = estimate.operators.iter().filter(|of| of.name.starts_with("attention_decode"));
        attention.map(|of| of.bytes).sum::<f64>()
    };
    // Llama: 4 query heads share a KV head, so that 4 tokens fill a quarter of a tile. Queries and outputs of all rows are few bytes.
    let llama = kv_bytes("llama-3.1-8b", 3) / kv_bytes("llama-3.1-8b", 0);
    assert!((1.0..1.02).contains(&llama), "{llama}");
    // DeepSeek-V2-Lite: 16 heads share the latent. 4 tokens fill a tile of 64 rows, 5 begin a second one.
    let [four, five] = [3, 4].map(|drafts| kv_bytes("deepseek-v2-lite", drafts) / kv_bytes("deepseek-v2-lite", 0));
    assert!((1.0..1.06).contains(&four), "{four}");
    assert!((1.9..2.1).contains(&five), "{five}");
}

fn drafted(model: &str, method: DraftMethod, shape: DraftShape) -> Model {
    Model::find(model).unwrap().drafted(method, None, shape).unwrap()
}

#[test]
fn a_draft_takes_passes_weights_and_kv_cache() {
    let hardware = Hardware::find("h100").unwrap();
    let (plain, deployment) = (Model::find("llama-3.1-8b").unwrap(), drafting(3));
    let eagle = drafted("llama-3.1-8b", DraftMethod::Eagle, DraftShape::chain(3));
    let (alone, both) = (Memory::new(&plain, &deployment).unwrap(), Memory::new(&eagle, &deployment).unwrap());
    // One more layer of 32, whose 8 KV heads of 128 take 4 KiB a token.
    assert_eq!(both.kv_bytes_per_token() - alone.kv_bytes_per_token(), 4096.0);
    // Attention 4096·(4096 + 2·1024 + 4096), dense block 3·4096·14336, projection of two vectors 2·4096², three norms; 2 bytes each.
    let weights = 4096.0 * (4096.0 + 2048.0 + 4096.0) + 3.0 * 4096.0 * 14336.0 + 2.0 * 4096.0 * 4096.0 + 3.0 * 4096.0;
    let added = both.max_weight_bytes() - alone.max_weight_bytes();
    assert!((added / (2.0 * weights) - 1.0).abs() < 1e-3, "{added}");
    let blocks = |model: &Model| KvCapacity::new(model, &hardware, &deployment).unwrap().num_gpu_blocks;
    assert!(blocks(&eagle) < blocks(&plain));

    let batch = vec![Request::verification(2000, 3); 16];
    let draft_us = |model: &Model, engine: &str| {
        let engine = Engine::parse(engine, None).unwrap();
        let options = Options { correction: CorrectionChoice::None, engine, ..Options::default() };
        let steps = StepModel::with_options(model, &hardware, &deployment, &options).unwrap();
        let (draft, step) = (steps.draft_time_us(&Step::from(&batch)), steps.step_time_us(&batch));
        let whole = CalibratedRoofline::new(steps).step_time_us(&Step::from(&batch));
        assert!((whole - draft - step).abs() < 1e-9);
        (draft, step)
    };
    assert_eq!(draft_us(&plain, "vllm").0, 0.0);
    let [one, three] =
        [1, 3].map(|passes| draft_us(&drafted("llama-3.1-8b", DraftMethod::Eagle, DraftShape::chain(passes)), "vllm"));
    // A pass runs one layer, where the model has 32, and the LM head, a sixteenth of the model's weights.
    assert!(one.0 > 0.03 * one.1 && one.0 < 0.3 * one.1, "{one:?}");
    assert!((2.0..3.2).contains(&(three.0 / one.0)), "{one:?}, {three:?}");
    let wide = draft_us(&drafted("llama-3.1-8b", DraftMethod::Eagle, DraftShape { passes: 3, width: 4 }), "vllm");
    assert!(wide.0 > three.0, "{wide:?}, {three:?}");
}

#[test]
fn models_without_such_layers_and_drafts_of_another_vocabulary_are_refused() {
    let chain = DraftShape::chain(1);
    let llama = || Model::find("llama-3.1-8b").unwrap();
    let error = llama().drafted(DraftMethod::Mtp, None, chain).unwrap_err().to_string();
    assert!(error.contains("has no layer for multi-token prediction"), "{error}");
    let other = llama().drafted(DraftMethod::DraftModel, Some(Model::find("qwen2.5-7b").unwrap()), chain);
    assert!(other.unwrap_err().to_string().contains("they must be the same"));
    assert!(llama().drafted(DraftMethod::DraftModel, Some(Model::find("llama-3.2-1b").unwrap()), chain).is_ok());
    assert!(llama().drafted(DraftMethod::Ngram, None, chain).unwrap().draft.is_none());
    let latent = drafted("deepseek-r1", DraftMethod::Mtp, chain);
    assert!(!latent.notes.iter().any(|note| note.contains("multi-token prediction")), "{:?}", latent.notes);
}
