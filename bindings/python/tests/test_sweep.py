"""Sweeps: the command's rows, in this process, on pools and on a Ray cluster whose workers die."""

import importlib.util
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import BrokenExecutor, Executor, ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest

import ridgepoint
from conftest import Command
from ridgepoint import RidgepointError, SweepRows, _sweep, sweep

GRID: dict[str, Any] = {
    "server": {"model": "llama-3.1-8b", "hardware": ["h100", "h200"], "max_num_seqs": [2, 8, 64], "max_model_len": 4096},
    "load": {"request_rate_per_s": [4, 16], "input_len_tokens": 300, "output_len_tokens": 12, "num_requests": 40},
}
TOML = """
[server]
model = "llama-3.1-8b"
hardware = ["h100", "h200"]
max_num_seqs = [2, 8, 64]
max_model_len = 4096
[load]
request_rate_per_s = [4, 16]
input_len_tokens = 300
output_len_tokens = 12
num_requests = 40
"""


@pytest.fixture(scope="module")
def whole() -> SweepRows:
    """The rows of one run in this process."""
    return sweep(GRID)


def pool(workers: int) -> ProcessPoolExecutor:
    # A fork of a process with threads, as pytest's is, may hang.
    return ProcessPoolExecutor(workers, mp_context=get_context("spawn"))


def test_rows_are_those_of_the_command(command: Command, tmp_path: Path, whole: SweepRows) -> None:
    grid = tmp_path / "grid.toml"
    grid.write_text(TOML)
    for name in ("rows.csv", "rows.json", "rows.jsonl"):
        command("sweep", str(grid), "--out", str(tmp_path / name))
        sweep(grid).write(tmp_path / f"own-{name}")
        whole.write(tmp_path / f"of-dict-{name}")
        expected = (tmp_path / name).read_bytes()
        assert (tmp_path / f"own-{name}").read_bytes() == expected
        assert (tmp_path / f"of-dict-{name}").read_bytes() == expected


def test_rows_are_dicts_in_the_order_of_the_grid(whole: SweepRows) -> None:
    assert len(whole) == 12 and [row["configuration"] for row in whole] == list(range(12))
    columns = whole.to_columns()
    assert columns["max_num_seqs"] == [2, 2, 8, 8, 64, 64] * 2
    assert columns["request_rate_per_s"] == [4.0, 16.0] * 6
    assert {len(column) for column in columns.values()} == {12}
    assert all(row["finished"] == 40 and row["status"] == "ok" for row in whole)


@pytest.mark.parametrize("shards", [1, 5, 12, 20])
def test_shards_change_nothing(whole: SweepRows, shards: int) -> None:
    assert sweep(GRID, shards=shards) == whole


@pytest.mark.parametrize("workers", [1, 3])
def test_pools_change_nothing(whole: SweepRows, workers: int) -> None:
    with pool(workers) as processes:
        assert sweep(GRID, executor=processes) == whole
    with ThreadPoolExecutor(workers) as threads:
        assert sweep(GRID, executor=threads, shards=7, threads=2) == whole


def test_relative_paths_are_those_of_the_process_that_asks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pool(1) as processes:
        # The worker starts here, and the grid is read in another folder.
        assert processes.submit(os.getcwd).result() == os.getcwd()
        monkeypatch.chdir(tmp_path)
        Path("requests.csv").write_text("arrival,input_len,output_len\n0,100,5\n1,200,5\n")
        grid = {"server": {"model": "llama-3.1-8b", "hardware": ["h100", "h200"]}, "load": {"requests": "requests.csv"}}
        rows = sweep(grid, executor=processes)
    assert rows == sweep(grid) and rows.to_columns()["load"] == ["requests.csv"] * 2


def _die(job: object, shard: tuple[int, int], threads: int) -> str:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("alive")


def test_a_pool_that_lost_a_worker_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_sweep, "_run_shard", _die)
    with pool(1) as processes, pytest.raises(BrokenExecutor, match="of 2 shards were done"):
        sweep(GRID, executor=processes, shards=2)


