#!/usr/bin/env python3
"""Replays published results of servers that draft tokens: `.ci/speculation.py PROGRAM DATA [CORRECTION]`.

Takes the results of DATA/bench-printouts that print ITL and TPOT, whose quotient is the tokens of a verification. Prints TPOT and ITL as measured and
as predicted, and the median absolute error of TPOT.
"""

import csv
import json
import statistics
import subprocess
import sys
from pathlib import Path


def drafted(path):
    """The results with an acceptance, a number of clients and a known GPU."""
    for row in csv.DictReader(path.open()):
        itl, tpot = (float(row[key] or 0) for key in ("mean_itl_ms", "mean_tpot_ms"))
        if "speculative" in row["command"] and row["max_concurrency"] and itl > tpot > 0:
            yield row, itl, tpot


def main():
    program, data, correction = [*sys.argv[1:], "none"][:3]
    errors = []
    for row, itl, tpot in drafted(Path(data) / "bench-printouts" / "gpustack.csv"):
        number = int(row["successful"])
        lengths = [str(round(int(row[key]) / number)) for key in ("input_tokens", "output_tokens")]
        load = ["--concurrency", str(int(float(row["max_concurrency"]))), "--num-requests", str(number)]
        load += ["--input-len", lengths[0], "--output-len", lengths[1], "--acceptance-length", f"{itl / tpot:.3f}"]
        place = ["--serve-command", row["command"], "--engine", "sglang", "--hardware", "h100", "--correction", correction]
        command = [program, "simulate", *place, *load, "--format", "json"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            print(done.stderr.splitlines()[0])
            continue
        run = json.loads(done.stdout)["stages"][0]
        found = [run[key]["mean"] for key in ("tpot_ms", "itl_ms")]
        errors.append(100 * (found[0] / tpot - 1))
        print(
            f"{load[1]:>2} clients, {itl / tpot:.2f} tokens: TPOT {tpot:.2f} ms, predicted {found[0]:.2f} ({errors[-1]:+.0f} %); "
            f"ITL {itl:.2f} ms, predicted {found[1]:.2f}"
        )
    if errors:
        print(f"{len(errors)} runs: median {statistics.median(map(abs, errors)):.1f} %, {min(errors):+.0f} to {max(errors):+.0f} %")


if __name__ == "__main__":
    main()
