"""Engine arguments and loads. Made by generate.py from the list of arguments that the command prints: do not edit it by hand."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from ._record import Arguments, suggests_keywords

if TYPE_CHECKING:
    from ._replay import KvOffload

Efficiency = Literal["tables", "ideal"]
Engine = Literal["vllm", "sglang", "trtllm"]


@suggests_keywords
@dataclass(frozen=True, repr=False)
class Deployment(Arguments):
    """vLLM's engine arguments that a step depends on, under vLLM's names. None is vLLM's default.

    `StepModel` checks them against the model: whether `tensor_parallel_size` divides the heads, for example.

    Raises:
        TypeError: a value is of another type.
        RidgepointError: a value is out of its range. The message names all of them.
    """

    _section = "deployment"

    tensor_parallel_size: int | None = None
    """GPUs that share every layer's matrices. Defaults to 1."""
    pipeline_parallel_size: int | None = None
    """Pipeline stages that share the layers. Defaults to 1."""
    data_parallel_size: int | None = None
    """Replicas of the attention part; a batch is that of one replica. Defaults to 1."""
    enable_expert_parallel: bool | None = None
    """Place whole experts on each GPU instead of a slice of every expert."""
    max_num_seqs: int | None = None
    """Most requests in a step; also limits the CUDA graph sizes. Defaults to 1024 on GPUs from 70 GiB but A100, 256 on others; at most
    max_num_batched_tokens.
    """
    max_num_batched_tokens: int | None = None
    """Most tokens in a step. Defaults to 8192 on GPUs from 70 GiB but A100, 2048 on others; 16384 from 160 GiB since vLLM 0.28."""
    max_model_len: int | None = None
    """Longest context of a request, tokens. Defaults to the model's own limit."""
    gpu_memory_utilization: float | None = None
    """Share of GPU memory that the engine may use. Defaults to 0.9; 0.92 since vLLM 0.20."""
    cpu_offload_gb: float | None = None
    """GiB of each GPU's weights that stay in host memory, which leaves room for KV blocks. Kernels read them over the bus in every step.
    Defaults to 0.
    """
    kv_cache_dtype: str | None = None
    """Number format of the KV cache; auto takes the checkpoint's, else the model's own. Defaults to auto."""
    block_size: int | None = None
    """Tokens of a KV block. Defaults to 16."""
    enforce_eager: bool | None = None
    """Launch every kernel from the host, without CUDA graphs."""
    cudagraph_mode: Literal["FULL_AND_PIECEWISE", "FULL", "FULL_DECODE_ONLY", "PIECEWISE", "NONE"] | None = None
    """Steps that replay CUDA graphs. Defaults to FULL_AND_PIECEWISE."""
    cudagraph_capture_sizes: tuple[int, ...] | None = None
    """Numbers of tokens that graphs are captured for, ascending, as in 1,2,4,8. Defaults to vLLM's choice."""
    max_cudagraph_capture_size: int | None = None
    """Largest number of tokens that a graph is captured for. Defaults to twice max_num_seqs, at most 512."""
    attention_backend: Literal["FLASH_ATTN", "FLASHINFER", "TRITON_ATTN", "FLEX_ATTENTION", "FLASH_ATTN_MLA", "FLASHINFER_MLA", "FLASHMLA", "CUTLASS_MLA", "TRITON_MLA"] | None = None
    """Attention kernels, by vLLM's name of their backend; only FLASH_ATTN's were measured."""
    disable_custom_all_reduce: bool | None = None
    """Sum over tensor-parallel ranks by NCCL's ring instead of vLLM's own kernel."""
    generation_config: Literal["auto", "vllm"] | None = None
    """Sampling parameters of requests that set none: those of generation_config.json, or vLLM's neutral ones. Defaults to auto."""
    override_generation_config: Mapping[str, Any] | None = None
    """Sampling parameters in place of those, as JSON: temperature, top_p, top_k, min_p and repetition_penalty. Give what all requests of a
    load set themselves here, too, as in '{"temperature": 0}'; lists of requests may have columns for them.
    """
    language_model_only: bool | None = None
    """Load no vision or audio tower, which leaves its memory to KV blocks."""


