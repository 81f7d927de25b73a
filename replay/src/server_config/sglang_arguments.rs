//! SGLang's arguments that are modelled, under its names. Its other arguments are in `sglang_other_arguments`.
//!
//! # Source
//! `ServerArgs.add_cli_args` (`python/sglang/srt/server_args.py`, 0.5.9), and names of other versions that public launch lines have.
//!
//! # Rows that SGLang shares with vLLM
//! vLLM's names are known for fields that have a row here, and those of rows that name SGLang among their engines.

use ridgepoint::arguments::{Argument, Engines, Kind, Section};
use ridgepoint::input::NumberRange;
use ridgepoint::model::MAX_SPECULATIVE_TOKENS;
use serde_json::Value;

/// A number of at least one.
const COUNT: Kind = Kind::Whole(1, u32::MAX as u64);

/// SGLang's arguments that are modelled.
pub(super) static SGLANG_ARGUMENTS: &[Argument] = &[
    Argument::new("model_path", Section::Server, "Model under SGLang's name: built-in name, Hugging Face id, or path of a config.json or its folder", Kind::Text)
        .required()
        .alias(&["model"])
        .engines(Engines::SGLANG)
        .sets("model")
        .value("NAME|PATH"),
    Argument::new("tp_size", Section::Deployment, "GPUs that share every layer's matrices; with enable_dp_attention, all GPUs of the attention's replicas together", COUNT)
        .engines(Engines::SGLANG)
        .sets("tensor_parallel_size")
        .default("1"),
    Argument::new("pp_size", Section::Deployment, "Pipeline stages that share the layers", COUNT)
        .engines(Engines::SGLANG)
        .sets("pipeline_parallel_size")
        .default("1"),
    Argument::new("dp_size", Section::Deployment, "Replicas: of the whole server, or of the attention part alone with enable_dp_attention", COUNT)
        .engines(Engines::SGLANG)
        .sets("data_parallel_size")
        .default("1"),
    Argument::new("ep_size", Section::Deployment, "GPUs over which experts are placed whole; 1 places a slice of every expert on each GPU", Kind::Own(places_experts))
        .alias(&["expert_parallel_size", "ep"])
        .engines(Engines::SGLANG)
        .sets("enable_expert_parallel")
        .must_be("a whole number of at least 1")
        .value("N")
        .default("1"),
    // Public launch lines of 0.5.3 have it; later ones give `ep_size`.
    Argument::new("enable_ep_moe", Section::Deployment, "Place whole experts on each GPU, as ep_size does in later versions", Kind::Switch)
        .alias(&["enable_deepep_moe"])
        .engines(Engines::SGLANG)
        .sets("enable_expert_parallel"),
    Argument::new("enable_dp_attention", Section::Deployment, "Divide tp_size GPUs into dp_size replicas of the attention part, each with its own requests, that share the experts", Kind::Switch)
        .engines(Engines::SGLANG)
        .default("false"),
    Argument::new("context_length", Section::Deployment, "Longest context of a request, tokens", COUNT)
        .engines(Engines::SGLANG)
        .sets("max_model_len")
        .default("the model's own limit"),
    Argument::new("page_size", Section::Deployment, "Tokens of a page of the KV cache", COUNT)
        .engines(Engines::SGLANG)
        .sets("block_size")
        .default("1, replayed in blocks of 16; some attention backends set more"),
    Argument::new("mem_fraction_static", Section::Deployment, "Share of GPU memory for weights and KV cache together", Kind::Number(NumberRange::above_zero(1.0, "")))
        .engines(Engines::SGLANG)
        .sets("gpu_memory_utilization")
        .must_be("a share of the memory, above 0 and at most 1")
        .value("SHARE")
        .default("what the sizes of chunks and graphs leave"),
    Argument::new("max_total_tokens", Section::Scheduler, "Most tokens of the KV cache; the engine takes fewer where the memory holds fewer", COUNT)
        .engines(Engines::SGLANG)
        .sets("kv_cache_tokens")
        .default("those of mem_fraction_static"),
    Argument::new("cuda_graph_max_bs", Section::Deployment, "Largest number of decodes that a CUDA graph is captured for", COUNT)
        .alias(&["cuda_graph_max_bs_decode"])
        .engines(Engines::SGLANG)
        .sets("max_cudagraph_capture_size")
        .default("8 to 512, by GPU memory and tp_size"),
    Argument::new("cuda_graph_bs", Section::Deployment, "Numbers of decodes that CUDA graphs are captured for, ascending, as in 1,2,4,8", Kind::Wholes)
        .alias(&["cuda_graph_bs_decode"])
        .engines(Engines::SGLANG)
        .sets("cudagraph_capture_sizes")
        .must_be("a list of numbers of decodes, each at least 1")
        .default("SGLang's choice up to cuda_graph_max_bs"),
    Argument::new("disable_cuda_graph", Section::Deployment, "Launch every kernel from the host, without CUDA graphs", Kind::Switch)
        .engines(Engines::SGLANG)
        .sets("enforce_eager"),
    Argument::new("sampling_defaults", Section::Deployment, "Sampling parameters of requests that set none: those of generation_config.json (model), or neutral ones (openai)", Kind::Own(generation_config))
        .engines(Engines::SGLANG)
        .sets("generation_config")
        .must_be("model or openai")
        .value("SOURCE")
        .default("model"),
    Argument::new("language_only", Section::Deployment, "Load no vision or audio tower, which leaves its memory to the KV cache", Kind::Switch)
        .engines(Engines::SGLANG)
        .sets("language_model_only"),
    Argument::new("max_running_requests", Section::Scheduler, "Most requests that run at once; divided among the replicas of the attention part", COUNT)
        .engines(Engines::SGLANG)
        .sets("max_num_seqs")
        .default("half the tokens of the KV cache, at most 2048 to 4096"),
    Argument::new("disable_overlap_schedule", Section::Scheduler, "Schedule a step only when the one before has ended", Kind::Own(negated))
        .engines(Engines::SGLANG)
        .sets("async_scheduling")
        .must_be("true or false")
        .default("false"),
    Argument::new("disable_radix_cache", Section::Scheduler, "Compute every prompt whole, without reuse of equal prefixes", Kind::Own(negated))
        .engines(Engines::SGLANG)
        .sets("enable_prefix_caching")
        .must_be("true or false")
        .default("false"),
    Argument::new("speculative_algorithm", Section::Scheduler, "What drafts tokens: the model's own layers for multi-token prediction (NEXTN, or EAGLE without a draft model), a head (EAGLE, EAGLE3), a smaller model (STANDALONE) or the text so far (NGRAM)", Kind::Name(&["EAGLE", "EAGLE3", "NEXTN", "STANDALONE", "NGRAM"]))
        .engines(Engines::SGLANG)
        .must_be("EAGLE, EAGLE3, NEXTN, STANDALONE or NGRAM: others are not modelled")
        .value("NAME"),
    Argument::new("speculative_draft_model_path", Section::Scheduler, "Name or path of the head or model that drafts tokens", Kind::Text)
        .alias(&["speculative_draft_model"])
        .engines(Engines::SGLANG)
        .value("NAME|PATH"),
    Argument::new("speculative_num_steps", Section::Scheduler, "Tokens drafted one after another for each step", Kind::Whole(1, MAX_SPECULATIVE_TOKENS as u64))
        .engines(Engines::SGLANG)
        .default("3; 5 of Llama and Grok, whose drafts are a tree"),
    Argument::new("speculative_eagle_topk", Section::Scheduler, "Drafts that follow each one: 1 of a chain, more of a tree", COUNT)
        .engines(Engines::SGLANG)
        .default("1; 4 of Llama and Grok"),
    Argument::new("speculative_num_draft_tokens", Section::Scheduler, "Tokens of a request that a step verifies: the drafts and the one before them", COUNT)
        .engines(Engines::SGLANG)
        .default("speculative_num_steps + 1; 8 of Llama and Grok; 12 with NGRAM"),
    Argument::new("speculative_ngram_max_match_window_size", Section::Scheduler, "Default of speculative_num_draft_tokens with NGRAM", COUNT)
        .engines(Engines::SGLANG)
        .default("12")
        .no_flag(),
];

