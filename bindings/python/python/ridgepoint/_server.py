"""Server files."""

import json
import os
from dataclasses import dataclass
from typing import Any

from . import _native
from ._deployment import Deployment
from ._record import record
from ._replay import KvDisk, KvOffload, Scheduler
from ._steps import Efficiency, StepModel


@dataclass(frozen=True)
class Server:
    """A server read from a file."""

    steps: StepModel
    """Model, GPU and deployment."""
    scheduler: Scheduler
    """Engine arguments for the scheduler and the KV cache."""
    notes: list[str]
    """Keys that were read but change nothing."""


def read_server(
    path: str | os.PathLike[str],
    *,
    correction: str | os.PathLike[str] = "auto",
    efficiency: Efficiency = "tables",
    data_dir: str | os.PathLike[str] | None = None,
) -> Server:
    """Reads a flat YAML or JSON file with ``model``, ``hardware`` and vLLM's engine arguments.

    Args:
        path: the file.
        correction, efficiency, data_dir: as for `StepModel`.

    Raises:
        RidgepointError: a key is unknown or a value out of range. The message lists all problems of the file.
    """
    values = json.loads(_native.read_server(path))
    steps = StepModel(
        values["model"],
        values["hardware"],
        record(Deployment, values["deployment"]),
        correction=correction,
        efficiency=efficiency,
        data_dir=data_dir,
        precision=values["precision"],
        kv_transfers=values["kv_transfers"],
    )
    return Server(steps, _scheduler(values["scheduler"]), values["notes"])


def _scheduler(values: dict[str, Any]) -> Scheduler:
    tier = values["kv_offload"]
    if tier is None:
        return record(Scheduler, values)
    disk = tier.get("disk")
    disk = None if disk is None else record(KvDisk, disk)
    return record(Scheduler, values, kv_offload=record(KvOffload, tier, disk=disk))
