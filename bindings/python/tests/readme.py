"""Blocks of the package's README behind their markers: ``python tests/readme.py NAME``."""

import sys
from pathlib import Path

README = Path(__file__).parents[1] / "README.md"


def block(name: str) -> str:
    """The fenced block behind ``<!-- ci: NAME -->``."""
    behind = README.read_text(encoding="utf-8").split(f"<!-- ci: {name} -->\n", 1)
    if len(behind) < 2:
        raise SystemExit(f"README.md has no marker <!-- ci: {name} -->")
    return behind[1].split("\n", 1)[1].split("```", 1)[0]


if __name__ == "__main__":
    sys.stdout.write(block(sys.argv[1]))
