# Recipes for https://just.systems; each can be typed without it.

# The public kernel timings and serving runs (docs/accuracy.md, "Data").
data := env("RIDGEPOINT_DATA", "../shared/data")

_default:
    @just --list

# Build the command
build:
    cargo build --release

# Run the tests; those that need measurements run if RIDGEPOINT_DATA is set
test *ARGS:
    cargo test {{ARGS}}

# Kill each command that writes at random moments: its files are old or new, never in between
kills TIMES="100":
    RIDGEPOINT_KILLS={{TIMES}} cargo test -p ridgepoint-cli --test command kills -- --nocapture

# Replays with KV blocks on host and disk: no block in two states, every load had its stores
conservation CASES="100000":
    PROPTEST_CASES={{CASES}} cargo test --release -p ridgepoint-replay --test replay host_tier

# Formatting and lints
lint:
    cargo fmt --check
    cargo clippy --workspace --all-targets -- -D warnings

# The library's documentation, warnings denied
doc *ARGS:
    RUSTDOCFLAGS="-D warnings" cargo doc --no-deps {{ARGS}}

# Every check of the project
ci:
    .ci/run

# Fuzz for some hours, all targets or one: with coverage where a nightly toolchain and a C++ compiler are there
fuzz HOURS TARGET="":
    #!/usr/bin/env bash
    set -euo pipefail
    targets=({{TARGET}})
    if ((${#targets[@]} == 0)); then mapfile -t targets < <(cargo run --quiet -p ridgepoint-fuzz -- --list); fi
    seconds=$(awk "BEGIN { print int({{HOURS}} * 3600 / ${#targets[@]}) }")
    if cargo +nightly --version >/dev/null 2>&1 && command -v c++ >/dev/null; then
      for target in "${targets[@]}"; do fuzz/libfuzzer/run "$target" "$seconds"; done
    else
      echo 'no nightly toolchain or no C++ compiler: mutations without coverage'
      cargo run --profile fuzz -p ridgepoint-fuzz -- --seconds "$seconds" --seed "$RANDOM" "${targets[@]}"
    fi

# How long a prediction takes
bench *ARGS:
    cargo bench -p ridgepoint-benches --bench step_time {{ARGS}}

# Instructions of a prediction, counted by valgrind
bench-instructions:
    cargo bench -p ridgepoint-benches --bench instructions

# How long replays take
bench-replay *ARGS:
    cargo bench -p ridgepoint-benches --bench replay {{ARGS}}

# How fast `ridgepoint serve` answers
bench-serve:
    benches/serve.sh

# Rebuild the tables of one GPU and engine from the public kernel timings: folders of DATA, the engine's own first
calibrate GPU ENGINE FOLDERS DATA=data:
    #!/usr/bin/env bash
    set -euo pipefail
    folders=()
    for folder in {{FOLDERS}}; do folders+=("{{DATA}}/$folder"); done
    cargo run --release -- calibrate --measurements "${folders[@]}" --hardware {{GPU}} --out target/bench_data
    mkdir -p bench_data/{{GPU}}/{{ENGINE}}
    cp target/bench_data/{{GPU}}/*.csv bench_data/{{GPU}}/{{ENGINE}}/

# Fit the corrections that are built in, from the public serving runs and step traces
corrections DATA=data:
    cargo build --release
    .ci/corrections.sh target/release/ridgepoint {{DATA}} corrections

# Compare the figures in README and docs with what the commands print; --write renews them
figures *ARGS:
    RIDGEPOINT_DATA={{data}} docs/figures.py {{ARGS}}
