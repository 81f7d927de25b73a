#!/usr/bin/env python3
"""Fits to one published benchmark result and predicts the others of its machine: `.ci/printouts.py PROGRAM DATA [ENGINE ...]`.

DATA/bench-printouts has results of `vllm bench serve` and SGLang's `bench_serving` with the server's command, one machine a file. Each becomes
the table that the load generator prints. `ridgepoint fit --bench` learns from one of them, `ridgepoint evaluate bench` predicts every other one
of the same file and engine. Prints the median absolute errors with that correction and without it, by machine; commands that the program
refuses are counted. Without ENGINE (vllm, sglang, trtllm) those of vLLM are taken; the others are replayed with vLLM's scheduler.
"""

import csv
import json
import re
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

FIGURES = ["total_tokens", "ttft_mean", "ttft_p50", "tpot_mean", "tpot_p50"]
# Rows of these files give flags without the command's beginning.
MODELS = {"qwen3.5-35b-a3b/h200.md": "Qwen/Qwen3.5-35B-A3B", "qwen3.5-9b/h100-latency.md": "Qwen/Qwen3.5-9B"}


def table(values):
    lines = [f"{label}: {value}" for label, value in values if value not in ("", None)]
    return "============ Serving Benchmark Result ============\n" + "\n".join(lines) + "\n"


def gpustack(path):
    for row in csv.DictReader(path.open()):
        gpu = next((gpu for gpu in ("h200", "h100", "a100") if f"/{gpu}" in row["file"]), None)
        command = re.sub(r"^#.*?(?=vllm serve)", "", row["command"].replace("\n", " ")).strip()
        if gpu is None:
            continue
        if command.startswith("--"):
            start = "sglang serve " if "context-length" in command else "vllm serve "
            command = start + MODELS[row["file"]] + " " + command
        engine = next(name for name in ("vllm", "sglang", "trtllm") if name in command.split("serve")[0] + command[:40])
        versions = dict(pair.split("=") for pair in row["versions"].split(";"))
        rate, concurrency = row["request_rate"], row["max_concurrency"]
        # Here the column is the peak of a load that was sent at a rate.
        if row["file"].startswith("qwen3.5-9b"):
            rate = re.search(r"(?:Rate |)(\d+)(?:RPS)?$", row["section"] if "Rate" in row["section"] else "8RPS").group(1)
            concurrency = ""
        latencies = [
            (f"{name.capitalize()} {latency.upper()} (ms)", row[f"{name}_{latency}_ms"])
            for latency in ("ttft", "tpot")
            for name in ("mean", "median", "p99")
        ]
        yield {
            "machine": row["file"],
            "engine": engine,
            "version": versions.get(engine, "0"),
            "gpu": gpu,
            "command": command,
            "text": table(
                [
                    ("Traffic request rate", rate),
                    ("Maximum request concurrency", concurrency and int(float(concurrency))),
                    ("Successful requests", row["successful"]),
                    ("Benchmark duration (s)", row["duration_s"]),
                    ("Total input tokens", row["input_tokens"]),
                    ("Total generated tokens", row["output_tokens"]),
                    *latencies,
                    ("Mean E2EL (ms)", row["mean_latency_s"] and 1e3 * float(row["mean_latency_s"])),
                ]
            ),
        }


def inferencex(path):
    layouts = {"tep8": "-tp 8 --enable-expert-parallel", "dep8": "-dp 8 --enable-expert-parallel", "tp8": "-tp 8"}
    for row in csv.DictReader(path.open()):
        layout = re.search(r"_vllm_([a-z0-9]+)_isl", row["file"]).group(1)
        # One token is drafted ahead there.
        if "glm5" in row["file"]:
            continue
        names = [("Median", "median"), ("P99", "p99")]
        latencies = [
            (f"{label} {latency.upper()} (ms)", 1e3 * float(row[f"{key}_{latency}"]))
            for latency in ("ttft", "tpot", "e2el")
            for label, key in names
        ]
        totals = ["completed", "duration", "total_input_tokens", "total_output_tokens", "max_concurrency"]
        labels = ["Successful requests", "Benchmark duration (s)", "Total input tokens", "Total generated tokens"]
        values = [(label, row[key]) for label, key in zip([*labels, "Maximum request concurrency"], totals)]
        yield {
            "machine": "minimax-m2.5/h200 " + layout,
            "engine": "vllm",
            "version": "0.14",
            "gpu": "h200",
            "command": f"vllm serve {row['model_id']} {layouts[layout]}",
            "text": table(values + latencies),
        }


