"""Sweeps of grids, here or on the workers of an executor."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import BrokenExecutor, Executor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any, TypeAlias

from . import _native
from ._arguments import Efficiency, Engine
from ._record import real_number, whole_number

Path_ = str | os.PathLike[str]
Shard: TypeAlias = tuple[int, int]
"""The number of a shard, from 1, and that of all."""

SHARDS_PER_WORKER = 4
"""As some shards take longer than others, and a shard that is lost runs anew."""


@dataclass(frozen=True)
class SweepRows:
    """The rows of a sweep, in the order of the grid. They are those of the command, whoever ran them."""

    rows: list[dict[str, Any]]
    """A dict for each configuration, with a key for each column of ``ridgepoint sweep``."""
    _lines: str = field(repr=False)

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self.rows)

    def to_columns(self) -> dict[str, list[Any]]:
        """Returns a list for each column, for ``pandas.DataFrame`` or ``pyarrow.table``."""
        return {key: [row[key] for row in self.rows] for key in (self.rows[0] if self.rows else {})}

    def write(self, path: Path_) -> None:
        """Writes the file that ``ridgepoint sweep --out`` writes: ``.csv``, ``.json`` or ``.jsonl``."""
        Path(path).write_bytes(_native.sweep_file(path, self._lines))


@dataclass(frozen=True)
class _Job:
    """A grid and everything that its rows depend on, as workers get it."""

    origin: str
    toml: str | None
    keys: str
    prediction: str
    data_dir: str | None
    max_memory_gib: float
    folder: str
    """What relative paths are relative to."""

    def prepared(self, shard: Shard | None = None) -> _native.Sweep:
        return _native.Sweep(self.origin, self.toml, self.keys, self.prediction, self.data_dir, shard)


def sweep(
    grid: Path_ | Mapping[str, Any],
    *,
    correction: Path_ = "auto",
    efficiency: Efficiency = "tables",
    engine: Engine = "vllm",
    engine_version: str | None = None,
    power_limit_watt: float | None = None,
    peer_access: bool | None = None,
    data_dir: Path_ | None = None,
    max_memory_gib: float = 1.0,
    threads: int | None = None,
    executor: Executor | ModuleType | None = None,
    shards: int | None = None,
    retries: int = 3,
) -> SweepRows:
    """Replays a grid of servers and loads, or finds the highest rates within latency limits. Releases the GIL; Ctrl+C ends it.

    With an executor, the grid runs as shards on its workers, which need this version of the package and the files that the grid names.
    Rows do not depend on the executor, the shards or the threads.

    Args:
        grid: path of a TOML file, or its tables as a dict: ``{"server": {…}, "load": {…}, "slo": {…}}``. docs/sweep.md has the keys.
        correction, efficiency, engine, engine_version, power_limit_watt, peer_access, data_dir: as of `StepModel`.
        max_memory_gib: memory that the replays of a process at once may take, GiB.
        threads: configurations at once in a process; 0 is one per core. Defaults to 0, and with an executor to 1.
        executor: a ``concurrent.futures.Executor``, such as a ``ProcessPoolExecutor``, or the module ``ray``. Defaults to this process.
        shards: number of shards. Defaults to four per worker.
        retries: how often Ray runs a shard again whose worker died. Pools of ``concurrent.futures`` do not survive a worker.

    Raises:
        RidgepointError: the grid is at fault, a file cannot be read, or workers have another version of the package.
        concurrent.futures.BrokenExecutor: a worker of a pool died.
    """
    prediction = {
        "correction": os.fspath(correction),
        "efficiency": efficiency,
        "engine": engine,
        "engine_version": engine_version,
        "power_limit_watt": power_limit_watt,
        "peer_access": peer_access,
    }
    if isinstance(grid, Mapping):
        origin, toml, keys = "grid", None, json.dumps(dict(grid))
    else:
        origin, toml, keys = os.fspath(grid), _text(grid), ""
    job = _Job(
        origin,
        toml,
        keys,
        json.dumps(prediction),
        None if data_dir is None else os.path.abspath(data_dir),
        real_number("max_memory_gib", max_memory_gib),
        os.getcwd(),
    )
    threads = whole_number("threads", (0 if executor is None else 1) if threads is None else threads, most=1024)
    retries = whole_number("retries", retries)
    whole = job.prepared()
    if executor is None and shards is None:
        return _read(whole.run(threads, job.max_memory_gib))
    run_all, num_workers = _runner(executor, threads, retries)
    if shards is None:
        shards = min(SHARDS_PER_WORKER * num_workers, whole.num_configurations())
    number = whole_number("shards", shards, least=1)
    listed = [(at, number) for at in range(1, number + 1)]
    parts = run_all(job, listed)
    return _read(whole.merge([(f"shard {at}/{of}", lines) for (at, of), lines in zip(listed, parts, strict=True)]))


def _text(path: Path_) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise _native.RidgepointError(f"{os.fspath(path)}: {error}; give the path of a grid, TOML") from error


def _read(lines: str) -> SweepRows:
    return SweepRows([json.loads(line) for line in lines.splitlines()], lines)


def _run_shard(job: _Job, shard: Shard, threads: int) -> str:
    """The rows of a shard. Runs on a worker."""
    with _in_folder(job.folder):
        return job.prepared(shard).run(threads, job.max_memory_gib)


@contextmanager
def _in_folder(folder: str) -> Iterator[None]:
    """The folder of the process that asks, where the worker has it: rows name files as the grid does."""
    before = os.getcwd()
    if folder == before or not os.path.isdir(folder):
        yield
        return
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


_RunAll: TypeAlias = Callable[[_Job, list[Shard]], list[str]]


def _runner(executor: Executor | ModuleType | None, threads: int, retries: int) -> tuple[_RunAll, int]:
    """What runs shards, and its number of workers."""
    cores = os.cpu_count() or 1
    if executor is None:
        return lambda job, shards: [_run_shard(job, shard, threads) for shard in shards], cores
    if isinstance(executor, ModuleType) and executor.__name__ == "ray":
        return _on_ray(executor, threads, retries)
    if isinstance(executor, Executor):
        pool = executor
        return lambda job, shards: _on_pool(pool, job, shards, threads), getattr(pool, "_max_workers", None) or cores
    raise TypeError(f"executor = {executor!r} must be a concurrent.futures.Executor or the module ray")


def _on_pool(pool: Executor, job: _Job, shards: list[Shard], threads: int) -> list[str]:
    futures = [pool.submit(_run_shard, job, shard, threads) for shard in shards]
    try:
        for future in as_completed(futures):
            future.result()
    except BrokenExecutor as error:
        done = sum(future.done() and not future.cancelled() and future.exception() is None for future in futures)
        message = f"a worker died, and the pool with it: {done} of {len(shards)} shards were done; run the sweep in a new pool, or with Ray"
        raise type(error)(message) from error
    finally:
        # After a failure, what has not begun is of no use.
        for future in futures:
            future.cancel()
    return [future.result() for future in futures]


def _on_ray(ray: Any, threads: int, retries: int) -> tuple[_RunAll, int]:
    if not ray.is_initialized():
        ray.init()
    cores = int(ray.cluster_resources().get("CPU", 1))
    of_task = max(threads, 1)

    def run_all(job: _Job, shards: list[Shard]) -> list[str]:
        task = ray.remote(num_cpus=of_task, max_retries=retries)(_run_shard)
        tasks = [task.remote(job, shard, threads) for shard in shards]
        try:
            waiting = tasks
            while waiting:
                # One that failed ends the sweep at once.
                done, waiting = ray.wait(waiting)
                ray.get(done)
            lines: list[str] = ray.get(tasks)
            return lines
        except BaseException:
            for reference in tasks:
                ray.cancel(reference)
            raise

    return run_all, max(cores // of_task, 1)
