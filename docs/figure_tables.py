"""The tables and numbers of README.md and docs/ that docs/figures.py checks, each made from the JSON of ridgepoint commands."""

import csv
import re
from statistics import median

# Models of the closed loops with routed experts; a model in neither set stops the script.
MOE = {"gpt-oss-120b", "minimax-m2.5"}
DENSE = {"qwen3-32b", "llama-3.1-70b-fp8", "qwen3-32b-fp8"}
WHOLE_RUN = -1
LAYERS = ["ideal_roofline", "calibrated_roofline"]
EXAMPLE = "predict-step --model llama-3.1-70b --hardware h100 --tensor-parallel-size 4 --batch examples/mixed_batch.json"
KERNELS = [
    ("vllm-0.14.0", ["gemm", "attention_prefill", "attention_decode", "moe", "allreduce"]),
    ("vllm-0.19.0", ["gemm"]),
    ("sglang-0.5.14", ["gemm"]),
    ("vllm-0.24.0", ["attention_prefill", "attention_decode"]),
]
# Published serving runs replayed by other simulators: medians of E2E, ITL and TTFT. No command of this project prints them.
PEERS = [
    ("BLIS, trained physics (38 runs) ¹", "6.8", "6.5", "18.4"),
    ("AISimulate 0.13 core (38 runs) ¹", "8.2", "8.5", "29.7"),
    ("AIConfigurator (18 runs) ¹", "21.5", "13.2", "662"),
]
CLOSED_LOOPS = {
    "h100_sxm": ("closed_loop", "h100_sxm.csv"),
    "b200_sxm": ("closed_loop-2026", "b200_sxm_agg.csv"),
    "gb200": ("closed_loop-2026", "gb200_agg.csv"),
}
GPUS = ["h100_sxm", "h200_sxm", "a100_sxm"]
# Errors of a series' rows left out.
MEDIAN, MEAN = "cross_validated_median_ape_pct", "cross_validated_mape_pct"
GPUS_WITH_TABLES = [*GPUS, "b200_sxm", "gb200", "b300_sxm", "gb300", "l40s", "rtx_pro_6000_server"]


def pct(value, signed=False):
    """A percentage to one decimal, or a dash where there is none."""
    if value is None:
        return "–"
    text = f"{value:+.1f}" if signed else f"{value:.1f}"
    return text.replace("-", "−") if float(text) else "0.0"


def table(head, rows):
    """Lines of a Markdown table; every column but the first is aligned right."""
    ruler = "|" + "|".join(["---"] + ["---:"] * (len(head) - 1)) + "|"
    return ["| " + " | ".join(head) + " |", ruler] + ["| " + " | ".join(row) + " |" for row in rows]


# Reports. Each reads the JSON of one command, which runs once.


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
    return reports.read("evaluate", "steps", *files, "--hardware", "h100", "--correction", correction, *arguments)


def closed_loop(reports, correction, *backends, gpu="h100_sxm"):
    path = reports.path(*CLOSED_LOOPS[gpu])
    return reports.read("evaluate", "closed-loop", path, "--backend", *backends, "--correction", correction)


def both_closed_loops(reports):
    return {name: closed_loop(reports, name, "vllm") for name in ("none", "global")}


def closed_loop_rows(reports):
    with open(reports.path("closed_loop", "h100_sxm.csv"), newline="") as file:
        return {row["id"]: row for row in csv.DictReader(file)}


def fitted(reports):
    out = "target/figures/global.toml"
    runs = reports.path("serving"), reports.path("serving-2")
    return reports.read("fit", "--serving", *runs, "--engine-version", "0.15.1", "--out", out, "--force")


def unfitted(reports):
    return reports.read("evaluate", "serving", reports.path("serving"), reports.path("serving-2"), "--correction", "none")


def checked(reports, gpu, folder):
    path = reports.path("kernels", gpu, folder)
    return reports.read("calibrate", "--check", path, "--hardware", gpu) if path.is_dir() else {}


