"""vLLM's engine arguments that a step depends on."""

import json
from dataclasses import asdict, dataclass
from typing import Any

from ._record import real_number, suggests_keywords, switch, whole_number


@suggests_keywords
@dataclass(frozen=True)
class Deployment:
    """vLLM's engine arguments, with vLLM's names and defaults.

    `StepModel` checks them against the model: whether `tensor_parallel_size` divides the heads, for example.

    Raises:
        TypeError: a size is not a whole number, or a switch is neither True nor False.
        RidgepointError: a size is negative or does not fit in 32 bits.
    """

    tensor_parallel_size: int = 1
    """Number of GPUs that split each layer's matrices."""
    pipeline_parallel_size: int = 1
    """Number of pipeline stages."""
    data_parallel_size: int = 1
    """Number of data-parallel replicas of the attention layers."""
    enable_expert_parallel: bool = False
    """Places whole experts on each GPU instead of slices of all."""
    max_num_seqs: int = 256
    """Maximum number of requests in a step."""
    max_num_batched_tokens: int = 8192
    """Maximum number of tokens in a step."""
    max_model_len: int | None = None
    """Maximum context length, tokens. Defaults to the model's."""
    gpu_memory_utilization: float = 0.9
    """Share of device memory that the engine may use."""
    cpu_offload_gb: float = 0.0
    """GiB of each GPU's weights that stay in host memory. Kernels read them over the bus in every step."""
    kv_cache_dtype: str | None = None
    """"fp8", "bfloat16" and so on; None or "auto": the checkpoint's scheme, else the model's dtype."""
    block_size: int = 16
    """Tokens per KV block."""
    enforce_eager: bool = False
    """Turns CUDA graphs off."""
    cudagraph_mode: str | None = None
    """Steps that replay CUDA graphs: "FULL_AND_PIECEWISE" (vLLM's default), "FULL", "FULL_DECODE_ONLY", "PIECEWISE" or "NONE"."""
    cudagraph_capture_sizes: tuple[int, ...] = ()
    """Numbers of tokens that graphs are captured for, ascending. Defaults to vLLM's choice."""
    max_cudagraph_capture_size: int | None = None
    """Largest number of tokens that a graph is captured for."""
    attention_backend: str | None = None
    """vLLM's name of the attention kernels, such as "FLASHINFER"."""
    disable_custom_all_reduce: bool = False
    """Sums over tensor-parallel ranks by NCCL's ring."""
    generation_config: str = "auto"
    """Source of sampling defaults: "auto" (the model's generation_config.json) or "vllm" (neutral ones)."""
    override_generation_config: dict[str, float] | None = None
    """Sampling parameters in place of those, such as {"temperature": 0}: the server's, or those that all requests set themselves."""

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
        for name in ("max_model_len", "max_cudagraph_capture_size"):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, whole_number(name, getattr(self, name)))
        sizes = tuple(whole_number("cudagraph_capture_sizes", size) for size in self.cudagraph_capture_sizes)
        object.__setattr__(self, "cudagraph_capture_sizes", sizes)
        utilization = real_number("gpu_memory_utilization", self.gpu_memory_utilization)
        object.__setattr__(self, "gpu_memory_utilization", utilization)
        object.__setattr__(self, "cpu_offload_gb", real_number("cpu_offload_gb", self.cpu_offload_gb))
        for name in ("enable_expert_parallel", "enforce_eager", "disable_custom_all_reduce"):
            switch(name, getattr(self, name))

    def _json(self) -> str:
        values: dict[str, Any] = asdict(self)
        if self.kv_cache_dtype == "auto":
            values["kv_cache_dtype"] = None
        return json.dumps({key: value for key, value in values.items() if value not in (None, ())})
