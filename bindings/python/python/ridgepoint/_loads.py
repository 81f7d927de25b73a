"""What clients send."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ._native import RidgepointError
from ._record import real_number, whole_number

if TYPE_CHECKING:
    from ._native import Integers

_NOTHING: list[int] = []
_MOST_S = 1e9


@dataclass(frozen=True)
class Profile:
    """A load profile as the load generator inference-perf reads it (YAML or JSON)."""

    path: str | os.PathLike[str]


@dataclass(frozen=True)
class RequestFile:
    """Requests one by one: csv or jsonl with arrival, input and output length, or a published trace."""

    path: str | os.PathLike[str]
    format: str | None = None
    """"csv", "jsonl", "mooncake", "azure", "vllm-bench" or "llmservingsim"; None leaves it to the file."""


@dataclass(frozen=True)
class ClosedLoop:
    """Equal requests of which `concurrency` are in flight, each replaced as soon as it is done."""

    concurrency: int
    input_len: int
    """Tokens of each prompt."""
    output_len: int
    """Tokens that each generates."""
    num_requests: int | None = None
    """Requests in all; ten times as many as are in flight where left out."""


@dataclass(frozen=True)
class OpenLoop:
    """Equal requests, `request_rate` of them per second on average, at random times."""

    request_rate: float
    input_len: int
    """Tokens of each prompt."""
    output_len: int
    """Tokens that each generates."""
    num_requests: int
    burstiness: float = 1.0
    """Shape of the gamma distribution of the times between requests: 1 is Poisson, less is burstier."""


@dataclass(frozen=True, eq=False)
class RequestArrays:
    """Requests as equally long columns, in order of arrival."""

    arrival_s: npt.ArrayLike
    """When each is sent, seconds from the start."""
    input_len: Integers
    """Tokens of each prompt."""
    output_len: Integers
    """Tokens that each generates."""


Load = Profile | RequestFile | ClosedLoop | OpenLoop | RequestArrays

Described = tuple[str, "Integers", "Integers", "Integers"]


def described(load: Load) -> Described:
    """The load for the compiled half: JSON, and columns where it has some."""
    match load:
        case Profile(path):
            return _json("profile", path=os.fspath(path))
        case RequestFile(path, format):
            return _json("request_file", path=os.fspath(path), format=format)
        case ClosedLoop(concurrency, input_len, output_len, num_requests):
            concurrency = whole_number("concurrency", concurrency)
            return _json(
                "closed_loop",
                concurrency=concurrency,
                input_len=whole_number("input_len", input_len),
                output_len=whole_number("output_len", output_len),
                num_requests=whole_number(
                    "num_requests", 10 * concurrency if num_requests is None else num_requests, most=2**63
                ),
            )
        case OpenLoop(request_rate, input_len, output_len, num_requests, burstiness):
            return _json(
                "open_loop",
                requests_per_s=real_number("request_rate", request_rate),
                input_len=whole_number("input_len", input_len),
                output_len=whole_number("output_len", output_len),
                num_requests=whole_number("num_requests", num_requests, most=2**63),
                burstiness=real_number("burstiness", burstiness),
            )
        case RequestArrays(arrival_s, input_len, output_len):
            return _json("request_arrays")[0], _nanoseconds(arrival_s), input_len, output_len
    raise TypeError(
        f"load = {load!r} must be a Profile, RequestFile, ClosedLoop, OpenLoop or RequestArrays of ridgepoint"
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