# Parts of reports.


def metric(one, name, stage=WHOLE_RUN):
    """The row of a metric and stage, or nothing."""
    found = [row for row in one["metrics"] if row["stage"] == stage and row["metric"] == name]
    return found[0] if found else None


def error_pct(row, baseline=None):
    predicted = row["baselines"][baseline] if baseline else row["predicted_ms"]
    return 100 * (predicted - row["measured_ms"]) / row["measured_ms"]


def is_covered(row):
    return row["lower_ms"] <= row["measured_ms"] <= row["upper_ms"]


# Tables.


def nothing_fitted(reports):
    """All published runs by the tables and the default host alone."""
    lines = []
    for name, of in unfitted(reports)["summary"].items():
        keys = ("median_ape_pct", "mean_ape_pct", "max_ape_pct")
        lines.append([f"{name} %", *(pct(of[key]) for key in keys), pct(of["bias_pct"], signed=True), pct(of["coverage_pct"])])
    return table(["figure of a whole run", "median", "mean", "largest", "bias", "covered"], lines)


def serving(reports):
    """The README's table: medians of whole runs, beside other predictors of the same runs and published figures of others."""
    report = left_out(reports)

    def row(label, summaries):
        cells = [label]
        for name in ("e2e_mean", "itl_mean", "ttft_mean"):
            cells += [pct(summaries[name]["median_ape_pct"]), pct(summaries[name]["max_ape_pct"])]
        return cells

    rows = [row("**ridgepoint**, correction fitted on other models", report["summary"])]
    rows.append(row("ridgepoint, kernel tables alone", report["baselines"]["calibrated_roofline"]))
    rows.append(row("textbook roofline", report["baselines"]["ideal_roofline"]))
    rows.append(row("linear model fitted on the other runs", report["baselines"]["black_box"]))
    rows += [[name, e2e, "", itl, "", ttft, ""] for name, e2e, itl, ttft in PEERS]
    head = ["absolute error, %", "E2E: median", "max", "ITL: median", "max", "TTFT: median", "max"]
    return table(head, rows)


def bars(reports):
    """What was aimed at beside what is, and whether it holds."""
    report, of_loops = left_out(reports), closed_loop(reports, "global", "vllm")
    of_steps = sampled_steps(reports, "--judge-from", "0.6")
    summary, runs_of = report["summary"], report["experiments"]

    def covered(name, members):
        held = sum(is_covered(metric(one, name)) for one in members)
        return f"{pct(100 * held / len(members))} ({held} of {len(members)})", 85 <= 100 * held / len(members) <= 95

    def at_most(value, limit):
        return pct(value), value <= limit

    def tpot(models):
        return median(metric(one, "tpot_mean")["ape_pct"] for one in of_loops["experiments"] if one["model"] in models)

    comparable = [one for one in runs_of if not any("itl_mean is not comparable" in note for note in one["notes"])]
    worst_steps = max(of["summary"]["step_mean"]["median_ape_pct"] for of in of_steps["split"]["groups"].values())
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


def layers(reports):
    report = left_out(reports)
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


def runs(reports):
    head = ["run"] + [cell for name in ("E2E", "TTFT", "ITL") for cell in (f"{name}: ideal", "tables", "+ correction")]

    def row(one):
        cells = [one["name"]]
        for name in ("e2e_mean", "ttft_mean", "itl_mean"):
            of_run = metric(one, name)
            cells += [pct(error_pct(of_run, layer), signed=True) for layer in LAYERS]
            mark = "" if is_covered(of_run) else " *"
            cells.append(f"**{pct(of_run['error_pct'], signed=True)}**{mark}")
        return cells

    return table(head, [row(one) for one in left_out(reports)["experiments"]])


