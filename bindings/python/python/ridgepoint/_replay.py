"""Replays loads through a model of vLLM's scheduler: TTFT, ITL and E2E as clients would see them."""

import json
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from . import _native
from ._arguments import Scheduler
from ._loads import Load, described
from ._record import MOST_UINT64, record, suggests_keywords, whole_number
from ._steps import KvCapacity, StepModel

_OUTCOMES = np.array(["finished", "rejected", "unfinished"])


@suggests_keywords
@dataclass(frozen=True)
class KvDisk:
    """KV blocks on a disk behind host memory, as vLLM's TieringOffloadingSpec keeps them in one tier of the type fs."""

    block_bytes: int
    """Bytes of a KV block on the disk: the shares of all GPUs together."""
    num_disk_blocks: int | None = None
    """Number of blocks that the disk holds, the least recently used ones making room. Defaults to no limit, as in vLLM."""


@suggests_keywords
@dataclass(frozen=True)
class KvOffload:
    """KV blocks in host memory, as vLLM's OffloadingConnector keeps them. A prompt that finds its blocks there waits for their copy."""

    num_cpu_blocks: int
    """Number of KV blocks that the host holds."""
    block_bytes: int
    """Bytes of a KV block on one GPU: ``block_size * int(steps.kv_capacity().kv_bytes_per_token)``."""
    offload_prompt_only: bool = False
    """Whether only blocks of prompts are copied to the host."""
    contention: float | None = None
    """Share of its speed that a direction keeps while the other one copies too, above 0 and at most 1. Defaults to that of the step model's
    ``kv_transfers``, or else 1."""
    disk: KvDisk | None = None
    """The disk behind the host. Defaults to none."""


@dataclass(frozen=True)
class Distribution:
    """Summary of a set of values. Percentiles are interpolated linearly, as by numpy's default."""

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
    """Latency and throughput of one stage of the load, or of the whole run. Latencies are of finished requests, ms."""

    stage: int
    """-1 for the whole run."""
    requests: int
    finished: int
    rejected: int
    """Requests longer than ``max_model_len``, prompt and output together."""
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
    """Time per output token after the first, one value per request."""
    itl_ms: Distribution | None
    """Inter-token latency, one value per gap."""
    itl_per_output_token_ms: Distribution | None
    """(E2E − TTFT) / output tokens, one value per request."""
    e2e_ms: Distribution | None
    """From sending to the last token."""
    queued_ms: Distribution | None
    """From sending until the engine first scheduled the request."""
    kv_load_ms: Distribution | None = None
    """Wait for KV blocks from host memory, 0 for a request that loaded none. None without such blocks."""


@dataclass(frozen=True)
class EngineCounters:
    """Counts over a whole replay."""

    steps: int
    scheduled_tokens: int
    prefill_tokens: int
    recomputed_tokens: int
    """Tokens computed again after a preemption."""
    cached_tokens: int
    """Prompt tokens found in the prefix cache."""
    preemptions: int
    max_running: int
    max_waiting: int
    max_blocks_in_use: int
    busy_ns: int
    """Time that the GPUs were busy."""
    end_ns: int
    """Time at which the last client had its last token."""


@dataclass(frozen=True)
class TransferCounters:
    """Copies of KV blocks in one direction."""

    count: int
    blocks: int
    bytes: int
    """On each GPU."""
    time_ns: int
    """From submission to end, the wait for earlier copies included."""


@dataclass(frozen=True)
class DiskCounters:
    """Counts of the KV blocks on a disk over a whole replay. Bytes are those of all GPUs together."""

    hit_tokens: int
    """Those of the host's hit tokens that were read from the disk."""
    preempted_hit_tokens: int
    """Those of the host's preempted hit tokens that were read from the disk."""
    writes: TransferCounters
    """Copies to the disk."""
    reads: TransferCounters
    """Copies to the host."""
    refused_reads: int
    """Blocks that the disk had and the host had no room for."""
    evicted_blocks: int
    max_blocks_in_use: int
    waits: int
    """Number of times that a request waited for the disk."""
    wait_ns: int


