"""Tables of replayed serving runs: errors by run, workload and layer, the parts of an error, and the fitted coefficients."""

from statistics import median

from .markdown import pct, table
from .reports import (
    DENSE,
    MOE,
    WHOLE_RUN,
    attributed,
    closed_loop,
    error_pct,
    is_covered,
    left_out,
    metric,
    sampled_steps,
    unfitted,
)

LAYERS = ["ideal_roofline", "calibrated_roofline"]
# Published serving runs replayed by other simulators: medians of E2E, ITL and TTFT. No command of this project prints them.
PEERS = [
    ("BLIS, trained physics (38 runs) ¹", "6.8", "6.5", "18.4"),
    ("AISimulate 0.13 core (38 runs) ¹", "8.2", "8.5", "29.7"),
    ("AIConfigurator (18 runs) ¹", "21.5", "13.2", "662"),
]
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


def nothing_fitted(reports):
    """All published runs by the tables and the default host alone."""
    lines = []
    for name, of in unfitted(reports)["summary"].items():
        keys = ("median_ape_pct", "mean_ape_pct", "max_ape_pct")
        lines.append([f"{name} %", *(pct(of[key]) for key in keys), pct(of["bias_pct"], signed=True), pct(of["coverage_pct"])])
    return table(["figure of a whole run", "median", "mean", "largest", "bias", "covered"], lines)


def serving(reports):
    """The README's table: medians of whole runs, with other predictors of the same runs and published figures of others."""
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
    """Aims and actual figures, and whether each is met."""
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
    return table(["figure, %", "aim", "is", "met"], rows)


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


def coefficients(reports):
    head = ["coefficient", "unit", "prior", "fitted", "90 % interval", "identified"]

    def number(value):
        return f"{value:.3g}" if abs(value) < 100 else f"{value:,.0f}"

    def row(one):
        prior = f"{number(one['prior'])} ± {number(one['prior_sd'])}"
        interval = f"{number(one['lower'])} to {number(one['upper'])}"
        identified = "yes" if one["identified"] else "no"
        return [f"`{one['name']}`", one["unit"], prior, number(one["value"]), interval, identified]

    return table(head, [row(one) for one in reports.fitted()["parameters"]])


TABLES = {
    "serving": serving,
    "bars": bars,
    "layers": layers,
    "nothing-fitted": nothing_fitted,
    "runs": runs,
    "workloads": workloads,
    "tails": tails,
    "attribution": attribution,
    "delays": delays,
    "coefficients": coefficients,
}