def workloads(reports):
    groups = {}
    for one in left_out(reports)["experiments"]:
        groups.setdefault(one["workload"], []).append(one)

    def row(name, members):
        cells = [name, str(len(members))]
        for figure in ("e2e_mean", "ttft_mean", "itl_mean"):
            cells.append(pct(median(metric(one, figure)["ape_pct"] for one in members)))
        return cells

    head = ["lengths of prompts and outputs, tokens", "runs", "E2E: median %", "TTFT: median %", "ITL: median %"]
    return table(head, [row(*group) for group in sorted(groups.items(), key=lambda group: len(group[1]), reverse=True)])


def tails(reports):
    head = ["run", "stage", "TTFT p99: measured ms", "predicted ms", "error %", "E2E p99: error %", "TTFT mean: error %"]
    rows = []
    for one in left_out(reports)["experiments"]:
        for stage in sorted({row["stage"] for row in one["metrics"]} - {WHOLE_RUN}):
            tail = metric(one, "ttft_p99", stage)
            others = [metric(one, name, stage)["error_pct"] for name in ("e2e_p99", "ttft_mean")]
            cells = [one["name"], str(stage), f"{tail['measured_ms']:.1f}", f"{tail['predicted_ms']:.1f}"]
            rows.append(cells + [pct(value, signed=True) for value in [tail["error_pct"], *others]])
    return table(head, rows)


REPLACED = [
    ("step times scaled to the measured decoding time", "scaled_step_times"),
    ("no limit on requests or tokens of a step", "no_limits"),
    ("no prefix caching", "no_prefix_caching"),
    ("sixteen times the KV blocks", "no_preemption"),
    ("no asynchronous scheduling", "no_async_scheduling"),
    ("no delay before the engine's queue", "no_queueing"),
    ("an engine's thread that takes no time", "no_scheduling"),
    ("no delay from a step's end to the client", "no_output_processing"),
    ("a host that takes no time", "no_host_overhead"),
]
DELAYS = [
    ("queueing", "no_queueing"),
    ("scheduling", "no_scheduling"),
    ("output processing", "no_output_processing"),
]


def attribution(reports):
    """Errors with one component replaced, and the median of the points by which the absolute error of a run falls."""
    figures = [("E2E", "e2e_mean"), ("TTFT", "ttft_mean"), ("ITL", "itl_mean")]
    head = ["replaced by"]
    head += [cell for name, _ in figures for cell in (f"{name}: tables", "explained", "+ correction", "explained")]

    def cells(report, key, figure):
        if key is None:
            return [pct(report["summary"][figure]["median_ape_pct"]), ""]
        rows = [metric(one, figure) for one in report["experiments"]]
        explained = [abs(error_pct(row)) - abs(error_pct(row, key)) for row in rows if key in row["baselines"]]
        return [pct(report["baselines"][key][figure]["median_ape_pct"]), pct(median(explained), signed=True)]

    found = [attributed(reports, correction) for correction in ("none", "global")]
    rows = [[title] + [c for _, figure in figures for report in found for c in cells(report, key, figure)]
            for title, key in [("(nothing)", None), *REPLACED]]
    return table(head, rows)


def delays(reports):
    """What each delay of the host adds to the predicted means, and what is left without any: medians over runs, ms."""
    figures = ["e2e_mean", "ttft_mean", "itl_mean"]

    def cells(of):
        rows = [[metric(one, figure) for one in attributed(reports, "global")["experiments"]] for figure in figures]
        return [f"{round(median(of(row) for row in found), 2) + 0.0:.2f}".replace("-", "−") for found in rows]

    rows = [[name, *cells(lambda row: row["predicted_ms"] - row["baselines"][key])] for name, key in DELAYS]
    rows.append(["what is left: steps, and waits that they cause", *cells(lambda row: row["baselines"]["no_host_overhead"])])
    return table(["part of a mean, ms", "E2E", "TTFT", "ITL"], rows)


