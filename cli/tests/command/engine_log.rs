//! The log of a server's start as an input of commands.

use crate::cli_support;

use cli_support::{Folder, Run, run, simulate};

const LOG: &str = "INFO 04-22 [utils.py:233] non-default args: {'model': 'openai/gpt-oss-20b', 'max_model_len': 8192}\n\
    DEBUG 04-22 [arg_utils.py:2242] Defaulting max_num_seqs to 512 for OPENAI_API_SERVER usage context.\n\
    INFO 04-22 [core.py:105] Initializing a V1 LLM engine (v0.19.0) with config: model='openai/gpt-oss-20b', max_seq_len=8192, \
    tensor_parallel_size=2, kv_cache_dtype=auto\n\
    INFO 04-22 [kv_cache_utils.py:1319] GPU KV cache size: 2,591,776 tokens\n";
const LOAD: &str = "--hardware h100 --request-rate 4 --num-requests 20 --input-len 500 --output-len 20";

/// Runs a command line that is split at blanks.
fn ridgepoint(line: &str) -> Run {
    run(&line.split_ascii_whitespace().collect::<Vec<_>>())
}

/// Asserts that a run prints these texts, each within a line.
fn prints(run: &Run, texts: &[&str]) {
    assert_eq!(run.code, 0, "{}", run.stderr);
    let printed = format!("{} {}", run.stdout, run.stderr).split_whitespace().collect::<Vec<_>>().join(" ");
    texts.iter().for_each(|text| assert!(printed.contains(text), "'{text}' is not in: {printed}"));
}

#[test]
fn a_replay_takes_the_server_of_a_log() {
    let folder = Folder::new();
    let log = folder.write("server.log", LOG);
    let json = simulate(&format!("--engine-log {log} {LOAD} --format json")).json();
    assert_eq!(json["deployment"]["max_num_seqs"], 512);
    assert_eq!(json["deployment"]["tensor_parallel_size"], 2);
    // vLLM divides the tokens that it logs by the groups of layers, of which this model has two.
    let blocks = json["engine"]["num_gpu_blocks"].as_u64().unwrap();
    assert!((322_000..326_000).contains(&blocks), "{blocks} blocks; the server had 323,972");
    let stated = folder.write("stated.log", format!("{LOG}num_gpu_blocks is: 323972\n"));
    let json = simulate(&format!("--engine-log {stated} {LOAD} --max-num-seqs 64 --format json")).json();
    assert_eq!((&json["engine"]["num_gpu_blocks"], &json["deployment"]["max_num_seqs"]), (&323_972.into(), &64.into()));
    let changed = simulate(&format!("--engine-log {log} {LOAD} --tp 1"));
    prints(&changed, &["a KV cache of 2591776 tokens is what the engine's log gives"]);
    let from_equation = simulate(&format!("--engine-log {log} {LOAD} --num-gpu-blocks-override auto"));
    prints(&from_equation, &["(the memory equation)"]);
}

#[test]
fn a_step_and_a_sweep_take_it_too_and_other_files_are_refused() {
    let folder = Folder::new();
    let log = folder.write("server.log", LOG);
    let step = ridgepoint(&format!("predict-step --engine-log {log} --hardware h100 --decode 8x1000"));
    prints(&step, &["gpt-oss-20b on 2 ", "under vllm-0.19"]);
    let grid = |gpus: &str| {
        format!(
            "[server]\nhardware={gpus}\n[load]\nrequest_rate_per_s=1\ninput_len_tokens=9\noutput_len_tokens=9\nnum_requests=5\n"
        )
    };
    let one = folder.write("one.toml", grid("'h100'"));
    prints(&ridgepoint(&format!("sweep {one} --engine-log {log} --dry-run")), &["gpt-oss-20b"]);
    let two = folder.write("two.toml", grid("['h100', 'h200']"));
    ridgepoint(&format!("sweep {two} --engine-log {log} --dry-run"))
        .fails(1, &["server.hardware has several values", "leave the log out"]);
    let ranks = folder.write("ranks.toml", grid("'h100'\ntp=[1, 2]"));
    ridgepoint(&format!("sweep {ranks} --engine-log {log} --dry-run")).fails(1, &["server.tp has several values"]);
    let other = folder.write("other.log", "hello\n");
    simulate(&format!("--engine-log {other} {LOAD}")).fails(1, &["other.log", "GPU KV cache size"]);
}