/// A switch for the field that says the opposite.
pub(super) fn negated(value: &Value) -> Option<Value> {
    Kind::Switch.value_of(value)?.as_bool().map(|on| Value::Bool(!on))
}

/// Whether experts are placed whole: on more than one GPU.
pub(super) fn places_experts(value: &Value) -> Option<Value> {
    COUNT.value_of(value)?.as_u64().map(|gpus| Value::Bool(gpus > 1))
}

/// The source of sampling parameters as the field names it.
fn generation_config(value: &Value) -> Option<Value> {
    match value.as_str()? {
        "model" => Some("auto".into()),
        "openai" => Some("vllm".into()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use ridgepoint::Engine;
    use ridgepoint::arguments::{ArgumentRows, Engines};
    use serde_json::json;

    use super::super::arguments::arguments_of;

    fn rows() -> ArgumentRows {
        arguments_of(&Engine::parse("sglang", None).unwrap())
    }

    /// The names of all rows, each with the rows that have it.
    fn names() -> BTreeMap<&'static str, Vec<&'static str>> {
        let mut names: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for row in rows().iter() {
            for name in row.aliases.iter().chain([&row.name]) {
                names.entry(name).or_default().push(row.name);
            }
        }
        names
    }

    #[test]
    fn a_name_is_that_of_one_row() {
        // Aliases of vLLM's rows give way to rows of the engine's own.
        let own: Vec<_> = rows().iter().filter(|row| row.engines != Engines::VLLM).collect();
        let number = |name: &str| own.iter().filter(|row| row.is_named(name)).count();
        let several: Vec<_> = names().into_keys().filter(|name| number(name) > 1).collect();
        assert!(several.is_empty(), "{several:?}");
    }

    #[test]
    fn flags_of_public_launch_lines_are_known() {
        let names = names();
        for line in [
            "--model-path --host --port --trust-remote-code --tensor-parallel-size --data-parallel-size --cuda-graph-max-bs --max-running-requests \
             --mem-fraction-static --kv-cache-dtype --chunked-prefill-size --enable-ep-moe --quantization --enable-flashinfer-allreduce-fusion \
             --scheduler-recv-interval --enable-symm-mem --disable-radix-cache --attention-backend --enable-flashinfer-trtllm-moe --stream-interval",
            "--model --tokenizer-path --tp --ep-size --max-prefill-tokens --fp8-gemm-backend --moe-runner-backend --decode-log-interval \
             --num-continuous-decode-steps --context-length --disable-shared-experts-fusion --mamba-ssm-dtype --served-model-name",
            "--attention-backend --tp-size --expert-parallel-size --tokenizer-worker-num --enable-aiter-allreduce-fusion --page-size \
             --model-loader-extra-config --watchdog-timeout --speculative-algorithm --speculative-num-steps --speculative-eagle-topk \
             --speculative-num-draft-tokens --enable-metrics --reasoning-parser --tool-call-parser --swa-full-tokens-ratio --nsa-prefill-backend \
             --cuda-graph-max-bs-decode --disable-piecewise-cuda-graph --enable-dp-attention --enable-cache-report --chat-template",
        ] {
            for flag in line.split_whitespace() {
                let name = flag.trim_start_matches("--").replace('-', "_");
                assert!(names.contains_key(name.as_str()), "{flag}");
            }
        }
    }

    #[test]
    fn values_have_the_forms_of_their_fields() {
        let line = json!({"model": "m", "hardware": "h100", "tp-size": 8, "ep": "8", "chunked-prefill-size": "-1", "disable-radix-cache": true,
                          "disable_overlap_schedule": false, "sampling_defaults": "openai", "schedule-policy": "lpm", "page-size": 64,
                          "cuda-graph-bs": "1 2 4", "mem-fraction-static": "0.85"});
        let given = rows().read_all("line", line.as_object().unwrap()).unwrap();
        let expected = json!({"model": "m", "hardware": "h100", "tensor_parallel_size": 8, "enable_expert_parallel": true, "chunked_prefill_size": -1,
                              "enable_prefix_caching": false, "async_scheduling": true, "generation_config": "vllm",
                              "schedule_policy": "lpm", "block_size": 64, "cudagraph_capture_sizes": [1, 2, 4], "gpu_memory_utilization": 0.85});
        assert_eq!(Some(given.values()), expected.as_object());
        let wrong = json!({"model": "m", "hardware": "h100", "schedule-policy": "random", "speculative-algorithm": "MEDUSA", "ep-size": 0, "chunked-prefill-size": "x"});
        assert_eq!(rows().read_all("line", wrong.as_object().unwrap()).unwrap_err().problems().len(), 4);
    }
}
