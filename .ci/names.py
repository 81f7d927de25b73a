#!/usr/bin/env python3
"""Every name of a struct, enum, union, trait or type alias is declared once in the code of its package, tests left out. The associated types
of traits and their impls are no declarations."""

import re
import sys
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ["src", "replay/src", "lab/src", "probe/src", "serve/src", "cli/src", "bindings/c/src", "bindings/python/src"]
# Comments, strings and characters: they may have braces and keywords. A lifetime is no character.
QUOTED = re.compile(
    r"""//[^\n]*|/\*.*?\*/|\br(?P<hashes>\#*)".*?"(?P=hashes)|"(?:\\.|[^"\\])*"|'(?:\\[^'\n]+|\\'|[^'\\\n])'""", re.DOTALL
)
TEST = re.compile(r"#\[cfg\(test\)\]")
TEST_FILE = re.compile(r'#\[cfg\(test\)\]\s*(?:#\[(?:path = "(?P<path>[^"]+)"|.*?)\]\s*)*(?:pub(?:\(\w+\))? )?mod (?P<name>\w+);')
TOKEN = re.compile(r"[{};]|\b(?:impl|trait)\b|\b(?P<kind>struct|enum|union|trait|type) (?P<name>[A-Z]\w*)")


def without_tests(code):
    """The code without the items that are compiled for tests alone."""
    while found := TEST.search(code):
        depth, end = 0, len(code)
        for brace in re.finditer(r"[{};]", code[found.end() :]):
            depth += {"{": 1, "}": -1, ";": 0}[brace[0]]
            if depth == 0:
                end = found.end() + brace.end()
                break
        code = code[: found.start()] + re.sub(r"[^\n]", " ", code[found.start() : end]) + code[end:]
    return code


def declared(code):
    """Pairs of a name and its line."""
    # Whether each open brace is the body of a trait or an impl, and whether the next one will be.
    bodies, next_is_one = [], False
    for token in TOKEN.finditer(code):
        if token[0] == "{":
            bodies.append(next_is_one)
        elif token[0] == "}":
            bodies.pop()
        if token["name"] and not (token["kind"] == "type" and bodies and bodies[-1]):
            yield token["name"], code.count("\n", 0, token.start()) + 1
        # `impl Trait` in a signature is inside parentheses or behind an arrow, not at the beginning of an item.
        is_item = token[0].startswith(("impl", "trait ")) and re.search(r"(^|[{};\]]|pub(\(\w+\))?|unsafe)\s*$", code[: token.start()])
        next_is_one = bool(is_item) or (next_is_one and token[0] not in "{};")
    assert not bodies, "a brace is not closed"


def test_files(path, text):
    """Files and folders of the modules that a file declares for tests alone."""
    folder = path.parent if path.name in ("mod.rs", "lib.rs", "main.rs") else path.with_suffix("")
    for module in TEST_FILE.finditer(text):
        if module["path"]:
            yield path.parent / module["path"]
        else:
            yield folder / f"{module['name']}.rs"
            yield folder / module["name"]


collisions = 0
for package in PACKAGES:
    texts = {path: path.read_text() for path in sorted((ROOT / package).rglob("*.rs"))}
    tests = {test for path, text in texts.items() for test in test_files(path, text)}
    places = defaultdict(list)
    for path, text in texts.items():
        if tests.isdisjoint([path, *path.parents]):
            code = without_tests(QUOTED.sub(lambda quoted: re.sub(r"[^\n]", " ", quoted[0]), text))
            for name, line in declared(code):
                places[name].append(f"{path.relative_to(ROOT)}:{line}")
    twice = {name: of for name, of in places.items() if len(of) > 1}
    for name, of in sorted(twice.items()):
        print(f"{name} is declared more than once: {', '.join(of)}")
    print(f"{package}: {len(places)} names of types")
    collisions += len(twice)

if collisions:
    sys.exit(f"{collisions} collisions: a type's name is unique in its package")
