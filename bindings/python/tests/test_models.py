"""Models, GPUs and deployments: where they come from, what is refused, and copies sent to other processes."""

import copy
import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ridgepoint
from ridgepoint import Deployment, RidgepointError, StepModel

BATCH = ([1000, 20, 0], [1, 1, 300])


def test_a_configuration_is_taken_by_name_by_path_and_as_a_dict(root: Path) -> None:
    path = root / "models" / "llama-2-7b.json"
    by_name = StepModel("llama-2-7b", "h100", correction="global")
    by_path = StepModel(path, "h100", correction="global")
    by_value = StepModel(json.loads(path.read_text()), "h100", correction="global")
    assert by_name.step_time_us(*BATCH) == by_path.step_time_us(*BATCH) == by_value.step_time_us(*BATCH)
    assert (by_name.model_name, by_name.correction_name) == ("llama-2-7b", "global")


def test_fewer_layers_take_less_time(root: Path) -> None:
    config = json.loads((root / "models" / "llama-2-7b.json").read_text())
    whole = StepModel(config, "h100").predict(*BATCH)
    half = StepModel({**config, "num_hidden_layers": 16}, "h100").predict(*BATCH)
    calls = [next(of.count for of in step.operators if of.name == "qkv_proj") for step in (whole, half)]
    assert calls == [32, 16] and half.step_time_us < whole.step_time_us


def test_precision_takes_the_quantised_checkpoint() -> None:
    plain, quantised = (StepModel("qwen3-32b", "h100", precision=precision) for precision in (None, "fp8"))
    assert (plain.model_name, quantised.model_name) == ("qwen3-32b", "qwen3-32b-fp8")
    assert any("fp8 is requested" in note for note in quantised.notes)
    assert pickle.loads(pickle.dumps(quantised)).model_name == "qwen3-32b-fp8"


