//! `cpu_offload_gb`: weights that kernels read from the host in every step.

use ridgepoint::kv_capacity::KvCapacity;
use ridgepoint::{
    Deployment, EfficiencyMode, ErrorKind, Hardware, Model, OperatorEstimate, Options, Request, StepEstimate, StepModel,
};

const GIB: f64 = 1_073_741_824.0;

fn offloading(cpu_offload_gb: f64, tensor_parallel_size: u32) -> Deployment {
    Deployment { cpu_offload_gb, tensor_parallel_size, ..Deployment::default() }
}

fn steps(model: &str, gpu: &str, deployment: &Deployment, efficiency: EfficiencyMode) -> StepModel {
    let options = Options { efficiency, ..Options::uncorrected() };
    StepModel::with_options(&Model::find(model).unwrap(), &Hardware::find(gpu).unwrap(), deployment, &options).unwrap()
}

fn host_weights(step: &StepEstimate) -> Option<&OperatorEstimate> {
    step.operators.iter().find(|operator| operator.name == "host_weights")
}

/// Of Llama-3.1-8B, a layer's matrices take 50,331,648 (qkv_proj), 33,554,432 (o_proj), 234,881,024 (gate_up_proj) and 117,440,512 bytes
/// (down_proj), its norms 16,384 more. 8 GiB are 19 layers and 301,678,592 bytes, so that of the twentieth the first three matrices move.
const MATRIX_BYTES_OF_8_GIB: f64 = 19.0 * 436_207_616.0 + 318_767_104.0;

/// 8.607 GB of matrices at 64 GB/s are 134.48 ms. From the GPU's memory, at 3.35 TB/s, the same calls take 2.57 ms, with next to nothing for
/// activations.
#[test]
fn eight_gib_of_a_small_llama_take_what_pcie_5_takes() {
    let batch = [Request::decode(100)];
    let of = |gib| steps("llama-3.1-8b", "h100", &offloading(gib, 1), EfficiencyMode::Ideal).estimate(&batch).unwrap();
    let (without, with) = (of(0.0), of(8.0));
    assert!(host_weights(&without).is_none());
    let read = host_weights(&with).unwrap();
    let read_bytes = MATRIX_BYTES_OF_8_GIB;
    assert!((read.bytes / read_bytes - 1.0).abs() < 1e-9, "{}", read.bytes);
    let added_us = read_bytes / 64e9 * 1e6 - read_bytes / 3.35e12 * 1e6;
    assert!((added_us / 131_910.0 - 1.0).abs() < 1e-3, "{added_us}");
    assert!((read.time_us / added_us - 1.0).abs() < 1e-4, "{} {added_us}", read.time_us);
    assert!((with.step_time_us - without.step_time_us - read.time_us).abs() < 1e-6 * with.step_time_us);
    assert!((with.bound_us - without.bound_us - read.bound_us).abs() < 1e-6 * with.bound_us);
    // Real kernels reach 85 % of the link: 54.4 GB/s.
    let tables = steps("llama-3.1-8b", "h100", &offloading(8.0, 1), EfficiencyMode::Tables).estimate(&batch).unwrap();
    let expected_us = read_bytes / 54.4e9 * 1e6;
    let read_us = host_weights(&tables).unwrap().time_us;
    assert!(read_us < expected_us && read_us > expected_us * 0.975, "{read_us} {expected_us}");
    assert!(tables.warnings.iter().any(|of| of.contains("read at 85 % of the 64 GB/s")), "{:?}", tables.warnings);
}

/// 0.1 GiB are 107,374,182 bytes: qkv_proj and o_proj of the first layer are less, so gate_up_proj moves too, as a whole.
#[test]
fn the_last_parameter_moves_whole() {
    let steps = steps("llama-3.1-8b", "h100", &offloading(0.1, 1), EfficiencyMode::Ideal);
    let step = steps.estimate(&[Request::decode(100)]).unwrap();
    let read = host_weights(&step).unwrap();
    assert!((read.bytes - (50_331_648.0 + 33_554_432.0 + 234_881_024.0)).abs() < 1.0, "{}", read.bytes);
}

