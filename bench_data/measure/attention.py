"""Attention: a naive reference and the backends torch exposes, each checked against it before it is timed.

Packed layout as in serving engines: q is (sum of q_lens, heads, dim), k and v (sum of kv_lens, kv_heads, dim).
The mask is causal and bottom-right aligned: query i of a request with c tokens of prior KV sees keys 0..c+i,
the last `window` of them if `window` > 0.
"""

from dataclasses import dataclass

import paged

# bf16 attention against a float32 reference on unit-normal data: rounding stays near 0.005 of the norm.
REL_BF16_ATTENTION = 2e-2


@dataclass(frozen=True)
class Problem:
    """Shape of one attention call: scheduled tokens and visible KV length (prior + scheduled) of each request."""

    num_heads: int
    num_kv_heads: int
    head_dim: int
    window: int
    q_lens: tuple
    kv_lens: tuple

    @property
    def uniform(self):
        """Whether all requests have the same lengths."""
        return len(set(self.q_lens)) == 1 and len(set(self.kv_lens)) == 1

    @property
    def decode(self):
        """Whether every request has one query."""
        return max(self.q_lens) == 1

    def query_shape(self):
        """Shape of q."""
        return sum(self.q_lens), self.num_heads, self.head_dim

    def packed_shape(self):
        """Shape of k, and of v, without gaps."""
        return sum(self.kv_lens), self.num_kv_heads, self.head_dim


def visible(torch, q_len, kv_len, window, device):
    """Boolean (q_len, kv_len) mask of the keys that each query may see."""
    last = torch.arange(q_len, device=device).unsqueeze(1) + (kv_len - q_len)
    keys = torch.arange(kv_len, device=device).unsqueeze(0)
    mask = keys <= last
    return mask & (keys > last - window) if window > 0 else mask


def naive(torch, problem, q, k, v):
    """Softmax attention in float32, request by request: slow and plain, the definition of correct here."""
    group = problem.num_heads // problem.num_kv_heads
    outputs, q_at, k_at = [], 0, 0
    for q_len, kv_len in zip(problem.q_lens, problem.kv_lens):
        queries = q[q_at : q_at + q_len].float().transpose(0, 1)
        keys = k[k_at : k_at + kv_len].float().repeat_interleave(group, dim=1).transpose(0, 1)
        values = v[k_at : k_at + kv_len].float().repeat_interleave(group, dim=1).transpose(0, 1)
        scores = queries @ keys.transpose(1, 2) / problem.head_dim**0.5
        mask = visible(torch, q_len, kv_len, problem.window, q.device)
        weights = scores.masked_fill(~mask, float("-inf")).softmax(dim=-1)
        outputs.append((weights @ values).transpose(0, 1))
        q_at, k_at = q_at + q_len, k_at + kv_len
    return torch.cat(outputs)


def _offsets(torch, lengths, device):
    ends = torch.tensor([0, *lengths], dtype=torch.int32)
    return ends.cumsum(0, dtype=torch.int32).to(device)


def _masking(problem):
    """(is_causal, window_left, window_right) for flash kernels; one query sees everything before it anyway.

    Leaving the causal flag off for decode keeps the kernel's split over the KV length, as engines use it.
    """
    if problem.window > 0:
        return False, problem.window - 1, 0
    return (False, -1, -1) if problem.decode else (True, -1, 0)


def flash_varlen(torch, problem, device):
    """torch's built-in flash attention with cumulative lengths (any lengths; CUDA only)."""
    forward = torch.ops.aten._flash_attention_forward
    cu_q, cu_k = _offsets(torch, problem.q_lens, device), _offsets(torch, problem.kv_lens, device)
    max_q, max_k = max(problem.q_lens), max(problem.kv_lens)
    causal, left, right = _masking(problem)
    window = {"window_size_left": left, "window_size_right": right} if problem.window > 0 else {}
    return lambda q, k, v: forward(q, k, v, cu_q, cu_k, max_q, max_k, 0.0, causal, False, **window)[0]


def varlen_attn(torch, problem, device):
    """torch.nn.attention.varlen, which may choose cuDNN (any lengths; CUDA only; recent torch)."""
    from torch.nn.attention.varlen import varlen_attn as forward

    cu_q, cu_k = _offsets(torch, problem.q_lens, device), _offsets(torch, problem.kv_lens, device)
    max_q, max_k = max(problem.q_lens), max(problem.kv_lens)
    _, left, right = _masking(problem)
    options = {"window_size": (left, right)}
    if problem.num_heads != problem.num_kv_heads:
        options["enable_gqa"] = True
    return lambda q, k, v: forward(q, k, v, cu_q, cu_k, max_q, max_k, **options)


