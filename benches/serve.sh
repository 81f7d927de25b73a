#!/usr/bin/env bash
# The speed of `ridgepoint serve` on this machine: steps per second, their latency at half of the aim of 15,000, replays, and steps with
# many idle and slow clients. Needs curl and builds in release. Figures are printed with the load of the machine and not judged.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

release=${CARGO_TARGET_DIR:-target}/release
seconds=${SECONDS_EACH:-10}
clients=${IDLE_CLIENTS:-10000}
if [[ -z ${BUILT:-} ]]; then
  cargo build --locked --release --quiet -p ridgepoint-cli
  cargo build --locked --release --quiet -p ridgepoint-cli --example serve_load
fi
work=$(mktemp -d)
trap 'kill "$server" 2>/dev/null || true; rm -rf "$work"' EXIT
ulimit -n "$(ulimit -Hn)"
"$release/ridgepoint" serve --port 0 >"$work/url" &
server=$!
until grep -q http "$work/url" 2>/dev/null; do sleep 0.05; done
url=$(grep -o 'http://.*' "$work/url")

cpu_ms() { awk -v ticks="$(getconf CLK_TCK)" '{ print ($14 + $15) / ticks * 1e3 }' "/proc/$server/stat"; }
memory() { awk '/VmRSS/ { printf "%.0f MiB", $2 / 1024 }' "/proc/$server/status"; }

steps() { # heading, connections, rate, idle clients
  local before
  printf '\n== %s (load %s)\n' "$1" "$(cut -d ' ' -f 1-3 /proc/loadavg)"
  before=$(cpu_ms)
  "$release/examples/serve_load" "${url#http://}" "$seconds" "$2" "$3" "$4" | tee "$work/out"
  awk -v before="$before" -v after="$(cpu_ms)" -v seconds="$seconds" \
    '{ printf "CPU of the server: %.1f µs per request\n", (after - before) / ($1 * seconds) * 1e3 }' "$work/out"
  printf 'memory: %s\n' "$(memory)"
}

steps 'steps, 16 connections, as fast as they are answered' 16 0 0
steps 'steps, 16 connections, 7,500 per second' 16 7500 0
steps "steps with $clients idle and slow clients" 16 2000 "$clients"

printf '\n== replays of 16,800 requests (load %s)\n' "$(cut -d ' ' -f 1-3 /proc/loadavg)"
replay='{"model": "llama-3.1-8b", "hardware": "h100", "request_rate": 14, "num_requests": 16800, "input_len": 500, "output_len": 200}'
for _ in {1..20}; do
  curl -s -o /dev/null -w '%{time_total}\n' -H 'Content-Type: application/json' -d "$replay" "$url/v1/simulate"
done | sort -n | awk '{ all[NR] = $1 * 1e3 } END { printf "best %.0f ms, median %.0f ms of %d\n", all[1], all[int((NR + 1) / 2)], NR }'
printf 'memory: %s\n' "$(memory)"
