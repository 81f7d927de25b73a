"""Dataclasses from the JSON of the compiled half, and checks of figures that people type."""

import dataclasses
import operator
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from ._native import RidgepointError

T = TypeVar("T")

MOST_UINT32 = 2**32 - 1


def record(kind: type[T], values: Mapping[str, Any], **made: Any) -> T:
    """A dataclass of the keys that it has; ``made`` are those that are made of several or nested."""
    known = {}
    for field in dataclasses.fields(kind):  # type: ignore[arg-type]
        if field.name in made:
            known[field.name] = made[field.name]
        elif field.name in values or field.default is dataclasses.MISSING:
            known[field.name] = values[field.name]
    return kind(**known)


def columns(rows: Iterable[Any], kind: type[Any]) -> dict[str, list[Any]]:
    """A list per field of a dataclass, as ``pandas.DataFrame`` and ``pyarrow.table`` take them."""
    listed = list(rows)
    return {field.name: [getattr(row, field.name) for row in listed] for field in dataclasses.fields(kind)}


def whole_number(name: str, value: Any, least: int = 0, most: int = MOST_UINT32) -> int:
    """A whole number within bounds, numpy's own integers among them; what is none is an error that says so."""
    if isinstance(value, bool):
        raise TypeError(f"{name} = {value} must be a whole number")
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{name} = {value!r} must be a whole number") from None
    if not least <= number <= most:
        raise RidgepointError(f"{name} = {number} must be from {least} to {most}")
    return number


def real_number(name: str, value: Any) -> float:
    """A finite number."""
    if isinstance(value, (bool, str, bytes)):
        raise TypeError(f"{name} = {value!r} must be a number")
    try:
        number = float(value)
    except TypeError:
        raise TypeError(f"{name} = {value!r} must be a number") from None
    if number != number or number in (float("inf"), float("-inf")):
        raise RidgepointError(f"{name} = {number} must be finite")
    return number


def switch(name: str, value: Any) -> bool:
    """True or false, and nothing that is only taken for it."""
    if isinstance(value, bool):
        return value
    raise TypeError(f"{name} = {value!r} must be True or False")
