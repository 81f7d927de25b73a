"""Times of steps: relations that hold whatever the tables say, and figures worked out by hand."""

import json
import math
import pickle

from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from ridgepoint import Deployment, RidgepointError, StepModel

Column = npt.NDArray[np.uint32]
Batch = tuple[Column, Column, npt.NDArray[np.bool_]]


def batch(seed: int, size: int) -> Batch:
    """Decodes, with a chunk here and there, of which some end their prompt."""
    random = np.random.default_rng(seed)
    computed = random.integers(1, 6000, size=size, dtype=np.uint32)
    scheduled = np.where(random.random(size) < 0.1, random.integers(2, 400, size=size), 1).astype(np.uint32)
    samples = (scheduled == 1) | (random.random(size) < 0.5)
    return computed, scheduled, samples


def bits(time_us: float) -> bytes:
    """A time to the last bit."""
    return np.float64(time_us).tobytes()


def test_many_steps_are_the_single_ones_bit_for_bit(steps: StepModel) -> None:
    batches = [batch(seed, size) for seed, size in enumerate([1, 7, 0, 64, 128, 1, 300])]
    offsets = np.concatenate([[0], np.cumsum([len(one[0]) for one in batches])])
    columns = [np.concatenate(column) for column in zip(*batches, strict=True)]
    times_us = steps.step_times_us(offsets, *columns)
    assert times_us.dtype == np.float64 and times_us.shape == (7,)
    assert [bits(time_us) for time_us in times_us] == [bits(steps.step_time_us(*one)) for one in batches]


def test_the_order_of_requests_makes_no_difference(steps: StepModel) -> None:
    computed, scheduled, samples = batch(3, 150)
    order = np.random.default_rng(4).permutation(150)
    shuffled_us = steps.step_time_us(computed[order], scheduled[order], samples[order])
    assert math.isclose(shuffled_us, steps.step_time_us(computed, scheduled, samples), rel_tol=1e-12)


def test_a_prediction_is_the_step_time_and_lies_above_the_roofline(steps: StepModel) -> None:
    for seed in range(20):
        columns = batch(seed, 1 + 9 * seed)
        step = steps.predict(*columns)
        # The compiled look-up and the way operator by operator agree within a thousandth.
        assert math.isclose(steps.step_time_us(*columns), step.step_time_us, rel_tol=1e-3)
        assert step.bound_us <= step.lower_us <= step.step_time_us <= step.upper_us
        assert math.isclose(sum(operator.share for operator in step.operators), 1.0, rel_tol=1e-9)
        assert math.isclose(sum(step.provenance.values()), 1.0, rel_tol=1e-9)


def test_what_is_left_out_is_sampled(steps: StepModel) -> None:
    computed, scheduled = [100, 200, 0], [1, 1, 64]
    assert steps.step_time_us(computed, scheduled) == steps.step_time_us(computed, scheduled, [True] * 3)
    partial = steps.predict(computed, scheduled, [True, True, False])
    lm_head = next(operator for operator in partial.operators if operator.name == "lm_head")
    # Two sampled tokens, each 2 · 128,256 · 4,096 FLOPs.
    assert lm_head.flops == 2 * 2 * 128_256 * 4096


def test_a_graph_pads_the_projections_of_decodes(steps: StepModel) -> None:
    step = steps.predict([500] * 3, [1] * 3)
    qkv = next(operator for operator in step.operators if operator.name == "qkv_proj")
    # Three decodes run as four tokens: 32 layers, 32 + 2 · 8 heads of 128, 4,096 wide.
    assert (step.padded_tokens, step.graph_mode) == (4, "full")
    assert qkv.flops == 32 * 2 * 4 * (48 * 128) * 4096


def test_no_work_takes_no_time(steps: StepModel) -> None:
    assert steps.step_time_us([], []) == 0.0
    assert steps.step_times_us([0], [], []).shape == (0,)
    assert steps.step_times_us([0, 0, 0], [], []).tolist() == [0.0, 0.0]
    # A request that schedules nothing is left out.
    assert steps.step_time_us([70, 900], [1, 0]) == steps.step_time_us([70], [1])


@pytest.mark.parametrize("tokens", [(0, 2**32 - 1), (2**32 - 1, 1), (2**32 - 1, 2**32 - 1)])
def test_the_largest_numbers_are_as_good_as_others(steps: StepModel, tokens: tuple[int, int]) -> None:
    computed, scheduled = tokens
    one_us, many_us = (steps.step_time_us([computed] * size, [scheduled] * size) for size in (1, 1000))
    assert 0 < one_us < many_us < math.inf


def test_the_delays_around_a_step_are_those_of_the_host() -> None:
    # Without a correction: 3 ms, and 2 µs a prompt token.
    alone = StepModel("llama-3.1-8b", "h100", correction="none")
    assert alone.correction_name is None
    assert alone.queueing_time_us(0) == 3000.0
    assert alone.queueing_time_us(500) == 4000.0
    for delay_us in (
        alone.output_token_processing_time_us(),
        alone.scheduling_processing_time_us(),
        alone.preemption_processing_time_us(),
    ):
        assert 0.0 <= delay_us < 10_000.0