/// Llama-2-7B has 13,476,831,232 bytes of weights. The engine may use 90 % of 99 % of this GPU: 50 MB less. Of 0.001 GiB on the host
/// qkv_proj of the first layer moves whole, which is 100,663,296 bytes.
#[test]
fn weights_fit_once_whole_parameters_are_on_the_host() {
    let mut gpu = Hardware::find("h100").unwrap();
    (gpu.hbm_capacity_bytes, gpu.ecc_bytes) = ((13_476_831_232.0 - 50e6) / (0.99 * 0.9), None);
    let model = Model::find("llama-2-7b").unwrap();
    let would_not_start = |gib| {
        let deployment = offloading(gib, 1);
        let steps = StepModel::new(&model, &gpu, &deployment).unwrap();
        let capacity = KvCapacity::estimate(&model, &gpu, &deployment, &Default::default()).unwrap();
        let is_told = steps.notes().iter().any(|note| note.contains("the engine would not start"));
        (is_told, capacity.weight_bytes > capacity.device_memory_bytes * capacity.gpu_memory_utilization)
    };
    assert_eq!((would_not_start(0.0), would_not_start(0.001)), ((true, true), (false, false)));
}

/// The first layer of DeepSeek-V2-Lite is dense, and each of its weights is read in every step. Its q_proj (2048 · 3072), kv_a_proj
/// (2048 · 576), o_proj (2048 · 2048), gate_up_proj (2048 · 21888) and down_proj (10944 · 2048) have 78,905,344 weights. kv_b_proj (512 · 4096)
/// moves too, and decodes read the copies of it on the GPU. 0.15 GiB are 161,061,274 of the 162,004,992 bytes of them all.
#[test]
fn the_first_layers_move_first() {
    let steps = steps("deepseek-v2-lite", "h100", &offloading(0.15, 1), EfficiencyMode::Ideal);
    let step = steps.estimate(&[Request::decode(100)]).unwrap();
    let read = host_weights(&step).unwrap();
    assert!((read.bytes - 2.0 * 78_905_344.0).abs() < 1.0, "{}", read.bytes);
}

/// A kernel that computes for longer than its weights need on the bus hides them: 8,192 tokens take 2 · 8192 FLOP for a weight of two
/// bytes, 16.6 ps at 989.4 TFLOP/s. The bytes take 31 ps at 64 GB/s, and 8.9 ps at 225 GB/s.
#[test]
fn long_prompts_hide_a_fast_link() {
    let text = include_str!("../../hardware/h100_sxm.toml");
    let fast = text.replace("unidirectional_bytes_per_s = 64e9", "unidirectional_bytes_per_s = 225e9");
    let batch = [Request::prefill(8192, 0)];
    let model = Model::find("llama-3.1-8b").unwrap();
    let added_us = |text: &str| {
        let gpu = Hardware::from_toml_str("mine", "mine.toml", text).unwrap();
        let options = Options { efficiency: EfficiencyMode::Ideal, ..Options::uncorrected() };
        let steps = StepModel::with_options(&model, &gpu, &offloading(8.0, 1), &options).unwrap();
        host_weights(&steps.estimate(&batch).unwrap()).unwrap().time_us
    };
    assert!(added_us(&fast) <= 0.0, "all of it is hidden");
    // 4.303 billion weights, each (31.25 − 16.56) ps.
    let expected_us = MATRIX_BYTES_OF_8_GIB / 2.0 * (2.0 / 64e9 - 2.0 * 8192.0 / 989.4e12) * 1e6;
    assert!((added_us(text) / expected_us - 1.0).abs() < 1e-3, "{} {expected_us}", added_us(text));
}

#[test]
fn more_on_the_host_is_never_faster_and_tables_agree_with_the_sum() {
    let mut batches =
        vec![vec![Request::decode(100)], vec![Request::decode(700); 200], vec![Request::prefill(3000, 500)]];
    batches.push([vec![Request::decode(50); 33], vec![Request::prefill(1000, 0)]].concat());
    for (model, gpu, tensor) in [
        ("llama-3.1-8b", "h100", 1),
        ("qwen3-30b-a3b", "gb200", 2),
        ("deepseek-v2-lite", "a100", 1),
        ("llama-3.1-8b", "l4", 2),
    ] {
        let of = |gib| steps(model, gpu, &offloading(gib, tensor), EfficiencyMode::Tables);
        let models: Vec<StepModel> = [0.0, 0.5, 3.0, 6.0].map(of).into();
        for batch in &batches {
            let times: Vec<f64> = models.iter().map(|steps| steps.estimate(batch).unwrap().step_time_us).collect();
            assert!(times.windows(2).all(|pair| pair[0] <= pair[1]), "{model} {times:?}");
            for (steps, exact_us) in models.iter().zip(&times) {
                let fast_us = steps.step_time_us(batch);
                assert!((fast_us / exact_us - 1.0).abs() < 2e-3, "{model} on {gpu}: {fast_us} {exact_us}");
            }
        }
    }
}

