"""Dataclasses from JSON, and checks of arguments."""

import dataclasses
import difflib
import functools
import json
import operator
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

import numpy as np

from . import _native
from ._native import RidgepointError

T = TypeVar("T")

MOST_UINT32 = 2**32 - 1
MOST_UINT64 = 2**64 - 1


def record(kind: type[T], values: Mapping[str, Any], **made: Any) -> T:
    """Makes a dataclass from the keys that it has. ``made`` holds fields that are nested or derived."""
    known = {}
    for field in dataclasses.fields(kind):  # type: ignore[arg-type]
        if field.name in made:
            known[field.name] = made[field.name]
        elif field.name in values or field.default is dataclasses.MISSING:
            known[field.name] = values[field.name]
    return kind(**known)


def suggests_keywords(kind: type[T]) -> type[T]:
    """Makes a dataclass name the nearest keyword when it is given an unknown one, as Python does from 3.13."""
    init = kind.__init__
    names = [field.name for field in dataclasses.fields(kind)]  # type: ignore[arg-type]

    @functools.wraps(init)
    def checked(self: T, *values: Any, **keywords: Any) -> None:
        for name in keywords.keys() - set(names):
            near = difflib.get_close_matches(name, names, n=1)
            hint = f"; did you mean {near[0]}?" if near else f"; it takes {', '.join(names)}"
            raise TypeError(f"{kind.__name__} has no argument '{name}'{hint}")
        init(self, *values, **keywords)

    setattr(kind, "__init__", checked)  # mypy knows no assignment to a method
    return kind


def columns(rows: Iterable[Any], kind: type[Any]) -> dict[str, list[Any]]:
    """Returns a list for each field of a dataclass, for ``pandas.DataFrame`` or ``pyarrow.table``."""
    listed = list(rows)
    return {field.name: [getattr(row, field.name) for row in listed] for field in dataclasses.fields(kind)}


def index(name: str, value: Any) -> int:
    """Checks that `value` is a whole number. numpy integers are allowed."""
    if isinstance(value, bool):
        raise TypeError(f"{name} = {value} must be a whole number")
    try:
        return operator.index(value)
    except TypeError:
        raise TypeError(f"{name} = {value!r} must be a whole number") from None


def whole_number(name: str, value: Any, least: int = 0, most: int = MOST_UINT32) -> int:
    """Checks that `value` is a whole number within bounds."""
    number = index(name, value)
    if not least <= number <= most:
        raise RidgepointError(f"{name} = {number} must be from {least} to {most}")
    return number


def real_number(name: str, value: Any) -> float:
    """Checks that `value` is a finite number."""
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
    """Checks that `value` is a bool."""
    if isinstance(value, bool):
        return value
    raise TypeError(f"{name} = {value!r} must be True or False")


class Arguments:
    """The base of classes of arguments. Values are of the types that the fields name, and in the ranges that the command takes."""

    _section: str

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):  # type: ignore[arg-type]
            value = getattr(self, field.name)
            if value is not None:
                object.__setattr__(self, field.name, _of_kind(field.name, str(field.type), value))
            elif field.default is dataclasses.MISSING:
                raise TypeError(f"{type(self).__name__} needs {field.name}")
        _native.check_arguments(self._section, self._json())

    def __repr__(self) -> str:
        values = ((field.name, getattr(self, field.name)) for field in dataclasses.fields(self))  # type: ignore[arg-type]
        given = ", ".join(f"{name}={value!r}" for name, value in values if value is not None)
        return f"{type(self).__name__}({given})"

    def _json(self) -> str:
        """The values that were given, but for nested objects of this package."""
        values = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}  # type: ignore[arg-type]
        given = {name: value for name, value in values.items() if value is not None and not dataclasses.is_dataclass(value)}
        return json.dumps(given, default=_plain)


def _plain(value: Any) -> Any:
    """Returns what lies within a mapping as JSON has it."""
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{value!r} must be a number, a text, a list or a mapping")


def _of_kind(name: str, kind: str, value: Any) -> Any:
    """Returns a value as its field's type. numpy's numbers are allowed. The schema's reader judges the range."""
    kinds = [one.split("[")[0] for one in kind.split(" | ")]
    if isinstance(value, str) and ("str" in kinds or "Literal" in kinds):
        return value
    if isinstance(value, Mapping) and "Mapping" in kinds:
        return dict(value)
    if dataclasses.is_dataclass(value) and "KvOffload" in kinds:
        return value
    if isinstance(value, Iterable) and "tuple" in kinds:
        return tuple(index(name, one) for one in value)
    match kinds[0]:
        case "int":
            return index(name, value)
        case "float":
            return real_number(name, value)
        case "bool":
            return switch(name, value)
    wanted = {"Mapping": "mapping", "KvOffload": "ridgepoint.KvOffload", "tuple": "list of whole numbers"}
    raise TypeError(f"{name} = {value!r} must be a {wanted.get(kinds[0], 'text')}")
