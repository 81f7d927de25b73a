#!/usr/bin/env python3
"""Checks or renews every figure in README.md and docs/ that a ridgepoint command prints.

usage: docs/figures.py [--write] [--only NAME]... [--reuse]

These markers are read:

    <!-- ci: NAME command -->          the next fenced block is a command; it runs in the root of the checkout
    <!-- ci: NAME output -->           the next fenced block is what that command prints
    <!-- ci: NAME output excerpt -->   the same in part: a line `...` skips at least one line of the output
    <!-- ci: file PATH -->             the next fenced block is this file
    <!-- figures: NAME --> ... <!-- /figures -->    a table that docs/figure_tables/ makes from JSON output
    <!-- figure: NAME -->3.3<!-- / -->              one number in a sentence, from the same place

Without --write the script compares and exits with 1 if anything differs, one line per cell. With --write it rewrites the
text. --only limits it to some names. --reuse takes the JSON that an earlier run left in target/figures.

RIDGEPOINT names the command to run; otherwise target/release/ridgepoint is built. Figures that come from measurements are
skipped unless RIDGEPOINT_DATA names the folder that holds them. Python's standard library is enough.
"""

import argparse
import difflib
import functools
import json
import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.dont_write_bytecode = True
sys.path.insert(0, str(ROOT / "docs"))

import figure_tables  # noqa: E402

SKIP = "..."
FENCED = r"<!-- ci: {name} -->\n```\w*\n(.*?)```"
FILE = re.compile(FENCED.format(name=r"file (\S+)"), re.DOTALL)
TABLE = re.compile(r"(<!-- figures: (\S+) -->\n)(.*?)(<!-- /figures -->)", re.DOTALL)
NUMBER = re.compile(r"(<!-- figure: (\S+) -->)(.*?)(<!-- / -->)", re.DOTALL)
CARGO_RUN = "cargo run --release --"


class NoData(Exception):
    """A report needs measurements that are not there."""


class BadExcerpt(Exception):
    """An excerpt does not fit the output, so that its lines must be chosen anew by hand."""


def printed(line):
    """The standard output of a command that runs in the root of the checkout. A failure ends the script."""
    done = subprocess.run(line, cwd=ROOT, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"exit code {done.returncode}: {done.stdout}{done.stderr}")
    return done.stdout


class Reports:
    """JSON output of the commands that figures come from. Each command runs once."""

    def __init__(self, reuse):
        self.reuse = reuse
        self.known = {}
        self.out = ROOT / "target/figures"
        self.out.mkdir(parents=True, exist_ok=True)
        data = os.environ.get("RIDGEPOINT_DATA")
        self.data = Path(data).resolve() if data else None
        self.root = ROOT

    @functools.cached_property
    def command(self):
        """The command, built when the first figure needs it."""
        if given := os.environ.get("RIDGEPOINT"):
            return given
        subprocess.run(["cargo", "build", "--release", "--locked", "--quiet"], cwd=ROOT, check=True)
        target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
        return str((target / "release/ridgepoint").resolve())

    def path(self, *parts):
        """A path in the folder of measurements."""
        if self.data is None:
            raise NoData
        return self.data.joinpath(*parts)

    def read(self, *arguments):
        """The JSON that the command prints for these arguments."""
        line = " ".join(str(argument) for argument in arguments)
        if line not in self.known:
            self.known[line] = self.run(line, arguments)
        return self.known[line]

    def run(self, line, arguments):
        kept = self.out / (re.sub(r"[^\w.-]+", "_", line.replace(str(self.data), "DATA")) + ".json")
        if self.reuse and kept.exists():
            return json.loads(kept.read_text())
        print(f"ridgepoint {line}", file=sys.stderr, flush=True)
        text = printed([self.command, *map(str, arguments), "--format", "json"])
        kept.write_text(text)
        return json.loads(text)

    def tested(self, binary, name, package="ridgepoint"):
        """What the tests of this name print."""
        line = f"cargo test --locked -p {package} --test {binary} {name} -- --nocapture"
        if line not in self.known:
            print(line, file=sys.stderr, flush=True)
            self.known[line] = printed(line.split())
        return self.known[line]

    def fitted(self):
        """The report of the fit of the built-in correction. Its files are left in target/corrections."""
        if "fit" not in self.known:
            out = ROOT / "target/corrections"
            out.mkdir(parents=True, exist_ok=True)
            line = [".ci/corrections.sh", self.command, str(self.path()), str(out), "--format", "json"]
            print(" ".join(line), file=sys.stderr, flush=True)
            self.known["fit"] = json.loads(printed(line))
        return self.known["fit"]

    def shown(self, line):
        """What a command line of the documents prints on stdout."""
        line = line.strip()
        print(line, file=sys.stderr, flush=True)
        if "$RIDGEPOINT_DATA" in line and self.data is None:
            raise NoData
        # A sweep would resume from the rows of an earlier run, and say so.
        for path in re.findall(r"--out (\S+)", line):
            (ROOT / path).unlink(missing_ok=True)
        line = re.sub(rf"^({re.escape(CARGO_RUN)}|ridgepoint\b)", self.command, line, flags=re.MULTILINE)
        return printed(["bash", "-euc", line])


def label(line):
    """What identifies a line of output: its text up to the first number or gap. Rulers have one label, empty lines another."""
    return re.split(r" {2,}|\d", line.strip())[0].strip(" ─") or line.strip()[:1]


