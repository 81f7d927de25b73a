//! Laws of the kernel models, with hand-worked numbers.

use super::super::gemm_model::GemmModel;
use super::*;
use crate::dtype::MatmulFormat;
use crate::efficiency::keys::Key;
use crate::efficiency::series_key::SeriesKey;

const CHIP: Chip = Chip { peak_flop_per_s: 1e15, hbm_bytes_per_s: 3e12, link_bytes_per_s: 450e9, sm_count: 132.0 };

fn defaults(coefficients: &[(&str, f64)]) -> Vec<f64> {
    coefficients.iter().map(|(_, start)| *start).collect()
}

#[test]
fn a_large_gemm_is_near_its_compute_bound() {
    let shape = GemmModel::shape(&MatmulFormat::Bfloat16, &[8192.0, 8192.0, 8192.0]);
    // 2·8192³ FLOP at 1 PFLOP/s.
    assert!((CHIP.bound_us(shape.work()) - 1_099.511_627_776).abs() < 1e-6);
    let time = GemmModel::time_us(&defaults(GemmModel::COEFFICIENTS), &shape, &CHIP);
    assert!((0.7..0.85).contains(&(1099.5 / time)), "{time}");
}

#[test]
fn one_row_past_a_tile_costs_another_wave() {
    let c = defaults(GemmModel::COEFFICIENTS);
    let at = |m| {
        let shape = GemmModel::shape(&MatmulFormat::Bfloat16, &[16_896.0, 8192.0, m]);
        GemmModel::time_us(&c, &shape, &CHIP)
    };
    assert!(at(129.0) > 1.02 * at(128.0));
}

#[test]
fn active_experts_follow_the_occupancy_formula() {
    let shape = MoeShape {
        gated: true,
        tokens: 1.0,
        hidden: 1.0,
        intermediate: 1.0,
        top_k: 2.0,
        experts: 8.0,
        local_experts: 8.0,
        weight_bytes: 2.0,
        input_bytes: 2.0,
        output_bytes: 2.0,
    };
    // One token touches exactly its two experts; two tokens 8·(1 − 0.75²) = 3.5.
    assert!((shape.active_experts() - 2.0).abs() < 1e-12);
    assert!((MoeShape { tokens: 2.0, ..shape }.active_experts() - 3.5).abs() < 1e-12);
}

#[test]
fn the_decode_model_has_a_term_per_request() {
    let c = defaults(DecodeModel::COEFFICIENTS);
    let at = |batch| {
        let heads = HeadShape {
            kv_heads: 8.0,
            group: 4.0,
            head_dim: 128.0,
            v_head_dim: 128.0,
            kv_bytes: 2.0,
            activation_bytes: 2.0,
            shares_kv: false,
        };
        let shape = AttentionShape { batch, query: 1.0, visible: 2.0, keys: 2.0, heads };
        DecodeModel::time_us(&c, &shape, &CHIP)
    };
    let per_request_us = (at(2048.0) - at(1024.0)) / 1024.0;
    assert!((0.15..0.3).contains(&per_request_us), "{per_request_us}");
}

#[test]
fn latent_attention_reads_its_values_within_its_keys() {
    let key = AttentionKey {
        engine: "sglang-0.5".to_owned(),
        kv_dtype: DType::Bfloat16,
        head_size: HeadSize::Latent,
        window: None,
    };
    // Two requests of 1,000 keys, 16 query heads: 2·16·1000·2·(576 + 512) FLOP; latents of 576 numbers of two bytes, and queries in
    // of 576 and out of 512.
    let decode = DecodeModel::shape(&key, &[1.0, 16.0, 1000.0, 2.0]).work();
    assert_eq!((decode.flops, decode.bytes), (69_632_000.0, 2.0 * 1000.0 * 1152.0 + 2.0 * 16.0 * 1088.0 * 2.0));
    // A prompt of 100 tokens, 16 heads of 192 and 128: 5,050 pairs.
    let prefill = PrefillModel::shape(&key, &[16.0, 1.0, 100.0, 1.0]).work();
    approx::assert_relative_eq!(prefill.flops, 2.0 * 16.0 * 5050.0 * (192.0 + 128.0));
}

#[test]
fn four_bit_floats_move_their_scales() {
    let shape = GemmModel::shape(&MatmulFormat::Nvfp4, &[4096.0, 4096.0, 1.0]);
    // Half a byte and a sixteenth of one for the scale of 16 weights; 4-bit inputs.
    assert_eq!((shape.weight_bytes, shape.input_bytes), (0.5625, 0.5));
    let key = MoeKey::parse("mxfp4/power_law_1.01/h2880/i2880/k4/e128").unwrap();
    let experts = MoeModel::shape(&key, &[1.0, 1.0, 8.0]);
    assert_eq!((experts.weight_bytes, experts.input_bytes), (0.531_25, 2.0));
    assert_eq!(
        (SeriesKey::Moe(key).compute_dtype(), SeriesKey::Gemm(MatmulFormat::Nvfp4).compute_dtype()),
        (DType::Bfloat16, DType::Fp4)
    );
}
