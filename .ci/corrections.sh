#!/usr/bin/env bash
# Fits the corrections that are built in, from the public serving runs and step traces:
#
#     .ci/corrections.sh RIDGEPOINT DATA OUT [--format json]
#
# Prints the report of the first fit. The bytes of the files follow from the measurements and the tables alone, so that two runs
# write the same.
set -euo pipefail
ridgepoint=$1 data=$2 out=$3

"$ridgepoint" fit --serving "$data/serving" "$data/serving-2" --engine-version 0.15.1 \
  --data '31 serving runs of vLLM on H100 SXM under inference-perf (inference-sim/training and inference-sim/sim-to-real-accuracy-validation)' \
  --out "$out/global.toml" --force "${@:4}"
"$ridgepoint" fit --steps "$data/steps/20260217-202857-llama-2-70b-tp4-general.csv" --level model --model llama-2-70b --hardware h100 \
  --prior "$out/global.toml" --engine-version 0.15.1 --split all \
  --data 'step trace of vLLM on H100 SXM, 10 % of steps (inference-sim/inference-sim, branch stepml-experiments)' \
  --out "$out/llama-2-70b.toml" --force >&2
