"""Replays: figures that follow from single steps, columns that add up, loads that are refused."""

import json
import math
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from conftest import Command
from ridgepoint import (
    ClosedLoop,
    Deployment,
    KvOffload,
    OpenLoop,
    Profile,
    RequestArrays,
    RequestFile,
    RidgepointError,
    Scheduler,
    Sessions,
    StepModel,
    read_server,
    simulate,
)


def test_one_request_is_the_sum_of_its_delays(steps: StepModel) -> None:
    result = simulate(steps, RequestArrays([2.0], [100], [3]), Scheduler(async_scheduling=False))
    # A prompt of 100 tokens, then two decodes on 100 and 101 cached ones; each step waits for the host.
    steps_us = [steps.step_time_us([0], [100]), steps.step_time_us([100], [1]), steps.step_time_us([101], [1])]
    host_us, token_us = steps.scheduling_processing_time_us(), steps.output_token_processing_time_us()
    first_us = steps.queueing_time_us(100) + host_us + steps_us[0] + token_us
    requests = result.requests
    assert requests["arrival_ns"].tolist() == [2_000_000_000]
    # The clock counts whole nanoseconds, a delay at a time.
    assert math.isclose(requests["ttft_ms"][0], first_us / 1e3, abs_tol=1e-5)
    assert math.isclose(requests["e2e_ms"][0], (first_us + 2 * host_us + sum(steps_us[1:])) / 1e3, abs_tol=1e-5)
    assert (result.counters.steps, result.counters.scheduled_tokens, result.run.finished) == (3, 102, 1)
    assert result.run.ttft_ms is not None and result.run.ttft_ms.mean == requests["ttft_ms"][0]


def test_columns_are_equally_long_and_add_up(steps: StepModel) -> None:
    result = simulate(steps, OpenLoop(20.0, 700, 40, 300), seed=5)
    requests, run = result.requests, result.run
    assert {len(column) for column in requests.values()} == {300} and run.requests == result.load.requests == 300
    assert set(requests["outcome"]) == {"finished"}
    assert run.input_tokens == requests["num_prompt_tokens"].sum() == 300 * 700
    assert run.ttft_ms is not None and run.e2e_ms is not None and run.tpot_ms is not None
    for name, summary in (("ttft_ms", run.ttft_ms), ("e2e_ms", run.e2e_ms), ("tpot_ms", run.tpot_ms)):
        column = requests[name]
        assert math.isclose(summary.mean, column.mean(), rel_tol=1e-12), name
        assert math.isclose(summary.p90, np.percentile(column, 90), rel_tol=1e-12), name
        assert math.isclose(summary.std, column.std(), rel_tol=1e-9), name
    assert (requests["first_token_ns"] > requests["scheduled_ns"]).all()
    assert np.allclose((requests["finish_ns"] - requests["arrival_ns"]) / 1e6, requests["e2e_ms"])


def test_a_seed_gives_the_same_requests_and_another_one_others(steps: StepModel) -> None:
    load = OpenLoop(5.0, 300, 20, 50, burstiness=0.5)
    arrivals = [simulate(steps, load, seed=seed).requests["arrival_ns"] for seed in (3, 3, 4)]
    assert np.array_equal(arrivals[0], arrivals[1]) and not np.array_equal(arrivals[0], arrivals[2])


def test_a_closed_loop_keeps_so_many_in_flight(steps: StepModel) -> None:
    result = simulate(steps, ClosedLoop(8, 200, 30))
    assert (result.run.finished, result.counters.max_running) == (80, 8)
    requests = result.requests
    moments = np.concatenate([requests["arrival_ns"], requests["finish_ns"]])
    changes = np.concatenate([np.ones(80), -np.ones(80)])
    # At equal times a request ends before the next is sent.
    order = np.lexsort((changes, moments))
    assert np.cumsum(changes[order]).max() == 8


def test_turns_continue_each_other(steps: StepModel) -> None:
    result = simulate(steps, Sessions(3, 100, 10, concurrency=2, num_sessions=4, prefix_len=320, think_time_s=0.5), seed=1)
    requests, turn = result.requests, result.requests["turn"]
    assert (result.load.sessions, result.load.requests, result.run.finished) == (4, 12, 12)
    # Prefix and new tokens, then each turn before with its output.
    for number, prompt in enumerate([420, 530, 640]):
        assert requests["num_prompt_tokens"][turn == number].tolist() == [prompt] * 4
    # The whole blocks of the prompt and the output before, without its last token, which is never computed.
    assert requests["num_cached_tokens"][turn == 1].tolist() == [416] * 4
    assert requests["num_cached_tokens"][turn == 2].tolist() == [528] * 4
    at_rate = simulate(steps, Sessions(2, 50, 5, num_sessions=6, request_rate=3.0)).requests
    assert np.bincount(at_rate["turn"]).tolist() == [6, 6]
    assert simulate(steps, ClosedLoop(2, 50, 5)).requests["turn"].tolist() == [0] * 20