def server(row):
    """The arguments of the row's server, with vLLM's flags for those of the other engines; None for what has none."""
    command, version = row["command"], ".".join(row["version"].split(".")[:2])
    if row["engine"] == "vllm":
        return ["--serve-command", command], version
    if re.search(r"speculative|dp-attention|mtp", command):
        return None
    model = re.search(r"(?:--model-path|--model|trtllm-serve|serve)[ =](\S+)", command).group(1).replace("/workspace/", "")
    ranks = re.search(r"--tp(?:-size|_size)?[ =](\d+)", command)
    experts = " --enable-expert-parallel" if re.search(r"--ep(?:-size|_size)[ =]", command) else ""
    return ["--serve-command", f"vllm serve {model} -tp {ranks.group(1) if ranks else 1}{experts}"], version


class Program:
    def __init__(self, path, folder):
        self.path, self.folder = path, Path(folder)

    def run(self, *arguments):
        return subprocess.run([self.path, *arguments], capture_output=True, text=True, check=False)

    def errors(self, row, correction="global"):
        """Errors of the row's figures by name, percent; None if the program refuses the row."""
        arguments, version = row["server"]
        engine = ["--engine", row["engine"], "--engine-version", version]
        path = self.folder / "result.txt"
        path.write_text(row["text"])
        place = [*arguments, "--hardware", row["gpu"], *engine, "--correction", str(correction), "--format", "json"]
        done = self.run("evaluate", "bench", str(path), *place)
        if done.returncode:
            return None
        rows = json.loads(done.stdout)["results"][0]["rows"]
        return {of["figure"]: of["error_pct"] for of in rows if of["figure"] in FIGURES}

    def fitted(self, row):
        """The file of a correction fitted to the row."""
        arguments, version = row["server"]
        path, out = self.folder / "seen.txt", self.folder / "fitted.toml"
        path.write_text(row["text"])
        engine = f"{row['engine']}-{version}"
        place = [*arguments, "--hardware", row["gpu"], "--engine-version", engine, "--prior", "global"]
        done = self.run("fit", "--bench", str(path), *place, "--out", str(out), "--force", "--allow-worse")
        return None if done.returncode else out


def medians(pairs):
    """`figure after (before)` for the pairs of each figure."""
    found = []
    for figure in FIGURES:
        of = [(abs(after[figure]), abs(before[figure])) for before, after in pairs if figure in after and figure in before]
        if of:
            after, before = (statistics.median(column) for column in zip(*of))
            found.append(f"{figure} {after:.1f} ({before:.1f})")
    return ", ".join(found)


def main():
    program, data, *engines = sys.argv[1:]
    folder = Path(data) / "bench-printouts"
    with tempfile.TemporaryDirectory() as scratch:
        judge(Program(program, scratch), list(gpustack(folder / "gpustack.csv")), engines or ["vllm"])
        judge(Program(program, scratch), list(inferencex(folder / "inferencex_h200.csv")), engines or ["vllm"])


def judge(program, rows, engines):
    rows = [row for row in rows if row["engine"] in engines]
    all_pairs, refused = [], 0
    if rows:
        machines = {}
        for row in rows:
            row["server"] = server(row)
            row["before"] = program.errors(row) if row["server"] else None
            refused += row["before"] is None
            if row["before"] is not None:
                machines.setdefault((row["machine"], row["engine"]), []).append(row)
        for (machine, engine), found in machines.items():
            pairs = []
            for seen in found:
                correction = program.fitted(seen)
                others = [row for row in found if row["text"] != seen["text"]] if correction else []
                pairs += [(row["before"], after) for row in others if (after := program.errors(row, correction))]
            if pairs:
                print(f"{machine}, {engine}: {len(found)} results, {len(pairs)} pairs: {medians(pairs)}", flush=True)
            all_pairs += pairs
    print(f"{len(rows)} results, {refused} refused; {len(all_pairs)} pairs, median absolute errors in % fitted (before): {medians(all_pairs)}")


if __name__ == "__main__":
    main()
