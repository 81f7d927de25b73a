"""Predicts how long one step of an LLM serving engine takes, without a GPU.

A step is one iteration of an engine such as vLLM: a mixed batch of prefill chunks and decodes, each request with its own KV
length. `StepModel` predicts its time from a model's ``config.json``, a GPU and vLLM's own engine arguments. `simulate` replays
whole loads through a model of vLLM's scheduler, `sweep` whole grids of servers and loads. `evaluate_serving` compares replays with measured runs.

>>> import numpy as np
>>> from ridgepoint import Deployment, StepModel
>>> steps = StepModel("llama-3.1-70b", "h100", Deployment(tensor_parallel_size=4))
>>> computed = np.full(64, 2048, dtype=np.uint32)    # 64 decodes with 2,048 tokens in the cache each
>>> scheduled = np.ones(64, dtype=np.uint32)
>>> steps.step_time_us(computed, scheduled) > steps.predict(computed, scheduled).bound_us
True

Names that end in ``_us`` hold microseconds, in ``_ms`` milliseconds, in ``_ns`` nanoseconds.
"""

from ._arguments import ClosedLoop, Deployment, OpenLoop, Scheduler, Sessions
from ._catalogue import HardwareInfo, ModelInfo, hardware, models
from ._evaluation import Evaluation, Experiment, MetricRow, MetricSummary, Skipped, evaluate_serving
from ._loads import Load, Profile, RequestArrays, RequestFile
from ._native import RidgepointError, __version__
from ._replay import (
    DiskCounters,
    Distribution,
    EngineCounters,
    Interval,
    KvDisk,
    KvOffload,
    LoadSummary,
    OffloadCounters,
    Simulation,
    StageSummary,
    TransferCounters,
    simulate,
)
from ._server import Server, read_server
from ._steps import KvCapacity, OperatorEstimate, StepEstimate, StepModel
from ._sweep import SweepRows, sweep

__all__ = [
    "ClosedLoop",
    "Deployment",
    "DiskCounters",
    "Distribution",
    "EngineCounters",
    "Evaluation",
    "Experiment",
    "HardwareInfo",
    "Interval",
    "KvCapacity",
    "KvDisk",
    "KvOffload",
    "Load",
    "LoadSummary",
    "MetricRow",
    "MetricSummary",
    "ModelInfo",
    "OffloadCounters",
    "OpenLoop",
    "OperatorEstimate",
    "Profile",
    "RequestArrays",
    "RequestFile",
    "RidgepointError",
    "Scheduler",
    "Server",
    "Sessions",
    "Simulation",
    "Skipped",
    "StageSummary",
    "StepEstimate",
    "StepModel",
    "SweepRows",
    "TransferCounters",
    "__version__",
    "evaluate_serving",
    "hardware",
    "models",
    "read_server",
    "simulate",
    "sweep",
]