def test_measured_copies_take_the_place_of_the_link(tmp_path: Path) -> None:
    measured = {
        "gpu_to_cpu": {"latency_us": 5, "bytes_per_s": 1e9},
        "cpu_to_gpu": {"latency_us": 100, "bytes_per_s": 1e10},
        "contention": 0.5,
    }
    file = tmp_path / "rates.json"
    file.write_text(json.dumps(measured))
    for steps in (
        StepModel("llama-3.1-8b", "h100", kv_transfers=measured),
        pickle.loads(pickle.dumps(StepModel("llama-3.1-8b", "h100", kv_transfers=file))),
    ):
        # 100 µs and 10 MB at 10 GB/s; 5 µs and 1 MB at 1 GB/s.
        assert math.isclose(steps.kv_transfer_time_us("cpu_to_gpu", 10_000_000), 1100.0, rel_tol=1e-12)
        assert math.isclose(steps.kv_transfer_time_us("gpu_to_cpu", 1_000_000), 1005.0, rel_tol=1e-12)
        assert steps.kv_contention == 0.5
    with pytest.raises(RidgepointError, match="contention = 2"):
        StepModel("llama-3.1-8b", "h100", kv_transfers={**measured, "contention": 2})
    with pytest.raises(RidgepointError, match="nowhere.json"):
        StepModel("llama-3.1-8b", "h100", kv_transfers="nowhere.json")


def test_a_copy_of_kv_blocks_takes_its_launch_and_its_bytes(steps: StepModel) -> None:
    # 20 µs, and 5.44 MB over 0.85 · 64 GB/s in 100 µs.
    assert math.isclose(steps.kv_transfer_time_us("cpu_to_gpu", 5_440_000), 120.0, rel_tol=1e-12)
    assert math.isclose(steps.kv_transfer_time_us("gpu_to_cpu", 544_000), 30.0, rel_tol=1e-12)
    # An NVMe disk: 100 µs, and 35 MB at 7 GB/s.
    assert math.isclose(steps.kv_transfer_time_us("disk_to_cpu", 35_000_000), 5100.0, rel_tol=1e-12)
    assert steps.kv_transfer_time_us("cpu_to_gpu", 0) == 20.0
    assert math.isfinite(steps.kv_transfer_time_us("cpu_to_gpu", 2**64 - 1))
    with pytest.raises(RidgepointError, match="direction = 'up' must be 'gpu_to_cpu', 'cpu_to_gpu', 'cpu_to_disk' or"):
        steps.kv_transfer_time_us("up", 1)  # type: ignore[arg-type]
    with pytest.raises(RidgepointError, match="num_bytes = -1 must be from 0"):
        steps.kv_transfer_time_us("cpu_to_gpu", -1)
    with pytest.raises(TypeError, match="num_bytes = 1.5"):
        steps.kv_transfer_time_us("cpu_to_gpu", 1.5)  # type: ignore[arg-type]


def test_the_textbook_roofline_is_the_bound() -> None:
    ideal = StepModel("llama-3.1-8b", "h100", efficiency="ideal")
    step = ideal.predict([1000] * 16, [1] * 16)
    assert math.isclose(step.step_time_us, step.bound_us, rel_tol=1e-12)
    assert step.correction is None and set(step.provenance) == {"ideal"}


def test_weights_are_read_by_all_gpus_together() -> None:
    one, two = (StepModel("llama-3.1-8b", "h100", Deployment(tensor_parallel_size=size)) for size in (1, 2))
    bytes_of = [
        next(operator.bytes for operator in model.predict([1], [1]).operators if operator.name == "down_proj")
        for model in (one, two)
    ]
    # Weights in bf16 of 32 layers, 14,336 × 4,096, halved; activations are a thousandth of them.
    assert math.isclose(bytes_of[0], 32 * 14_336 * 4096 * 2, rel_tol=2e-3)
    assert math.isclose(bytes_of[0] / bytes_of[1], 2.0, rel_tol=2e-3)


def test_operators_are_columns_of_equal_length(steps: StepModel) -> None:
    step = steps.predict([1000] * 16, [1] * 16)
    columns = step.to_columns()
    assert {len(column) for column in columns.values()} == {len(step.operators)}
    assert math.isclose(sum(columns["time_us"]), step.step_time_us, rel_tol=1e-9)


def test_memory_is_shared_out_to_the_last_byte(steps: StepModel) -> None:
    capacity = steps.kv_capacity()
    # 32 layers of keys and values, 8 heads of 128 in 2 bytes.
    assert capacity.kv_bytes_per_token == 32 * 2 * 8 * 128 * 2
    assert capacity.num_gpu_blocks == capacity.kv_cache_bytes // (16 * capacity.kv_bytes_per_token)
    assert capacity.usable_tokens == (capacity.num_gpu_blocks - 1) * 16


@pytest.mark.parametrize("hardware", ["H100", "NVIDIA H100 80GB HBM3", "h100_sxm"])
def test_gpus_are_found_by_the_names_that_people_use(hardware: str) -> None:
    assert StepModel("meta-llama/Llama-3.1-8B-Instruct", hardware).hardware_name == "h100_sxm"
