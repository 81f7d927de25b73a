//! Files of tools that are not read: each is recognised by a few keys or lines, and a sentence says what of it can be used.

use ridgepoint_replay::input::Head;

/// How much of the beginning of a file is searched.
const LOOKED_AT_BYTES: usize = 1 << 16;

/// A tool's file: how it is recognised, and the sentence that follows the name of the file.
type ToolFile = (fn(&Head, &str) -> bool, &'static str);

const TOOL_FILES: &[ToolFile] = &[
    (
        |_, text| {
            let is_batch = |line: &str| {
                (line.contains("Prefill batch") && line.contains("#new-seq"))
                    || (line.contains("Decode batch") && line.contains("#running-req"))
            };
            text.contains("server_args=ServerArgs(") || text.lines().any(is_batch)
        },
        "is a log of SGLang's server, which is not read: its lines are sums over several steps, without times finer than a second. \
         The result of its bench_serving with --output-details is read",
    ),
    (
        |head, text| !head.is_json() && ["[TensorRT-LLM]", "[TRT-LLM]"].iter().any(|mark| text.contains(mark)),
        "is a log of TensorRT-LLM's server, which is not read: its iterations lack the lengths of their requests. The report of a load \
         generator that measured it is read, such as AIPerf's profile_export.jsonl",
    ),
    (
        |head, text| {
            let is_log = head.has("target") && head.has("fields");
            is_log || (!head.is_json() && text.contains("text_generation_router"))
        },
        "is a log of Text Generation Inference, which is not read. The report of a load generator that measured it is read",
    ),
    (
        |head, text| {
            !head.is_json() && text.lines().any(|line| is_metric_of(line, &["sglang:", "trtllm", "nv_trt_llm", "tgi_"]))
        },
        "is a reply of /metrics of another engine than vLLM, whose counters are not read. The report of a load generator is read",
    ),
    (
        |_, text| {
            text.contains("\"sharegpt_output_len\"") && [": Infinity", ": NaN"].iter().any(|value| text.contains(value))
        },
        "is a result of SGLang's bench_serving with Infinity or NaN, which JSON does not have: write \"inf\" and null instead, as \
         `sed 's/: Infinity/: \"inf\"/g; s/: NaN/: null/g'` does",
    ),
    (
        |head, _| head.has("number_input_tokens") && head.has("end_to_end_latency_s"),
        "is llmperf's list of responses, which does not say when its requests were sent, so that no queue can be compared. Its lengths are \
         a load once its objects are on lines of their own (`jq -c '.[]'`): simulate takes them as requests with a concurrency",
    ),
    (
        |head, _| {
            head.names.iter().any(|name| name.starts_with("results_ttft_s") || name.starts_with("results_inter_token"))
        },
        "is llmperf's summary, which has totals and no requests. Its individual_responses.json has lengths that are a load",
    ),
    (
        |head, _| head.has("request_throughput") && (head.has("input_config") || head.has("time_to_first_token")),
        "is AIPerf's summary, which has totals and no requests. The profile_export.jsonl beside it has a record of every request and is read",
    ),
    (
        |head, _| head.has("experiments") && (head.has("service_kind") || head.has("endpoint")),
        "is a profile of genai-perf, which is not read. AIPerf, its successor, writes a profile_export.jsonl, which is read",
    ),
    (
        |head, _| head.has("avg_latency") && head.has("percentiles"),
        "is the result of `vllm bench latency`, which has no requests: predict-step and simulate with a concurrency predict such a batch. \
         `vllm bench serve` with --save-result and --save-detailed writes a result that is read",
    ),
    (
        |head, _| head.has("elapsed_time") && head.has("requests_per_second"),
        "is the result of `vllm bench throughput`, which has totals and no requests. `vllm bench serve` with --save-result and \
         --save-detailed writes a result that is read",
    ),
    (
        |head, _| head.has("run_name") && head.has("batch_size") && head.has("input_len"),
        "is a result of SGLang's bench_one_batch, which has no requests. The result of its bench_serving with --output-details is read",
    ),
    (
        |head, _| head.has("build_commit") && head.has("n_gen"),
        "is a result of llama-bench, which measures llama.cpp without a server; no such engine is predicted",
    ),
    (
        |_, text| text.contains("MLPerf Results Summary") || text.contains(":::MLLOG"),
        "is a log of MLPerf's load generator, which has no lengths of requests and is not read",
    ),
    (
        |head, _| head.has("root_group") || (head.has("Request Count") && head.has("Failure Count")),
        "is a summary of a generator of HTTP load, which counts no tokens and is not read",
    ),
];

fn is_metric_of(line: &str, prefixes: &[&str]) -> bool {
    let name = line.strip_prefix("# TYPE ").or_else(|| line.strip_prefix("# HELP ")).unwrap_or(line);
    prefixes.iter().any(|prefix| name.starts_with(prefix))
}

/// Returns what a file is and what of it can be used, if it is one of a tool that is not read.
pub(super) fn recognised(head: &Head, bytes: &[u8]) -> Option<&'static str> {
    let text = String::from_utf8_lossy(bytes.get(..LOOKED_AT_BYTES).unwrap_or(bytes));
    TOOL_FILES.iter().find(|(is_it, _)| is_it(head, &text)).map(|(_, sentence)| *sentence)
}

