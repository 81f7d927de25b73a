//! The examples at the end of each `--help`.

pub const TOP: &str = "\
Examples:
  64 decodes with 2048 cached tokens each, and a chunk of 512 new prompt tokens:
    ridgepoint predict-step --model llama-3.1-8b --hardware h100 --decode 64x2048 --prefill 512

  What is built in:
    ridgepoint models
    ridgepoint hardware

`ridgepoint <command> --help` has more. Exit codes: 0 done, 1 bad input or a missed tolerance, 2 wrong usage.";

pub const PREDICT_STEP: &str = "\
Examples:
  Two decode groups, two kinds of prompt chunks, and a chunk that does not end its prompt:
    ridgepoint predict-step --model llama-3.1-8b --hardware h100 \\
        --decode 64x2048,8x16000 --prefill 4x512@1024 --prefill 2048@8192:partial

  Experts in parallel over eight GPUs, fp8 KV cache, with the reasons:
    ridgepoint predict-step --model deepseek-v3 --hardware h200 --tp 8 \\
        --enable-expert-parallel --kv-cache-dtype fp8 --decode 128x4096 --explain

  A batch from a file (or a pipe: --batch -), as JSON:
    ridgepoint predict-step --model ./config.json --hardware ./my_gpu.toml --batch batch.json --format json

