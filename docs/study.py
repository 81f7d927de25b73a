"""Writes the tables of docs/accuracy.md from the JSON that docs/study.sh collected. Standard library only.

usage: study.py OUT_DIR CLOSED_LOOP_CSV ACCURACY_MD
"""

import csv
import json
import os
import re
import sys
from pathlib import Path
from statistics import median

# Models of the closed loops with routed experts; a model in neither set stops the script.
MOE = {"gpt-oss-120b", "minimax-m2.5"}
DENSE = {"qwen3-32b", "llama-3.1-70b-fp8", "qwen3-32b-fp8"}
WHOLE_RUN = -1
LAYERS = ["ideal_roofline", "calibrated_roofline"]


def main(out_dir, closed_loop_csv, accuracy_md):
    def read(name):
        return json.loads((Path(out_dir) / f"{name}.json").read_text())

    with open(closed_loop_csv, newline="") as file:
        rows = {row["id"]: row for row in csv.DictReader(file)}
    left_out = read("leave-one-out")
    loops = {name: read(f"closed-loop-{name}") for name in ("none", "global")}
    of_steps = {name: read(f"steps-{name}") for name in ("none", "global")}
    blocks = {
        "bars": bars(left_out, of_steps["global"], loops["global"]),
        "layers": layers(left_out),
        "runs": runs(left_out),
        "workloads": workloads(left_out),
        "tails": tails(left_out),
        "attribution": attribution(read("attribution-none"), read("attribution-global")),
        "steps": steps(of_steps["none"], of_steps["global"], read("steps-refit")),
        "steps-unseen": steps_unseen(read("steps-unseen")),
        "closed-loop-models": closed_loops(loops, lambda one: one["model"], classes=True),
        "closed-loop-versions": closed_loops(loops, lambda one: version(one, rows)),
        "closed-loop-parallel": closed_loops(
            loops, lambda one: parallel(rows[one["name"]]), of=lambda one: one["model"] == "minimax-m2.5"
        ),
        "closed-loop-others": closed_loops({"global": read("closed-loop-others")}, lambda one: version(one, rows)),
        "sampler": sampler(loops, rows),
        "coefficients": coefficients(read("fit")),
    }
    path = Path(accuracy_md)
    text = path.read_text()
    for name, lines in blocks.items():
        block = f"<!-- study: {name} -->\n" + "\n".join(lines) + "\n<!-- /study -->"
        text, found = re.subn(f"<!-- study: {name} -->\n.*?<!-- /study -->", lambda _: block, text, flags=re.DOTALL)
        if found != 1:
            sys.exit(f"{path}: {found} blocks `<!-- study: {name} -->`, must be 1")
    new = path.with_suffix(".md.new")
    new.write_text(text)
    os.replace(new, path)


def pct(value, signed=False):
    """A percentage to one decimal, or a dash where there is none."""
    if value is None:
        return "–"
    text = f"{value:+.1f}" if signed else f"{value:.1f}"
    return text.replace("-", "−") if float(text) else "0.0"


def table(head, rows):
    """Lines of a Markdown table; every column but the first is to the right."""
    ruler = "|" + "|".join(["---"] + ["---:"] * (len(head) - 1)) + "|"
    return ["| " + " | ".join(head) + " |", ruler] + ["| " + " | ".join(row) + " |" for row in rows]


def metric(one, name, stage=WHOLE_RUN):
    """The row of a metric and stage, or nothing."""
    found = [row for row in one["metrics"] if row["stage"] == stage and row["metric"] == name]
    return found[0] if found else None


def error_pct(row, baseline=None):
    predicted = row["baselines"][baseline] if baseline else row["predicted_ms"]
    return 100 * (predicted - row["measured_ms"]) / row["measured_ms"]


def is_covered(row):
    return row["lower_ms"] <= row["measured_ms"] <= row["upper_ms"]


