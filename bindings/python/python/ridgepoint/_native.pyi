"""The compiled half: numpy arrays go through as they lie in memory, structures as JSON text."""

import os
from collections.abc import Sequence
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
from typing_extensions import Self

__version__: str

Integers: TypeAlias = npt.NDArray[np.integer[Any]] | Sequence[int]
Flags: TypeAlias = npt.NDArray[np.bool_] | Sequence[bool]
TransferDirection: TypeAlias = Literal["gpu_to_cpu", "cpu_to_gpu", "cpu_to_disk", "disk_to_cpu"]

class RidgepointError(ValueError): ...

class StepModel:
    def __new__(
        cls,
        model: str,
        model_config: str | None,
        precision: str | None,
        hardware: str,
        deployment: str,
        prediction: str,
        data_dir: str | os.PathLike[str] | None,
        kv_transfers: tuple[str, str | None] | None,
        /,
    ) -> Self: ...
    def step_time_us(
        self, num_computed_tokens: Integers, num_scheduled_tokens: Integers, samples: Flags | None = None
    ) -> float: ...
    def step_times_us(
        self,
        offsets: Integers,
        num_computed_tokens: Integers,
        num_scheduled_tokens: Integers,
        samples: Flags | None = None,
    ) -> npt.NDArray[np.float64]: ...
    def queueing_time_us(self, prompt_tokens: int) -> float: ...
    def output_token_processing_time_us(self) -> float: ...
    def scheduling_processing_time_us(self) -> float: ...
    def preemption_processing_time_us(self) -> float: ...
    def kv_transfer_time_us(self, direction: TransferDirection, num_bytes: int) -> float: ...
    @property
    def kv_contention(self) -> float: ...
    @property
    def model_name(self) -> str: ...
    @property
    def hardware_name(self) -> str: ...
    @property
    def correction_name(self) -> str | None: ...
    @property
    def notes(self) -> list[str]: ...
    def _predict(
        self, num_computed_tokens: Integers, num_scheduled_tokens: Integers, samples: Flags | None
    ) -> str: ...
    def _kv_capacity(self) -> str: ...

class Sweep:
    def __new__(
        cls,
        origin: str,
        toml: str | None,
        keys: str,
        prediction: str,
        data_dir: str | os.PathLike[str] | None,
        shard: tuple[int, int] | None,
        /,
    ) -> Self: ...
    def num_configurations(self) -> int: ...
    def run(self, threads: int, max_memory_gib: float, /) -> str: ...
    def merge(self, parts: Sequence[tuple[str, str]], /) -> str: ...

def sweep_file(path: str | os.PathLike[str], lines: str, /) -> bytes: ...
def simulate(
    steps: StepModel,
    load: str,
    scheduler: str,
    kv_offload: str | None,
    seed: int,
    arrival_ns: Integers,
    input_len: Integers,
    output_len: Integers,
    /,
) -> tuple[str, dict[str, npt.NDArray[Any]]]: ...
def check_arguments(section: str, values: str, /) -> None: ...
def read_server(path: str | os.PathLike[str], /) -> str: ...
def evaluate_serving(
    paths: Sequence[str], correction: str, seed: int, data_dir: str | os.PathLike[str] | None, /
) -> str: ...
def models() -> str: ...
def hardware() -> str: ...
def _run_command(arguments: Sequence[str], /) -> int: ...
def _raise_defect() -> None: ...