def step_cells(metrics):
    cells = [pct(metrics["median_ape_pct"]), pct(metrics["mean_ape_pct"]), pct(metrics["bias_pct"], signed=True)]
    r = metrics["pearson_r"]
    return cells + ["–" if r is None else f"{r:.3f}", pct(metrics.get("coverage_pct"))]


STEP_COLUMNS = ["median %", "mean %", "bias %", "r", "covered %"]


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


def version(one, rows):
    row = rows[one["name"]]
    return f"{row['backend']} {row['backend_version'] or 'of unstated version'}"


def parallel(row):
    whole = [f"{name} {float(row[key] or 1):.0f}" for name, key in (("slices", "moe_tp_size"), ("groups", "moe_ep_size"))]
    return f"TP {float(row['tp_size']):.0f}: experts in {', '.join(whole)}"


def closed_loop_table(reports, group, classes=False, of=lambda one: True):
    """Errors of TPOT and TTFT by group, beside each other for each report."""
    groups = {}
    for name, report in reports.items():
        for one in filter(of, report["experiments"]):
            keys = [group(one)]
            if classes:
                if one["model"] not in MOE | DENSE:
                    raise ValueError(f"{one['model']}: neither in MOE nor in DENSE")
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


def closed_loop_models(reports):
    return closed_loop_table(both_closed_loops(reports), lambda one: one["model"], classes=True)


def closed_loop_versions(reports):
    rows = closed_loop_rows(reports)
    return closed_loop_table(both_closed_loops(reports), lambda one: version(one, rows))


def closed_loop_parallel(reports):
    rows = closed_loop_rows(reports)
    of = lambda one: one["model"] == "minimax-m2.5"  # noqa: E731
    return closed_loop_table(both_closed_loops(reports), lambda one: parallel(rows[one["name"]]), of=of)


def closed_loop_others(reports):
    rows = closed_loop_rows(reports)
    report = closed_loop(reports, "global", "trtllm", "sglang")
    return closed_loop_table({"global": report}, lambda one: version(one, rows))


def closed_loop_b200(reports):
    of = {name: closed_loop(reports, name, "vllm", gpu="b200_sxm") for name in ("none", "global")}
    by_model = closed_loop_table(of, lambda one: one["model"])
    return by_model + closed_loop_table(of, lambda one: "**all**")[2:]


def closed_loop_shapes(reports):
    return shapes("vLLM", [closed_loop(reports, "global", "vllm", gpu=gpu) for gpu in ("b200_sxm", "h100_sxm")])


def closed_loop_other_shapes(reports):
    return shapes("engine", [closed_loop(reports, "global", "trtllm", "sglang", gpu=gpu) for gpu in sorted(CLOSED_LOOPS)])


def shapes(engine, reports):
    """By GPU, version and model: all rows, and those of curves by one factor a curve and by a line through the curve's other rows."""
    names = {"TPOT": "tpot_mean", "TTFT": "ttft_mean"}
    head = [f"GPU, {engine}, model", "rows"]
    for figure in names:
        head += [f"{figure}: median %", "mean %", "covered %", "of curves: median %", "shape %", "line %"]
    groups = {}
    for report in reports:
        for one in report["experiments"]:
            gpu, known = one["hardware"].removesuffix("_sxm").upper(), one.get("backend_version") or "of unstated version"
            for key in ((gpu, False, f"{gpu}, {known}, {one['model']}"), (gpu, True, f"**{gpu}, all**")):
                groups.setdefault(key, []).append(one)
    lines = []
    for key, members in sorted(groups.items()):
        cells = [key[-1], str(len(members))]
        for name in names.values():
            found = [row for one in members if (row := metric(one, name))]
            errors = [row["ape_pct"] for row in found]
            cells += [pct(median(errors)), pct(sum(errors) / len(errors)), pct(100 * sum(map(is_covered, found)) / len(found))]
            curves = [row for row in found if {"scaled_curve", "curve_line"} <= row["baselines"].keys()]
            for baseline in (None, "scaled_curve", "curve_line"):
                cells.append(pct(median(abs(error_pct(row, baseline)) for row in curves)) if curves else "–")
        lines.append(cells)
    return table(head, lines)