REFUSED: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "model": (lambda: StepModel("lama-3.1-8b", "h100"), RidgepointError, "unknown model 'lama-3.1-8b'.*llama-3.1-8b"),
    "gpu": (lambda: StepModel("llama-2-7b", "h1000"), RidgepointError, "unknown hardware 'h1000'.*h100"),
    "path": (lambda: StepModel("./no/config.json", "h100"), RidgepointError, "./no/config.json"),
    "dict": (lambda: StepModel({"model_type": "llama"}, "h100"), RidgepointError, "hidden_size"),
    "empty dict": (lambda: StepModel({}, "h100"), RidgepointError, "model_type is missing"),
    "heads": (
        lambda: StepModel("llama-2-7b", "h100", Deployment(tensor_parallel_size=3)),
        RidgepointError,
        "tensor_parallel_size = 3 does not divide num_attention_heads = 32.*can be 1, 2, 4",
    ),
    "all problems": (
        lambda: StepModel("llama-2-7b", "h100", Deployment(block_size=0, gpu_memory_utilization=1.5)),
        RidgepointError,
        r"block_size = 0 must be .*gpu_memory_utilization = 1.5 must be|gpu_memory_utilization = 1.5 must be .*block_size = 0 must be",
    ),
    "cache": (
        lambda: StepModel("llama-2-7b", "h100", Deployment(kv_cache_dtype="fp9")),
        RidgepointError,
        'kv_cache_dtype = "fp9" must be auto.*fp8',
    ),
    "correction": (
        lambda: StepModel("llama-2-7b", "h100", correction="best"),
        RidgepointError,
        "'best' must be none, global, auto",
    ),
    "ideal": (
        lambda: StepModel("llama-2-7b", "h100", correction="global", efficiency="ideal"),
        RidgepointError,
        "requires calibrated tables",
    ),
    "efficiency": (
        lambda: StepModel("llama-2-7b", "h100", efficiency="measured"),  # type: ignore[arg-type]
        RidgepointError,
        "efficiency = \"measured\" must be tables or ideal",
    ),
    "folder": (lambda: StepModel("llama-2-7b", "h100", data_dir="/no/where"), RidgepointError, "data_dir = /no/where"),
    "precision": (lambda: StepModel("llama-2-7b", "h100", precision="fp7"), RidgepointError, "fp8, int8, int4 or fp4"),
    "no deployment": (lambda: StepModel("llama-2-7b", "h100", 4), TypeError, "4 must be a ridgepoint.Deployment"),  # type: ignore[arg-type]
    "no name": (lambda: StepModel(7, "h100"), TypeError, "int"),  # type: ignore[arg-type]
    "too large": (lambda: Deployment(max_num_seqs=2**32), RidgepointError, "max_num_seqs = 4294967296 must be a whole number from 1 to"),
    "negative": (
        lambda: Deployment(max_model_len=-3, block_size=-2),
        RidgepointError,
        "max_model_len = -3 must be a whole number from 1 to 4294967295(.|\n)*block_size = -2"
        "|block_size = -2(.|\n)*max_model_len = -3 must be a whole number from 1 to 4294967295",
    ),
    "text": (lambda: Deployment(block_size="16"), TypeError, "block_size = '16' must be a whole number"),  # type: ignore[arg-type]
    "number": (lambda: Deployment(kv_cache_dtype=8), TypeError, "kv_cache_dtype = 8 must be a text"),  # type: ignore[arg-type]
    "one size": (
        lambda: Deployment(cudagraph_capture_sizes=8),  # type: ignore[arg-type]
        TypeError,
        "cudagraph_capture_sizes = 8 must be a list of whole numbers",
    ),
    "key": (
        lambda: Deployment(override_generation_config={"temprature": 0}),
        RidgepointError,
        "override_generation_config.temprature is not a known key: did you mean temperature",
    ),
    "half": (lambda: Deployment(block_size=16.0), TypeError, "block_size = 16.0 must be a whole number"),  # type: ignore[arg-type]
    "truth": (lambda: Deployment(tensor_parallel_size=True), TypeError, "tensor_parallel_size = True"),
    "switch": (lambda: Deployment(enforce_eager=1), TypeError, "enforce_eager = 1 must be True or False"),  # type: ignore[arg-type]
    "not a number": (lambda: Deployment(gpu_memory_utilization=float("nan")), RidgepointError, "must be finite"),
    "no request": (lambda: StepModel("llama-2-7b", "h100").predict([], []), RidgepointError, "has no requests"),
    "idle": (lambda: StepModel("llama-2-7b", "h100").predict([5], [0]), RidgepointError, "num_scheduled_tokens = 0"),
    "long": (lambda: StepModel("llama-2-7b", "h100").predict([4096], [1]), RidgepointError, "4096"),
    "prompt": (lambda: StepModel("llama-2-7b", "h100").queueing_time_us(-1), RidgepointError, "prompt_tokens = -1"),
    "room": (lambda: StepModel("llama-3.1-70b", "h100").kv_capacity(), RidgepointError, "tensor_parallel_size = 4 would do"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_says_why(case: str) -> None:
    call, error, said = REFUSED[case]
    with pytest.raises(error, match=said):
        call()


def test_numbers_of_numpy_are_whole_numbers() -> None:
    deployment = Deployment(tensor_parallel_size=np.int64(2), gpu_memory_utilization=np.float32(0.5))  # type: ignore[arg-type]
    assert (type(deployment.tensor_parallel_size), deployment.gpu_memory_utilization) == (int, 0.5)
    # Also within a mapping, and in an array of sizes.
    sampling = Deployment(override_generation_config={"temperature": np.float32(0.5), "top_k": np.int64(5)})
    assert StepModel("llama-2-7b", "h100", sampling).step_time_us(*BATCH) > 0
    sizes = Deployment(cudagraph_capture_sizes=np.array([1, 2, 4]))  # type: ignore[arg-type]
    assert sizes == Deployment(cudagraph_capture_sizes=(1, 2, 4))


def test_the_engine_chooses_the_kernels() -> None:
    one, other = (StepModel("gpt-oss-120b", "h200", engine_version=version) for version in ("0.14", "0.24"))
    assert one.step_time_us(*BATCH) != other.step_time_us(*BATCH)
    assert pickle.loads(pickle.dumps(other)).step_time_us(*BATCH) == other.step_time_us(*BATCH)
    with pytest.raises(RidgepointError, match='engine = "tgi" must be vllm, sglang or trtllm'):
        StepModel("llama-2-7b", "h100", engine="tgi")  # type: ignore[arg-type]


def test_errors_are_value_errors_and_travel_between_processes() -> None:
    with pytest.raises(ValueError, match="unknown model") as caught:
        StepModel("no-such", "h100")
    sent = pickle.loads(pickle.dumps(caught.value))
    assert type(sent) is RidgepointError and str(sent) == str(caught.value)


def test_a_defect_is_an_exception_like_others() -> None:
    with pytest.raises(RuntimeError, match="a defect of ridgepoint, please report it: raised for a test"):
        ridgepoint._native._raise_defect()


def test_copies_predict_the_same_bits(root: Path) -> None:
    deployment = Deployment(tensor_parallel_size=2, max_num_seqs=64, kv_cache_dtype="fp8")
    config = json.loads((root / "models" / "llama-2-7b.json").read_text())
    for steps in (
        StepModel("llama-3.1-8b", "h200", deployment, correction="none"),
        StepModel("llama-3.1-8b", "h200", deployment, efficiency="ideal"),
        StepModel(config, "a100"),
    ):
        for copied in (pickle.loads(pickle.dumps(steps)), copy.copy(steps), copy.deepcopy(steps)):
            assert copied.deployment == steps.deployment and repr(copied) == repr(steps)
            assert copied.step_time_us(*BATCH) == steps.step_time_us(*BATCH)


def test_a_relative_path_still_leads_there_from_elsewhere(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(root / "models")
    steps = StepModel("./llama-2-7b.json", "../hardware/h100_sxm.toml")
    sent = pickle.dumps(steps)
    monkeypatch.chdir(tmp_path)
    assert pickle.loads(sent).step_time_us(*BATCH) == steps.step_time_us(*BATCH)


class Named(StepModel):
    """Someone's own kind of step model."""

    def name(self) -> str:
        return f"{self.model_name} on {self.hardware_name}"


def test_a_subclass_stays_one_when_copied() -> None:
    copied = pickle.loads(pickle.dumps(Named("llama-2-7b", "h100")))
    assert copied.name() == "llama-2-7b on h100_sxm"


def test_the_catalogues_are_what_is_in_the_folders(root: Path) -> None:
    models, gpus = ridgepoint.models(), ridgepoint.hardware()
    assert [model.name for model in models] == sorted(path.stem for path in (root / "models").glob("*.json"))
    assert [gpu.name for gpu in gpus] == sorted(path.stem for path in (root / "hardware").glob("*.toml"))
    llama = next(model for model in models if model.name == "llama-2-7b")
    # As published; two bytes each.
    assert (llama.parameters, llama.weight_bytes, llama.num_layers) == (6_738_415_616, 2 * 6_738_415_616, 32)
    h100 = next(gpu for gpu in gpus if gpu.name == "h100_sxm")
    assert h100.peaks_dense_flop_per_s["bfloat16"] == 989.4e12 and h100.interconnect_bytes_per_s == 450e9
