//! Laws of the kernel models, with hand-worked numbers.

use super::super::gemm_model::GemmModel;
use super::*;
use crate::physics::projection::GemmShape;

const CHIP: Chip = Chip { peak_flop_per_s: 1e15, hbm_bytes_per_s: 3e12, link_bytes_per_s: 450e9, sm_count: 132.0 };

fn defaults<M: Family>() -> Vec<f64> {
    M::COEFFICIENTS.iter().map(|(_, start)| *start).collect()
}

#[test]
fn a_large_gemm_is_near_its_compute_bound() {
    let shape = GemmShape { m: 8192.0, n: 8192.0, k: 8192.0, input_bytes: 2.0, weight_bytes: 2.0, output_bytes: 2.0 };
    // 2·8192³ FLOP at 1 PFLOP/s.
    assert!((GemmModel::bound_us(&shape, &CHIP) - 1_099.511_627_776).abs() < 1e-6);
    let time = GemmModel::time_us(&defaults::<GemmModel>(), &shape, &CHIP);
    assert!((0.7..0.85).contains(&(1099.5 / time)), "{time}");
}

#[test]
fn one_row_past_a_tile_costs_another_wave() {
    let c = defaults::<GemmModel>();
    let at = |m| {
        let shape = GemmShape { m, n: 16_896.0, k: 8192.0, input_bytes: 2.0, weight_bytes: 2.0, output_bytes: 2.0 };
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
        skew: 0.0,
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
    let c = defaults::<DecodeModel>();
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
