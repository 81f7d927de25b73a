"""Columns of numbers: which are taken as they are, which are converted, which are refused."""

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from ridgepoint import RidgepointError, StepModel

COMPUTED = np.array([100, 2000, 3, 4_000, 50], dtype=np.uint32)
SCHEDULED = np.array([1, 1, 30, 1, 200], dtype=np.uint32)
SAMPLES = np.array([True, True, False, True, True])


def read_only(column: npt.NDArray[Any]) -> npt.NDArray[Any]:
    copy = column.copy()
    copy.flags.writeable = False
    return copy


def every_other(column: npt.NDArray[Any]) -> npt.NDArray[Any]:
    wide = np.zeros(2 * len(column), dtype=column.dtype)
    wide[::2] = column
    return wide[::2]


def misaligned(column: npt.NDArray[Any]) -> npt.NDArray[Any]:
    moved = np.frombuffer(b"x" + column.tobytes(), dtype=column.dtype, offset=1)
    assert column.itemsize == 1 or not moved.flags.aligned
    return moved


SHAPES: dict[str, Callable[[npt.NDArray[Any]], Any]] = {
    "read-only": read_only,
    "every other": every_other,
    "backwards": lambda column: column[::-1].copy()[::-1],
    "misaligned": misaligned,
    "int64": lambda column: column.astype(np.int64),
    "uint64": lambda column: column.astype(np.uint64),
    "int16": lambda column: column.astype(np.int16),
    "big-endian": lambda column: column.astype(">u4"),
    "list": lambda column: column.tolist(),
    "tuple": lambda column: tuple(column.tolist()),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_the_same_numbers_give_the_same_bits(steps: StepModel, shape: str) -> None:
    shaped = SHAPES[shape]
    expected = steps.step_time_us(COMPUTED, SCHEDULED)
    assert steps.step_time_us(shaped(COMPUTED), shaped(SCHEDULED)) == expected
    assert steps.step_times_us([0, 5], shaped(COMPUTED), shaped(SCHEDULED)).tolist() == [expected]


@pytest.mark.parametrize("shape", ["read-only", "every other", "backwards", "misaligned", "list"])
def test_truth_values_of_any_shape_are_the_same(steps: StepModel, shape: str) -> None:
    expected = steps.predict(COMPUTED, SCHEDULED, SAMPLES)
    shaped = steps.predict(COMPUTED, SCHEDULED, SHAPES[shape](SAMPLES))
    assert shaped == expected
    # A chunk that does not end its prompt takes no part in the last projection.
    assert expected.total_flops < steps.predict(COMPUTED, SCHEDULED).total_flops


def test_any_byte_but_zero_is_true(steps: StepModel) -> None:
    odd = np.array([2, 255, 0, 7, 1], dtype=np.uint8).view(np.bool_)
    assert steps.predict(COMPUTED, SCHEDULED, odd) == steps.predict(COMPUTED, SCHEDULED, SAMPLES)


def test_frames_and_tables_are_columns_too(steps: StepModel) -> None:
    pandas, pyarrow = pytest.importorskip("pandas"), pytest.importorskip("pyarrow")
    expected = steps.step_time_us(COMPUTED, SCHEDULED)
    frame = pandas.DataFrame({"computed": COMPUTED, "scheduled": SCHEDULED})
    assert steps.step_time_us(frame["computed"], frame["scheduled"]) == expected
    assert steps.step_time_us(pyarrow.array(COMPUTED), pyarrow.array(SCHEDULED)) == expected


PEAK = """
import resource, sys
import numpy as np
from ridgepoint import StepModel

steps = StepModel("llama-3.1-8b", "h100")
dtype = sys.argv[1]
offsets = np.arange(0, 8_000_001, 100)
computed, scheduled = np.full(8_000_000, 700, dtype=dtype), np.ones(8_000_000, dtype=dtype)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
steps.step_times_us(offsets, computed, scheduled)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="ru_maxrss is in KiB on Linux")
def test_columns_of_uint32_are_not_copied() -> None:
    def grown_kib(dtype: str) -> int:
        done = subprocess.run([sys.executable, "-c", PEAK, dtype], check=True, capture_output=True, text=True)
        return int(done.stdout)

    # 32 MB a column; offsets and times are 0.6 MB each. Other integers have to be converted, which the measure sees.
    assert grown_kib("uint32") < 16_000
    assert grown_kib("int64") > 32_000


@pytest.mark.parametrize(
    ("computed", "error", "said"),
    [
        ([-1, 5], RidgepointError, r"num_computed_tokens\[0\] = -1 must be from 0 to 4294967295"),
        (np.array([5, 2**32]), RidgepointError, r"num_computed_tokens\[1\] = 4294967296"),
        (np.array([5, 2**64 - 1], dtype=np.uint64), RidgepointError, r"num_computed_tokens\[1\] = 18446744073709551615"),
        ([1.0, 2.0], TypeError, "num_computed_tokens must hold integers.*float64"),
        ([1.0, float("nan")], TypeError, "its dtype is float64"),
        (np.array([1, 2], dtype=bool), TypeError, "its dtype is bool"),
        (["1", "2"], TypeError, "its dtype is <U1"),
        ([None, 1], TypeError, "its dtype is object"),
        (np.zeros(0), TypeError, "its dtype is float64"),
        (5, RidgepointError, r"one dimension, and its shape is \[\]"),
        ([[1], [2]], RidgepointError, r"one dimension, and its shape is \[2, 1\]"),
        (np.ma.masked_array([1, 2], mask=[False, True]), TypeError, "masked array"),
        ([1], RidgepointError, "num_scheduled_tokens.*length 2"),
    ],
)
def test_what_are_no_token_counts_is_refused(steps: StepModel, computed: Any, error: type[Exception], said: str) -> None:
    for call in (
        lambda: steps.step_time_us(computed, [1, 1]),
        lambda: steps.step_times_us([0, 2], computed, [1, 1]),
        lambda: steps.predict(computed, [1, 1]),
    ):
        with pytest.raises(error, match=said):
            call()


@pytest.mark.parametrize(
    ("samples", "error", "said"),
    [
        ([1, 0], TypeError, "samples must hold truth values"),
        ([0.5, 1.0], TypeError, "samples must hold truth values"),
        ([True], RidgepointError, "samples.*length 1"),
        ([[True, False]], RidgepointError, "one dimension"),
    ],
)
def test_what_are_no_truth_values_is_refused(steps: StepModel, samples: Any, error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said):
        steps.step_time_us([5, 6], [1, 1], samples)


@pytest.mark.parametrize(
    ("offsets", "error", "said"),
    [
        ([], RidgepointError, "offsets is empty"),
        ([1, 3], RidgepointError, r"offsets\[0\] = 1 must be 0"),
        ([0, 2, 1, 3], RidgepointError, r"offsets decrease after offsets\[1\]"),
        ([0, 2], RidgepointError, "offsets end at 2, and there are 3 requests"),
        ([0, 4], RidgepointError, "offsets end at 4, and there are 3 requests"),
        ([0, -3], RidgepointError, r"offsets\[1\] = -3"),
        ([0.0, 3.0], TypeError, "offsets must hold integers"),
    ],
)
def test_offsets_that_cannot_be_are_refused(steps: StepModel, offsets: Any, error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said):
        steps.step_times_us(offsets, [1, 2, 3], [1, 1, 1])
