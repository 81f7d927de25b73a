"""Step predictions."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import _native
from ._arguments import Deployment, Efficiency, Engine
from ._record import columns, record, whole_number

if TYPE_CHECKING:
    from typing_extensions import Self

    from ._native import Flags, Integers, TransferDirection

Path_ = str | os.PathLike[str]


@dataclass(frozen=True)
class OperatorEstimate:
    """One operator of a step. All figures are totals of its calls on one GPU."""

    name: str
    group: str | None
    """None for a term that the correction adds."""
    count: int
    """Calls in the step."""
    flops: float
    bytes: float
    """Bytes moved in memory, or sent."""
    bound: str
    """Limit of a call: "compute", "memory", "power", "network" or "latency"."""
    time_us: float
    bound_us: float
    """Time at the roofline."""
    efficiency: float
    """`bound_us` over `time_us`."""
    share: float
    """Share of the step's time."""
    provenance: str
    """Source of the time: "measured", "interpolated", "clamped", "borrowed", "datasheet", "ideal" or "learned"."""


@dataclass(frozen=True)
class StepEstimate:
    """A predicted step."""

    step_time_us: float
    lower_us: float
    """Lower end of the interval, which is made to hold nine times in ten."""
    upper_us: float
    """Upper end of the interval."""
    bound_us: float
    """Time at the roofline."""
    total_flops: float
    """FLOPs of one GPU."""
    total_bytes: float
    """Bytes moved in memory by one GPU."""
    mfu: float
    """Model FLOPs utilization: share of the peak FLOP rate."""
    mbu: float
    """Memory bandwidth utilization."""
    padded_tokens: int
    """Tokens processed by the layers, with the padding of a CUDA graph."""
    graph_mode: str
    """"full", "piecewise", "none" or "eager"."""
    model: str
    hardware: str
    correction: str | None
    """Name of the correction."""
    provenance: dict[str, float]
    """Share of the time by source."""
    operators: list[OperatorEstimate]
    """In order of execution."""
    warnings: list[str]
    """Doubts about the prediction: extrapolation, borrowed tables, limits exceeded."""

    def to_columns(self) -> dict[str, list[Any]]:
        """Returns the operators as lists of equal length by field, for ``pandas.DataFrame`` or ``pyarrow.table``."""
        return columns(self.operators, OperatorEstimate)


@dataclass(frozen=True)
class KvCapacity:
    """The memory equation of one GPU, which gives the number of KV blocks."""

    device_memory_bytes: float
    gpu_memory_utilization: float
    weight_bytes: float
    activation_bytes: float
    overhead_bytes: float
    kv_cache_bytes: float
    kv_bytes_per_token: float
    block_size: int
    num_gpu_blocks: int
    max_model_len: int

    @property
    def usable_tokens(self) -> int:
        """Tokens that the blocks hold. The engine keeps one block for itself."""
        return max(self.num_gpu_blocks - 1, 0) * self.block_size


