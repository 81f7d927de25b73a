"""One model in many threads: the same bits in each, and nobody waits for a long call."""

import os
import sys
import threading
import time
from collections.abc import Callable

import numpy as np

from ridgepoint import ClosedLoop, StepModel, simulate

SECONDS = float(os.environ.get("RIDGEPOINT_HAMMER_S", "0.5"))


def test_eight_threads_hammer_one_model(steps: StepModel) -> None:
    random = np.random.default_rng(11)
    batches = [
        (random.integers(0, 5000, size=size, dtype=np.uint32), random.integers(1, 90, size=size, dtype=np.uint32))
        for size in (1, 8, 64, 128, 500)
    ]
    offsets = np.concatenate([[0], np.cumsum([len(computed) for computed, _ in batches])])
    computed, scheduled = (np.concatenate(column) for column in zip(*batches, strict=True))
    expected = [steps.step_time_us(*batch) for batch in batches]
    total_flops = steps.predict(*batches[2]).total_flops
    calls, faults = [0] * 8, list[str]()

    def hammer(thread: int) -> None:
        until = time.monotonic() + SECONDS
        while calls[thread] == 0 or time.monotonic() < until:
            for index, batch in enumerate(batches):
                if steps.step_time_us(*batch) != expected[index]:
                    faults.append(f"batch {index}")
            if steps.step_times_us(offsets, computed, scheduled).tolist() != expected:
                faults.append("all steps in one call")
            if steps.predict(*batches[2]).total_flops != total_flops:
                faults.append("predict")
            try:
                steps.step_time_us([-1], [1])
                faults.append("no error")
            except ValueError:
                pass
            calls[thread] += 1

    threads = [threading.Thread(target=hammer, args=(thread,)) for thread in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not faults and min(calls) > 0


def lets_others_run(call: Callable[[], object]) -> bool:
    """Whether another thread gets a turn within the call, the interpreter itself giving none away."""
    interval = sys.getswitchinterval()
    begin, turns = threading.Lock(), list[int]()
    begin.acquire()

    def other() -> None:
        with begin:
            turns.append(1)

    thread = threading.Thread(target=other)
    thread.start()
    sys.setswitchinterval(1000.0)
    try:
        begin.release()
        for _ in range(200):
            call()
            if turns:
                return True
        return False
    finally:
        sys.setswitchinterval(interval)
        thread.join()


def test_long_calls_let_other_threads_run(steps: StepModel) -> None:
    size = 128 * 20_000
    offsets, computed = np.arange(0, size + 1, 128), np.full(size, 900, dtype=np.uint32)
    scheduled = np.ones(size, dtype=np.uint32)
    assert lets_others_run(lambda: steps.step_times_us(offsets, computed, scheduled))
    assert lets_others_run(lambda: simulate(steps, ClosedLoop(64, 300, 50, num_requests=2000)))


def test_the_measure_sees_a_call_that_does_not(steps: StepModel) -> None:
    computed, scheduled = np.full(128, 900, dtype=np.uint32), np.ones(128, dtype=np.uint32)
    assert not lets_others_run(lambda: steps.step_time_us(computed, scheduled))
