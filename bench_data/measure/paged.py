"""vLLM's own attention over a paged KV cache: FlashAttention 3 on Hopper, as `vllm/v1/attention/backends/flash_attn.py` calls it.

Needs vLLM, or its folder `vllm_flash_attn` alone. Source: vLLM 0.24.0.
"""

import random

BACKENDS = ("vllm_flash",)

# vLLM's default on CUDA, and what its kernels read at once.
BLOCK = 16
# `flash_attn_max_num_splits_for_cuda_graph`, and the largest batch that vLLM captures by default. Larger steps run outside of a full graph,
# where the kernel chooses its splits itself.
MAX_SPLITS = 32
MAX_CAPTURED = 512


def blocks(problem):
    """Blocks of each request."""
    return [-(-length // BLOCK) for length in problem.kv_lens]


def shape(problem):
    """Shape of the cache: blocks, K and V, tokens of a block, heads, head size."""
    return sum(blocks(problem)), 2, BLOCK, problem.num_kv_heads, problem.head_dim


def block_lists(problem):
    """The block numbers of each request, scattered over the cache as a server's are after a while."""
    numbers = list(range(sum(blocks(problem))))
    random.Random(5).shuffle(numbers)
    lists, at = [], 0
    for count in blocks(problem):
        lists.append(numbers[at : at + count])
        at += count
    return lists


def packed(torch, problem, cache):
    """k and v of a cache without blocks and gaps, for the reference."""
    parts = []
    for length, numbers in zip(problem.kv_lens, block_lists(problem)):
        own = cache[torch.tensor(numbers, device=cache.device)]
        parts.append(own.transpose(0, 1).reshape(2, -1, *cache.shape[3:])[:, :length])
    k, v = torch.cat(parts, dim=1)
    return k, v


def vllm_flash(torch, problem, device):
    """FlashAttention 3 with the schedule of the call made beforehand: vLLM makes it once a step, not once a layer."""
    from vllm.vllm_flash_attn import flash_attn_varlen_func, get_scheduler_metadata

    def integers(values):
        return torch.tensor(values, dtype=torch.int32, device=device)

    lists = block_lists(problem)
    most = max(len(numbers) for numbers in lists)
    table = integers([numbers + [0] * (most - len(numbers)) for numbers in lists])
    starts = integers([0, *problem.q_lens]).cumsum(0, dtype=torch.int32)
    lengths = integers(problem.kv_lens)
    longest = {"max_seqlen_q": max(problem.q_lens), "max_seqlen_k": max(problem.kv_lens)}
    window = (problem.window - 1, 0) if problem.window > 0 else (-1, -1)
    splits = MAX_SPLITS if sum(problem.q_lens) <= MAX_CAPTURED else 0
    schedule = get_scheduler_metadata(
        batch_size=len(problem.q_lens), **longest, num_heads_q=problem.num_heads, num_heads_kv=problem.num_kv_heads,
        headdim=problem.head_dim, cache_seqlens=lengths, qkv_dtype=torch.bfloat16, cu_seqlens_q=starts, page_size=BLOCK,
        causal=True, window_size=window, num_splits=splits,
    )
    out = torch.empty(problem.query_shape(), dtype=torch.bfloat16, device=device)
    return lambda q, cache: flash_attn_varlen_func(
        q=q, k=cache[:, 0], v=cache[:, 1], out=out, cu_seqlens_q=starts, seqused_k=lengths, **longest,
        softmax_scale=problem.head_dim**-0.5, causal=True, window_size=list(window), block_table=table,
        scheduler_metadata=schedule, fa_version=3, num_splits=splits,
    )