def bars(left_out, of_steps, of_loops):
    """What was aimed at beside what is, and whether it holds."""
    summary = left_out["summary"]
    runs_of = left_out["experiments"]

    def covered(name, members):
        held = sum(is_covered(metric(one, name)) for one in members)
        return f"{pct(100 * held / len(members))} ({held} of {len(members)})", 85 <= 100 * held / len(members) <= 95

    def at_most(value, limit):
        return pct(value), value <= limit

    def tpot(models):
        return median(metric(one, "tpot_mean")["ape_pct"] for one in of_loops["experiments"] if one["model"] in models)

    comparable = [one for one in runs_of if not any("itl_mean is not comparable" in note for note in one["notes"])]
    worst_steps = max(one["metrics"]["median_ape_pct"] for one in of_steps["experiments"])
    lines = [
        ("serving runs, E2E mean, median error", "≤ 4", at_most(summary["e2e_mean"]["median_ape_pct"], 4)),
        ("serving runs, E2E mean, worst error", "≤ 12", at_most(summary["e2e_mean"]["max_ape_pct"], 12)),
        ("serving runs, ITL mean, median error", "≤ 4", at_most(summary["itl_mean"]["median_ape_pct"], 4)),
        ("serving runs, TTFT mean, median error", "≤ 10", at_most(summary["ttft_mean"]["median_ape_pct"], 10)),
        ("serving runs, E2E p99, median error", "≤ 15", at_most(summary["e2e_p99"]["median_ape_pct"], 15)),
        ("serving runs, TTFT p99, median error", "≤ 15", at_most(summary["ttft_p99"]["median_ape_pct"], 15)),
        ("90 % intervals, E2E means", "85 to 95", covered("e2e_mean", runs_of)),
        ("90 % intervals, TTFT means", "85 to 95", covered("ttft_mean", runs_of)),
        ("90 % intervals, ITL means", "85 to 95", covered("itl_mean", runs_of)),
        ("90 % intervals, ITL means that count the same tokens", "85 to 95", covered("itl_mean", comparable)),
        ("90 % intervals, closed loops, vLLM, TPOT means", "85 to 95", covered("tpot_mean", of_loops["experiments"])),
        ("sampled steps, median error of windows, worse run", "≤ 5", at_most(worst_steps, 5)),
        ("closed loops, vLLM, dense models, TPOT, median error", "≤ 8", at_most(tpot(DENSE), 8)),
        ("closed loops, vLLM, models with experts, TPOT, median error", "≤ 15", at_most(tpot(MOE), 15)),
    ]
    rows = [[what, aim, found, "yes" if holds else "**no**"] for what, aim, (found, holds) in lines]
    return table(["figure, %", "aim", "is", "holds"], rows)


def layers(report):
    head = ["figure of a whole run", "ideal: median", "largest", "tables: median", "largest"]
    head += ["+ correction: median", "mean", "largest", "bias", "covered"]

    def row(name):
        summary = report["summary"][name]
        cells = [f"{name} %"]
        for layer in LAYERS:
            of_layer = report["baselines"][layer][name]
            cells += [pct(of_layer["median_ape_pct"]), pct(of_layer["max_ape_pct"])]
        cells += [pct(summary[key]) for key in ("median_ape_pct", "mean_ape_pct", "max_ape_pct")]
        return cells + [pct(summary["bias_pct"], signed=True), pct(summary["coverage_pct"])]

    return table(head, [row(name) for name in report["summary"]])


def runs(report):
    head = ["run"] + [cell for name in ("E2E", "TTFT", "ITL") for cell in (f"{name}: ideal", "tables", "+ correction")]

    def row(one):
        cells = [one["name"]]
        for name in ("e2e_mean", "ttft_mean", "itl_mean"):
            of_run = metric(one, name)
            cells += [pct(error_pct(of_run, layer), signed=True) for layer in LAYERS]
            mark = "" if is_covered(of_run) else " *"
            cells.append(f"**{pct(of_run['error_pct'], signed=True)}**{mark}")
        return cells

    return table(head, [row(one) for one in report["experiments"]])


