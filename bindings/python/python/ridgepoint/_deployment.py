"""vLLM's engine arguments that a step depends on."""

import json
from dataclasses import asdict, dataclass
from typing import Any

from ._record import real_number, switch, whole_number


@dataclass(frozen=True)
class Deployment:
    """How a model is served: vLLM's engine arguments under their own names and with their own defaults.

    What can only be checked against a model (heads that `tensor_parallel_size` divides, experts) is checked by `StepModel`.

    Raises:
        TypeError: a size that is no whole number, a switch that is neither True nor False.
        RidgepointError: a size that is negative or beyond 32 bits.
    """

    tensor_parallel_size: int = 1
    """GPUs that share every layer's matrices."""
    pipeline_parallel_size: int = 1
    """Stages that share the layers."""
    data_parallel_size: int = 1
    """Replicas of the attention part."""
    enable_expert_parallel: bool = False
    """Whole experts per GPU instead of slices of each."""
    max_num_seqs: int = 256
    """Most requests in a step."""
    max_num_batched_tokens: int = 8192
    """Most tokens in a step."""
    max_model_len: int | None = None
    """Longest context; None takes the model's own limit."""
    gpu_memory_utilization: float = 0.9
    """Share of device memory that the engine may use."""
    kv_cache_dtype: str | None = None
    """"fp8", "bfloat16" and so on; None or "auto": the checkpoint's scheme, else the model's dtype."""
    block_size: int = 16
    """Tokens of a KV block."""
    enforce_eager: bool = False
    """No CUDA graphs."""
    generation_config: str = "auto"
    """Where sampling defaults come from: "auto" (the model's generation_config.json) or "vllm" (neutral ones)."""

    def __post_init__(self) -> None:
        for name in (
            "tensor_parallel_size",
            "pipeline_parallel_size",
            "data_parallel_size",
            "max_num_seqs",
            "max_num_batched_tokens",
            "block_size",
        ):
            object.__setattr__(self, name, whole_number(name, getattr(self, name)))
        if self.max_model_len is not None:
            object.__setattr__(self, "max_model_len", whole_number("max_model_len", self.max_model_len))
        utilization = real_number("gpu_memory_utilization", self.gpu_memory_utilization)
        object.__setattr__(self, "gpu_memory_utilization", utilization)
        for name in ("enable_expert_parallel", "enforce_eager"):
            switch(name, getattr(self, name))

    def _json(self) -> str:
        values: dict[str, Any] = asdict(self)
        if self.kv_cache_dtype == "auto":
            values["kv_cache_dtype"] = None
        return json.dumps(values)
