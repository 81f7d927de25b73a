"""Servers as their files describe them."""

import json
import os
from dataclasses import dataclass

from . import _native
from ._deployment import Deployment
from ._record import record
from ._replay import Scheduler
from ._steps import Efficiency, StepModel


@dataclass(frozen=True)
class Server:
    """A server of an experiment."""

    steps: StepModel
    """Model, GPU and deployment."""
    scheduler: Scheduler
    """What only scheduler and KV cache depend on."""
    notes: list[str]
    """What was read but changes nothing."""


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
        correction: as of `StepModel`.
        efficiency: as of `StepModel`.
        data_dir: as of `StepModel`.

    Raises:
        RidgepointError: keys that are not known, values out of range: all problems of the file at once.
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
    )
    return Server(steps, record(Scheduler, values["scheduler"]), values["notes"])