#[cfg(test)]
mod tests {
    use ridgepoint_replay::input::head;

    use super::*;

    #[test]
    fn each_tool_is_known_by_a_few_keys() {
        for (text, part) in [
            ("[2026-01-10 10:00:00] server_args=ServerArgs(model_path='a')", "SGLang's server"),
            ("[2026-01-10 10:00:00 TP0] Decode batch. #running-req: 1, #token: 5", "SGLang's server"),
            ("[TensorRT-LLM][INFO] Engine version 0.20 found", "TensorRT-LLM"),
            ("[01/10/2026-10:00:00] [TRT-LLM] [I] iter = 1", "TensorRT-LLM"),
            (
                "{\"timestamp\":\"x\",\"level\":\"INFO\",\"fields\":{},\"target\":\"text_generation_router\"}",
                "Text Generation",
            ),
            ("# HELP sglang:num_running_reqs x\n# TYPE sglang:num_running_reqs gauge\n", "another engine than vLLM"),
            ("{\"backend\": \"sglang\", \"request_rate\": Infinity, \"sharegpt_output_len\": null}", "with Infinity"),
            ("[{\"error_code\": null, \"end_to_end_latency_s\": 3, \"number_input_tokens\": 5}]", "llmperf's list"),
            ("{\"version\": \"x\", \"results_ttft_s_quantiles_p25\": 1}", "llmperf's summary"),
            ("{\"request_throughput\": {\"unit\": \"r/s\"}, \"input_config\": {}}", "AIPerf's summary"),
            ("{\"service_kind\": \"openai\", \"endpoint\": \"v1\", \"experiments\": [{", "genai-perf"),
            ("{\"avg_latency\": 1, \"latencies\": [1], \"percentiles\": {}}", "bench latency"),
            ("{\"elapsed_time\": 1, \"num_requests\": 1, \"requests_per_second\": 3}", "bench throughput"),
            ("{\"run_name\": \"x\", \"batch_size\": 1, \"input_len\": 5}", "bench_one_batch"),
            ("[{\"build_commit\": \"x\", \"n_prompt\": 5, \"n_gen\": 5}]", "llama-bench"),
            ("====\nMLPerf Results Summary\n", "MLPerf"),
            ("Type,Name,Request Count,Failure Count\n", "HTTP load"),
        ] {
            let found = recognised(&head(text.as_bytes()), text.as_bytes());
            assert!(found.is_some_and(|found| found.contains(part) && found.len() < 400), "{text}: {found:?}");
        }
    }

    #[test]
    fn what_is_read_is_not_refused() {
        for text in [
            "{\"date\": \"x\", \"backend\": \"vllm\", \"num_prompts\": 5, \"request_throughput\": 2.5}",
            "{\"metadata\": {}, \"metrics\": {\"time_to_first_token\": {}}}",
            "{\"metadata\": {}, \"args\": {}, \"benchmarks\": []}",
            "# TYPE vllm:prompt_tokens_total counter\n",
            "(EngineCore pid=5) INFO 01-02 03:04:05 [core.py:9] Iteration(1): 0 context",
            "[1.5, [[\"BlockRemoved\", [1], \"GPU\"]], null, 3]",
        ] {
            assert_eq!(recognised(&head(text.as_bytes()), text.as_bytes()), None, "{text}");
        }
    }
}
