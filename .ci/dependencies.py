#!/usr/bin/env python3
"""Judges the resolved dependencies by the lists of deny.toml: licences, duplicate versions, sources. It needs no tool other than cargo.

cargo-deny judges the same, and security advisories as well."""

import re
import subprocess
import sys
from pathlib import Path

try:
    import tomllib
except ModuleNotFoundError:
    print("skipped: reading deny.toml takes Python 3.11")
    sys.exit(0)

ROOT = Path(__file__).resolve().parent.parent


def allowed(expression, licences):
    """Whether an SPDX expression can be met by allowed licences. `A/B`, as old crates write it, means `A OR B`."""
    tokens = re.findall(r"\(|\)|[^()\s]+", expression.replace("/", " OR "))
    words, at = [], 0
    while at < len(tokens):
        token = tokens[at]
        if at + 2 < len(tokens) and tokens[at + 1] == "WITH":
            token, at = f"{token} WITH {tokens[at + 2]}", at + 2
        words.append({"OR": "or", "AND": "and"}.get(token, token if token in "()" else str(token in licences)))
        at += 1
    # Nothing but parentheses, and, or, True and False is left.
    return eval(" ".join(words), {"__builtins__": {}})


def compatible(version):
    """The part of a version that must be equal for cargo to use one crate for both."""
    major, minor, patch = version.split("+")[0].split("-")[0].split(".")[:3]
    return major if major != "0" else f"0.{minor}" if minor != "0" else f"0.0.{patch}"


def main():
    rules = tomllib.loads((ROOT / "deny.toml").read_text())
    tree = "cargo tree --locked --workspace --all-features --target all --edges normal,build,dev --prefix none --format {p}\t{l}"
    lines = subprocess.run(tree.split(" "), cwd=ROOT, check=True, capture_output=True, text=True).stdout.splitlines()
    packages = sorted({tuple(line.removesuffix(" (*)").split("\t")) for line in lines if line})
    licences = set(rules["licenses"]["allow"])
    exceptions = {rule["crate"]: set(rule["allow"]) for rule in rules["licenses"]["exceptions"]}
    skipped = {rule["crate"].split("@")[0] for rule in rules["bans"]["skip"]}
    banned = {rule["crate"] for rule in rules["bans"]["deny"]}
    problems, versions = [], {}
    for package, licence in packages:
        name, version, *marks = package.split(" ", 2)
        if not allowed(licence or "none", licences | exceptions.get(name, set())):
            problems.append(f"{package}: licence '{licence}' is not allowed by deny.toml")
        # Packages of crates.io have no place behind their version.
        if any(mark != "(proc-macro)" and not mark.startswith(f"({ROOT}") for mark in marks):
            problems.append(f"{package}: is not from crates.io")
        if name in banned:
            problems.append(f"{package}: is banned by deny.toml")
        versions.setdefault(name, set()).add(compatible(version.removeprefix("v")))
    for name, found in sorted(versions.items()):
        if len(found) > 1 and name not in skipped:
            problems.append(f"{name}: is there as {', '.join(sorted(found))}; use one, or add it to bans.skip with the reason")
    problems += [f"{name}: is in bans.skip and there once" for name in sorted(skipped) if len(versions.get(name, ())) < 2]
    print("\n".join(problems) or f"{len(packages)} packages: licences, versions and sources are as deny.toml says")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
