"""How long a step takes to predict from Python: one call a step, a thousand steps a call, and what numpy alone would need.

    python benches/step_times.py [steps per batch]

The yardstick is a straight line in prompt tokens and decodes, worked out by numpy: one step at a time as a simulator would
write it, and a thousand at once with ``np.add.reduceat``. Figures are medians of repeated runs.
"""

import statistics
import sys
import time
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from ridgepoint import Deployment, StepModel

Column = npt.NDArray[np.uint32]
RUNS = 15


def ns_per_step(work: Callable[[], object], steps: int) -> float:
    """Median over runs, the first of which does not count."""
    work()
    seconds = []
    for _ in range(RUNS):
        started = time.perf_counter_ns()
        work()
        seconds.append((time.perf_counter_ns() - started) / steps)
    return statistics.median(seconds)


def one_by_one(call: Callable[[Column, Column], float], computed: Column, scheduled: Column, steps: int) -> float:
    """A Python loop over calls of one step each."""

    def loop() -> None:
        for _ in range(steps):
            call(computed, scheduled)

    return ns_per_step(loop, steps)


def straight_line(computed: Column, scheduled: Column) -> float:
    """β₀ + β₁ · prompt tokens + β₂ · decodes of one step."""
    is_decode = (scheduled == 1) & (computed > 0)
    decodes = int(is_decode.sum())
    return 5000.0 + 10.0 * float(int(scheduled.sum()) - decodes) + 20.0 * decodes


def straight_lines(offsets: npt.NDArray[np.int64], computed: Column, scheduled: Column) -> npt.NDArray[np.float64]:
    """The same of many steps."""
    is_decode = ((scheduled == 1) & (computed > 0)).astype(np.int64)
    decodes = np.add.reduceat(is_decode, offsets[:-1])
    tokens = np.add.reduceat(scheduled.astype(np.int64), offsets[:-1])
    return 5000.0 + 10.0 * (tokens - decodes) + 20.0 * decodes


def main() -> None:
    steps_per_batch = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    model = StepModel("llama-3.1-70b", "h100", Deployment(tensor_parallel_size=4))
    random = np.random.default_rng(7)
    shapes = {
        "8 decodes": (8, 0),
        "128 decodes": (128, 0),
        "2,048-token chunk, 64 decodes": (64, 2048),
        "1,024 decodes": (1024, 0),
    }
    header = f"{'ns per step':30} {'one call':>9} {'batch':>9} {'numpy, one':>11} {'numpy, batch':>13}"
    print(f"{steps_per_batch} steps a batch, medians of {RUNS} runs")
    print(header)
    for name, (decodes, chunk) in shapes.items():
        size = decodes + (chunk > 0)
        computed = random.integers(1, 8192, size=size, dtype=np.uint32)
        scheduled = np.ones(size, dtype=np.uint32)
        if chunk:
            computed[0], scheduled[0] = 0, chunk
        offsets = np.arange(steps_per_batch + 1, dtype=np.int64) * size
        all_computed, all_scheduled = np.tile(computed, steps_per_batch), np.tile(scheduled, steps_per_batch)
        figures = (
            one_by_one(model.step_time_us, computed, scheduled, 1000),
            ns_per_step(lambda: model.step_times_us(offsets, all_computed, all_scheduled), steps_per_batch),
            one_by_one(straight_line, computed, scheduled, 1000),
            ns_per_step(lambda: straight_lines(offsets, all_computed, all_scheduled), steps_per_batch),
        )
        one, batch, numpy_one, numpy_batch = figures
        print(f"{name:30} {one:9.0f} {batch:9.0f} {numpy_one:11.0f} {numpy_batch:13.0f}")


if __name__ == "__main__":
    main()
