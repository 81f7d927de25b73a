"""Server files."""

import json
import os
from dataclasses import dataclass

from . import _native
from ._arguments import Deployment, Efficiency, Engine, Scheduler
from ._record import record
from ._replay import KvDisk, KvOffload
from ._steps import StepModel


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
    engine: Engine = "vllm",
    engine_version: str | None = None,
    power_limit_watt: float | None = None,
    peer_access: bool | None = None,
    data_dir: str | os.PathLike[str] | None = None,
) -> Server:
    """Reads a flat YAML or JSON file with ``model``, ``hardware`` and vLLM's engine arguments.

    Args:
        path: the file.
        correction, efficiency, engine, engine_version, power_limit_watt, peer_access, data_dir: as for `StepModel`.

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
        engine=engine,
        engine_version=engine_version,
        power_limit_watt=power_limit_watt,
        peer_access=peer_access,
        data_dir=data_dir,
        precision=values["precision"],
        kv_transfers=values["kv_transfers"],
    )
    tier = values["kv_offload"]
    if tier is not None:
        disk = tier.get("disk")
        tier = record(KvOffload, tier, disk=None if disk is None else record(KvDisk, disk))
    return Server(steps, record(Scheduler, values["scheduler"], kv_offload=tier), values["notes"])