def test_arrays_a_file_and_a_list_are_one_load(steps: StepModel, tmp_path: Path) -> None:
    file = tmp_path / "requests.csv"
    file.write_text("arrival,input_len,output_len\n0,300,20\n0.5,40,5\n0.5,800,1\n")
    from_file = simulate(steps, RequestFile(file)).requests
    columns = ([0.0, 0.5, 0.5], [300, 40, 800], [20, 5, 1])
    from_arrays = simulate(steps, RequestArrays(*columns)).requests
    for name, column in from_file.items():
        assert np.array_equal(column, from_arrays[name], equal_nan=column.dtype == np.float64), name
    # A single token has no time between tokens.
    assert np.isnan(from_file["tpot_ms"]).tolist() == [False, False, True]


def test_what_is_too_long_is_refused_and_counted() -> None:
    steps = StepModel("llama-2-7b", "h100", Deployment(max_model_len=1000))
    result = simulate(steps, RequestArrays([0.0, 0.0], [990, 100], [20, 20]))
    assert result.requests["outcome"].tolist() == ["rejected", "finished"]
    assert (result.run.rejected, result.run.finished) == (1, 1) and np.isnan(result.requests["ttft_ms"][0])
    assert any("1 of 2 requests rejected" in warning for warning in result.warnings)


def test_the_scheduler_is_heeded(steps: StepModel) -> None:
    load = RequestArrays(np.zeros(40), [512] * 40, [200] * 40)
    roomy = simulate(steps, load)
    tight = simulate(StepModel("llama-3.1-8b", "h100", Deployment(max_model_len=1024)), load, Scheduler(129))
    # 128 blocks of 16 tokens hold four prompts of 512 tokens, and two whole requests: two of four give way.
    assert (roomy.counters.preemptions, roomy.counters.max_running, tight.num_gpu_blocks) == (0, 40, 129)
    assert (tight.counters.max_blocks_in_use, tight.counters.max_running, tight.run.finished) == (128, 4, 40)
    assert tight.counters.preemptions >= 2


