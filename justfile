# Recipes for https://just.systems; each is one line that can be typed without it.

# The public kernel timings and serving runs, where they are at hand.
data := env("RIDGEPOINT_DATA", "../shared/data")

_default:
    @just --list

# Build the command
build:
    cargo build --release

# Run the tests; those that need measurements run where RIDGEPOINT_DATA is set
test *ARGS:
    cargo test {{ARGS}}

# Formatting and lints
lint:
    cargo fmt --check
    cargo clippy --all-targets --all-features -- -D warnings

# The library's documentation, warnings denied
doc *ARGS:
    RUSTDOCFLAGS="-D warnings" cargo doc --no-deps --all-features {{ARGS}}

# Every check of the project
ci:
    .ci/run

# How long a prediction takes
bench *ARGS:
    cargo bench --bench step_time --no-default-features {{ARGS}}

# Instructions of a prediction, counted by valgrind
bench-instructions:
    cargo bench --bench instructions --no-default-features

# How long replays take
bench-replay *ARGS:
    cargo bench --bench replay --no-default-features --features replay {{ARGS}}

# Rebuild the tables of one GPU from the public kernel timings
calibrate GPU DATA=data:
    #!/usr/bin/env bash
    set -euo pipefail
    folders=()
    for version in vllm-0.14.0 vllm-0.19.0 sglang-0.5.14 vllm-0.24.0; do
      folder={{DATA}}/kernels/{{GPU}}/$version
      if [[ -d $folder ]]; then folders+=("$folder"); fi
    done
    cargo run --release -- calibrate --measurements "${folders[@]}" --hardware {{GPU}} --out bench_data

# The accuracy figures of the README
accuracy DATA=data:
    RIDGEPOINT_DATA={{DATA}} cargo test --test accuracy --test serving_decode --test serving_replay --test kv_capacity -- --nocapture

# The tables of docs/accuracy.md that come from serving runs, sampled steps and closed loops
study DATA=data:
    docs/study.sh {{DATA}}
