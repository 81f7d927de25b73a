"""The package and the command say the same of a step."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from conftest import Command
from ridgepoint import ClosedLoop, Deployment, Scheduler, StepModel


@pytest.mark.parametrize(
    ("model", "hardware", "flags", "deployment"),
    [
        ("llama-3.1-70b", "h100", ["--tensor-parallel-size", "4"], Deployment(tensor_parallel_size=4)),
        ("mixtral-8x7b", "a100", ["--tp", "2", "--enforce-eager"], Deployment(tensor_parallel_size=2, enforce_eager=True)),
        ("qwen3-32b", "l40s", ["--kv-cache-dtype", "fp8"], Deployment(kv_cache_dtype="fp8")),
        ("llama-3.1-8b", "b200", ["--correction", "none"], Deployment()),
    ],
)
def test_a_step_is_what_the_command_says(
    command: Command, root: Path, model: str, hardware: str, flags: list[str], deployment: Deployment
) -> None:
    batch = "examples/mixed_batch.json"
    said = json.loads(
        command("predict-step", "--model", model, "--hardware", hardware, *flags, "--batch", batch, "--format", "json")
    )
    requests = json.loads((root / batch).read_text())["requests"]
    columns = (
        [request["num_computed_tokens"] for request in requests],
        [request["num_scheduled_tokens"] for request in requests],
        [request.get("samples", True) for request in requests],
    )
    correction = "none" if "none" in flags else "auto"
    steps = StepModel(model, hardware, deployment, correction=correction)
    step = steps.predict(*columns)
    for key in ("step_time_us", "lower_us", "upper_us", "bound_us", "total_flops", "total_bytes", "mfu", "mbu"):
        assert getattr(step, key) == pytest.approx(said[key], rel=1e-12), key
    assert step.warnings == said["warnings"] and step.correction == said["correction"]["name"]
    assert (step.graph_mode, step.padded_tokens) == (said["graph_mode"], said["padded_tokens"])
    assert [operator.name for operator in step.operators] == [operator["name"] for operator in said["operators"]]
    assert [operator.time_us for operator in step.operators] == pytest.approx(
        [operator["time_us"] for operator in said["operators"]], rel=1e-12
    )
    assert steps.step_time_us(*columns) == pytest.approx(said["step_time_us"], rel=1e-3)


def test_the_catalogues_are_the_commands(command: Command) -> None:
    import ridgepoint

    said = json.loads(command("models", "--format", "json"))["models"]
    assert [model.name for model in ridgepoint.models()] == [model["name"] for model in said]
    assert [model.active_parameters for model in ridgepoint.models()] == [of["parameters"]["active"] for of in said]


def test_the_wheel_installs_the_command(command: Command) -> None:
    arguments = ["predict-step", "--model", "llama-3.1-8b", "--hardware", "h100", "--decode", "64x2048"]
    script = str(Path(sys.executable).with_name("ridgepoint"))
    for program in ([script], [sys.executable, "-m", "ridgepoint"]):
        run = subprocess.run([*program, *arguments], capture_output=True, text=True, check=True)
        assert run.stdout == command(*arguments)
        assert subprocess.run([*program, "predict-stop"], capture_output=True, check=False).returncode == 2
        assert subprocess.run([*program, "models", "no-such-model"], capture_output=True, check=False).returncode == 1


def test_misspelt_keywords_come_with_the_right_ones() -> None:
    for wrong, near in (
        (lambda: Deployment(tensor_paralel_size=4), "did you mean tensor_parallel_size"),  # type: ignore[call-arg]
        (lambda: Scheduler(async_schedule=True), "did you mean async_scheduling"),  # type: ignore[call-arg]
        (lambda: ClosedLoop(1, 2, 3, requests=4), "did you mean num_requests"),  # type: ignore[call-arg]
        (lambda: ClosedLoop(1, 2, 3, x=4), "it takes concurrency, input_len"),  # type: ignore[call-arg]
    ):
        with pytest.raises(TypeError, match=near):
            wrong()
