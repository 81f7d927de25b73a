"""Times a call: graph plan, CUDA-graph replays with events, and the statistic. Importable without torch.

A sample is the time of one graph replay over the calls in it; the result is the median of the samples.
"""

import math
import statistics
import time
from dataclasses import dataclass

# A replay this long makes the host's launch of the graph and the event resolution (about 0.5 us) negligible.
SAMPLE_TARGET_US = 1500.0
MAX_CALLS_PER_GRAPH = 256
# Buffers are visited in a cycle, so that any total above the L2 size evicts each before its next turn; 3 is margin.
ROTATED_L2_SIZES = 3


@dataclass(frozen=True)
class Plan:
    """Calls in one graph, and copies of the streamed operands among which they rotate."""

    calls: int
    copies: int


@dataclass(frozen=True)
class Timing:
    """Quantiles of the samples, microseconds of one call."""

    samples: int
    min_us: float
    p25_us: float
    median_us: float
    p75_us: float
    max_us: float

    @property
    def spread(self):
        """Interquartile range over the median."""
        return (self.p75_us - self.p25_us) / self.median_us


def plan_graph(expected_us, rotating_bytes, l2_bytes):
    """Calls per graph and buffer copies for a call of `expected_us` that streams `rotating_bytes`.

    Enough calls to reach SAMPLE_TARGET_US, at least as many as there are copies while that stays cheap: calls
    of long kernels are few, and their activations alone evict the L2 cache.
    """
    copies = 1
    if rotating_bytes > 0:
        copies = max(1, math.ceil(ROTATED_L2_SIZES * l2_bytes / rotating_bytes))
    for_target = math.ceil(SAMPLE_TARGET_US / max(expected_us, 1.0))
    affordable = max(2, math.ceil(4 * SAMPLE_TARGET_US / max(expected_us, 1.0)))
    calls = min(max(for_target, min(copies, affordable), 2), MAX_CALLS_PER_GRAPH)
    return Plan(calls, min(copies, calls))


def summarise(samples_us):
    """Quantiles of at least one sample (linear interpolation between order statistics)."""
    if not samples_us:
        raise ValueError("no samples to summarise")
    ordered = sorted(samples_us)

    def quantile(share):
        position = share * (len(ordered) - 1)
        low = math.floor(position)
        high = min(low + 1, len(ordered) - 1)
        return ordered[low] + (position - low) * (ordered[high] - ordered[low])

    return Timing(
        len(ordered), ordered[0], quantile(0.25), statistics.median(ordered), quantile(0.75), ordered[-1]
    )


def captured(cuda, side, calls, **options):
    """A CUDA graph of the calls, which have run before, captured on the stream `side`; `options` are those of `capture_begin`."""
    graph = cuda.CUDAGraph()
    side.wait_stream(cuda.current_stream())
    # Not `torch.cuda.graph`: its collection and cache flush on entry cost more than the measurement.
    with cuda.stream(side):
        graph.capture_begin(**options)
        try:
            for call in calls:
                call()
        finally:
            graph.capture_end()
    cuda.current_stream().wait_stream(side)
    return graph


class CudaTimer:
    """Captures calls into a CUDA graph and times its replays with events."""

    statistic = "median of replays of a CUDA graph, CUDA events, divided by the calls in the graph"

    def __init__(self, torch, repeats):
        self.torch = torch
        self.repeats = repeats
        # One stream for warm-up and capture, so that library workspaces exist before the capture begins.
        self.side = torch.cuda.Stream()
        self.l2_bytes = getattr(torch.cuda.get_device_properties(0), "L2_cache_size", 0) or 64 * 2**20

    def probe_us(self, call):
        """Rough eager duration of one warmed-up call; for short kernels this is the host's launch time."""
        cuda = self.torch.cuda
        self.side.wait_stream(cuda.current_stream())
        with cuda.stream(self.side):
            call()
            start, end = cuda.Event(enable_timing=True), cuda.Event(enable_timing=True)
            start.record()
            call()
            end.record()
        cuda.current_stream().wait_stream(self.side)
        cuda.synchronize()
        return start.elapsed_time(end) * 1e3

    def time(self, calls, plan):
        """Median time of one call when `plan.calls` calls, cycling through `calls`, run back to back."""
        cuda = self.torch.cuda
        graph = captured(cuda, self.side, [calls[i % len(calls)] for i in range(plan.calls)])
        for _ in range(2):
            graph.replay()
        pairs = []
        for _ in range(self.repeats):
            start, end = cuda.Event(enable_timing=True), cuda.Event(enable_timing=True)
            start.record()
            graph.replay()
            end.record()
            pairs.append((start, end))
        cuda.synchronize()
        samples = [start.elapsed_time(end) * 1e3 / plan.calls for start, end in pairs]
        graph.reset()
        return summarise(samples)


class HostTimer:
    """Wall-clock stand-in for machines without a GPU: exercises the logic, measures nothing worth keeping."""

    statistic = "median of host wall-clock times (not a measurement)"
    l2_bytes = 2**16

    def __init__(self, repeats):
        self.repeats = repeats

    def probe_us(self, call):
        """Wall-clock time of one call after a first one."""
        call()
        start = time.perf_counter()
        call()
        return (time.perf_counter() - start) * 1e6

    def time(self, calls, plan):
        """As `CudaTimer.time`, by wall clock and with at most four calls a sample."""
        count = min(plan.calls, 4)
        samples = []
        for _ in range(self.repeats):
            start = time.perf_counter()
            for i in range(count):
                calls[i % len(calls)]()
            samples.append((time.perf_counter() - start) * 1e6 / count)
        return summarise(samples)
