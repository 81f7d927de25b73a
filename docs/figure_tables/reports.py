"""The reports that figures come from, each the JSON of one command, and their parts."""

import csv

# Models of the closed loops with routed experts; a model in neither set stops the script.
MOE = {"gpt-oss-120b", "minimax-m2.5"}
DENSE = {"qwen3-32b", "llama-3.1-70b-fp8", "qwen3-32b-fp8"}
CLOSED_LOOPS = {
    "h100_sxm": ("closed_loop", "h100_sxm.csv"),
    "b200_sxm": ("closed_loop-2026", "b200_sxm_agg.csv"),
    "gb200": ("closed_loop-2026", "gb200_agg.csv"),
}
LAUNCHES = {"closed_loop-2026": ("row_flags.csv", "engine_flags.csv")}
GPUS = ["h100_sxm", "h200_sxm", "a100_sxm"]
WHOLE_RUN = -1
EXAMPLE = "predict-step --model llama-3.1-70b --hardware h100 --tensor-parallel-size 4 --batch examples/mixed_batch.json"


def example(reports):
    return reports.read(*EXAMPLE.split())


def left_out(reports):
    return reports.read(
        "evaluate", "serving", reports.path("serving"), "--leave-one-out", "model", "--max-median-e2e-pct", "4"
    )


def attributed(reports, correction):
    return reports.read("evaluate", "serving", reports.path("serving"), "--attribute", "--correction", correction)


def sampled_steps(reports, *arguments, correction="global"):
    files = sorted(reports.path("steps").glob("*.csv"))
    labels = ["--hardware", "h100", "--engine-version", "0.15.1"]
    return reports.read("evaluate", "steps", *files, *labels, "--correction", correction, *arguments)


def closed_loop(reports, correction, *backends, gpu="h100_sxm"):
    folder, name = CLOSED_LOOPS[gpu]
    files = [reports.path(folder, file) for file in (name, *LAUNCHES.get(folder, ()))]
    return reports.read("evaluate", "closed-loop", *files, "--backend", *backends, "--correction", correction)


def both_closed_loops(reports):
    return {name: closed_loop(reports, name, "vllm") for name in ("none", "global")}


def closed_loop_rows(reports):
    with open(reports.path("closed_loop", "h100_sxm.csv"), newline="") as file:
        return {row["id"]: row for row in csv.DictReader(file)}


def unfitted(reports):
    return reports.read("evaluate", "serving", reports.path("serving"), reports.path("serving-2"), "--correction", "none")


def checked(reports, gpu, folder):
    path = reports.path("kernels", gpu, folder)
    return reports.read("calibrate", "--check", path, "--hardware", gpu) if path.is_dir() else {}


def metric(one, name, stage=WHOLE_RUN):
    """The row of a metric and stage, or nothing."""
    found = [row for row in one["metrics"] if row["stage"] == stage and row["metric"] == name]
    return found[0] if found else None


def error_pct(row, baseline=None):
    predicted = row["baselines"][baseline] if baseline else row["predicted_ms"]
    return 100 * (predicted - row["measured_ms"]) / row["measured_ms"]


def is_covered(row):
    return row["lower_ms"] <= row["measured_ms"] <= row["upper_ms"]
