"""Loads: the requests that clients send."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ._native import RidgepointError
from ._record import real_number, suggests_keywords, whole_number

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
@dataclass(frozen=True)
class ClosedLoop:
    """Equal requests, `concurrency` of them in flight. A finished request is replaced immediately."""

    concurrency: int
    input_len: int
    """Prompt length, tokens."""
    output_len: int
    """Output length, tokens."""
    num_requests: int | None = None
    """Number of requests. Defaults to ten times `concurrency`."""


@suggests_keywords
@dataclass(frozen=True)
class OpenLoop:
    """Equal requests at random times, `request_rate` per second on average."""

    request_rate: float
    input_len: int
    """Prompt length, tokens."""
    output_len: int
    """Output length, tokens."""
    num_requests: int
    burstiness: float = 1.0
    """Shape of the gamma distribution of the gaps between requests. 1 is a Poisson process; smaller values are burstier."""


@suggests_keywords
@dataclass(frozen=True)
class Sessions:
    """Sessions of several turns. The prompt of a turn is the turn before with its output, then `input_len` new tokens. A turn is sent when the
    turn before has finished. Give `request_rate` or `concurrency`.
    """

    turns: int
    """Turns of each session. Sessions of one turn are requests that share a prefix."""
    input_len: int
    """New prompt tokens of each turn."""
    output_len: int
    """Output length of each turn, tokens."""
    num_sessions: int | None = None
    """Number of sessions. Defaults to ten times `concurrency`; a rate has no default."""
    request_rate: float | None = None
    """Sessions that start per second, at random times."""
    concurrency: int | None = None
    """Sessions at once. A session that ends is replaced immediately."""
    prefix_len: int = 0
    """Tokens at the beginning of every prompt that all sessions share, such as a system prompt."""
    think_time_s: float = 0.0
    """Mean time from the end of a turn to the next, s. Times are exponential."""
    burstiness: float | None = None
    """Shape of the gamma distribution of the gaps between starts at a rate. Defaults to 1, a Poisson process."""


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
        case ClosedLoop(concurrency, input_len, output_len, num_requests):
            return _json(
                "closed_loop",
                concurrency=whole_number("concurrency", concurrency),
                input_len=whole_number("input_len", input_len),
                output_len=whole_number("output_len", output_len),
                num_requests=None if num_requests is None else whole_number("num_requests", num_requests, most=2**63),
            )
        case OpenLoop(request_rate, input_len, output_len, num_requests, burstiness):
            return _json(
                "open_loop",
                request_rate=real_number("request_rate", request_rate),
                input_len=whole_number("input_len", input_len),
                output_len=whole_number("output_len", output_len),
                num_requests=whole_number("num_requests", num_requests, most=2**63),
                burstiness=real_number("burstiness", burstiness),
            )
        case Sessions():
            return _sessions(load)
        case RequestArrays(arrival_s, input_len, output_len):
            return _json("request_arrays")[0], _nanoseconds(arrival_s), input_len, output_len
    raise TypeError(
        f"load = {load!r} must be a Profile, RequestFile, ClosedLoop, OpenLoop, Sessions or RequestArrays of ridgepoint"
    )


def _sessions(of: Sessions) -> Described:
    concurrency = None if of.concurrency is None else whole_number("concurrency", of.concurrency)
    return _json(
        "sessions",
        request_rate=None if of.request_rate is None else real_number("request_rate", of.request_rate),
        concurrency=concurrency,
        num_sessions=None if of.num_sessions is None else whole_number("num_sessions", of.num_sessions, most=2**63),
        turns=whole_number("turns", of.turns),
        prefix_len=whole_number("prefix_len", of.prefix_len),
        input_len=whole_number("input_len", of.input_len),
        output_len=whole_number("output_len", of.output_len),
        think_time_s=real_number("think_time_s", of.think_time_s),
        burstiness=None if of.burstiness is None else real_number("burstiness", of.burstiness),
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
