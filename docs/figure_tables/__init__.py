"""The tables and numbers of README.md and docs/ that docs/figures.py checks, each made from the JSON of ridgepoint commands."""

from . import arguments, closed_loops, kernels, serving, steps
from .numbers import NUMBERS

TABLES = arguments.TABLES | serving.TABLES | steps.TABLES | closed_loops.TABLES | kernels.TABLES

__all__ = ["NUMBERS", "TABLES"]
