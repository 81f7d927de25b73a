"""Which GPU decodes a model for the fewest GPU-seconds? Ten thousand configurations on a local Ray cluster.

    pip install ./bindings/python ray    # in a checkout
    python ray_sweep.py

Every model on every GPU at every tensor parallelism, with every batch and context that fits its KV cache: one Ray task per model
and GPU, one call of the library per deployment. Prints what serves most tokens per second and GPU within 50 ms a token.
"""

from __future__ import annotations

import argparse
import os
import time
from dataclasses import dataclass

import numpy as np
import ray

from ridgepoint import Deployment, RidgepointError, StepModel

MODELS = [
    "llama-3.1-8b",
    "llama-3.1-70b",
    "mixtral-8x7b",
    "qwen2.5-32b",
    "qwen3-30b-a3b",
    "mistral-nemo-12b",
    "gemma-2-27b",
    "deepseek-v2-lite",
]
GPUS = ["a100", "h100", "h200", "b200", "l40s"]
TENSOR_PARALLEL_SIZES = [1, 2, 4, 8]
BATCHES = [1, 2, 4, 8, 16, 32, 64, 128, 256]
CONTEXTS = [512, 1024, 2048, 4096, 8192, 16384, 32768]
MAX_STEP_US = 50_000.0


@dataclass(frozen=True)
class Configuration:
    """A deployment with a batch of decodes, and how it does."""

    model: str
    hardware: str
    tensor_parallel_size: int
    batch: int
    context: int
    step_time_us: float

    @property
    def tokens_per_gpu_s(self) -> float:
        """Tokens that a GPU generates in a second."""
        return self.batch / (self.step_time_us / 1e6) / self.tensor_parallel_size


@dataclass(frozen=True)
class Swept:
    """What a task looked at, and the best that it found."""

    configurations: int
    predicted: int
    best: Configuration | None


@ray.remote
def sweep(model: str, hardware: str) -> Swept:
    """All deployments of a model on a kind of GPU."""
    configurations, found = 0, list[Configuration]()
    for tensor_parallel_size in TENSOR_PARALLEL_SIZES:
        configurations += len(BATCHES) * len(CONTEXTS)
        try:
            steps = StepModel(model, hardware, Deployment(tensor_parallel_size=tensor_parallel_size))
            capacity = steps.kv_capacity()
        except RidgepointError:
            # Heads that cannot be split so, or weights that do not fit: nothing to predict.
            continue
        cells = [
            (batch, context)
            for batch in BATCHES
            for context in CONTEXTS
            if batch * (context + 1) <= capacity.usable_tokens and context < capacity.max_model_len
        ]
        if not cells:
            continue
        batches = np.array([batch for batch, _ in cells])
        offsets = np.concatenate([[0], np.cumsum(batches)])
        computed = np.repeat(np.array([context for _, context in cells], dtype=np.uint32), batches)
        times_us = steps.step_times_us(offsets, computed, np.ones_like(computed))
        found += [
            Configuration(model, hardware, tensor_parallel_size, batch, context, float(time_us))
            for (batch, context), time_us in zip(cells, times_us, strict=True)
        ]
    within = [configuration for configuration in found if configuration.step_time_us <= MAX_STEP_US]
    return Swept(configurations, len(found), max(within, key=lambda of: of.tokens_per_gpu_s, default=None))


def main(models: list[str] = MODELS, gpus: list[str] = GPUS) -> list[Swept]:
    """Sweeps, prints the best of each model, and gives back what every task found."""
    started = time.perf_counter()
    results = ray.get([sweep.remote(model, gpu) for model in models for gpu in gpus])
    seconds = time.perf_counter() - started
    print(f"{'model':20} {'GPU':6} {'TP':>2} {'batch':>5} {'context':>7} {'ms/token':>8} {'tokens/s/GPU':>12}")
    for model in models:
        found = [of.best for of in results if of.best is not None and of.best.model == model]
        best = max(found, key=lambda of: of.tokens_per_gpu_s, default=None)
        if best is None:
            print(f"{model:20} nothing within {MAX_STEP_US / 1e3:.0f} ms a token")
            continue
        print(
            f"{model:20} {best.hardware:6} {best.tensor_parallel_size:2} {best.batch:5} {best.context:7} "
            f"{best.step_time_us / 1e3:8.2f} {best.tokens_per_gpu_s:12.0f}"
        )
    configurations, predicted = sum(of.configurations for of in results), sum(of.predicted for of in results)
    print(
        f"{configurations} configurations, {predicted} of which fit, in {seconds:.2f} s: "
        f"{configurations / seconds:.0f} per second"
    )
    return results


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--num-cpus", type=int, default=2, help="worker processes")
    arguments = parser.parse_args()
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    ray.init(num_cpus=arguments.num_cpus, include_dashboard=False)
    main()
    ray.shutdown()
