#!/usr/bin/env python3
"""Derives src/coverage.json: how often the intervals of predictions held on public runs, by engine, GPU, kind of load
and metric, as `ridgepoint evaluate` finds it. Every output takes its words on intervals from that file. It compares; with --write it writes, and --reuse
takes the JSON that an earlier run of it or of docs/figures.py left in target/figures. RIDGEPOINT_DATA names the measurements, RIDGEPOINT
the command."""

import json
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


def main():
    if "RIDGEPOINT_DATA" not in os.environ:
        sys.exit("RIDGEPOINT_DATA must name the folder of the measurements")
    reports = figures.Reports("--reuse" in sys.argv)
    found = {}
    for corrected, load, (command, kind, data, *how) in commands():
        report = reports.read(command, kind, *map(reports.path, data), *how)
        for run in report["experiments"]:
            for row in run["metrics"]:
                if row["metric"] in METRICS and row["stage"] == -1:
                    key = (engine_of(run), run["hardware"], load, METRICS[row["metric"]], corrected)
                    found.setdefault(key, []).append(row)
    rows = [
        {
            "engine": engine,
            "hardware": hardware,
            "load": load,
            "metric": metric,
            "corrected": corrected,
            "rows": len(of),
            "held": sum(row["lower_ms"] <= row["measured_ms"] <= row["upper_ms"] for row in of),
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
