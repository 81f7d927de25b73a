//! Made-up serving experiments and closed-loop files.
#![allow(dead_code)]

use std::path::{Path, PathBuf};

/// Two short stages on a small model.
pub const PROFILE: &str = "
load: {type: constant, stages: [{rate: 2, duration: 10}, {rate: 6, duration: 10}]}
data: {type: shared_prefix, shared_prefix: {num_unique_system_prompts: 3, num_users_per_system_prompt: 2,
       system_prompt_len: 100, question_len: 200, output_len: 40}}
";
pub const SERVER: &str = "model: llama-3.1-8b\nhardware: H100\ntensor_parallelism: 1\nmax_model_len: 1024\n\
    max_num_batched_tokens: 2048\nmax_num_seqs: 64\ntotal_kv_blocks: 4000\n";
pub const MEASURED: &str = "stage,metric,value_ms\n-1,e2e_mean,400\n-1,ttft_mean,20\n-1,itl_mean,9.5\n0,e2e_mean,390\n\
    0,ttft_mean,19\n1,e2e_mean,410\n1,ttft_mean,21\n";

/// Writes an experiment into a folder of its own.
pub fn write(parent: &Path, name: &str, profile: &str, server: &str, measured: &str) -> PathBuf {
    let dir = parent.join(name);
    std::fs::create_dir_all(&dir).unwrap();
    for (file, text) in [("profile.yaml", profile), ("exp-config.yaml", server), ("measured.csv", measured)] {
        std::fs::write(dir.join(file), text).unwrap();
    }
    dir
}

/// The experiment above.
pub fn write_plain(parent: &Path, name: &str) -> PathBuf {
    write(parent, name, PROFILE, SERVER, MEASURED)
}

pub const LOOP_HEADER: &str = "id,backend,backend_version,model_path,system,precision,isl,osl,gemm_quant_mode,\
    moe_quant_mode,concurrency,tp_size,pp_size,attention_dp_size,moe_tp_size,moe_ep_size,ttft_ms,tpot_ms\n";

/// A row of a small model.
pub fn loop_row(id: &str, backend: &str, concurrency: u32) -> String {
    format!("{id},{backend},0.12.0,Qwen/Qwen3-8B,h100_sxm,,256,32,,,{concurrency},1,1,,1,1,30.5,8.25\n")
}
