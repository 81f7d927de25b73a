//! The examples at the end of each `--help`.

pub const TOP: &str = "\
Examples:
  The time of one step: 64 decodes with 2048 cached tokens each, and a prefill chunk of 512 tokens:
    ridgepoint predict-step --model llama-3.1-8b --hardware h100 --decode 64x2048 --prefill 512

`ridgepoint models` and `ridgepoint hardware` list the built-in ones; `ridgepoint <command> --help` has more.
Exit codes: 0 done, 1 bad input or a missed tolerance, 2 wrong usage.";

pub const PREDICT_STEP: &str = "\
Examples:
  Two groups of decodes, and a prefill chunk of 512 tokens that does not end its prompt:
    ridgepoint predict-step --model llama-3.1-8b --hardware h100 \\
        --decode 64x2048,8x16000 --prefill 512@1024:partial --explain

A batch file is {\"requests\": [{\"num_computed_tokens\": 2048, \"num_scheduled_tokens\": 1, \"samples\": true}, ...]}. \
Other names of the first two keys are progress_index and num_new_tokens. `samples` says whether the step ends with a \
token for the request; it defaults to true.";

pub const SIMULATE: &str = "\
Examples:
  5 requests per second at random times on four GPUs, with the result in the format of vLLM's benchmark:
    ridgepoint simulate --model llama-3.1-70b --hardware h100 --tp 4 --request-rate 5 \\
        --num-requests 1000 --input-len 2048 --output-len 256 --output-json result.json
  The same with steps that spread by 5 percent:
    ridgepoint simulate --model llama-3.1-70b --hardware h100 --tp 4 --request-rate 5 \\
        --num-requests 1000 --input-len 2048 --output-len 256 --noise 0.05
  A server that starts when the load does, from a network disk:
    ridgepoint simulate --model llama-3.1-70b --hardware h100 --tp 4 --request-rate 5 \\
        --num-requests 1000 --input-len 2048 --output-len 256 --cold --storage network

docs/workloads.md describes profiles and lists of requests. A server file is flat YAML or JSON with `model`, `hardware` \
and vLLM's engine arguments, with dashes or underscores; unknown keys are errors. In the \
JSON, stage -1 is the whole run.";

pub const COLD_START: &str = "\
Examples:
  The six terms of a start from a local disk, and of one after an earlier start on the same host:
    ridgepoint cold-start --model llama-3.1-8b --hardware h100 --storage nvme
    ridgepoint cold-start --model llama-3.1-8b --hardware h100 --storage page-cache --compile-cache warm
  Rates fitted to logs of one's own starts, then a load that finds the server starting:
    ridgepoint cold-start --model llama-3.1-8b --hardware h100 --log starts/*.log --out starts.toml
    ridgepoint simulate --model llama-3.1-8b --hardware h100 --request-rate 2 --num-requests 500 \\
        --input-len 1024 --output-len 128 --cold starts.toml

Without logs, rates are assumed and their intervals are wide. docs/cold-start.md names the origin of each, and the lines \
of vLLM's log that are read.";

pub const PLAN: &str = "\
Examples:
  Four H200 for a model at 12 requests a second: how many replicas, split how, at what margin and cost:
    ridgepoint plan --model llama-3.1-70b --hardware h200 --gpus 4 --request-rate 12 --input-len 1024 --output-len 128 \\
      --limit ttft_p99_ms=800 --limit itl_p99_ms=60 --price-per-gpu-hour 3.5

  Two replicas, or SGLang? The same with --replicas 2, with --engine sglang, or with --server engine=vllm,sglang

  Which of two GPUs is cheaper for a load that grows by 30 %, with files that start the answer:
    ridgepoint plan plan.toml --hardware h100,h200 --price-per-gpu-hour h100=2.5,h200=3.5 --growth 0.3 --write deployment
";

pub const SWEEP: &str = "\
Examples:
  Replay the grid, or resume it after a stop; with --dry-run, list its configurations:
    ridgepoint sweep grid.toml --out results.csv
  The same on two machines, and their rows put together:
    ridgepoint sweep grid.toml --shard 1/2 --out rows-1.csv
    ridgepoint sweep grid.toml --shard 2/2 --out rows-2.csv
    ridgepoint sweep grid.toml --merge rows-1.csv rows-2.csv --out results.csv

A grid lists values. Every combination of them is a configuration, and a row of the file:
    [server]
    model = \"llama-3.1-8b\"
    hardware = [\"h100\", \"h200\"]
    [load]
    input_len_tokens = 1024
    output_len_tokens = 128
    num_requests = 2000
    request_rate_per_s = [1, 2, 4, 8]

With [slo] in place of rates, as in ttft_p99_ms = 500, the sweep finds the highest rate within the limits. \
docs/sweep.md has every key and column.";

#[cfg(feature = "serve")]
pub const SERVE: &str = "\
Examples:
  Serve on this machine, and open the page that it prints, or ask it:
    ridgepoint serve
    curl -H 'Content-Type: application/json' http://127.0.0.1:8080/v1/predict-step \\
        -d '{\"model\": \"llama-3.1-8b\", \"hardware\": \"h100\", \"decode\": [\"64x2048\"]}'

The keys of a request are those of a server file, and the answers are those of --format json. SIGINT and SIGTERM end the \
server after the requests that run; a second one ends it at once. docs/serve.md has the routes and the limits.";

pub const CALIBRATE: &str = "\
Examples:
  Build tables from your own measurements, then predict with them:
    ridgepoint calibrate --measurements runs/2026-11-21 --hardware h200 --out my_data/bench_data
    ridgepoint predict-step --data-dir my_data --model llama-3.1-8b --hardware h200 --decode 64x2048

Errors are those of rows that the table did not see: rows that it was made from are left out in folds.";

pub const INGEST: &str = "\
Examples:
  A server's own trace, from OpenTelemetry's collector, and labels that it lacks:
    ridgepoint ingest traces.json --out my_run --model llama-3.1-8b --hardware h100 --tp 1

my_run/steps.csv has a row per step with the time to the next one, my_run/requests.csv a \
row per request. docs/ingest.md has their columns, and why rows are left out.";

#[cfg(feature = "probe")]
pub const PROBE: &str = "\
Examples:
  A server that has just started: its first request compared with warm ones, and where the difference comes from:
    ridgepoint probe http://127.0.0.1:8000
  From a measurement to predictions of one's own server:
    ridgepoint probe http://127.0.0.1:8000 --ladder-input-len 128,512,2048 --ladder-concurrency 1,4,16 --out mine.jsonl.gz
    ridgepoint fit --steps mine.jsonl.gz --level model --model llama-3.1-8b --hardware h100 --tp 1 --out mine.toml
    ridgepoint evaluate capture mine.jsonl.gz --config server.yaml --correction mine.toml

Times are from when a request is sent over a connection that is ready. The exit code is 1 if no warm request succeeded. \
docs/probe.md says what each figure means, and how the cold start is diagnosed.";

pub const EVALUATE: &str = "\
Examples:
  ridgepoint evaluate serving runs/
  ridgepoint evaluate closed-loop h100.csv
  ridgepoint evaluate steps my_run/steps.csv --hardware h100";

pub const EVALUATE_SERVING: &str = "\
Examples:
  A gate for scripts, which fails above 8 percent:
    ridgepoint evaluate serving runs/ --max-median-e2e-pct 8 --split model --format json

An experiment is a folder of three files: profile.yaml is the load as inference-perf reads it, exp-config.yaml the \
server (model, hardware, vLLM's arguments), measured.csv the clients' latencies. The columns of measured.csv are stage \
(-1 is the whole run), metric (e2e, ttft or itl with _mean, _p50, _p90 or _p99) and value_ms. ITL is (E2E - TTFT) / \
output tokens.";

pub const EVALUATE_SCORECARD: &str = "\
Examples:
  Corrections fitted without each model and without each workload, which takes minutes:
    ridgepoint evaluate scorecard data/
  One correction, at once:
    ridgepoint evaluate scorecard runs/ --correction global --format json

P1: the error of the mean E2E is at most 10 percent. P2: those of the mean TTFT and the mean ITL are at most 15 percent. \
P3: two runs whose predicted intervals do not overlap have their p99 in the measured order. The exit code is 1 where one of \
them fails; the rest is for information. ITL is judged by the time from first to last token, which clients count alike.";

pub const EVALUATE_CLOSED_LOOP: &str = "\
Examples:
  ridgepoint evaluate closed-loop h100.csv h200.csv --backend vllm --split backend-version

A file is csv with the columns id, backend, backend_version, model_path, system, precision, isl, osl, \
gemm_quant_mode, moe_quant_mode, concurrency (per replica), tp_size, pp_size, attention_dp_size, moe_tp_size, \
moe_ep_size, ttft_ms, tpot_ms, and optionally kv_cache_dtype (without it, fp8 on Blackwell and auto elsewhere). \
A run has ten requests for each in flight; their lengths are within a tenth of isl and osl. The report lists rows that \
cannot be run with their reason.";

pub const EVALUATE_STEPS: &str = "\
Examples:
  Steps of models that the black box has not seen:
    ridgepoint evaluate steps llama.csv qwen.csv --hardware h100 --split leave-one-model-out

Engines sample their traces, so rows are judged in windows. The measured time is that of all steps of a window over \
their number; the predicted time is the mean over the sampled steps.";

pub const EVALUATE_CAPTURE: &str = "\
Examples:
  A server's own requests, predicted one by one:
    ridgepoint ingest capture.jsonl.gz --out mine
    ridgepoint evaluate capture mine --config server.yaml --output-csv requests.csv
  How the gaps between tokens are distributed, drawn, with gaps above 20 ms as long ones:
    ridgepoint evaluate capture mine --config server.yaml --plot plots --long-gap-ms 20
  A load that kept 8 requests in flight, predicted by a fit on another load:
    ridgepoint evaluate capture --fit-from monday.json --judge closed.json --max-concurrency 8 --config server.yaml

A path is any trace, report or table that `ridgepoint ingest` reads, or the folder that it wrote. Requests are sent at \
their captured times with their lengths, and share prefixes as their block hashes say; without hashes each finds as many \
cached tokens as the capture counted. Steps are judged too where they were traced.";

pub const EVALUATE_BENCH: &str = "\
Examples:
  What vllm bench serve wrote about a server, compared with its prediction:
    vllm bench serve --save-result --result-filename result.json ...
    ridgepoint evaluate bench result.json --serve-command 'vllm serve meta-llama/Llama-3.1-8B-Instruct' --hardware h100
  By a correction that was fitted to another result of the same server:
    ridgepoint fit --bench result.json --serve-command 'vllm serve ...' --hardware h100 --out mine.toml
    ridgepoint evaluate bench other.txt --serve-command 'vllm serve ...' --hardware h100 --correction mine.toml

A text with the printed table 'Serving Benchmark Result' is read like a file. A result that lists its requests \
(--save-detailed, --output-details) is sent again as it was; of others the lengths are known on average alone.";

pub const FIT: &str = "\
Examples:
  From what a load generator said of one's own server, saved as JSON or pasted as text:
    ridgepoint fit --bench result.json --serve-command 'vllm serve NAME -tp 2' --hardware h100 --out mine.toml
  Fit a correction for any model to serving runs, then predict with it:
    ridgepoint fit --serving runs/ --out mine.toml
    ridgepoint predict-step --model llama-3.1-8b --hardware h100 --decode 64x2048 --correction mine.toml

A correction is a TOML file: coefficients with their uncertainty, host overheads, and the data that they were fitted \
to. Data that cannot be fitted leave no file.";

pub const EXPORT: &str = "\
Examples:
  ridgepoint export --model llama-3.1-70b --hardware h100 --tp 4 --out tables.json
  Flags that bring llm-d-inference-sim as near as it gets, predicted or from a capture:
    ridgepoint export --as llm-d-inference-sim --model llama-3.1-8b --hardware h100
    ridgepoint export --as llm-d-inference-sim --model llama-3.1-8b --hardware h100 --capture capture.jsonl.gz

A file holds for one model, GPU, deployment and correction. bindings/go/tables reads it without C; \
docs/export.md describes it for other languages.";

pub const MODELS: &str = "\
Examples:
  ridgepoint models meta-llama/Llama-3.1-70B-Instruct --tensor-parallel-size 4";

pub const HARDWARE: &str = "\
Examples:
  ridgepoint hardware 'NVIDIA H100 80GB HBM3'
  How well its tables predict kernels of fp8 experts, series by series:
    ridgepoint hardware h100 --series moe fp8
  A CPU described by a file, and figures of one's own over a known GPU's:
    ridgepoint hardware examples/cpu.toml
    ridgepoint hardware gpus.json#H100";

pub const ARGUMENTS: &str = "\
Examples:
  What the engine calls -tp, what it accepts and what its default is:
    ridgepoint arguments -tp
  All arguments of the scheduler and the KV cache:
    ridgepoint arguments scheduler";

pub const COMPLETIONS: &str = "\
Examples:
  ridgepoint completions bash > ~/.local/share/bash-completion/completions/ridgepoint";