def workloads(report):
    groups = {}
    for one in report["experiments"]:
        groups.setdefault(one["workload"], []).append(one)

    def row(name, members):
        cells = [name, str(len(members))]
        for figure in ("e2e_mean", "ttft_mean", "itl_mean"):
            cells.append(pct(median(metric(one, figure)["ape_pct"] for one in members)))
        return cells

    head = ["lengths of prompts and outputs, tokens", "runs", "E2E: median %", "TTFT: median %", "ITL: median %"]
    return table(head, [row(*group) for group in sorted(groups.items(), key=lambda group: len(group[1]), reverse=True)])


def tails(report):
    head = ["run", "stage", "TTFT p99: measured ms", "predicted ms", "error %", "E2E p99: error %", "TTFT mean: error %"]
    rows = []
    for one in report["experiments"]:
        for stage in sorted({row["stage"] for row in one["metrics"]} - {WHOLE_RUN}):
            tail = metric(one, "ttft_p99", stage)
            others = [metric(one, name, stage)["error_pct"] for name in ("e2e_p99", "ttft_mean")]
            cells = [one["name"], str(stage), f"{tail['measured_ms']:.1f}", f"{tail['predicted_ms']:.1f}"]
            rows.append(cells + [pct(value, signed=True) for value in [tail["error_pct"], *others]])
    return table(head, rows)


def attribution(none, corrected):
    figures = [("E2E", "e2e_mean"), ("TTFT", "ttft_mean"), ("ITL", "itl_mean")]
    head = ["replaced by"]
    head += [cell for name, _ in figures for cell in (f"{name}: tables", "explained", "+ correction", "explained")]

    def cells(of, figure, with_explained):
        explained = of["median_explained_points"][figure] if with_explained else None
        return [pct(of["median_ape_pct"][figure]), pct(explained, signed=True) if with_explained else ""]

    attributions = [report["attribution"] for report in (none, corrected)]
    rows = [["(nothing)"] + [c for _, figure in figures for a in attributions for c in cells(a, figure, False)]]
    for parts in zip(*(a["components"] for a in attributions), strict=True):
        if len({part["component"] for part in parts}) != 1:
            sys.exit("attribution: the two runs have other components")
        rows.append([parts[0]["replacement"]] + [c for _, figure in figures for p in parts for c in cells(p, figure, True)])
    return table(head, rows)


def step_cells(metrics):
    if not metrics:
        return ["–"] * 5
    cells = [pct(metrics["median_ape_pct"]), pct(metrics["mape_pct"]), pct(metrics["bias_pct"], signed=True)]
    r = metrics["pearson_r"]
    return cells + ["–" if r is None else f"{r:.3f}", pct(metrics["coverage_pct"])]


STEP_HEAD = ["predictor", "median %", "mean %", "bias %", "r", "covered %"]
NAMES = {"ideal_roofline": "ideal roofline", "black_box": "black box", "ridge": "ridge regression"}


def step_rows(report, judged):
    rows = [[label] + step_cells(metrics) for label, metrics in judged]
    rows += [[NAMES[key]] + step_cells(report["baselines"].get(key)) for key in NAMES]
    return rows


def steps(none, corrected, refitted):
    lines = []
    for plain, one, own in zip(none["experiments"], corrected["experiments"], refitted["experiments"], strict=True):
        title = f"{one['model']}, TP {one['tensor_parallel_size']}: {one['rows']:,} sampled steps in {one['windows']} windows"
        judged = [("calibrated tables", plain["metrics"]), ("**+ global correction**", one["metrics"])]
        judged.append(("+ correction of its own (`--refit model`)", own["metrics"]))
        lines += ["", f"*{title}*", ""] + table(STEP_HEAD, step_rows(one, judged))
    return lines[1:]


def steps_unseen(report):
    return table(["model left out"] + STEP_HEAD[1:], [
        [f"{one['model']}: {label}"] + step_cells(metrics)
        for one in report["experiments"]
        for label, metrics in [("**+ global correction**", one["metrics"])]
        + [(NAMES[key], one["baselines"].get(key)) for key in ("black_box", "ridge")]
    ])


