"""Tables of single steps, of traces and measured on GPUs."""

import re

from .markdown import pct, table
from .reports import sampled_steps

STEP_COLUMNS = ["median %", "mean %", "bias %", "r", "covered %"]


def step_cells(metrics):
    cells = [pct(metrics["median_ape_pct"]), pct(metrics["mean_ape_pct"]), pct(metrics["bias_pct"], signed=True)]
    r = metrics["pearson_r"]
    return cells + ["–" if r is None else f"{r:.3f}", pct(metrics.get("coverage_pct"))]


def steps(reports):
    tables = sampled_steps(reports, "--judge-from", "0.6", correction="none")
    corrected = sampled_steps(reports, "--judge-from", "0.6")
    refitted = sampled_steps(reports, "--judge-from", "0.6", "--refit", "model")
    rows = []
    for one in corrected["experiments"]:
        plain, of, own = (report["split"]["groups"][one["name"]] for report in (tables, corrected, refitted))
        baselines = of["baselines"]
        predictors = [
            ("calibrated tables", plain["summary"]["step_mean"]),
            ("**+ global correction**", of["summary"]["step_mean"]),
            ("+ correction of its own", own["summary"]["step_mean"]),
            ("ideal roofline", baselines["ideal_roofline"]["step_mean"]),
            ("black box", baselines["black_box"]["step_mean"]),
        ]
        title = f"{one['model']}, TP {one['tensor_parallel_size']}, {len(one['metrics'])} windows"
        rows += [[f"{title}: {label}"] + step_cells(metrics) for label, metrics in predictors]
    return table(["run: predictor"] + STEP_COLUMNS, rows)


def steps_unseen(reports):
    rows = []
    report = sampled_steps(reports, "--split", "leave-one-model-out")
    for one in report["experiments"]:
        group = report["split"]["groups"][one["name"]]
        for label, of in [("**+ global correction**", group["summary"]), ("black box", group["baselines"]["black_box"])]:
            rows.append([f"{one['model']}: {label}"] + step_cells(of["step_mean"]))
    return table(["model left out: predictor"] + STEP_COLUMNS, rows)


def whole_steps(reports):
    pattern = r"^(\S+), (.+): (\d+) steps, ([\d.]+) %, ([-+][\d.]+) %$"
    lines = re.findall(pattern, reports.tested("laws", "whole_steps"), re.MULTILINE)
    rows = [[f"{gpu}, {kind}", steps, error, pct(float(bias), signed=True)] for gpu, kind, steps, error, bias in lines]
    return table(["GPU, steps", "number", "median %", "bias %"], rows)


TABLES = {
    "steps": steps,
    "steps-unseen": steps_unseen,
    "whole-steps": whole_steps,
}