def test_blocks_that_left_the_gpu_come_back_from_the_host(tmp_path: Path) -> None:
    # 65 usable blocks of 16 tokens: the second prompt takes those of the first, which comes again and has 62 full blocks.
    steps = StepModel("llama-3.1-8b", "h100", Deployment(max_model_len=1024))
    file = tmp_path / "requests.csv"
    file.write_text("arrival,input_len,output_len,prefix_group\n0,1000,2,a\n5,1000,2,b\n10,1000,2,a\n")
    block_bytes = 16 * int(steps.kv_capacity().kv_bytes_per_token)
    assert block_bytes == 16 * 131_072
    without = simulate(steps, RequestFile(file), Scheduler(66))
    result = simulate(steps, RequestFile(file), Scheduler(66, kv_offload=KvOffload(200, block_bytes)))
    assert without.offload is None and without.run.kv_load_ms is None
    requests, offload = result.requests, result.offload
    assert offload is not None and result.run.kv_load_ms is not None
    cached, loaded = requests["num_cached_tokens"], requests["num_loaded_tokens"]
    assert cached.tolist() == [0, 0, 992] and without.requests["num_cached_tokens"][2] == 992 - loaded[2]
    assert loaded[:2].tolist() == [0, 0] and loaded[2] >= 900 and loaded[2] % 16 == 0
    assert (offload.hit_tokens, offload.loads.count, offload.loads.blocks) == (loaded[2], 1, loaded[2] // 16)
    assert offload.loads.bytes == offload.loads.blocks * block_bytes
    # Nothing else runs: the copy takes its own time, and the engine goes on at its end.
    copy_us = steps.kv_transfer_time_us("cpu_to_gpu", offload.loads.bytes)
    assert math.isclose(offload.loads.time_ns, copy_us * 1e3, abs_tol=2)
    assert copy_us <= requests["load_ns"][2] / 1e3 + 1 <= copy_us + 5000
    assert math.isclose(result.run.kv_load_ms.mean, requests["load_ns"].sum() / 3e6, rel_tol=1e-12)
    assert requests["ttft_ms"][2] < without.requests["ttft_ms"][2]


def test_a_server_file_with_a_tier_is_simulated_with_its_measured_copies(tmp_path: Path, command: Command) -> None:
    file = tmp_path / "server.yaml"
    file.write_text(
        "model: llama-3.1-8b\nhardware: h100\nmax_model_len: 1024\nnum_gpu_blocks_override: 66\nkv_offloading_size: 1\n"
        "kv_transfers: {gpu_to_cpu: {latency_us: 5, bytes_per_s: 1.0e+9}, cpu_to_gpu: {latency_us: 100, bytes_per_s: 1.0e+10}, contention: 0.5}\n"
    )
    requests = tmp_path / "requests.csv"
    requests.write_text("arrival,input_len,output_len,prefix_group\n0,1000,2,a\n5,1000,2,b\n10,1000,2,a\n")
    server = read_server(file)
    assert isinstance(server.scheduler.kv_offload, KvOffload) and server.scheduler.kv_offload.contention == 0.5
    result = simulate(server.steps, RequestFile(requests), server.scheduler)
    said = json.loads(command("simulate", "--config", file, "--requests", requests, "--format", "json"))["kv_offload"]
    assert result.offload is not None and said["contention"] == 0.5
    assert result.offload.loads.time_ns == said["loads"]["time_ns"] > 4_000_000
    # A tier without a contention of its own has that of the step model.
    tier = KvOffload(said["num_cpu_blocks"], said["block_bytes"])
    own = simulate(server.steps, RequestFile(requests), Scheduler(66, kv_offload=tier))
    assert own.offload == result.offload and server.steps.kv_contention == 0.5


def test_a_tier_is_given_by_its_size_or_by_its_blocks(steps: StepModel) -> None:
    load = Sessions(3, 400, 10, concurrency=4, num_sessions=8)
    small = Scheduler(600, kv_offloading_size=1.0)
    assert repr(small) == "Scheduler(num_gpu_blocks_override=600, kv_offloading_size=1.0)"
    by_size = simulate(StepModel("llama-3.1-8b", "h100", Deployment(max_model_len=4096)), load, small)
    assert by_size.offload is not None
    both = Scheduler(600, kv_offloading_size=1.0, kv_offload=KvOffload(200, 2097152))
    with pytest.raises(RidgepointError, match="keep one"):
        simulate(StepModel("llama-3.1-8b", "h100", Deployment(max_model_len=4096)), load, both)


def test_every_argument_of_the_scheduler_reaches_the_replay() -> None:
    steps = StepModel("llama-3.1-8b", "h100", Deployment(max_model_len=8192))
    lengths = {"min": 700, "max": 900, "mean": 800, "std_dev": 50}
    result = simulate(steps, ClosedLoop(60, lengths, 400), Scheduler(2000, watermark=0.3))
    without = simulate(steps, ClosedLoop(60, lengths, 400), Scheduler(2000))
    assert 0 < result.counters.preemptions < without.counters.preemptions


def test_it_is_what_the_command_says(command: Command, root: Path) -> None:
    files = ("--profile", "examples/profile.yaml", "--config", "examples/server.yaml")
    said = json.loads(command("simulate", *files, "--format", "json"))
    server = read_server(root / "examples" / "server.yaml")
    result = simulate(server.steps, Profile(root / "examples" / "profile.yaml"), server.scheduler)
    assert result.num_gpu_blocks == said["engine"]["num_gpu_blocks"]
    for stage, expected in zip([result.run, *result.stages], said["stages"], strict=True):
        found = asdict(stage)
        # A whole run is stage -1 in both.
        for key, value in expected.items():
            assert found[key] == pytest.approx(value, rel=1e-12), key
    assert asdict(result.counters) == {key: said["counters"][key] for key in asdict(result.counters)}
    intervals = {name: None if of is None else asdict(of) for name, of in result.intervals.items()}
    assert intervals == said["intervals"]


def test_results_are_frames_and_tables(steps: StepModel) -> None:
    pandas, pyarrow = pytest.importorskip("pandas"), pytest.importorskip("pyarrow")
    result = simulate(steps, ClosedLoop(4, 100, 10))
    frame, table = pandas.DataFrame(result.requests), pyarrow.table(result.requests)
    assert len(frame) == table.num_rows == 40
    assert frame.groupby("outcome")["ttft_ms"].mean()["finished"] == pytest.approx(result.requests["ttft_ms"].mean())


REFUSED: dict[str, tuple[Callable[[StepModel], Any], type[Exception], str]] = {
    "rate": (lambda s: simulate(s, OpenLoop(-1.0, 10, 10, 10)), RidgepointError, "request_rate = -1.0 must be a number above 0"),
    "no rate": (lambda s: simulate(s, OpenLoop(float("nan"), 10, 10, 10)), RidgepointError, "request_rate = nan must be"),
    "no turns": (lambda s: simulate(s, Sessions(0, 5, 5, concurrency=1)), RidgepointError, "turns = 0"),
    "sessions": (lambda s: simulate(s, Sessions(2, 5, 5, 9)), RidgepointError, "a rate .* or a fixed number .*: give one"),
    "how many": (lambda s: simulate(s, Sessions(2, 5, 5, request_rate=1.0)), RidgepointError, "request_rate = 1.0 needs num_requests or num_sessions"),
    "bursts": (
        lambda s: simulate(s, Sessions(2, 5, 5, concurrency=1, burstiness=0.5)),
        RidgepointError,
        "burstiness = 0.5 cannot be given with concurrency",
    ),
    "lengths": (lambda s: simulate(s, ClosedLoop(2, 0, 0)), RidgepointError, "input_len = 0.*output_len = 0"),
    "negative": (lambda s: simulate(s, ClosedLoop(-2, 5, 5)), RidgepointError, "concurrency = -2"),
    "half": (lambda s: simulate(s, ClosedLoop(2, 5.5, 5)), TypeError, "input_len = 5.5"),  # type: ignore[arg-type]
    "text": (lambda s: ClosedLoop(2, "5", 5), TypeError, "input_len = '5' must be a whole number"),  # type: ignore[arg-type]
    "none": (lambda s: ClosedLoop(2, 5, None), TypeError, "ClosedLoop needs output_len"),  # type: ignore[arg-type]
    "no tier": (lambda s: Scheduler(kv_offload=5), TypeError, "kv_offload = 5 must be a ridgepoint.KvOffload"),  # type: ignore[arg-type]
    "load": (lambda s: simulate(s, "profile.yaml"), TypeError, "'profile.yaml' must be a Profile"),  # type: ignore[arg-type]
    "steps": (lambda s: simulate("llama", ClosedLoop(1, 1, 1)), TypeError, "'llama' must be"),  # type: ignore[arg-type]
    "file": (lambda s: simulate(s, Profile("/no/such.yaml")), RidgepointError, "/no/such.yaml"),
    "format": (lambda s: simulate(s, RequestFile("x.csv", "excel")), RidgepointError, "'excel' is not one of csv"),
    "arrivals": (
        lambda s: simulate(s, RequestArrays([0.0, float("nan")], [1, 1], [1, 1])),
        RidgepointError,
        r"arrival_s\[1\] = nan must be from 0",
    ),
    "order": (
        lambda s: simulate(s, RequestArrays([1.0, 0.5], [1, 1], [1, 1])),
        RidgepointError,
        "request 1: arrival_ns = 500000000 must be from 1000000000",
    ),
    "uneven": (lambda s: simulate(s, RequestArrays([0.0], [1, 1], [1])), RidgepointError, "input_len has 2 values"),
    "float": (
        lambda s: simulate(s, RequestArrays([0.0], [1.5], [1])),  # type: ignore[list-item]
        TypeError,
        "input_len must hold integers",
    ),
    "nothing": (lambda s: simulate(s, RequestArrays([], [], [])), RidgepointError, "there are no requests"),
    "blocks": (lambda s: simulate(s, ClosedLoop(1, 1, 1), Scheduler(9)), RidgepointError, "holds 128 tokens"),
    "policy": (
        lambda s: simulate(s, ClosedLoop(1, 1, 1), Scheduler(scheduling_policy="lifo")),  # type: ignore[arg-type]
        RidgepointError,
        "scheduling_policy = \"lifo\" must be fcfs or priority",
    ),
    "tier": (
        lambda s: simulate(s, ClosedLoop(1, 1, 1), Scheduler(kv_offload=KvOffload(0, 0, contention=2.0))),
        RidgepointError,
        "num_cpu_blocks = 0(.|\n)*block_bytes = 0(.|\n)*contention = 2",
    ),
    "seed": (lambda s: simulate(s, ClosedLoop(1, 1, 1), seed=-1), RidgepointError, "seed = -1"),
    "server": (lambda s: read_server("/no/server.yaml"), RidgepointError, "/no/server.yaml"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_replayed_says_why(steps: StepModel, case: str) -> None:
    call, error, said = REFUSED[case]
    with pytest.raises(error, match=said):
        call(steps)


def test_keys_of_a_server_that_are_not_known_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "server.yaml"
    file.write_text("model: llama-2-7b\nhardware: h100\nmax_num_seq: 3\nblock_size: 0\n")
    with pytest.raises(RidgepointError, match="max_num_seq") as caught:
        read_server(file)
    assert "block_size" in str(caught.value)
