"""Comparison of replays with measured serving runs."""

import json
import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from . import _native
from ._native import RidgepointError
from ._record import record, whole_number


@dataclass(frozen=True)
class MetricRow:
    """A measured metric and its prediction."""

    stage: int
    """-1 for the whole run."""
    metric: str
    """"e2e_mean", "ttft_p90" and so on."""
    measured_ms: float
    predicted_ms: float
    lower_ms: float
    """Lower end of the prediction's 90 % interval."""
    upper_ms: float
    """Upper end of the prediction's 90 % interval."""
    ape_pct: float
    """Absolute error, percent of the measured value."""
    error_pct: float
    """Signed error, percent. Positive if the prediction is too long."""
    baselines: dict[str, float] = field(default_factory=dict)
    """Predictions of simpler methods, ms."""


@dataclass(frozen=True)
class Experiment:
    """A measured run with its predictions."""

    name: str
    model: str
    hardware: str
    tensor_parallel_size: int
    workload: str
    """Mean prompt and output length, tokens."""
    correction: str | None
    metrics: list[MetricRow]
    notes: list[str]


@dataclass(frozen=True)
class MetricSummary:
    """Errors of one metric over several rows, percent."""

    rows: int
    median_ape_pct: float
    mean_ape_pct: float
    max_ape_pct: float
    bias_pct: float
    """Median signed error."""
    coverage_pct: float | None = None
    """Share of rows whose interval contains the measured value, percent."""


@dataclass(frozen=True)
class Skipped:
    """A run that could not be replayed."""

    id: str
    reason: str


@dataclass(frozen=True)
class Evaluation:
    """Measured runs and their replays."""

    experiments: list[Experiment]
    summary: dict[str, MetricSummary]
    """Errors by metric over whole runs."""
    summary_by_stage: dict[str, MetricSummary]
    """Errors by metric over single stages."""
    baselines: dict[str, dict[str, MetricSummary]]
    """``summary`` of simpler methods."""
    skipped: list[Skipped]

    def to_columns(self) -> dict[str, list[Any]]:
        """Returns a row per measured metric as lists of equal length, for ``pandas.DataFrame`` or ``pyarrow.table``."""
        rows = [(experiment, row) for experiment in self.experiments for row in experiment.metrics]
        of_experiment = ("name", "model", "hardware", "tensor_parallel_size", "workload", "correction")
        of_row = (
            "stage", "metric", "measured_ms", "predicted_ms", "lower_ms", "upper_ms", "ape_pct", "error_pct",
        )  # fmt: skip
        columns: dict[str, list[Any]] = {}
        for key in of_experiment:
            columns["experiment" if key == "name" else key] = [getattr(experiment, key) for experiment, _ in rows]
        for key in of_row:
            columns[key] = [getattr(row, key) for _, row in rows]
        return columns


def evaluate_serving(
    paths: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
    *,
    correction: str | os.PathLike[str] = "auto",
    seed: int = 0,
    data_dir: str | os.PathLike[str] | None = None,
) -> Evaluation:
    """Replays measured runs on all cores and compares predictions with measurements. Releases the GIL.

    Args:
        paths: experiments, or folders of them: ``profile.yaml``, ``exp-config.yaml`` and ``measured.csv`` each.
        correction: "none", "global", "auto" or the path of a file that ``ridgepoint fit`` wrote.
        seed: seed of arrival times and lengths.
        data_dir: folder whose ``models/``, ``hardware/`` and ``bench_data/`` take precedence over the built-in ones.

    Raises:
        RidgepointError: a file is missing or malformed, or no run can be replayed.
    """
    listed = [paths] if isinstance(paths, (str, os.PathLike)) else list(paths)
    if not listed:
        raise RidgepointError("paths is empty: name an experiment or a folder of them")
    seed = whole_number("seed", seed, most=2**64 - 1)
    text = _native.evaluate_serving([os.fspath(path) for path in listed], os.fspath(correction), seed, data_dir)
    values = json.loads(text)
    return Evaluation(
        experiments=[_experiment(experiment) for experiment in values["experiments"]],
        summary=_summary(values["summary"]),
        summary_by_stage=_summary(values["summary_by_stage"]),
        baselines={name: _summary(of) for name, of in values["baselines"].items()},
        skipped=[record(Skipped, of) for of in values["skipped"]],
    )


def _experiment(values: dict[str, Any]) -> Experiment:
    rows = [record(MetricRow, row, baselines=row.get("baselines", {})) for row in values["metrics"]]
    return record(Experiment, values, correction=values["correction"]["name"], metrics=rows)


def _summary(values: dict[str, Any]) -> dict[str, MetricSummary]:
    return {metric: record(MetricSummary, of) for metric, of in values.items()}
