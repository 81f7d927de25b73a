"""Loads replayed through a model of vLLM's scheduler: TTFT, ITL and E2E as clients would see them."""

import json
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from . import _native
from ._loads import Load, described
from ._record import record, whole_number
from ._steps import KvCapacity, StepModel

_OUTCOMES = np.array(["finished", "rejected", "unfinished"])


@dataclass(frozen=True)
class Scheduler:
    """Engine arguments that only scheduler and KV cache depend on, under vLLM's names; None is vLLM's default."""

    num_gpu_blocks_override: int | None = None
    """KV blocks; None takes those of the memory equation."""
    cpu_offload_gb: float = 0.0
    """GiB of each GPU's weights that stay in the host's memory."""
    enable_prefix_caching: bool | None = None
    enable_chunked_prefill: bool | None = None
    async_scheduling: bool | None = None
    long_prefill_token_threshold: int | None = None
    scheduling_policy: Literal["fcfs", "priority"] | None = None


@dataclass(frozen=True)
class Distribution:
    """A set of values in few figures; percentiles lie between ranks in proportion, as numpy's default has them."""

    count: int
    mean: float
    p50: float
    p90: float
    p95: float
    p99: float
    min: float
    max: float
    std: float


@dataclass(frozen=True)
class StageSummary:
    """What clients saw of a stage of the load, or of the whole run. Latencies are of finished requests, ms."""

    stage: int
    """-1 for the whole run."""
    requests: int
    finished: int
    rejected: int
    """Refused: prompt and output are longer than ``max_model_len``."""
    unfinished: int
    input_tokens: int
    output_tokens: int
    duration_s: float | None
    """From the first arrival to the last finish."""
    requests_per_s: float | None
    output_tokens_per_s: float | None
    total_tokens_per_s: float | None
    ttft_ms: Distribution | None
    """Time to first token."""
    tpot_ms: Distribution | None
    """Time per output token after the first, a value per request."""
    itl_ms: Distribution | None
    """Inter-token latency, a value per gap."""
    itl_per_output_token_ms: Distribution | None
    """(E2E − TTFT) / output tokens, a value per request."""
    e2e_ms: Distribution | None
    """From sending to the last token."""
    queued_ms: Distribution | None
    """From sending until the engine first scheduled the request."""


@dataclass(frozen=True)
class EngineCounters:
    """Counts over a whole replay."""

    steps: int
    scheduled_tokens: int
    prefill_tokens: int
    recomputed_tokens: int
    """Computed before and lost in a preemption."""
    cached_tokens: int
    """Prompt tokens found in the prefix cache."""
    preemptions: int
    max_running: int
    max_waiting: int
    max_blocks_in_use: int
    busy_ns: int
    """Time that the GPUs worked."""
    end_ns: int
    """When the last request was over for its client."""


@dataclass(frozen=True)
class LoadSummary:
    """What a load comes to when all of it is sent."""

    requests: int
    stages: int
    mean_input_tokens: float
    mean_output_tokens: float
    max_total_tokens: int


@dataclass(frozen=True)
class Interval:
    """Ends of a 90 % interval, as factors on a figure."""

    lower_factor: float
    upper_factor: float


@dataclass(frozen=True, eq=False)
class Simulation:
    """A replayed load."""

    model: str
    hardware: str
    correction: str | None
    load: LoadSummary
    kv_capacity: KvCapacity
    num_gpu_blocks: int
    """KV blocks of the engine: the memory equation's, or those that were given."""
    run: StageSummary
    """The whole run."""
    stages: list[StageSummary]
    """Each stage of the load."""
    intervals: dict[str, Interval]
    """How far "ttft", "itl", "tpot" and "e2e" may be off."""
    counters: EngineCounters
    requests: dict[str, npt.NDArray[Any]] = field(repr=False)
    """A row per request in order of arrival, a column per property: ``pandas.DataFrame(result.requests)``."""
    warnings: list[str]


def simulate(steps: StepModel, load: Load, scheduler: Scheduler | None = None, *, seed: int = 0) -> Simulation:
    """Replays a load on the server that ``steps`` describes, request by request. Other threads run meanwhile.

    Args:
        steps: model, GPU and deployment.
        load: a `Profile`, `RequestFile`, `ClosedLoop`, `OpenLoop` or `RequestArrays`.
        scheduler: what only scheduler and KV cache depend on; vLLM's defaults where left out.
        seed: of arrival times and lengths; the same one gives the same result to the last bit.

    Raises:
        RidgepointError: a load or a server that cannot be; the message says what would do.
    """
    if not isinstance(steps, StepModel):
        raise TypeError(f"steps = {steps!r} must be a ridgepoint.StepModel")
    text, arrival_ns, input_len, output_len = described(load)
    options = json.dumps(asdict(scheduler or Scheduler()))
    seed = whole_number("seed", seed, most=2**64 - 1)
    report, requests = _native.simulate(steps, text, options, seed, arrival_ns, input_len, output_len)
    values = json.loads(report)
    requests["outcome"] = _OUTCOMES[requests["outcome"]]
    return record(
        Simulation,
        values,
        correction=values["correction"]["name"],
        load=record(LoadSummary, values["load"]),
        kv_capacity=record(KvCapacity, values["kv_capacity"]),
        num_gpu_blocks=values["engine"]["num_gpu_blocks"],
        run=_stage(values["run"]),
        stages=[_stage(stage) for stage in values["stages"]],
        intervals={name: record(Interval, of) for name, of in values["intervals"].items()},
        counters=record(EngineCounters, values["counters"]),
        requests=requests,
    )


def _stage(values: dict[str, Any]) -> StageSummary:
    def distribution(name: str) -> Distribution | None:
        return None if values[name] is None else record(Distribution, values[name])

    names = ("ttft_ms", "tpot_ms", "itl_ms", "itl_per_output_token_ms", "e2e_ms", "queued_ms")
    latencies = {name: distribution(name) for name in names}
    return record(StageSummary, values, **latencies)
