"""Built-in models and GPUs."""

import json
from dataclasses import dataclass

from . import _native
from ._record import record


@dataclass(frozen=True)
class ModelInfo:
    """A built-in model."""

    name: str
    hf_ids: list[str]
    """Hugging Face ids of this architecture."""
    model_type: str
    num_layers: int
    parameters: int
    active_parameters: int
    """Parameters that one token uses: all but the experts that it is not routed to."""
    weight_bytes: float
    """Size of all weights as stored."""
    max_position_embeddings: int
    """Longest context, tokens."""
    correction: str | None
    """Correction that "auto" chooses: the model's own or "global"."""


@dataclass(frozen=True)
class HardwareInfo:
    """A built-in GPU."""

    name: str
    display_name: str
    aliases: list[str]
    architecture: str
    sm_count: int
    hbm_bytes_per_s: float
    hbm_capacity_bytes: float
    peaks_dense_flop_per_s: dict[str, float]
    """By number format, without structured sparsity."""
    interconnect_kind: str
    interconnect_bytes_per_s: float
    """Bandwidth of one GPU in one direction."""
    sources: list[str]


def models() -> list[ModelInfo]:
    """Lists the built-in models by name."""
    return [
        record(
            ModelInfo,
            values,
            parameters=values["parameters"]["total"],
            active_parameters=values["parameters"]["active"],
            correction=values["correction"]["name"],
        )
        for values in json.loads(_native.models())
    ]


def hardware() -> list[HardwareInfo]:
    """Lists the built-in GPUs by name."""
    return [
        record(
            HardwareInfo,
            values,
            interconnect_kind=values["interconnect"]["kind"],
            interconnect_bytes_per_s=values["interconnect"]["unidirectional_bytes_per_s"],
        )
        for values in json.loads(_native.hardware())
    ]
