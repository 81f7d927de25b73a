#!/usr/bin/env bash
# Regenerates the figures of docs/accuracy.md that come from serving runs, sampled steps and closed loops:
#
#     docs/study.sh DATA_DIR [OUT_DIR]
#
# RIDGEPOINT, where it is set, is the command to judge; else target/release/ridgepoint is built.
# DATA_DIR holds serving/, steps/ and closed_loop/. Every command's JSON is kept in OUT_DIR (default: target/study), and
# what lies between `<!-- study: NAME -->` and `<!-- /study -->` in docs/accuracy.md is written anew from it. About a quarter of an
# hour on two cores. The prose around the tables is by hand: read it again where a figure moved.
set -euo pipefail

if [[ $# -lt 1 || $# -gt 2 ]]; then
  echo "usage: docs/study.sh DATA_DIR [OUT_DIR]" >&2
  exit 2
fi
data=$(cd "$1" && pwd)
cd "$(dirname "$0")/.."
out=${2:-target/study}
mkdir -p "$out"
for part in serving steps closed_loop; do
  if [[ ! -d $data/$part ]]; then
    echo "$data/$part: not there; DATA_DIR must hold serving/, steps/ and closed_loop/" >&2
    exit 1
  fi
done

ridgepoint=${RIDGEPOINT:-target/release/ridgepoint}
if [[ -z ${RIDGEPOINT:-} ]]; then cargo build --release; fi

# run NAME ARGUMENTS...: writes $out/NAME.json, whole or not at all.
run() {
  local name=$1
  shift
  echo "ridgepoint $*" >&2
  "$ridgepoint" "$@" --format json >"$out/$name.json.new"
  mv "$out/$name.json.new" "$out/$name.json"
}

words="13 serving runs of vLLM on H100 SXM under inference-perf (inference-sim/training and inference-sim/sim-to-real-accuracy-validation)"
run fit fit --serving "$data/serving" --data "$words" --engine-version 0.15.1 --out "$out/global.toml" --force
if ! cmp "$out/global.toml" corrections/global.toml; then
  echo "note: corrections/global.toml is not what was fitted now; figures of the global correction are those of the shipped one" >&2
fi
run leave-one-out evaluate serving "$data/serving" --leave-one-out model
for correction in none global; do
  run "attribution-$correction" evaluate serving "$data/serving" --attribute --correction "$correction"
  run "steps-$correction" evaluate steps "$data"/steps/*.csv --hardware h100 --judge-from 0.6 --correction "$correction"
  run "closed-loop-$correction" evaluate closed-loop "$data/closed_loop/h100_sxm.csv" --backend vllm --correction "$correction"
done
run steps-refit evaluate steps "$data"/steps/*.csv --hardware h100 --judge-from 0.6 --correction global --refit model
run steps-unseen evaluate steps "$data"/steps/*.csv --hardware h100 --split leave-one-model-out --correction global
run closed-loop-others evaluate closed-loop "$data/closed_loop/h100_sxm.csv" --backend trtllm sglang --correction global

python3 docs/study.py "$out" "$data/closed_loop/h100_sxm.csv" docs/accuracy.md
