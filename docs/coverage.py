#!/usr/bin/env python3
"""Derives src/coverage.json: how often the intervals of predictions held on public runs, by engine, GPU, kind of load
and metric, as `ridgepoint evaluate` finds it, and what their half widths lack for nine in ten. The intervals of each model are judged by the
width that the other models ask for. Every output takes its words on intervals from that file. It compares; with --write it writes, and --reuse
takes the JSON that an earlier run of it or of docs/figures.py left in target/figures. RIDGEPOINT_DATA names the measurements, RIDGEPOINT
the command."""

import json
import math
import os
import statistics
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.dont_write_bytecode = True
sys.path.insert(0, str(ROOT / "docs"))

import figures  # noqa: E402

FILE = ROOT / "src/coverage.json"
LAUNCHES = {"closed_loop-2026": ["closed_loop-2026/row_flags.csv", "closed_loop-2026/engine_flags.csv"]}
LOOPS = ["closed_loop/h100_sxm.csv", "closed_loop-2026/b200_sxm_agg.csv", "closed_loop-2026/gb200_agg.csv"]
KEYS = ["engine", "hardware", "load", "metric", "corrected"]
WIDEST = 1.5  # a factor of 4.5
LEAST_HELD_PCT = 40
METRICS = {"ttft_mean": "ttft", "tpot_mean": "tpot", "itl_mean": "tpot", "e2e_mean": "e2e"}
SOURCE = (
    "means of 31 open-loop runs of vLLM 0.15.1 under inference-perf (the inference-sim project), predicted by corrections of the other "
    "models, and of closed loops (the AIConfigurator project), predicted by corrections/global.toml; ITL counts as TPOT"
)


def commands():
    """Whether the predictions are corrected, the kind of load, and the command's arguments, as the figures of docs/ have them."""
    for corrected in [True, False]:
        how = ["--leave-one-out", "model"] if corrected else ["--correction", "none"]
        yield corrected, "open", ["evaluate", "serving", ["serving", "serving-2"], *how]
        for file in LOOPS:
            for engines in [["vllm"], ["trtllm", "sglang"]]:
                if not ("gb200" in file and engines == ["vllm"]):  # it has no such rows
                    correction = "global" if corrected else "none"
                    yield corrected, "closed", ["evaluate", "closed-loop", [file, *LAUNCHES.get(file.split("/")[0], [])], "--backend", *engines, "--correction", correction]


def engine_of(run):
    """The engine of a run. Those of other engines than vLLM name it before their version."""
    first = run.get("backend_version", "").split(" ")[0]
    return first if first in ["sglang", "trtllm"] else "vllm"


def applied(row):
    """What the intervals that the program gives have added: nothing where it gives no interval."""
    return row.get("added", 0.0) if 100 * row["held"] >= LEAST_HELD_PCT * row["rows"] else 0.0


def lacked(row, added):
    """What an interval's own half width, in logarithms, lacks for the measured value to be just within; the two add as independent errors do."""
    measured, predicted = row["measured_ms"], row["predicted_ms"]
    bound = row["upper_ms"] if measured > predicted else row["lower_ms"]
    if bound <= 0:
        return 0.0
    own = max(0.0, math.log(bound / predicted) ** 2 - added**2)
    return math.sqrt(max(0.0, math.log(measured / predicted) ** 2 - own))


def asked_for(widths):
    """What is added for nine in ten to be within their intervals."""
    widths = sorted(widths)
    return min(widths[math.ceil(0.9 * len(widths)) - 1], WIDEST) if widths else 0.0


def held(by_model):
    """The number of runs within their intervals, those of each model by the width that the others ask for."""
    number = 0
    for model, widths in by_model.items():
        added = asked_for([width for other, of in by_model.items() if other != model for width in of])
        number += sum(width <= added + 1e-9 for width in widths)
    return number


def main():
    if "RIDGEPOINT_DATA" not in os.environ:
        sys.exit("RIDGEPOINT_DATA must name the folder of the measurements")
    reports = figures.Reports("--reuse" in sys.argv)
    known = {tuple(row[key] for key in KEYS): applied(row) for row in json.loads(FILE.read_text())["rows"]}
    found, by_model = {}, {}
    for corrected, load, (command, kind, data, *how) in commands():
        report = reports.read(command, kind, *map(reports.path, data), *how)
        for run in report["experiments"]:
            for row in run["metrics"]:
                if row["metric"] in METRICS and row["stage"] == -1:
                    key = (engine_of(run), run["hardware"], load, METRICS[row["metric"]], corrected)
                    found.setdefault(key, []).append(row)
                    width = lacked(row, known.get(key, 0.0))
                    by_model.setdefault(key, {}).setdefault(run["model"], []).append(width)
    rows = [
        {
            "engine": engine,
            "hardware": hardware,
            "load": load,
            "metric": metric,
            "corrected": corrected,
            "rows": len(of),
            "held": held(by_model[engine, hardware, load, metric, corrected]),
            "added": round(asked_for([width for of in by_model[engine, hardware, load, metric, corrected].values() for width in of]), 3),
            "bias_pct": round(statistics.median(100 * (row["predicted_ms"] / row["measured_ms"] - 1) for row in of), 1),
        }
        for (engine, hardware, load, metric, corrected), of in sorted(found.items())
    ]
    lines = ",\n".join("  " + json.dumps(row) for row in rows)
    said = [
        " ".join(["ridgepoint", command, kind, *(f"$RIDGEPOINT_DATA/{of}" for of in data), *how])
        for _, _, (command, kind, data, *how) in commands()
    ]
    text = f'{{\n "source": {json.dumps(SOURCE)},\n "commands": {json.dumps(said)},\n "rows": [\n{lines}\n ]\n}}\n'
    if "--write" in sys.argv:
        FILE.write_text(text)
    elif FILE.read_text() != text:
        sys.exit(f"{FILE.relative_to(ROOT)} is not what the commands print: run docs/coverage.py --write")


if __name__ == "__main__":
    main()