def test_what_is_at_fault_is_said_before_anything_runs(tmp_path: Path) -> None:
    class Never(Executor):
        def submit(self, *_: Any, **__: Any) -> Any:
            raise AssertionError("nothing is to run")

    wrong = {**GRID, "load": {**GRID["load"], "request_rate": 0}}
    for grid, message in [
        (wrong, "request_rate"),
        ({"server": {"model": "llama-9", "hardware": "h100"}, "load": GRID["load"]}, "llama-9"),
        (tmp_path / "none.toml", "none.toml"),
        ({}, "server"),
    ]:
        with pytest.raises(RidgepointError, match=message):
            sweep(grid, executor=Never())  # type: ignore[arg-type]
    with pytest.raises(RidgepointError, match="shards"):
        sweep(GRID, executor=Never(), shards=0)
    with pytest.raises(RidgepointError, match="data_dir"):
        sweep(GRID, data_dir=tmp_path / "none")
    with pytest.raises(TypeError, match="the module ray"):
        sweep(GRID, executor=os)
    with pytest.raises(TypeError, match="executor"):
        sweep(GRID, executor=4)  # type: ignore[arg-type]
    with pytest.raises(RidgepointError, match=r"must end in \.csv"):
        sweep({**GRID, "server": {"model": "llama-3.1-8b", "hardware": "h100"}}).write(tmp_path / "rows.xlsx")


def test_rows_of_another_version_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    run = _sweep._run_shard
    monkeypatch.setattr(_sweep, "_run_shard", lambda *of: run(*of).replace(ridgepoint.__version__, "0.0.1"))
    with ThreadPoolExecutor(1) as threads, pytest.raises(RidgepointError, match=r"shard 1/3: row .* version 0\.0\.1"):
        sweep(GRID, executor=threads, shards=3)


def test_ctrl_c_ends_a_sweep() -> None:
    grid = {**GRID, "load": {**GRID["load"], "num_requests": 3_000_000, "output_len_tokens": 500}}
    # A shell may start its background jobs with the signal ignored.
    listen = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"
    code = f"{listen}; import ridgepoint; print('begins', flush=True); ridgepoint.sweep({grid!r}, max_memory_gib=100)"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as run:
        assert run.stdout is not None
        assert run.stdout.readline() == "begins\n"
        time.sleep(0.5)
        run.send_signal(signal.SIGINT)
        try:
            _, said = run.communicate(timeout=60)
        finally:
            run.kill()
    assert "KeyboardInterrupt" in said


@pytest.fixture(scope="module")
def ray(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A local Ray cluster of two workers."""
    if importlib.util.find_spec("ray") is None:
        pytest.skip("ray is not installed: sweeps on a Ray cluster are not tested")
    token = tmp_path_factory.mktemp("ray") / "token"
    token.write_text(os.urandom(32).hex())
    with pytest.MonkeyPatch.context() as patch:
        # Neither reports home nor leaves its cluster's token in the home folder.
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        patch.setenv("RAY_AUTH_TOKEN_PATH", str(token))
        import ray

        ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
        yield ray
        ray.shutdown()


@pytest.mark.ray
def test_ray_changes_nothing(ray: Any, whole: SweepRows) -> None:
    assert sweep(GRID, executor=ray) == whole
    assert sweep(GRID, executor=ray, shards=20) == whole


@pytest.mark.ray
def test_ray_runs_a_shard_again_whose_worker_died(
    ray: Any, whole: SweepRows, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, killed = _sweep._run_shard, tmp_path / "killed"

    # Within the function, so that workers get its code and not its name.
    def dies_once(job: Any, shard: tuple[int, int], threads: int) -> str:
        with (killed.parent / f"attempts-{shard[0]}").open("a") as attempts:
            attempts.write(".")
        if shard[0] == 2 and not killed.exists():
            killed.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return run(job, shard, threads)

    monkeypatch.setattr(_sweep, "_run_shard", dies_once)
    assert sweep(GRID, executor=ray, shards=4) == whole
    assert (tmp_path / "attempts-2").read_text() == ".." and killed.exists()
    # Without retries, the lost worker is an error.
    killed.unlink()
    with pytest.raises(ray.exceptions.WorkerCrashedError):
        sweep(GRID, executor=ray, shards=4, retries=0)
