"""Checks that the deployments which `ridgepoint plan` names hold: random servers, loads and limits; the best deployment is replayed by its own launch
line with 20,000 requests a replica of another seed, and should exceed no limit by more than 3 %.

    python3 .ci/plans.py PROGRAM [NUMBER] [SEED]

Prints a line per plan and the count; fails if fewer than 95 % hold.
"""

import json
import math
import random
import sys

from rates import CHECKED_SEED, TOLERANCE, figure, random_case, run

ROUTERS = ["round-robin", "least-requests", "power-of-two"]
MOST_GPUS = 32


def planned(program, server, load, limits, rate, router):
    own = {key: value for key, value in server.items() if key not in ("model", "hardware", "tensor_parallel_size")}
    sizes = sorted({server["tensor_parallel_size"], min(2 * server["tensor_parallel_size"], 8)})
    command = [program, "plan", "--model", server["model"], "--hardware", server["hardware"], "--gpus", MOST_GPUS, "--router", router]
    command += ["--server", f"tensor_parallel_size={','.join(str(size) for size in sizes)}", "--top", 1]
    command += [part for key, value in own.items() for part in ("--server", f"{key}={value}")]
    command += [f"--{key.replace('_', '-')}={value}" for key, value in load.items()]
    command += [part for key, value in limits.items() for part in ("--limit", f"{key}_ms={value}")]
    done, seconds = run([*command, f"--request-rate={rate}", "--format=json"])
    if done.returncode != 0:
        sys.exit(done.stderr)
    return json.loads(done.stdout), seconds


def replayed(program, server, load, rate, best):
    replicas = best["replicas"]
    command = [program, "simulate", "--serve-command", best["serve_command"], "--hardware", server["hardware"], f"--request-rate={rate}"]
    command += [f"--{key.replace('_', '-')}={value}" for key, value in load.items()]
    command += [f"--num-requests={20_000 * replicas}", f"--seed={CHECKED_SEED}", "--format=json", "--max-memory-gib=8"]
    if replicas > 1:
        command += ["--replicas", replicas, "--router", best["router"]]
    done, _ = run(command)
    if done.returncode != 0:
        sys.exit(done.stderr)
    return json.loads(done.stdout)


def main():
    program = sys.argv[1]
    number = int(sys.argv[2]) if len(sys.argv) > 2 else 5
    rng = random.Random(int(sys.argv[3]) if len(sys.argv) > 3 else 1)
    hold, none, costs = 0, 0, []
    while len(costs) < number:
        server, load, limits = random_case(rng, program)
        rate, router = round(math.exp(rng.uniform(math.log(2), math.log(40))), 3), rng.choice(ROUTERS)
        report, seconds = planned(program, server, load, limits, rate, router)
        if not report["deployments"]:
            none += 1
            continue
        costs.append(seconds)
        best = report["deployments"][0]
        seen = replayed(program, server, load, rate, best)
        worst = max(figure(seen, key) / limit for key, limit in limits.items())
        hold += worst <= 1 + TOLERANCE
        print(
            f"{best['serve_command']} x {best['replicas']} {best['router']} on {server['hardware']}: {rate}/s {load} {limits}, margin "
            f"{best['margin_pct']:.1f} %: {worst:.3f}, {seen['load_state']}; {seconds:.1f} s",
            flush=True,
        )
    print(
        f"{hold} of {number} deployments hold within 3 % with another seed and 20,000 requests a replica; CPU of a plan: mean {sum(costs) / number:.1f} s, "
        f"most {max(costs):.1f} s; {none} plans without a deployment"
    )
    if hold < math.floor(0.95 * number):
        sys.exit("fewer than there should be")


if __name__ == "__main__":
    main()