def series_of_tables(reports):
    """Series of all tables by GPU and engine, and by kernel family within."""
    operators = {"attention_prefill": "prefill", "attention_decode": "decode", "linear_attention": "linear attention"}
    found = {}
    for gpu in GPUS_WITH_TABLES:
        for name, of in sorted(reports.read("hardware", gpu)["table_headers"].items()):
            operator, _, engine = name.partition(" of ")
            if not engine:
                engine = re.search(r"--measurements ([a-z]+-\d+\.\d+)", of["command"])[1]
            for key, one in of["series"].items():
                is_latent = operator == "batched_gemm" or re.search(r"/(mla|indexer|dsa)/", key)
                family = "latent, sparse" if is_latent else operators.get(operator, operator)
                found.setdefault((gpu, engine), {}).setdefault(family, []).append(one)
    return sorted(found.items(), key=lambda of: (GPUS_WITH_TABLES.index(of[0][0]), of[0][1]))


def own_tables(reports):
    """How well the tables of each GPU and engine predict rows left out: errors of series, weighted by their rows."""
    columns = ["gemm", "prefill", "decode", "latent, sparse", "moe", "allreduce", "nccl", "linear attention"]

    def cell(series):
        return f"{weighted(series, MEDIAN):.1f} / {weighted(series, MEAN):.1f} ({rows_of(series):,})" if series else "–"

    lines = [[*of, *(cell(found.get(column)) for column in columns)] for of, found in series_of_tables(reports)]
    return table(["GPU", "engine", *columns], lines)


def kernel_bars(reports):
    """The same errors beside what was aimed at, and whether it holds."""
    families = [
        ("GEMM", ["gemm"], 3, 6),
        ("attention", ["prefill", "decode"], 3, 6),
        ("experts", ["moe"], 3, 6),
        ("latent, sparse", ["latent, sparse"], 5, None),
        ("linear attention", ["linear attention"], 5, None),
        ("collectives", ["allreduce", "nccl"], 6, None),
    ]

    def cell(series, most_median, most_mean):
        if not series:
            return "–"
        middle, mean = weighted(series, MEDIAN), weighted(series, MEAN)
        holds = middle <= most_median and (most_mean is None or mean <= most_mean)
        return f"{middle:.2f} / {mean:.2f} {'yes' if holds else '**no**'}"

    lines = []
    for of, found in series_of_tables(reports):
        cells = [cell(sum((found.get(name, []) for name in names), []), *most) for _, names, *most in families]
        lines.append([", ".join(of), *cells])
    head = [f"{name}: ≤ {middle}" + (f" / {mean}" if mean else "") for name, _, middle, mean in families]
    return table(["GPU, engine", *head], lines)


def rows_of(series):
    return sum(one["rows"] for one in series)


def weighted(series, key):
    """An error of some series, weighted by their rows."""
    return sum(one["rows"] * one[key] for one in series) / rows_of(series)


def sampler(reports):
    """What steps of Qwen3-32B lack per request in flight, by tensor parallel size, where prompts are a small part of the work."""
    rows = closed_loop_rows(reports)
    head = ["1,024 tokens in, 512 or 1,024 out", "rows", "tables lack, µs per request", "with the correction"]
    by_size = {}
    for name, report in both_closed_loops(reports).items():
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


def coefficients(reports):
    head = ["coefficient", "unit", "prior", "fitted", "90 % interval", "identified"]

    def number(value):
        return f"{value:.3g}" if abs(value) < 100 else f"{value:,.0f}"

    def row(one):
        prior = f"{number(one['prior'])} ± {number(one['prior_sd'])}"
        interval = f"{number(one['lower'])} to {number(one['upper'])}"
        identified = "yes" if one["identified"] else "no"
        return [f"`{one['name']}`", one["unit"], prior, number(one["value"]), interval, identified]

    return table(head, [row(one) for one in fitted(reports)["parameters"]])