def excerpt(place, shown, output):
    """The lines of `output` that `shown` has, found by their labels in order; `...` stays where lines are left out."""
    lines, at, may_skip = output.splitlines(), 0, False
    made = []
    for line in shown.splitlines():
        if line == SKIP:
            made.append(line)
            may_skip = True
            continue
        places = [index for index in range(at, len(lines)) if label(lines[index]) == label(line)]
        skipped = bool(places) and places[0] > at
        if not places or skipped != may_skip:
            why = "no line of the output has it" if not places else "'...' must be where lines are left out, and only there"
            raise BadExcerpt(f"{place}: the excerpt's line '{label(line)}': {why}")
        made.append(lines[places[0]])
        at, may_skip = places[0] + 1, False
    if (at < len(lines)) != may_skip:
        raise BadExcerpt(f"{place}: '...' must end the excerpt if the output goes on, and only then")
    return "\n".join(made) + "\n"


def cells(line):
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def differences(name, old, new):
    """Cells of a Markdown table that differ, or lines of a text that do."""
    before, after = old.splitlines(), new.splitlines()
    if len(before) != len(after) or not new.startswith("|"):
        return [line for line in difflib.unified_diff(before, after, f"{name}: written", f"{name}: printed", lineterm="", n=0)]
    found = []
    head = cells(after[0])
    for was, now in zip(before, after, strict=True):
        was, now = cells(was), cells(now)
        if len(was) != len(now):
            found.append(f"{name}: row {now[0]}: {len(was)} cells, must be {len(now)}")
            continue
        for column, one, other in zip(head, was, now, strict=False):
            if one != other:
                found.append(f"{name}: row '{now[0]}', column '{column}': written {one}, printed {other}")
    return found


class Checker:
    """Goes through the documents, and collects what differs."""

    def __init__(self, reports, only, write):
        self.reports, self.only, self.write = reports, only, write
        self.found, self.checked, self.skipped, self.used = [], [], [], set()

    def wanted(self, name):
        return not self.only or name in self.only

    def value(self, path, name, make):
        """What belongs at a marker, or None if it is skipped."""
        if not self.wanted(name):
            return None
        try:
            text = make()
        except NoData:
            self.skipped.append(name)
            return None
        self.checked.append(name)
        return text

    def compare(self, path, name, old, new):
        if new is None:
            return old
        if old != new:
            self.found += differences(f"{path.relative_to(ROOT)}: {name}", old, new)
        return new

    def document(self, path):
        text = before = path.read_text()
        for name, part in re.findall(r"<!-- ci: (\S+) output( excerpt)? -->", text):
            command = re.search(FENCED.format(name=f"{name} command"), text, re.DOTALL)
            output = re.search(FENCED.format(name=f"{name} output{part}"), text, re.DOTALL)
            if not command or not output:
                sys.exit(f"{path}: '{name}' needs a fenced block behind both of its markers")
            new = self.value(path, name, lambda: self.reports.shown(command[1]))
            if new is not None and part:
                try:
                    new = excerpt(f"{path.relative_to(ROOT)}: {name}", output[1], new)
                except BadExcerpt as error:
                    self.found.append(str(error))
                    continue
            new = self.compare(path, name, output[1], new)
            text = text[: output.start(1)] + new + text[output.end(1) :]

        def table(match):
            name = match[2]
            self.used.add(name)
            if name not in figure_tables.TABLES:
                sys.exit(f"{path}: no table is called '{name}'; there are {', '.join(figure_tables.TABLES)}")
            new = self.value(path, name, lambda: "\n".join(figure_tables.TABLES[name](self.reports)) + "\n")
            return match[1] + self.compare(path, name, match[3], new) + match[4]

        def number(match):
            name = match[2]
            self.used.add(name)
            if name not in figure_tables.NUMBERS:
                sys.exit(f"{path}: no number is called '{name}'; there are {', '.join(figure_tables.NUMBERS)}")
            new = self.value(path, name, lambda: figure_tables.NUMBERS[name](self.reports))
            return match[1] + self.compare(path, name, match[3], new) + match[4]

        def file(match):
            new = self.value(path, match[1], (ROOT / match[1]).read_text)
            new = self.compare(path, match[1], match[2], new)
            return match[0][: -len(match[2]) - 3] + new + "```"

        text = FILE.sub(file, NUMBER.sub(number, TABLE.sub(table, text)))
        if self.write and text != before:
            path.write_text(text)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="rewrite the documents instead of comparing")
    parser.add_argument("--only", action="append", default=[], metavar="NAME", help="check this name alone; repeatable")
    parser.add_argument("--reuse", action="store_true", help="take JSON from target/figures if it is there")
    arguments = parser.parse_args()

    checker = Checker(Reports(arguments.reuse), arguments.only, arguments.write)
    for path in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]:
        checker.document(path)
    if unknown := set(arguments.only) - set(checker.checked) - set(checker.skipped):
        sys.exit(f"no document has a marker called {', '.join(sorted(unknown))}")
    if unused := {*figure_tables.TABLES, *figure_tables.NUMBERS} - checker.used:
        sys.exit(f"no document shows {', '.join(sorted(unused))}: delete it from docs/figure_tables/")
    for line in checker.found:
        print(line)
    done = "rewritten" if arguments.write else "stale"
    print(f"{len(checker.checked)} blocks compared, {len(checker.found)} differences ({done})")
    if checker.skipped:
        print(f"skipped, as RIDGEPOINT_DATA names no measurements: {', '.join(checker.skipped)}")
    sys.exit(1 if checker.found and not arguments.write else 0)


if __name__ == "__main__":
    main()