A batch file is {\"requests\": [{\"num_computed_tokens\": 2048, \"num_scheduled_tokens\": 1, \"samples\": true}, ...]}. \
progress_index and num_new_tokens are other names of the first two keys; `samples` (true if left out) says \
whether the step ends with a token for the request. Unknown keys are errors.";

pub const SIMULATE: &str = "\
Examples:
  A published experiment: its load, its server, and what clients would see of it:
    ridgepoint simulate --profile profile.yaml --config exp-config.yaml

  64 requests in flight, and where the server's memory goes:
    ridgepoint simulate --model llama-3.1-8b --hardware h100 \\
        --concurrency 64 --input-len 1024 --output-len 128 --print-kv-capacity

  5 requests per second at random times, written as vLLM's benchmark writes them:
    ridgepoint simulate --model llama-3.1-70b --hardware h100 --tp 4 --request-rate 5 \\
        --num-requests 1000 --input-len 2048 --output-len 256 --output-json result.json

A server's file is flat YAML or JSON with vLLM's engine arguments, dashes or underscores, \
and `model` and `hardware`; unknown keys are errors. Flags override it.";

pub const SWEEP: &str = "\
Examples:
  What a grid comes to, then its results; the same line resumes after a stop, or with more values in the grid:
    ridgepoint sweep grid.toml --dry-run
    ridgepoint sweep grid.toml --out results.csv

A grid lists values; every combination of them is a configuration, and has a row in the file:
    [server]
    model = [\"llama-3.1-8b\", \"qwen3-32b\"]
    hardware = \"h100\"
    tensor_parallel_size = [1, 2, 4]

    [load]
    input_len_tokens = 1024
    output_len_tokens = 128
    num_requests = 2000
    request_rate_per_s = [1, 2, 4, 8]

With [slo] in place of rates, as in ttft_p99_ms = 500, the highest rate that holds the limits is found. A \
configuration that cannot run has a row that says why. docs/sweep.md has every key and column.";

pub const CALIBRATE: &str = "\
Examples:
  Tables from one's own measurements, written to my_data/bench_data/<gpu>/<operator>.csv and then used:
    ridgepoint calibrate --measurements runs/2026-11-21 --hardware h200 --out my_data/bench_data
    ridgepoint predict-step --data-dir my_data --model llama-3.1-8b --hardware h200 --decode 64x2048

  How far the built-in tables are off on measurements; a gate for scripts, which fails above 8 percent:
    ridgepoint calibrate --check runs/2026-11-21 --hardware h200 --max-median-ape-pct 8 --format json

Every error is of rows that the table did not see: rows that it was made from are left out in folds.";

pub const INGEST: &str = "\
Examples:
  A server's own trace, from OpenTelemetry's collector, with what it does not say:
    ridgepoint ingest traces.json --out my_run --model llama-3.1-8b --hardware h100 --tp 1

  Steps as csv, and a load generator's report of the same run:
    ridgepoint ingest chat_steps.csv per_request_lifecycle_metrics.json --out my_run --hardware h100

my_run/steps.csv has a row per step with the time to the next one, my_run/requests.csv a \
row per request; docs/ingest.md has their columns, and which rows are left out and why.";

pub const EVALUATE: &str = "\
Examples:
  ridgepoint evaluate serving runs/
  ridgepoint evaluate closed-loop h100.csv
  ridgepoint evaluate steps my_run/steps.csv --hardware h100

  `ridgepoint evaluate serving --help` and the like have more.";

pub const EVALUATE_SERVING: &str = "\
Examples:
  All experiments of a folder, and which component their errors come from:
    ridgepoint evaluate serving runs/ --correction none --attribute

  A gate for scripts, which fails above 8 percent:
    ridgepoint evaluate serving runs/ --max-median-e2e-pct 8 --split model --format json

An experiment is a folder: profile.yaml is the load as inference-perf reads it, exp-config.yaml the server \
(model, hardware, vLLM's arguments), and measured.csv what clients saw: stage (-1 is the whole run), metric \
(e2e, ttft or itl with _mean, _p50, _p90 or _p99) and value_ms. itl is (E2E - TTFT) / output tokens.";

pub const EVALUATE_CLOSED_LOOP: &str = "\
Examples:
  ridgepoint evaluate closed-loop h100.csv --correction none --split model
  ridgepoint evaluate closed-loop h100.csv h200.csv --backend vllm --split backend-version --format json

A file is csv with the columns id, backend, backend_version, model_path, system, precision, isl, osl, \
gemm_quant_mode, moe_quant_mode, concurrency (per replica), tp_size, pp_size, attention_dp_size, moe_tp_size, \
moe_ep_size, ttft_ms, tpot_ms. A run has ten requests for each in flight, with lengths from a tenth below to a \
tenth above isl and osl. Rows that cannot be run are listed with their reason.";

pub const EVALUATE_STEPS: &str = "\
Examples:
  A run's own table, every row, with the calibrated roofline alone:
    ridgepoint evaluate steps my_run/steps.csv --correction none

  Models that the black box has not seen, for scripts, which fails above 8 percent:
    ridgepoint evaluate steps llama.csv qwen.csv --hardware h100 \\
        --split leave-one-model-out --max-median-ape-pct 8 --format json

Engines sample their traces, so rows are judged in windows: the measured time is that of all steps of a window \
over their number, the predicted one the mean over the sampled steps.";

pub const FIT: &str = "\
Examples:
  A correction for any model from serving runs, then used:
    ridgepoint fit --serving runs/ --out mine.toml
    ridgepoint predict-step --model llama-3.1-8b --hardware h100 --decode 64x2048 --correction mine.toml

  One model's own from sampled steps, shrunk towards the global one, the later 40 percent kept to judge it:
    ridgepoint fit --steps steps.csv --level model --model llama-3.1-8b --hardware h100 --split first60 --out llama.toml

A correction is a TOML file: coefficients with their uncertainty, the host's times and what \
they were fitted on. Nothing is written where the data cannot be fitted.";

pub const EXPORT: &str = "\
Examples:
  ridgepoint export --model llama-3.1-70b --hardware h100 --tp 4 --out tables.json
  ridgepoint export --model qwen3-32b --hardware h200 --correction mine.toml --out tables.json

A file holds for one model, GPU, deployment and correction. bindings/go/tables reads it without C; \
docs/export.md describes it for other languages.";

pub const MODELS: &str = "\
Examples:
  ridgepoint models
  ridgepoint models meta-llama/Llama-3.1-70B-Instruct --tensor-parallel-size 4
  ridgepoint models ./checkpoint/config.json --format json";

pub const HARDWARE: &str = "\
Examples:
  ridgepoint hardware
  ridgepoint hardware 'NVIDIA H100 80GB HBM3' --format json
  ridgepoint hardware ./my_gpu.toml";

pub const COMPLETIONS: &str = "\
Examples:
  ridgepoint completions bash > ~/.local/share/bash-completion/completions/ridgepoint
  ridgepoint completions zsh > ~/.zfunc/_ridgepoint";