/// The rate of the link is assumed to be off by 10 % (one standard deviation): 90 % intervals are ± 1.645 · 10 % of its part, at least.
#[test]
fn intervals_know_that_the_rate_of_the_link_is_assumed() {
    let (model, gpu) = (Model::find("llama-3.1-8b").unwrap(), Hardware::find("h100").unwrap());
    let step = StepModel::new(&model, &gpu, &offloading(8.0, 1)).unwrap().estimate(&[Request::decode(100)]).unwrap();
    let share = host_weights(&step).unwrap().share;
    assert!(share > 0.9 && step.upper_us / step.step_time_us > (1.645 * 0.1 * share).exp() - 1e-9, "{step:?}");
}

#[test]
fn of_experts_those_that_are_visited_cross_the_bus() {
    let read_bytes = |decodes: usize| {
        let steps = steps("qwen3-30b-a3b", "h100", &offloading(20.0, 1), EfficiencyMode::Ideal);
        host_weights(&steps.estimate(&vec![Request::decode(10); decodes]).unwrap()).unwrap().bytes
    };
    // A token visits 8 of 128 experts, which hold most of the weights; 256 visit nearly all of them.
    assert!(
        read_bytes(1) < 0.15 * 20.0 * GIB && read_bytes(256) > 0.95 * 20.0 * GIB,
        "{} {}",
        read_bytes(1),
        read_bytes(256)
    );
    // The last parameter is at most the 128 experts' gate and up projections of a layer, 768 wide.
    assert!(read_bytes(256) <= 20.0 * GIB + 128.0 * 2.0 * 768.0 * 2048.0 * 2.0);
}

#[test]
fn every_stage_keeps_its_own_weights_on_its_own_host() {
    let staged = Deployment { pipeline_parallel_size: 2, ..offloading(4.0, 1) };
    let batch = [Request::decode(10)];
    let bytes = |deployment: &Deployment| {
        let steps = steps("llama-3.1-8b", "h100", deployment, EfficiencyMode::Ideal);
        host_weights(&steps.estimate(&batch).unwrap()).unwrap().bytes
    };
    assert!((bytes(&staged) / bytes(&offloading(4.0, 1)) - 2.0).abs() < 1e-9);
}

#[test]
fn the_memory_that_is_freed_goes_to_the_kv_cache() {
    let (model, gpu) = (Model::find("llama-3.1-8b").unwrap(), Hardware::find("h100").unwrap());
    let blocks = |gib| KvCapacity::new(&model, &gpu, &offloading(gib, 1)).unwrap().num_gpu_blocks;
    // A block of 16 tokens takes 16 · 32 layers · 8 heads · 128 · 2 · 2 bytes = 2 MiB, the parameters of 19.7 layers 8,607,023,104 bytes.
    assert!((4104..=4105).contains(&(blocks(8.0) - blocks(0.0))));
}

#[test]
fn more_than_the_layers_have_and_an_unknown_link_are_errors() {
    let (model, gpu) = (Model::find("llama-3.1-8b").unwrap(), Hardware::find("h100").unwrap());
    let error = StepModel::new(&model, &gpu, &offloading(13.1, 1)).unwrap_err();
    assert!(error.kind() == ErrorKind::InvalidArgument && error.to_string().contains("13.000 GiB"), "{error}");
    // Half of each layer.
    assert!(StepModel::new(&model, &gpu, &offloading(6.6, 2)).is_err());
    for wrong in [-1.0, f64::NAN, f64::INFINITY] {
        assert!(offloading(wrong, 1).validate().is_err(), "{wrong}");
    }
    let text = include_str!("../../hardware/h100_sxm.toml");
    let without = text.split("[host_link]").next().unwrap();
    let gpu = Hardware::from_toml_str("mine", "mine.toml", without).unwrap();
    assert!(StepModel::new(&model, &gpu, &Deployment::default()).is_ok());
    let error = StepModel::new(&model, &gpu, &offloading(1.0, 1)).unwrap_err().to_string();
    assert!(error.contains("mine: has no host_link, which cpu_offload_gb needs"), "{error}");
}
