"""The sweep on a local Ray cluster."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from ridgepoint import Deployment, StepModel

SWEEP = Path(__file__).parents[1] / "examples" / "ray_sweep.py"


@pytest.mark.ray
def test_the_sweep_finds_what_the_library_says(tmp_path: Path) -> None:
    # Neither reports home nor leaves its cluster's token in the home folder.
    environment = {**os.environ, "RAY_USAGE_STATS_ENABLED": "0", "RAY_AUTH_TOKEN_PATH": str(tmp_path / "token")}
    (tmp_path / "token").write_text(os.urandom(32).hex())
    done = subprocess.run(
        [sys.executable, str(SWEEP)], env=environment, cwd=tmp_path, check=True, capture_output=True, text=True, timeout=300
    )
    rows = [line.split() for line in done.stdout.splitlines()]
    # 8 models, 5 GPUs, 4 sizes, 9 batches, 7 contexts.
    assert rows[-1][:2] == ["10080", "configurations,"] and 2000 < int(rows[-1][2]) < 10080
    best = {row[0]: row[1:] for row in rows[1:-1]}
    assert len(best) == 8
    for model, (hardware, size, batch, context, ms, tokens) in best.items():
        steps = StepModel(model, hardware, Deployment(tensor_parallel_size=int(size)))
        computed = np.full(int(batch), int(context), dtype=np.uint32)
        time_us = steps.step_time_us(computed, np.ones_like(computed))
        assert float(ms) == pytest.approx(time_us / 1e3, abs=0.006) and time_us <= 50_000
        assert float(tokens) == pytest.approx(int(batch) / (time_us / 1e6) / int(size), abs=1)
        assert int(batch) * (int(context) + 1) <= steps.kv_capacity().usable_tokens
