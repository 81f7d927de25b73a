#!/usr/bin/env python3
"""Writes python/ridgepoint/_arguments.py from `ridgepoint arguments --format json`.

usage: generate.py [--check] [COMMAND]

COMMAND is the command `ridgepoint`, target/debug/ridgepoint of the checkout by default. With --check nothing is written, and a file
that is not what would be written is an error. Python's standard library is enough.
"""

import json
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
FILE = HERE / "python/ridgepoint/_arguments.py"
WIDTH = 140

HEAD = '''"""Engine arguments and loads. Made by generate.py from the list of arguments that the command prints: do not edit it by hand."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from ._record import Arguments, suggests_keywords

if TYPE_CHECKING:
    from ._replay import KvOffload
'''

DEPLOYMENT = """vLLM's engine arguments that a step depends on, under vLLM's names. None is vLLM's default.

`StepModel` checks them against the model: whether `tensor_parallel_size` divides the heads, for example.

Raises:
    TypeError: a value is of another type.
    RidgepointError: a value is out of its range. The message names all of them."""
SCHEDULER = "vLLM's engine arguments for the scheduler and the KV cache. None is vLLM's default."
CLOSED_LOOP = "Equal requests, `concurrency` of them in flight. A finished request is replaced immediately."
OPEN_LOOP = "Equal requests at random times, `request_rate` per second on average."
SESSIONS = (
    "Sessions of several turns. The prompt of a turn is the turn before with its output, then `input_len` new tokens. "
    "A turn is sent when the turn before has finished. Give `request_rate` or `concurrency`."
)

# A class has the arguments of a section, the first ones in this order, or only those that are listed.
CLASSES = [
    ("Deployment", "deployment", DEPLOYMENT, {}),
    ("Scheduler", "scheduler", SCHEDULER, {"first": ["num_gpu_blocks_override"], "without": ["kv_transfers"]}),
    (
        "ClosedLoop",
        "load",
        CLOSED_LOOP,
        {"required": ["concurrency", "input_len", "output_len"], "only": ["num_requests", "prefix_len"]},
    ),
    (
        "OpenLoop",
        "load",
        OPEN_LOOP,
        {
            "required": ["request_rate", "input_len", "output_len", "num_requests"],
            "only": ["burstiness", "prefix_len"],
        },
    ),
    (
        "Sessions",
        "load",
        SESSIONS,
        {
            "required": ["turns", "input_len", "output_len"],
            "only": ["num_sessions", "request_rate", "concurrency", "prefix_len", "think_time_s", "burstiness"],
        },
    ),
]
# Values that a function of the schema reads, by name; others of them are texts.
OWN = {"input_len": "int | Mapping[str, float]", "output_len": "int | Mapping[str, float]"}
SIMPLE = {"boolean": "bool", "integer": "int", "number": "float", "string": "str", "array": "tuple[int, ...]"}
KV_OFFLOAD = ["    kv_offload: KvOffload | None = None", '    """KV blocks in host memory, counted in blocks. Defaults to none."""']


def annotation(argument):
    """The type of an argument's values."""
    schema = argument["schema"]
    kinds = schema.get("type")
    if "enum" in schema:
        return f"Literal[{', '.join(json.dumps(name) for name in schema['enum'])}]"
    if argument["name"] in OWN:
        return OWN[argument["name"]]
    if isinstance(kinds, str):
        return SIMPLE[kinds]
    if "anyOf" in schema:
        return 'int | Literal["auto"]'
    return "Mapping[str, Any]" if "object" in kinds else "str"


def text(argument):
    """The description of a field."""
    default = f" Defaults to {argument['default']}." if argument["default"] else ""
    return f"{argument['help']}.{default}".replace("\\", "\\\\")


def wrapped(line, indent):
    """Lines of at most WIDTH characters."""
    lines, rest = [], line.split(" ")
    while rest:
        taken = 1
        while taken < len(rest) and len(indent + " ".join(rest[: taken + 1])) <= WIDTH - 3:
            taken += 1
        lines.append(indent + " ".join(rest[:taken]))
        rest = rest[taken:]
    return lines


def quoted(description, indent):
    lines = [line for part in description.split("\n") for line in (wrapped(part, indent) if part.strip() else [""])]
    lines[0] = f'{indent}"""{lines[0].lstrip()}'
    return [*lines[:-1], f'{lines[-1]}"""'] if len(lines) == 1 else [*lines, f'{indent}"""']


def made(name, section, description, choice, arguments):
    """The lines of a class."""
    of_section = {one["name"]: one for one in arguments if one["section"] == section and one["flag"]}
    modelled = [key for key, one in of_section.items() if one["support"] == "modelled"]
    required = choice.get("required", [])
    others = choice.get("only") or [key for key in modelled if key not in choice.get("without", [])]
    first = choice.get("first", [])
    keys = [*required, *first, *(key for key in others if key not in first)]
    lines = ["", "", "@suggests_keywords", "@dataclass(frozen=True, repr=False)", f"class {name}(Arguments):"]
    lines += [*quoted(description, "    "), "", f'    _section = "{section}"', ""]
    for key in keys:
        kind = annotation(of_section[key])
        lines.append(f"    {key}: {kind}" if key in required else f"    {key}: {kind} | None = None")
        lines += quoted(text(of_section[key]), "    ")
    return lines + (KV_OFFLOAD if name == "Scheduler" else [])


def main():
    words = sys.argv[1:]
    is_check = "--check" in words
    given = [word for word in words if word != "--check"]
    command = given[0] if given else HERE.parent.parent / "target/debug/ridgepoint"
    printed = subprocess.run([command, "arguments", "--format", "json"], capture_output=True, check=True, text=True)
    arguments = json.loads(printed.stdout)["arguments"]
    lines = [line for row in CLASSES for line in made(*row, arguments)]
    efficiency = next(one for one in arguments if one["name"] == "efficiency")
    engine = next(one for one in arguments if one["name"] == "engine" and one["section"] == "prediction")
    kinds = ["", f"Efficiency = {annotation(efficiency)}", f"Engine = {annotation(engine)}"]
    wanted = HEAD + "\n".join([*kinds, *lines]) + "\n"
    if not is_check:
        FILE.write_text(wanted)
    elif FILE.read_text() != wanted:
        sys.exit(f"{FILE} is not what the list of arguments makes: run bindings/python/generate.py")


if __name__ == "__main__":
    main()
