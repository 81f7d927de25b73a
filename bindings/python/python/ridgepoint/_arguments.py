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
    max_num_batched_tokens; 2048 under SGLang and TensorRT-LLM.
    """
    max_num_batched_tokens: int | None = None
    """Most tokens in a step. Defaults to 8192 on GPUs from 70 GiB but A100, 2048 on others; 16384 from 160 GiB since vLLM 0.28; 8192 under
    TensorRT-LLM.
    """
    max_model_len: int | None = None
    """Longest context of a request, tokens. Defaults to the model's own limit."""
    gpu_memory_utilization: float | None = None
    """Share of GPU memory that the engine may use. Defaults to 0.9; 0.92 since vLLM 0.20; by its own rule under SGLang."""
    cpu_offload_gb: float | None = None
    """GiB of each GPU's weights that stay in host memory, which leaves room for KV blocks. Kernels read them over the bus in every step.
    Defaults to 0.
    """
    kv_cache_dtype: str | None = None
    """Number format of the KV cache; auto takes the checkpoint's, else the model's own. Defaults to auto."""
    block_size: int | None = None
    """Tokens of a KV block. Defaults to 16; 32 under TensorRT-LLM. SGLang's pages of one token are replayed in blocks of 16."""
    enforce_eager: bool | None = None
    """Launch every kernel from the host, without CUDA graphs."""
    cudagraph_mode: Literal["FULL_AND_PIECEWISE", "FULL", "FULL_DECODE_ONLY", "PIECEWISE", "NONE"] | None = None
    """Steps that replay CUDA graphs. Defaults to FULL_AND_PIECEWISE."""
    cudagraph_capture_sizes: tuple[int, ...] | None = None
    """Numbers of tokens that graphs are captured for, ascending, as in 1,2,4,8. Defaults to vLLM's choice."""
    max_cudagraph_capture_size: int | None = None
    """Largest number of tokens that a graph is captured for. Defaults to twice max_num_seqs, at most 512; 128 under TensorRT-LLM, 8 to 512
    by the GPU's memory under SGLang.
    """
    enable_padding: bool | None = None
    """Pad decodes to the next captured size; without it a batch of another size is launched from the host. Defaults to false."""
    attention_backend: Literal["FLASH_ATTN", "FLASHINFER", "TRITON_ATTN", "FLEX_ATTENTION", "FLASH_ATTN_MLA", "FLASHINFER_MLA", "FLASHMLA", "CUTLASS_MLA", "TRITON_MLA"] | None = None
    """Attention kernels, by vLLM's name of their backend; only FLASH_ATTN's were measured."""
    disable_custom_all_reduce: bool | None = None
    """Sum over tensor-parallel ranks by NCCL's ring instead of the engine's own kernel."""
    generation_config: Literal["auto", "vllm"] | None = None
    """Sampling parameters of requests that set none: those of generation_config.json, or vLLM's neutral ones. Defaults to auto."""
    override_generation_config: Mapping[str, Any] | None = None
    """Sampling parameters in place of those, as JSON: temperature, top_p, top_k, min_p and repetition_penalty. Give what all requests of a
    load set themselves here, too, as in '{"temperature": 0}'; lists of requests may have columns for them.
    """
    language_model_only: bool | None = None
    """Load no vision or audio tower, which leaves its memory to KV blocks."""
    host_speed: Literal["fast", "typical", "slow"] | None = None
    """How fast the host's cores are, which scales its launches of kernels and the delays around steps. A correction fitted on one's own
    server has measured delays, which stay. Defaults to typical; slow beside an A100.
    """
    tp_size: int | None = None
    """GPUs that share every layer's matrices; with enable_dp_attention, all GPUs of the attention's replicas together. Defaults to 1."""
    pp_size: int | None = None
    """Pipeline stages that share the layers. Defaults to 1."""
    dp_size: int | None = None
    """Replicas: of the whole server, or of the attention part alone with enable_dp_attention. Defaults to 1."""
    ep_size: str | None = None
    """GPUs over which experts are placed whole; 1 places a slice of every expert on each GPU. Defaults to 1."""
    enable_ep_moe: bool | None = None
    """Place whole experts on each GPU, as ep_size does in later versions."""
    enable_dp_attention: bool | None = None
    """Divide tp_size GPUs into dp_size replicas of the attention part, each with its own requests, that share the experts. Defaults to
    false.
    """
    context_length: int | None = None
    """Longest context of a request, tokens. Defaults to the model's own limit."""
    page_size: int | None = None
    """Tokens of a page of the KV cache. Defaults to 1, replayed in blocks of 16; some attention backends set more."""
    mem_fraction_static: float | None = None
    """Share of GPU memory for weights and KV cache together. Defaults to what the sizes of chunks and graphs leave."""
    cuda_graph_max_bs: int | None = None
    """Largest number of decodes that a CUDA graph is captured for. Defaults to 8 to 512, by GPU memory and tp_size."""
    cuda_graph_bs: tuple[int, ...] | None = None
    """Numbers of decodes that CUDA graphs are captured for, ascending, as in 1,2,4,8. Defaults to SGLang's choice up to cuda_graph_max_bs."""
    disable_cuda_graph: bool | None = None
    """Launch every kernel from the host, without CUDA graphs."""
    sampling_defaults: str | None = None
    """Sampling parameters of requests that set none: those of generation_config.json (model), or neutral ones (openai). Defaults to model."""
    language_only: bool | None = None
    """Load no vision or audio tower, which leaves its memory to the KV cache."""
    enable_attention_dp: bool | None = None
    """Give each of tp_size GPUs the whole attention part and requests of its own; they share the experts. Defaults to false."""
    max_seq_len: int | None = None
    """Longest context of a request, tokens. Defaults to the model's own limit."""
    kv_cache_free_gpu_memory_fraction: float | None = None
    """Share for the KV cache of the GPU memory that weights and activations leave free. Defaults to 0.9."""
    tokens_per_block: int | None = None
    """Tokens of a KV block. Defaults to 32."""
    use_cuda_graph: str | None = None
    """Replay CUDA graphs in steps of decodes alone; an empty cuda_graph_config switches them off. Defaults to true."""
    cuda_graph_max_batch_size: int | None = None
    """Largest number of decodes that a CUDA graph is captured for. Defaults to 128."""
    cuda_graph_batch_sizes: tuple[int, ...] | None = None
    """Numbers of decodes that CUDA graphs are captured for, ascending, as in 1,2,4,8. Defaults to TensorRT-LLM's choice up to
    cuda_graph_max_batch_size.
    """


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
    """Split prompts over several steps; without it a prompt that exceeds the rest of the token budget waits. Defaults to true; false under
    TensorRT-LLM.
    """
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
    api_server_count: int | None = None
    """Processes of the front end, each with an event loop that takes host.front_end_us for each of its requests. Defaults to 1."""
    stream_interval: int | None = None
    """Tokens that a client gets together: the first alone, then so many at once, and the rest at the end. ITL is the time between them.
    Defaults to 1.
    """
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
    speculative_config: Mapping[str, Any] | None = None
    """Speculative decoding as JSON, with the engine's own keys: method, num_speculative_tokens and model of vLLM, decoding_type,
    num_nextn_predict_layers, max_draft_len and speculative_model of TensorRT-LLM. Defaults to no speculative decoding.
    """
    spec_method: str | None = None
    """What drafts tokens, in place of speculative_config: mtp, eagle, eagle3, draft_model or ngram. Defaults to what the name of spec_model
    says.
    """
    spec_model: str | None = None
    """Name or path of the head or model that drafts tokens, in place of speculative_config."""
    spec_tokens: int | None = None
    """Tokens drafted for each step, in place of speculative_config. Defaults to 1 with mtp."""
    acceptance_length: float | None = None
    """Mean tokens that a request gets of a step with speculative decoding, the sampled one included: `Mean acceptance length` in vLLM's
    log, `accept len` in SGLang's.
    """
    acceptance_rates: str | None = None
    """Share of steps in which the draft at each position is accepted, one for each drafted token, as in 0.8,0.6,0.5: `Per-position
    acceptance rate` in vLLM's log.
    """
    max_total_tokens: int | None = None
    """Most tokens of the KV cache; the engine takes fewer where the memory holds fewer. Defaults to those of mem_fraction_static."""
    max_running_requests: int | None = None
    """Most requests that run at once; divided among the replicas of the attention part. Defaults to half the tokens of the KV cache, at
    most 2048 to 4096.
    """
    disable_overlap_schedule: str | None = None
    """Schedule a step only when the one before has ended. Defaults to false."""
    disable_radix_cache: str | None = None
    """Compute every prompt whole, without reuse of equal prefixes. Defaults to false."""
    speculative_algorithm: Literal["EAGLE", "EAGLE3", "NEXTN", "STANDALONE", "NGRAM"] | None = None
    """What drafts tokens: the model's own layers for multi-token prediction (NEXTN, or EAGLE without a draft model), a head (EAGLE,
    EAGLE3), a smaller model (STANDALONE) or the text so far (NGRAM).
    """
    speculative_draft_model_path: str | None = None
    """Name or path of the head or model that drafts tokens."""
    speculative_num_steps: int | None = None
    """Tokens drafted one after another for each step. Defaults to 3; 5 of Llama and Grok, whose drafts are a tree."""
    speculative_eagle_topk: int | None = None
    """Drafts that follow each one: 1 of a chain, more of a tree. Defaults to 1; 4 of Llama and Grok."""
    speculative_num_draft_tokens: int | None = None
    """Tokens of a request that a step verifies: the drafts and the one before them. Defaults to speculative_num_steps + 1; 8 of Llama and
    Grok; 12 with NGRAM.
    """
    chunked_prefill_size: str | None = None
    """Most prompt tokens of a step of prompts; -1 computes each prompt whole. Defaults to 2048 to 16384 by the GPU's memory."""
    max_prefill_tokens: int | None = None
    """Prompt tokens beyond which a step admits no further request. Defaults to 16384."""
    schedule_conservativeness: float | None = None
    """Factor on the share of output tokens that admission keeps KV cache for. Defaults to 1."""
    scheduler_recv_interval: int | None = None
    """Rounds of decodes after which new requests are taken; a step of prompts counts for all of them. Defaults to 1."""
    schedule_policy: Literal["fcfs", "lpm", "dfs-weight", "lof"] | None = None
    """Order of waiting requests: first come, first served; longest cached prefix first; branches of the tree of prefixes with most requests
    first; longest output first. Defaults to fcfs.
    """
    enable_mixed_chunk: bool | None = None
    """Decodes join steps of prompts."""
    ignore_eos: bool | None = None
    """Requests end at their length alone, as those of benchmarks do: without a prefix cache, admission follows each to its end. Defaults to
    true.
    """
    max_batch_size: int | None = None
    """Most requests in a step. Defaults to 2048."""
    max_num_tokens: int | None = None
    """Most tokens in a step. Defaults to 8192."""
    kv_cache_max_tokens: int | None = None
    """Most tokens of the KV cache; the engine takes fewer where the memory holds fewer. Defaults to those of
    kv_cache_free_gpu_memory_fraction.
    """
    enable_block_reuse: bool | None = None
    """Reuse KV blocks of equal prompt prefixes. Defaults to true."""
    disable_overlap_scheduler: str | None = None
    """Schedule a step only when the one before has ended. Defaults to false."""
    capacity_scheduler_policy: Literal["GUARANTEED_NO_EVICT", "MAX_UTILIZATION", "STATIC_BATCH"] | None = None
    """Admission: only what fits to its end, what fits one step with pauses, or batches that end before the next starts. Defaults to
    GUARANTEED_NO_EVICT.
    """
    context_chunking_policy: Literal["FIRST_COME_FIRST_SERVED", "EQUAL_PROGRESS"] | None = None
    """Prompts that share what a step has left: in their order, or a block each in turn. Defaults to FIRST_COME_FIRST_SERVED."""
    batch_wait_timeout_iters: int | None = None
    """Most steps for which prompts wait beside decodes until they fill a step. Defaults to 0."""
    batch_wait_max_tokens_ratio: float | None = None
    """Share of max_num_tokens from which on prompts do not wait. Defaults to 0."""
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
