"""Measured runs against replays, on an experiment made by hand."""

import os
from pathlib import Path

import pytest

from ridgepoint import Profile, RidgepointError, evaluate_serving, read_server, simulate

PROFILE = """
load: {type: constant, stages: [{rate: 2, duration: 20}]}
data: {type: random, input_distribution: {min: 100, max: 900, mean: 500, std_dev: 100},
       output_distribution: {min: 10, max: 30, mean: 20, std_dev: 5}}
"""
SERVER = "model: llama-2-7b\nhardware: H100\nmax_model_len: 4096\n"
MEASURED = "stage,metric,value_ms\n-1,e2e_mean,400\n-1,ttft_mean,50\n0,e2e_p90,500\n"


def experiment(folder: Path, measured: str = MEASURED) -> Path:
    folder.mkdir()
    for name, text in (("profile.yaml", PROFILE), ("exp-config.yaml", SERVER), ("measured.csv", measured)):
        (folder / name).write_text(text)
    return folder


def test_errors_are_those_of_the_replay(tmp_path: Path) -> None:
    folder = experiment(tmp_path / "mine")
    evaluation = evaluate_serving(tmp_path)
    # Runs that state no version are judged by the kernels of vLLM 0.14.
    server = read_server(folder / "exp-config.yaml", engine_version="0.14")
    run = simulate(server.steps, Profile(folder / "profile.yaml"), server.scheduler).run
    assert run.e2e_ms is not None
    (judged,) = evaluation.experiments
    assert (judged.name, judged.model, judged.hardware, judged.correction) == (
        "mine",
        "llama-2-7b",
        "h100_sxm",
        server.steps.correction_name,
    )
    row = next(row for row in judged.metrics if row.metric == "e2e_mean")
    assert (row.stage, row.measured_ms, row.predicted_ms) == (-1, 400.0, run.e2e_ms.mean)
    assert row.error_pct == pytest.approx(100 * (run.e2e_ms.mean - 400) / 400) and row.ape_pct == abs(row.error_pct)
    assert row.lower_ms < row.predicted_ms < row.upper_ms
    assert "ideal_roofline" in row.baselines and row.baselines["ideal_roofline"] < row.predicted_ms
    assert evaluation.summary["e2e_mean"].median_ape_pct == row.ape_pct
    assert evaluation.summary_by_stage["e2e_p90"].rows == 1 and not evaluation.skipped


def test_rows_are_columns(tmp_path: Path) -> None:
    paths = [experiment(tmp_path / name) for name in ("a", "b")]
    columns = evaluate_serving(paths, correction="none").to_columns()
    assert columns["experiment"] == ["a"] * 3 + ["b"] * 3 and columns["correction"] == [None] * 6
    assert columns["metric"][:3] == ["e2e_mean", "ttft_mean", "e2e_p90"] and len(columns["ape_pct"]) == 6
    pandas = pytest.importorskip("pandas")
    assert pandas.DataFrame(columns).shape == (6, len(columns))


def test_all_that_is_wrong_is_said(tmp_path: Path) -> None:
    experiment(tmp_path / "a", "stage,metric,value_ms\n-1,e2e_mean,-3\n")
    experiment(tmp_path / "b", "stage,metric,value_ms\n-1,e2e_median,3\n")
    with pytest.raises(RidgepointError, match=r"(?s)found -3.*\n.*found e2e_median"):
        evaluate_serving(tmp_path)
    with pytest.raises(RidgepointError, match="nowhere"):
        evaluate_serving(tmp_path / "nowhere")
    with pytest.raises(ValueError, match="paths is empty"):
        evaluate_serving([])
    with pytest.raises(RidgepointError, match="none, global, auto"):
        evaluate_serving(experiment(tmp_path / "c"), correction="best")


@pytest.mark.skipif("RIDGEPOINT_DATA" not in os.environ, reason="RIDGEPOINT_DATA names no folder of measured runs")
def test_measured_runs_are_met() -> None:
    evaluation = evaluate_serving(Path(os.environ["RIDGEPOINT_DATA"]) / "serving")
    assert len(evaluation.experiments) >= 13 and not evaluation.skipped
    assert evaluation.summary["e2e_mean"].median_ape_pct < 4.0