def kernels(reports):
    head = ["folder, operator, format"] + [cell for gpu in GPUS for cell in (f"{gpu}: rows", "median %", "mean %", "p90 %")]
    lines = []
    for folder, operators in KERNELS:
        by_gpu = [checked(reports, gpu, folder) for gpu in GPUS]
        for operator in operators:
            formats = sorted({name for report in by_gpu for name in report.get(operator, {}).get("by_dtype", {})})
            for name in formats:
                cells = [f"{folder}, {operator}, {name}"]
                for report in by_gpu:
                    score = report.get(operator, {}).get("by_dtype", {}).get(name)
                    keys = ("median_ape_pct", "mape_pct", "p90_ape_pct")
                    cells += [f"{score['rows']:,}"] + [f"{score[key]:.2f}" for key in keys] if score else ["–"] * 4
                lines.append(cells)
    return table(head, lines)


def small_kernels(reports):
    """The quantisation to fp8, which is priced as all small kernels are."""
    lines = []
    for gpu in ["h100_sxm", "h200_sxm", "b200_sxm", "b300_sxm", "gb200", "l40s", "rtx_pro_6000_server"]:
        measured = reports.path("kernels-2026", gpu, "vllm-0.24.0", "scale_matrix_perf.parquet")
        folder = reports.out / "small_kernels" / gpu / "vllm-0.24.0"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / measured.name).write_bytes(measured.read_bytes())
        score = reports.read("calibrate", "--check", folder, "--hardware", gpu)["small_kernels"]
        cells = [f"{score['rows']:,}", pct(score["median_ape_pct"]), pct(score["bias_pct"], signed=True)]
        lines.append([gpu, *cells])
    return table(["GPU", "rows", "median %", "bias %"], lines)


def simpler(reports):
    """Simpler methods on the rows of vLLM 0.14.0, in the same folds."""
    head = ["GPU, operator", "tables", "kernel model alone", "nearest neighbour", "one constant MFU"]
    lines = []
    for gpu in GPUS:
        for operator, score in checked(reports, gpu, "vllm-0.14.0").items():
            if compared := score.get("compared"):
                methods = [compared.get(name) for name in ("kernel_model", "nearest_neighbour", "constant_mfu")]
                medians = [one and one["median_ape_pct"] for one in methods]
                cells = [f"{value:.2f}" if value is not None else "–" for value in [score["median_ape_pct"], *medians]]
                lines.append([f"{gpu}, {operator}", *cells])
    return table(head, lines)


def unseen_experts(reports):
    lines = re.findall(r"^(\S+) (\S+): (\d+) rows, median error ([\d.]+) %$", reports.tested("laws", "unseen_experts"), re.MULTILINE)
    return table(["GPU, format", "rows", "median %"], [[f"{gpu}, {name}", rows, error] for gpu, name, rows, error in lines])


def whole_steps(reports):
    pattern = r"^(\S+), (.+): (\d+) steps, ([\d.]+) %, ([-+][\d.]+) %$"
    lines = re.findall(pattern, reports.tested("laws", "whole_steps"), re.MULTILINE)
    rows = [[f"{gpu}, {kind}", steps, error, pct(float(bias), signed=True)] for gpu, kind, steps, error, bias in lines]
    return table(["GPU, steps", "number", "median %", "bias %"], rows)


