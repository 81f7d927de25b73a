#!/usr/bin/env python3
"""Derives serve/src/measured.json, the measured runs that the page shows: aggregated metrics of public serving runs with predictions
as `ridgepoint evaluate serving` prints them. It compares; with --write it writes. RIDGEPOINT_DATA names the measurements."""

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FILE = ROOT / "serve/src/measured.json"
ARGUMENTS = ["evaluate", "serving", "$RIDGEPOINT_DATA/serving", "--leave-one-out", "model", "--format", "json"]
ENGINE = "vllm-0.15"
SOURCE = (
    "13 runs of vLLM 0.15.1 on H100 SXM under inference-perf, published by the inference-sim project; predictions by corrections fitted "
    "on the runs of other models"
)


def run_of(experiment):
    """One run: the metrics of all of its stages together, as means and percentiles."""
    kept = ["name", "model", "hardware", "tensor_parallel_size", "workload"]
    metrics = [
        {"metric": m["metric"]} | {key: round(m[key], 2) for key in ["measured_ms", "predicted_ms", "lower_ms", "upper_ms"]}
        for m in experiment["metrics"]
        if m["stage"] == -1
    ]
    return {key: experiment[key] for key in kept} | {"engine": ENGINE, "metrics": metrics}


def main():
    data = os.environ.get("RIDGEPOINT_DATA")
    if not data:
        sys.exit("RIDGEPOINT_DATA must name the folder of the measurements")
    command = os.environ.get("RIDGEPOINT", str(ROOT / "target/release/ridgepoint"))
    arguments = [argument.replace("$RIDGEPOINT_DATA", data) for argument in ARGUMENTS]
    report = json.loads(subprocess.run([command, *arguments], check=True, capture_output=True).stdout)
    document = {
        "source": SOURCE,
        "command": " ".join(["ridgepoint", *ARGUMENTS]),
        "runs": [run_of(experiment) for experiment in report["experiments"]],
    }
    text = json.dumps(document, indent=1) + "\n"
    if "--write" in sys.argv:
        FILE.write_text(text)
    elif FILE.read_text() != text:
        sys.exit(f"{FILE.relative_to(ROOT)} is not what the command prints: run docs/measured.py --write")


if __name__ == "__main__":
    main()