class StepModel(_native.StepModel):
    """Predicts steps of one model on one type of GPU in one deployment. Threads may share it.

    ``step_time_us(num_computed_tokens, num_scheduled_tokens, samples=None)`` returns the time of a step, µs. Each column has
    one value per request. ``step_times_us(offsets, …)`` returns the times of many steps as an array and releases the GIL. Step
    ``i`` has the requests from ``offsets[i]`` to ``offsets[i + 1]``. Contiguous arrays of ``uint32`` (``bool`` for `samples`)
    are not copied, so do not change them during the call. Other integers are copied and checked. Both ignore a request that
    schedules nothing, and a step without requests takes 0 µs.

    The delays around a step are ``queueing_time_us(prompt_tokens)``, ``output_token_processing_time_us()``,
    ``scheduling_processing_time_us()`` and ``preemption_processing_time_us()``.

    Args:
        model: built-in name, Hugging Face id, path of a ``config.json`` or its folder, or the contents of one as a dict.
        hardware: built-in name or path of a TOML file.
        deployment: vLLM's engine arguments. Defaults to vLLM's defaults.
        correction: "none", "global", "auto" (the model's own, else the global one) or the path of a file that ``ridgepoint fit`` wrote.
        efficiency: "tables" (measured kernels) or "ideal" (the textbook roofline).
        engine: engine whose kernels are predicted: "vllm", "sglang" or "trtllm".
        engine_version: its version, as "0.24". The nearest measured version is the fallback of one without measurements.
        power_limit_watt: power limit of each GPU, W, as ``nvidia-smi -pl`` sets it. Defaults to the board's power.
        peer_access: whether GPUs over PCIe read each other's memory. Defaults to what the GPU's file says.
        data_dir: folder whose ``models/``, ``hardware/`` and ``bench_data/`` take precedence over the built-in ones.
        precision: "bf16", "fp8", "int8", "int4" or "fp4", if the engine stores weights in another format than the checkpoint.
        kv_transfers: measured times of KV transfers, a file that ``ridgepoint ingest --output-transfers`` wrote or its contents as a dict.
            Defaults to the link between GPU and host: a copy takes 20 µs, and its bytes at 85 % of the link.

    Raises:
        RidgepointError: a name is unknown, a file is malformed, or the deployment cannot split the model.
    """

    deployment: Deployment
    """vLLM's engine arguments."""
    _arguments: tuple[Any, ...]

    def __new__(
        cls,
        model: Path_ | Mapping[str, Any],
        hardware: Path_,
        deployment: Deployment | None = None,
        *,
        correction: Path_ = "auto",
        efficiency: Efficiency = "tables",
        engine: Engine = "vllm",
        engine_version: str | None = None,
        power_limit_watt: float | None = None,
        peer_access: bool | None = None,
        data_dir: Path_ | None = None,
        precision: str | None = None,
        kv_transfers: Path_ | Mapping[str, Any] | None = None,
    ) -> Self:
        deployment = Deployment() if deployment is None else deployment
        if not isinstance(deployment, Deployment):
            raise TypeError(f"deployment = {deployment!r} must be a ridgepoint.Deployment")
        config = None
        if isinstance(model, Mapping):
            model = dict(model)
            config = json.dumps(model)
            name = str(model.get("_name_or_path") or "config.json")
        else:
            name = os.fspath(model)
        hardware, correction = os.fspath(hardware), os.fspath(correction)
        measured: tuple[str, str | None] | None = None
        if isinstance(kv_transfers, Mapping):
            kv_transfers = dict(kv_transfers)
            measured = ("kv_transfers", json.dumps(kv_transfers))
        elif kv_transfers is not None:
            kv_transfers = os.path.abspath(kv_transfers)
            measured = (kv_transfers, None)
        prediction: dict[str, str | float | None] = {
            "correction": correction,
            "efficiency": efficiency,
            "engine": engine,
            "engine_version": engine_version,
            "power_limit_watt": power_limit_watt,
            "peer_access": peer_access,
        }
        self = super().__new__(
            cls, name, config, precision, hardware, deployment._json(), json.dumps(prediction), data_dir, measured
        )
        self.deployment = deployment
        # Absolute paths, because a copy may be unpickled in another folder.
        self._arguments = (
            model if config is not None else _whole_model(name),
            _whole(hardware),
            deployment,
            prediction | {"correction": _whole(correction)},
            None if data_dir is None else os.path.abspath(data_dir),
            precision,
            kv_transfers,
        )
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return _made, (type(self), *self._arguments)

    def __repr__(self) -> str:
        return (
            f"StepModel({self.model_name!r}, {self.hardware_name!r}, {self.deployment!r}, "
            f"correction={self.correction_name or 'none'!r})"
        )

    def predict(
        self, num_computed_tokens: Integers, num_scheduled_tokens: Integers, samples: Flags | None = None
    ) -> StepEstimate:
        """Estimates one step: its time with an interval, its operators and their sources.

        Args:
            num_computed_tokens: tokens of each request already in the KV cache.
            num_scheduled_tokens: tokens of each request processed in this step: 1 for a decode, the chunk for a prefill.
            samples: whether the step samples a token for the request: false for all prefill chunks of a prompt but the last.
                Defaults to true.

        Raises:
            RidgepointError: there are no requests, or one schedules nothing or is longer than ``max_model_len``.
        """
        values = json.loads(self._predict(num_computed_tokens, num_scheduled_tokens, samples))
        return record(
            StepEstimate,
            values,
            correction=values["correction"]["name"],
            provenance=dict(values["provenance"]),
            operators=[record(OperatorEstimate, operator) for operator in values["operators"]],
        )

    def queueing_time_us(self, prompt_tokens: int) -> float:
        """From a request's sending until the engine can schedule it, µs: network, HTTP, tokenisation."""
        return super().queueing_time_us(whole_number("prompt_tokens", prompt_tokens))

    def kv_transfer_time_us(self, direction: TransferDirection, num_bytes: int) -> float:
        """Time to copy KV blocks between GPU and host memory, or host memory and a disk, while nothing else is copied, µs.

        Args:
            direction: "gpu_to_cpu" for a store, "cpu_to_gpu" for a load, "cpu_to_disk" for a write, "disk_to_cpu" for a read.
            num_bytes: bytes on one GPU, as several GPUs copy their shares at the same time; at a disk those of all GPUs.

        Raises:
            RidgepointError: the direction is another one, or the GPU's link to the host is not known.
        """
        return super().kv_transfer_time_us(direction, whole_number("num_bytes", num_bytes, most=2**64 - 1))

    def kv_capacity(self) -> KvCapacity:
        """How many KV blocks such a server has.

        Raises:
            RidgepointError: the weights or one request of ``max_model_len`` do not fit; the message says what would.
        """
        return record(KvCapacity, json.loads(self._kv_capacity()))


def _made(
    kind: type[StepModel],
    model: str | dict[str, Any],
    hardware: str,
    deployment: Deployment,
    prediction: dict[str, Any],
    data_dir: str | None,
    precision: str | None,
    kv_transfers: str | dict[str, Any] | None,
) -> StepModel:
    return kind(
        model,
        hardware,
        deployment,
        **prediction,
        data_dir=data_dir,
        precision=precision,
        kv_transfers=kv_transfers,
    )


def _whole(name: str) -> str:
    return os.path.abspath(name) if Path(name).is_file() else name


def _whole_model(name: str) -> str:
    is_folder = (Path(name) / "config.json").is_file()
    return os.path.abspath(name) if is_folder else _whole(name)