def sdpa_lower_right(torch, problem, device):
    """scaled_dot_product_attention with a lower-right causal bias (equal lengths, no window)."""
    if not problem.uniform or problem.window > 0:
        raise NotImplementedError("sdpa_lower_right takes equal lengths and no window")
    from torch.nn.attention.bias import causal_lower_right

    batch, q_len, kv_len = len(problem.q_lens), problem.q_lens[0], problem.kv_lens[0]
    bias = None if problem.decode else causal_lower_right(q_len, kv_len)
    grouped = problem.num_heads != problem.num_kv_heads
    attend = torch.nn.functional.scaled_dot_product_attention

    def forward(q, k, v):
        q, k, v = (
            x.view(batch, length, -1, problem.head_dim).transpose(1, 2)
            for x, length in ((q, q_len), (k, kv_len), (v, kv_len))
        )
        out = attend(q, k, v, attn_mask=bias, enable_gqa=grouped)
        return out.transpose(1, 2).reshape(batch * q_len, problem.num_heads, problem.head_dim)

    return forward


def sdpa_per_request(torch, problem, device):
    """scaled_dot_product_attention request by request with an explicit mask: the logic test, not for timing."""
    masks = [visible(torch, q, k, problem.window, device) for q, k in zip(problem.q_lens, problem.kv_lens)]
    grouped = problem.num_heads != problem.num_kv_heads
    attend = torch.nn.functional.scaled_dot_product_attention
    q_lens, kv_lens = list(problem.q_lens), list(problem.kv_lens)

    def forward(q, k, v):
        parts = zip(q.split(q_lens), k.split(kv_lens), v.split(kv_lens), masks)
        outputs = [
            attend(*(x.transpose(0, 1).unsqueeze(0) for x in (qi, ki, vi)), attn_mask=mask, enable_gqa=grouped)
            for qi, ki, vi, mask in parts
        ]
        return torch.cat([out.squeeze(0).transpose(0, 1) for out in outputs])

    return forward


BACKENDS = {
    "vllm_flash": paged.vllm_flash,
    "flash_varlen": flash_varlen,
    "varlen_attn": varlen_attn,
    "sdpa_lower_right": sdpa_lower_right,
    "sdpa_per_request": sdpa_per_request,
}
ENGINE_BACKENDS = {"vllm": paged.BACKENDS}
CUDA_BACKENDS = ("varlen_attn", "flash_varlen", "sdpa_lower_right")
CPU_BACKENDS = ("sdpa_per_request", "sdpa_lower_right")


def cache_shapes(name, problem):
    """Shapes of what a backend takes beside q: k and v, or one cache of blocks."""
    return [paged.shape(problem)] if name in paged.BACKENDS else [problem.packed_shape()] * 2


def relative_error(torch, got, want):
    """Norm of the difference over the norm of the reference; NaN anywhere makes it NaN, which passes no check."""
    return ((got.float() - want).norm() / want.norm()).item()


def check(torch, name, problem, device):
    """Error of a backend on fresh random data against `naive`; raises whatever the backend raises."""
    generator = torch.Generator(device=device)
    generator.manual_seed(11)
    q, *cache = (
        torch.randn(shape, generator=generator, device=device, dtype=torch.float32).to(torch.bfloat16)
        for shape in [problem.query_shape(), *cache_shapes(name, problem)]
    )
    got = BACKENDS[name](torch, problem, device)(q, *cache)
    k, v = paged.packed(torch, problem, *cache) if name in paged.BACKENDS else cache
    return relative_error(torch, got, naive(torch, problem, q, k, v))


def check_problems(phase, head_dim=128, scale=16):
    """Small problems a backend must get right: grouped heads, prior KV, unequal lengths for decode."""
    if phase == "attention_mixed":
        return [Problem(8, 2, head_dim, 0, (1, 1, scale + 1), (7, 3 * scale, 4 * scale + 5))]
    if phase == "attention_decode":
        return [
            Problem(8, 2, head_dim, 0, (1,) * 3, (scale, 5 * scale + 3, 2 * scale + 1)),
            Problem(4, 4, head_dim, 0, (1,) * 2, (7, 3 * scale)),
        ]
    return [
        Problem(8, 2, head_dim, 0, (scale,) * 2, (scale,) * 2),
        Problem(8, 2, head_dim, 0, (scale + 1,) * 2, (4 * scale + 5,) * 2),
        Problem(4, 4, head_dim, 0, (3,) * 3, (scale + 3,) * 3),
    ]


def windowed(problem, window):
    """The same problem with a sliding window."""
    return Problem(
        problem.num_heads, problem.num_kv_heads, problem.head_dim, window, problem.q_lens, problem.kv_lens
    )
