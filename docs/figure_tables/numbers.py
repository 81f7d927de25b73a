"""Single numbers in sentences."""

import re

from .markdown import pct
from .reports import closed_loop, example, left_out


def example_ms(key):
    return lambda reports: f"{example(reports)[key] / 1e3:.0f}"


def black_box_pct(name, key):
    return lambda reports: pct(left_out(reports)["baselines"]["black_box"][name][key])


def closed_loops_of(*models):
    """The closed loops of vLLM on H100 that have these models."""
    return lambda reports: str(sum(one["model"] in models for one in closed_loop(reports, "global", "vllm")["experiments"]))


def kv_error_pct(of_scout):
    """The largest error of the KV blocks of servers, Llama-4 Scout's or those of all others."""

    def largest(reports):
        reports.path()
        lines = re.findall(r"^(\S+) +\d+ +\d+ +([-+][\d.]+) ?%", reports.tested("replay", "kv_capacity", "ridgepoint-replay"), re.MULTILINE)
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
    # Each file is one, so that a contributor need not build to count.
    "num-models": lambda reports: str(len(list((reports.root / "models").glob("*.json")))),
    "num-gpus": lambda reports: str(len(list((reports.root / "hardware").glob("*.toml")))),
    "example-ms": example_ms("step_time_us"),
    "example-lower-ms": example_ms("lower_us"),
    "example-upper-ms": example_ms("upper_us"),
    "example-bound-ms": example_ms("bound_us"),
    "ttft-p99-median": lambda reports: pct(left_out(reports)["summary"]["ttft_p99"]["median_ape_pct"]),
    "black-box-e2e-median": black_box_pct("e2e_mean", "median_ape_pct"),
    "real-before": real_pct(),
    "real-after": real_pct("--correction", "target/figures/vllm_cpu.toml"),
    "loops-16-bit": closed_loops_of("qwen3-32b"),
    "loops-fp8": closed_loops_of("llama-3.1-70b-fp8", "qwen3-32b-fp8"),
    "loops-minimax": closed_loops_of("minimax-m2.5"),
    "loops-gpt-oss": closed_loops_of("gpt-oss-120b"),
    "kv-dense": kv_error_pct(of_scout=False),
    "kv-scout": kv_error_pct(of_scout=True),
    "black-box-e2e-mean": black_box_pct("e2e_mean", "mean_ape_pct"),
}