def version(one, rows):
    row = rows[one["name"]]
    return f"{row['backend']} {row['backend_version'] or 'of unstated version'}"


def parallel(row):
    whole = [f"{name} {float(row[key] or 1):.0f}" for name, key in (("slices", "moe_tp_size"), ("groups", "moe_ep_size"))]
    return f"TP {float(row['tp_size']):.0f}: experts in {', '.join(whole)}"


def closed_loops(reports, group, classes=False, of=lambda one: True):
    """Errors of TTFT and TPOT by group, beside each other for each report."""
    groups = {}
    for name, report in reports.items():
        for one in filter(of, report["experiments"]):
            keys = [group(one)]
            if classes:
                if one["model"] not in MOE | DENSE:
                    sys.exit(f"{one['model']}: neither in MOE nor in DENSE")
                keys += ["**all dense**" if one["model"] in DENSE else "**all with experts**", "**all**"]
            for key in keys:
                groups.setdefault(key, {}).setdefault(name, []).append(one)
    labels = {"none": "tables", "global": "+ correction"}
    head = ["rows", "number"]
    for figure in ("TPOT", "TTFT"):
        for name in reports:
            head += [f"{figure}, {labels[name]}: median %", "bias %"] + (["covered %"] if name != "none" else [])
    lines = []
    for key in sorted(groups, key=lambda key: (key.startswith("*"), key)):
        cells = [key, str(len(next(iter(groups[key].values()))))]
        for figure in ("tpot_mean", "ttft_mean"):
            for name in reports:
                found = [row for one in groups[key][name] if (row := metric(one, figure))]
                cells.append(pct(median(row["ape_pct"] for row in found)))
                cells.append(pct(median(row["error_pct"] for row in found), signed=True))
                if name != "none":
                    cells.append(pct(100 * sum(map(is_covered, found)) / len(found)))
        lines.append(cells)
    return table(head, lines)


def sampler(reports, rows):
    """What steps of Qwen3-32B lack per request in flight, by tensor parallel size, where prompts are a small part of the work."""
    head = ["1,024 tokens in, 512 or 1,024 out", "rows", "tables lack, µs per request", "with the correction"]
    by_size = {}
    for name, report in reports.items():
        for one in report["experiments"]:
            of = rows[one["name"]]
            if one["model"] == "qwen3-32b" and of["isl"] == "1024" and of["osl"] in ("512", "1024"):
                row = metric(one, "tpot_mean")
                lacking_us = 1000 * (row["measured_ms"] - row["predicted_ms"])
                lengths = by_size.setdefault(one["tensor_parallel_size"], {}).setdefault(name, {})
                lengths.setdefault(of["osl"], []).append((float(of["concurrency"]), lacking_us))
    lines = []
    for size, found in sorted(by_size.items()):
        slopes = [f"{median_slope(found[name].values()):.0f}".replace("-", "−") for name in ("none", "global")]
        lines.append([f"TP {size}", str(sum(map(len, found["none"].values()))), *slopes])
    return table(head, lines)


def median_slope(lines):
    """Theil–Sen: the median of slopes between all pairs of points of a line at unlike x, over all lines."""
    pairs = [(a, b) for points in lines for i, a in enumerate(points) for b in points[:i] if a[0] != b[0]]
    return median((b[1] - a[1]) / (b[0] - a[0]) for a, b in pairs)


def coefficients(report):
    head = ["coefficient", "unit", "prior", "fitted", "90 % interval", "the data tell"]

    def number(value):
        return f"{value:.3g}" if abs(value) < 100 else f"{value:,.0f}"

    def row(one):
        prior = f"{number(one['prior'])} ± {number(one['prior_sd'])}"
        tell = "yes" if one["identified"] else "no"
        interval = f"{number(one['lower'])} to {number(one['upper'])}"
        return [f"`{one['name']}`", one["unit"], prior, number(one["value"]), interval, tell]

    return table(head, [row(one) for one in report["parameters"]])


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(__doc__.strip())
    main(*sys.argv[1:])
