"""Tables of closed loops: a fixed number of requests in flight on a measured engine."""

from statistics import median

from .markdown import pct, table
from .reports import CLOSED_LOOPS, DENSE, MOE, both_closed_loops, closed_loop, closed_loop_rows, error_pct, is_covered, metric


def version(one, rows):
    row = rows[one["name"]]
    return f"{row['backend']} {row['backend_version'] or 'of unstated version'}"


def closed_loop_table(reports, group, classes=False, of=lambda one: True):
    """Errors of TPOT and TTFT by group, with the columns of each report."""
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


def closed_loops(reports):
    """Errors with the correction by GPU and engine."""
    lines = []
    for gpu in CLOSED_LOOPS:
        by_engine = {} if gpu == "gb200" else {"vllm": closed_loop(reports, "global", "vllm", gpu=gpu)["experiments"]}
        for one in closed_loop(reports, "global", "trtllm", "sglang", gpu=gpu)["experiments"]:
            by_engine.setdefault(one["backend_version"].split()[0], []).append(one)
        for engine, members in sorted(by_engine.items(), reverse=True):
            cells = [f"{gpu}, {engine}", str(len(members))]
            for figure in ("tpot_mean", "ttft_mean"):
                found = [row for one in members if (row := metric(one, figure))]
                cells.append(pct(median(row["ape_pct"] for row in found)))
                cells.append(pct(median(row["error_pct"] for row in found), signed=True))
                cells.append(pct(100 * sum(map(is_covered, found)) / len(found)))
            lines.append(cells)
    figures = [cell for name in ("TPOT", "TTFT") for cell in (f"{name}: median %", "bias %", "covered %")]
    return table(["GPU, engine", "rows", *figures], lines)


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


TABLES = {
    "closed-loops": closed_loops,
    "closed-loop-models": closed_loop_models,
    "closed-loop-versions": closed_loop_versions,
    "closed-loop-others": closed_loop_others,
    "closed-loop-b200": closed_loop_b200,
    "closed-loop-shapes": closed_loop_shapes,
    "closed-loop-other-shapes": closed_loop_other_shapes,
    "sampler": sampler,
}
