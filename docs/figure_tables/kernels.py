"""Tables of kernels: errors of the efficiency tables on rows left out and on calls that no table has."""

import re

from .markdown import pct, table
from .reports import GPUS, checked

GPUS_WITH_TABLES = [*GPUS, "b200_sxm", "gb200", "b300_sxm", "gb300", "l40s", "rtx_pro_6000_server"]
KERNELS = [
    ("vllm-0.14.0", ["gemm", "attention_prefill", "attention_decode", "moe", "allreduce"]),
    ("vllm-0.19.0", ["gemm"]),
    ("sglang-0.5.14", ["gemm"]),
    ("vllm-0.24.0", ["attention_prefill", "attention_decode"]),
]
# Errors of a series' rows left out.
MEDIAN, MEAN = "cross_validated_median_ape_pct", "cross_validated_mape_pct"


def series_of_tables(reports):
    """Series of all tables by GPU and engine, and by kernel family within."""
    operators = {"attention_prefill": "prefill", "attention_decode": "decode", "linear_attention": "linear attention"}
    found = {}
    for gpu in GPUS_WITH_TABLES:
        for name, of in sorted(reports.read("hardware", gpu)["table_headers"].items()):
            operator, _, engine = name.partition(" of ")
            if not engine:
                engine = of.get("engine") or re.search(r"--measurements ([a-z]+-\d+\.\d+)", of["command"])[1]
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
    """The same errors with their aims, and whether each is met."""
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


def on_gpus(reports):
    """Errors of the tables and rules on calls that we measured."""
    rows = []
    for gpu, folder in (("h100_sxm", "vllm-attention"), ("h100_sxm", "torch-small"), ("h200_sxm", "vllm-attention-quick")):
        found = reports.read("calibrate", "--check", f"bench_data/measured/{gpu}/2026-11-26/{folder}", "--hardware", gpu)
        for operator, of in found.items():
            if operator != "attention_decode":
                rows.append([f"{gpu}, {operator}", f"{of['rows']:,}", pct(of["median_ape_pct"]), pct(of["bias_pct"], signed=True)])
    return table(["GPU, calls", "rows", "median %", "bias %"], rows)


TABLES = {
    "own-tables": own_tables,
    "kernel-bars": kernel_bars,
    "kernels": kernels,
    "small-kernels": small_kernels,
    "simpler": simpler,
    "unseen-experts": unseen_experts,
    "on-gpus": on_gpus,
}
