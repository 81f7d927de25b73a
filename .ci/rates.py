"""Checks that the rates which `ridgepoint sweep` finds hold: random servers, loads and limits; each rate is replayed with 20,000 requests of
another seed, and so is 1.1 times that rate. The first should exceed no limit by more than 3 %, the second should break one, or its queue should grow.

    python3 .ci/rates.py PROGRAM [NUMBER] [SEED]

Prints a line per server and the two counts; fails if fewer than 95 % hold or fewer than 80 % (of a few) or 95 % (of 100) break.
"""

import json
import math
import random
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

MODELS = [("llama-3.1-8b", 1), ("llama-3.1-70b", 4), ("qwen3-32b", 2), ("mixtral-8x7b", 2), ("gpt-oss-120b", 2), ("qwen3-235b-a22b-fp8", 8)]
FIGURES = ["ttft_p99", "ttft_p99", "ttft_p95", "ttft_mean", "tpot_p99", "itl_p99", "e2e_p99", "e2e_p90"]
TOLERANCE = 0.03
CHECKED_SEED = 1_000_003


def run(command):
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, check=False)
    return done, resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before


def simulated(program, server, load, rate, requests, seed):
    keys = [f"--{key.replace('_', '-')}={value}" for key, value in {**server, **load}.items()]
    command = [program, "simulate", *keys, f"--request-rate={rate}", f"--num-requests={requests}", f"--seed={seed}", "--format=json"]
    done, _ = run(command)
    return json.loads(done.stdout) if done.returncode == 0 else None


def figure(of, key):
    metric, statistic = key.split("_")
    return next(stage for stage in of["stages"] if stage["stage"] == -1)[f"{metric}_ms"][statistic]


def random_case(rng, program):
    """A server, a load and a limit of 1.5 to 6 times what an idle server does."""
    while True:
        model, tensor_parallel_size = rng.choice(MODELS)
        server = {
            "model": model,
            "hardware": rng.choice(["h100", "h200", "b200"]),
            "tensor_parallel_size": tensor_parallel_size,
            "max_num_batched_tokens": rng.choice([2048, 8192]),
            "max_num_seqs": rng.choice([64, 128, 256, 512]),
        }
        load = {
            "input_len": rng.choice([200, 800, 2000, 4000]),
            "output_len": rng.choice([50, 200, 500]),
            "burstiness": rng.choice([0.5, 1, 1]),
        }
        limited = {rng.choice(FIGURES) for _ in range(rng.choice([1, 1, 2]))}
        factor = rng.choice([1.5, 2, 3, 6])
        idle = simulated(program, server, load, 0.05, 200, 0)
        if idle is not None:
            return server, load, {key: factor * figure(idle, key) for key in sorted(limited)}


def highest_rate(program, folder, server, load, limits):
    toml = lambda table: "\n".join(f"{key} = {json.dumps(value)}" for key, value in table.items())
    slo = {f"{key}_ms": value for key, value in limits.items()}
    grid = folder / "grid.toml"
    grid.write_text(f"[server]\n{toml(server)}\n[load]\n{toml(load)}\nnum_requests = 500\n[slo]\n{toml(slo)}\n", encoding="utf-8")
    out = folder / "out.json"
    done, seconds = run([program, "sweep", grid, "--out", out, "--fresh", "--force", "--threads", 1])
    if done.returncode != 0:
        sys.exit(done.stderr)
    return json.loads(out.read_text(encoding="utf-8"))[0], seconds


def main():
    program = sys.argv[1]
    number = int(sys.argv[2]) if len(sys.argv) > 2 else 5
    rng = random.Random(int(sys.argv[3]) if len(sys.argv) > 3 else 1)
    hold, breaks, skipped, costs = 0, 0, 0, []
    with tempfile.TemporaryDirectory() as name:
        while len(costs) < number:
            server, load, limits = random_case(rng, program)
            row, seconds = highest_rate(program, Path(name), server, load, limits)
            if row["status"] != "ok":
                skipped += 1
                continue
            costs.append(seconds)
            rate = row["request_rate_per_s"]
            worst, states = [], []
            for factor in (1, 1.1):
                seen = simulated(program, server, load, factor * rate, 20_000, CHECKED_SEED)
                states.append(seen["load_state"])
                worst.append(max(figure(seen, key) / limit for key, limit in limits.items()))
            hold += worst[0] <= 1 + TOLERANCE
            breaks += worst[1] > 1 or states[1] == "overloaded"
            print(
                f"{' '.join(str(value) for value in [*server.values(), *load.values()])} {limits} {rate:.4g}/s {row['binds']} {row['resource']} "
                f"{row['load_state']} margins {row['margins']}: {worst[0]:.3f}, at 1.1 times {worst[1]:.3f} {states[1]}; {row['replays']} replays, {seconds:.1f} s",
                flush=True,
            )
    print(
        f"{hold} of {number} rates hold within 3 % with another seed, 1.1 times the rate breaks a limit or grows a queue in {breaks}; CPU of a search: mean "
        f"{sum(costs) / number:.1f} s, most {max(costs):.1f} s; {skipped} skipped whose limits hold at any rate or at none"
    )
    if hold < math.floor(0.95 * number) or breaks < math.floor((0.95 if number >= 20 else 0.8) * number):
        sys.exit("fewer than there should be")


if __name__ == "__main__":
    main()
