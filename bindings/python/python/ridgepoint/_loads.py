"""Loads: the requests that clients send."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ._arguments import ClosedLoop, OpenLoop, Sessions
from ._native import RidgepointError
from ._record import suggests_keywords

if TYPE_CHECKING:
    from ._native import Integers

_NOTHING: list[int] = []
_MOST_S = 1e9


@suggests_keywords
@dataclass(frozen=True)
class Profile:
    """A load profile of the load generator inference-perf (YAML or JSON)."""

    path: str | os.PathLike[str]


@suggests_keywords
@dataclass(frozen=True)
class RequestFile:
    """A list of requests: csv or jsonl with arrival, input and output length, a published trace, or the turns of sessions."""

    path: str | os.PathLike[str]
    format: str | None = None
    """"csv", "jsonl", "mooncake", "azure", "vllm-bench" or "llmservingsim"; None detects it."""


@suggests_keywords
@dataclass(frozen=True, eq=False)
class RequestArrays:
    """Requests as columns of equal length, in order of arrival."""

    arrival_s: npt.ArrayLike
    """Sending time of each request, seconds from the start."""
    input_len: Integers
    """Prompt length, tokens."""
    output_len: Integers
    """Output length, tokens."""


Load = Profile | RequestFile | ClosedLoop | OpenLoop | Sessions | RequestArrays

Described = tuple[str, "Integers", "Integers", "Integers"]


def described(load: Load) -> Described:
    """Returns the load as JSON, and its columns if it has any."""
    match load:
        case Profile(path):
            return _json("profile", path=os.fspath(path))
        case RequestFile(path, format):
            return _json("request_file", path=os.fspath(path), format=format)
        case ClosedLoop() | OpenLoop() | Sessions():
            return load._json(), _NOTHING, _NOTHING, _NOTHING
        case RequestArrays(arrival_s, input_len, output_len):
            return _json("request_arrays")[0], _nanoseconds(arrival_s), input_len, output_len
    raise TypeError(
        f"load = {load!r} must be a Profile, RequestFile, ClosedLoop, OpenLoop, Sessions or RequestArrays of ridgepoint"
    )


def _json(kind: str, **values: Any) -> Described:
    return json.dumps({"kind": kind, **values}), _NOTHING, _NOTHING, _NOTHING


def _nanoseconds(arrival_s: npt.ArrayLike) -> npt.NDArray[np.uint64]:
    seconds = np.asarray(arrival_s, dtype=np.float64)
    possible = (seconds >= 0) & (seconds <= _MOST_S)
    if seconds.ndim != 1:
        raise RidgepointError(f"arrival_s must have one dimension, and its shape is {list(seconds.shape)}")
    if not possible.all():
        index = int(np.argmin(possible))
        raise RidgepointError(f"arrival_s[{index}] = {seconds[index]} must be from 0 to {_MOST_S:.0e} s")
    return np.rint(seconds * 1e9).astype(np.uint64)
