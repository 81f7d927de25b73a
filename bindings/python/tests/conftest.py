"""What several tests share."""

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from ridgepoint import StepModel

ROOT = Path(__file__).parents[3]

Command = Callable[..., str]


@pytest.fixture(scope="session")
def steps() -> StepModel:
    """Llama-3.1-8B on one H100, compiled once."""
    return StepModel("llama-3.1-8b", "h100")


@pytest.fixture(scope="session")
def root() -> Path:
    """The root of the checkout."""
    return ROOT


@pytest.fixture(scope="session")
def command() -> Command:
    """Runs the command that RIDGEPOINT_BIN names, in the root of the checkout, and gives back what it prints."""
    binary = shutil.which(os.environ.get("RIDGEPOINT_BIN", ""))
    if binary is None:
        pytest.skip("RIDGEPOINT_BIN does not name the command to compare with")
    path = binary

    def run(*arguments: str) -> str:
        done = subprocess.run([path, *arguments], cwd=ROOT, check=True, capture_output=True, text=True)
        return done.stdout

    return run