@dataclass(frozen=True)
class OffloadCounters:
    """Counts of the KV blocks in host memory over a whole replay."""

    asked_tokens: int
    """Tokens that the GPU's prefix cache did not hold. As in vLLM's counters, preempted requests are left out."""
    hit_tokens: int
    """Those of them that were loaded from the host."""
    preempted_asked_tokens: int
    """Tokens looked up on the host by requests that resume after a preemption."""
    preempted_hit_tokens: int
    """Those of them that were loaded from the host."""
    stores: TransferCounters
    """Copies to the host."""
    loads: TransferCounters
    """Copies to the GPU."""
    evicted_blocks: int
    refused_blocks: int
    """Blocks without room on the host; they are offered again."""
    max_blocks_in_use: int
    load_wait_ns: int
    """Time that requests waited for their loads."""
    disk: DiskCounters | None = None
    """Counts of the disk behind the host. None without one."""


@dataclass(frozen=True)
class LoadSummary:
    """Totals of a load."""

    requests: int
    stages: int
    mean_input_tokens: float
    mean_output_tokens: float
    max_total_tokens: int
    sessions: int | None = None


@dataclass(frozen=True)
class Interval:
    """An interval as factors on a value. ``Simulation.interval_coverage`` has how often such intervals held."""

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
    """Number of KV blocks: the memory equation's, or the given number."""
    run: StageSummary
    """The whole run."""
    stages: list[StageSummary]
    """Each stage of the load."""
    intervals: dict[str, Interval | None]
    """Intervals of "ttft", "itl", "tpot" and "e2e"; None where none is known, or where it did not hold on public runs."""
    interval_coverage: dict[str, Any]
    """How often such intervals held on public runs: "held_pct", "runs" and "hardware" for each metric, and a "remark" in words."""
    counters: EngineCounters
    offload: OffloadCounters | None
    """Counts of the KV blocks in host memory. None without them."""
    requests: dict[str, npt.NDArray[Any]] = field(repr=False)
    """A row per request in order of arrival, a column per property, for ``pandas.DataFrame``. "turn" is 0 for the first turn of a session."""
    warnings: list[str]


def simulate(steps: StepModel, load: Load, scheduler: Scheduler | None = None, *, seed: int = 0) -> Simulation:
    """Replays a load on the server that ``steps`` describes, request by request. Releases the GIL.

    Args:
        steps: model, GPU and deployment.
        load: a `Profile`, `RequestFile`, `ClosedLoop`, `OpenLoop`, `Sessions` or `RequestArrays`.
        scheduler: engine arguments for the scheduler and the KV cache. Defaults to vLLM's.
        seed: seed of arrival times and lengths. The same seed gives the same result to the last bit.

    Raises:
        RidgepointError: the load or the server is impossible. The message says what to change.
    """
    if not isinstance(steps, StepModel):
        raise TypeError(f"steps = {steps!r} must be a ridgepoint.StepModel")
    text, arrival_ns, input_len, output_len = described(load)
    scheduler = scheduler or Scheduler()
    tier = None if scheduler.kv_offload is None else json.dumps(asdict(scheduler.kv_offload))
    seed = whole_number("seed", seed, most=MOST_UINT64)
    report, requests = _native.simulate(steps, text, scheduler._json(), tier, seed, arrival_ns, input_len, output_len)
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
        intervals={name: None if of is None else record(Interval, of) for name, of in values["intervals"].items()},
        counters=record(EngineCounters, values["counters"]),
        offload=_offload(values["offload"]),
        requests=requests,
    )


def _offload(values: dict[str, Any] | None) -> OffloadCounters | None:
    if values is None:
        return None
    copies = {name: record(TransferCounters, values[name]) for name in ("stores", "loads")}
    disk = values.get("disk")
    if disk is not None:
        moved = {name: record(TransferCounters, disk[name]) for name in ("writes", "reads")}
        disk = record(DiskCounters, disk, **moved)
    return record(OffloadCounters, values, disk=disk, **copies)


def _stage(values: dict[str, Any]) -> StageSummary:
    def distribution(name: str) -> Distribution | None:
        return None if values.get(name) is None else record(Distribution, values[name])

    names = ("ttft_ms", "tpot_ms", "itl_ms", "itl_per_output_token_ms", "e2e_ms", "queued_ms", "kv_load_ms")
    latencies = {name: distribution(name) for name in names}
    return record(StageSummary, values, **latencies)