@suggests_keywords
@dataclass(frozen=True, repr=False)
class Scheduler(Arguments):
    """vLLM's engine arguments for the scheduler and the KV cache. None is vLLM's default."""

    _section = "scheduler"

    num_gpu_blocks_override: int | Literal["auto"] | None = None
    """Number of KV blocks; auto computes it from the memory equation even if a server file gives one."""
    enable_prefix_caching: bool | None = None
    """Reuse KV blocks of equal prompt prefixes. Defaults to true."""
    enable_chunked_prefill: bool | None = None
    """Split prompts over several steps; without it a prompt that exceeds the rest of the token budget waits. Defaults to true."""
    long_prefill_token_threshold: int | None = None
    """Most tokens of one prompt in a step; 0 sets no limit. Defaults to 0."""
    watermark: float | None = None
    """Share of the KV blocks that the admission of a waiting request leaves free while others run. Defaults to 0."""
    scheduler_reserve_full_isl: bool | None = None
    """Admit a prompt only if the free KV blocks hold all of it, not only its first chunk. Defaults to false; vLLM sets it since 0.19."""
    scheduling_policy: Literal["fcfs", "priority"] | None = None
    """Order of waiting requests: first come, first served, or lowest priority value first. Defaults to fcfs."""
    async_scheduling: bool | None = None
    """Schedule the next step while one runs. Defaults to true; false before vLLM 0.14."""
    kv_cache_tokens: int | None = None
    """Tokens of the KV cache, as the engine logs them when it starts (`GPU KV cache size`, or SGLang's max_total_num_tokens). Defaults to
    those of the memory equation.
    """
    kv_offloading_size: float | None = None
    """Host memory for KV blocks of all GPUs of a replica, GiB: full blocks are copied there, and prompts load them back."""
    kv_offloading_backend: Literal["native"] | None = None
    """Backend of kv_offloading_size; native is modelled."""
    kv_transfer_config: Mapping[str, Any] | None = None
    """vLLM's connector as JSON, in place of --kv-offloading-size: the OffloadingConnector with cpu_bytes_to_use or num_cpu_blocks,
    offload_prompt_only, and a disk in secondary_tiers of the TieringOffloadingSpec.
    """
    kv_offload: KvOffload | None = None
    """KV blocks in host memory, counted in blocks. Defaults to none."""


@suggests_keywords
@dataclass(frozen=True, repr=False)
class ClosedLoop(Arguments):
    """Equal requests, `concurrency` of them in flight. A finished request is replaced immediately."""

    _section = "load"

    concurrency: int
    """Closed loop: keep N requests in flight; a new one starts when one finishes. With turns, N sessions at once. With requests, how a list
    without arrivals is sent.
    """
    input_len: int | Mapping[str, float]
    """Prompt tokens of each request. With turns, new tokens of each turn, behind the turns before."""
    output_len: int | Mapping[str, float]
    """Output tokens of each request; with turns, of each turn."""
    num_requests: int | None = None
    """Number of requests; with turns give num_sessions. Defaults to 10 for each in flight, with concurrency."""
    prefix_len: int | None = None
    """Tokens at the beginning of every prompt, before input_len, that all requests and sessions share, such as a system prompt. Defaults to
    0.
    """


@suggests_keywords
@dataclass(frozen=True, repr=False)
class OpenLoop(Arguments):
    """Equal requests at random times, `request_rate` per second on average."""

    _section = "load"

    request_rate: float
    """Open loop: send R requests per second on average, at random times. With turns, start R sessions per second. With requests, how a list
    without arrivals is sent.
    """
    input_len: int | Mapping[str, float]
    """Prompt tokens of each request. With turns, new tokens of each turn, behind the turns before."""
    output_len: int | Mapping[str, float]
    """Output tokens of each request; with turns, of each turn."""
    num_requests: int
    """Number of requests; with turns give num_sessions. Defaults to 10 for each in flight, with concurrency."""
    burstiness: float | None = None
    """Shape of the gamma distribution of the gaps between requests, or between the starts of sessions: 1 is Poisson, less is burstier.
    Defaults to 1.
    """
    prefix_len: int | None = None
    """Tokens at the beginning of every prompt, before input_len, that all requests and sessions share, such as a system prompt. Defaults to
    0.
    """


@suggests_keywords
@dataclass(frozen=True, repr=False)
class Sessions(Arguments):
    """Sessions of several turns. The prompt of a turn is the turn before with its output, then `input_len` new tokens. A turn is sent when
    the turn before has finished. Give `request_rate` or `concurrency`.
    """

    _section = "load"

    turns: int
    """Send sessions of N turns instead of single requests. The prompt of a turn is the turn before with its output, then input_len new
    tokens. It is sent when the turn before has finished.
    """
    input_len: int | Mapping[str, float]
    """Prompt tokens of each request. With turns, new tokens of each turn, behind the turns before."""
    output_len: int | Mapping[str, float]
    """Output tokens of each request; with turns, of each turn."""
    num_sessions: int | None = None
    """Number of sessions, each of turns requests. Defaults to 10 for each at once, with concurrency."""
    request_rate: float | None = None
    """Open loop: send R requests per second on average, at random times. With turns, start R sessions per second. With requests, how a list
    without arrivals is sent.
    """
    concurrency: int | None = None
    """Closed loop: keep N requests in flight; a new one starts when one finishes. With turns, N sessions at once. With requests, how a list
    without arrivals is sent.
    """
    prefix_len: int | None = None
    """Tokens at the beginning of every prompt, before input_len, that all requests and sessions share, such as a system prompt. Defaults to
    0.
    """
    think_time_s: float | None = None
    """Mean time from the end of a turn to the next, as the client thinks or a tool runs, s. Times are exponential. Defaults to 0."""
    burstiness: float | None = None
    """Shape of the gamma distribution of the gaps between requests, or between the starts of sessions: 1 is Poisson, less is burstier.
    Defaults to 1.
    """