def on_gpus(reports):
    """Errors of the tables and rules on calls that we measured."""
    rows = []
    for gpu, folder in (("h100_sxm", "vllm-attention"), ("h100_sxm", "torch-small"), ("h200_sxm", "vllm-attention-quick")):
        checked = reports.read("calibrate", "--check", f"bench_data/measured/{gpu}/2026-11-26/{folder}", "--hardware", gpu)
        for operator, of in checked.items():
            if operator != "attention_decode":
                rows.append([f"{gpu}, {operator}", f"{of['rows']:,}", pct(of["median_ape_pct"]), pct(of["bias_pct"], signed=True)])
    return table(["GPU, calls", "rows", "median %", "bias %"], rows)


TABLES = {
    "serving": serving,
    "whole-steps": whole_steps,
    "on-gpus": on_gpus,
    "bars": bars,
    "layers": layers,
    "nothing-fitted": nothing_fitted,
    "runs": runs,
    "workloads": workloads,
    "tails": tails,
    "attribution": attribution,
    "delays": delays,
    "steps": steps,
    "steps-unseen": steps_unseen,
    "closed-loop-models": closed_loop_models,
    "closed-loop-versions": closed_loop_versions,
    "closed-loop-parallel": closed_loop_parallel,
    "closed-loop-others": closed_loop_others,
    "closed-loop-b200": closed_loop_b200,
    "closed-loop-shapes": closed_loop_shapes,
    "closed-loop-other-shapes": closed_loop_other_shapes,
    "own-tables": own_tables,
    "kernel-bars": kernel_bars,
    "sampler": sampler,
    "coefficients": coefficients,
    "kernels": kernels,
    "small-kernels": small_kernels,
    "simpler": simpler,
    "unseen-experts": unseen_experts,
}


def example_ms(key):
    return lambda reports: f"{example(reports)[key] / 1e3:.0f}"


def black_box_pct(name, key):
    return lambda reports: pct(left_out(reports)["baselines"]["black_box"][name][key])


def kv_error_pct(of_scout):
    """The largest error of the KV blocks of servers, Llama-4 Scout's or those of all others."""

    def largest(reports):
        reports.path()
        lines = re.findall(r"^(\S+) +\d+ +\d+ +([-+][\d.]+) ?%", reports.tested("laws", "kv_capacity"), re.MULTILINE)
        return f"{max(abs(float(error)) for name, error in lines if ('scout' in name) == of_scout):.1f}"

    return largest


def real_pct(*correction):
    """Error of the mean E2E of the example of a real server, with its own correction or without."""

    def e2e_mean(reports):
        example, made = "examples/vllm_cpu", "target/figures/vllm_cpu"
        model, hardware = f"{example}/config.json", f"{example}/cpu.toml"
        reports.read("ingest", f"{example}/steps.json.gz", f"{example}/bench.json.gz", "--experiment", "cpu", "--out", made, "--force",
                     "--model", model, "--hardware", hardware, "--tensor-parallel-size", 1)
        reports.read("fit", "--steps", made, "--level", "model", "--model", model, "--out", f"{made}.toml", "--force")
        judged = reports.read("evaluate", "capture", made, "--config", f"{example}/server.yaml", *correction)
        return pct(next(row["ape_pct"] for row in judged["metrics"] if row["metric"] == "e2e_mean"))

    return e2e_mean


NUMBERS = {
    "num-models": lambda reports: str(len(reports.read("models")["models"])),
    "num-gpus": lambda reports: str(len(reports.read("hardware")["hardware"])),
    "example-ms": example_ms("step_time_us"),
    "example-lower-ms": example_ms("lower_us"),
    "example-upper-ms": example_ms("upper_us"),
    "example-bound-ms": example_ms("bound_us"),
    "black-box-e2e-median": black_box_pct("e2e_mean", "median_ape_pct"),
    "real-before": real_pct(),
    "real-after": real_pct("--correction", "target/figures/vllm_cpu.toml"),
    "kv-dense": kv_error_pct(of_scout=False),
    "kv-scout": kv_error_pct(of_scout=True),
    "black-box-e2e-mean": black_box_pct("e2e_mean", "mean_ape_pct"),
}
