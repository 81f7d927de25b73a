"""The small kernels between the large ones: norms, rotary embedding, activation, KV write, quantisation, embedding.

Two implementations each: one launch in Triton (`fused.py`), as engines have them, and plain torch operators,
which take several. The row's `launches` says how many the timed one needs.
"""

import sampler
from environment import Built, implementation
from fused import FUSED

EPSILON = 1e-6
HEAD_DIM = 128
TINY_HEAD_DIM = 64
CACHE_SLOTS = 32768
VOCABULARY = 32768


def silu_and_mul(torch, name):
    """silu(gate) * value for gate and value side by side."""
    if name == "fused":
        return lambda x: FUSED["silu_and_mul"](torch, x)

    def plain(x):
        gate, value = x.chunk(2, dim=-1)
        return torch.nn.functional.silu(gate) * value

    return plain


def rms_norm(torch, x, weight):
    """x / rms(x) * weight over the last dimension."""
    return torch.nn.functional.rms_norm(x, (x.shape[-1],), weight, EPSILON)


def fused_add_rms_norm(torch, x, residual, weight):
    """Add x to the residual in place, then normalise the sum."""
    residual.add_(x)
    return rms_norm(torch, residual, weight)


def rotary(torch, heads, cosine, sine, positions):
    """Rotate halves of every head in place; `cosine` and `sine` are tables over positions."""
    half = heads.shape[-1] // 2
    cos = cosine.index_select(0, positions).unsqueeze(1)
    sin = sine.index_select(0, positions).unsqueeze(1)
    first, second = heads[..., :half], heads[..., half:]
    rotated = first * cos - second * sin, second * cos + first * sin
    first.copy_(rotated[0])
    second.copy_(rotated[1])
    return heads


def reshape_and_cache(torch, keys, values, key_cache, value_cache, slots):
    """Write each token's K and V into its slot of the cache."""
    key_cache.index_copy_(0, slots, keys)
    value_cache.index_copy_(0, slots, values)
    return key_cache, value_cache


def quantise_fp8(torch, x):
    """Dynamic fp8 quantisation with one scale per token; returns values and scales."""
    scale = x.abs().amax(dim=-1, keepdim=True).float().clamp(min=1e-12) / 448.0
    return (x.float() / scale).to(torch.float8_e4m3fn), scale


PLAIN = {
    "rms_norm": rms_norm,
    "fused_add_rms_norm": fused_add_rms_norm,
    "rotary": rotary,
    "silu_and_mul": lambda torch, x: silu_and_mul(torch, "plain")(x),
    "reshape_and_cache": reshape_and_cache,
    "quantise_fp8": quantise_fp8,
    "residual_add": lambda torch, x, y: x + y,
    "embedding": lambda torch, ids, table: torch.nn.functional.embedding(ids, table),
    "empty_launch": lambda torch, x: x.add_(1),
    **sampler.PLAIN,
}


def operands(kernel, env, tokens, width):
    """Fresh operands of a kernel; `width` is elements per token (see README.md for each kernel)."""
    torch, bf16 = env.torch, env.torch.bfloat16

    def take(*shapes):
        return env.arena.take(bf16, shapes)

    def below(limit, count=tokens):
        generator = torch.Generator().manual_seed(3)
        return torch.randint(limit, (count,), generator=generator).to(env.device)

    if kernel in sampler.PLAIN:
        return sampler.operands(kernel, env, tokens, width)
    if kernel == "empty_launch":
        return take((1,))
    if kernel in ("rms_norm", "quantise_fp8"):
        return take((tokens, width), (width,))[: 1 if kernel == "quantise_fp8" else 2]
    if kernel == "fused_add_rms_norm":
        return take((tokens, width), (tokens, width), (width,))
    if kernel == "residual_add":
        return take((tokens, width), (tokens, width))
    if kernel == "silu_and_mul":
        return take((tokens, 2 * width))
    if kernel == "embedding":
        return [below(VOCABULARY), *take((VOCABULARY, width))]
    if kernel == "reshape_and_cache":
        slots = torch.randperm(max(CACHE_SLOTS, tokens), generator=torch.Generator().manual_seed(3))
        slots = slots[:tokens].to(env.device)
        cache = (max(CACHE_SLOTS, tokens), width // 2)
        return [*take((tokens, width // 2), (tokens, width // 2), cache, cache), slots]
    head_dim = HEAD_DIM if width % HEAD_DIM == 0 and env.device == "cuda" else TINY_HEAD_DIM
    (heads,) = take((tokens, width // head_dim, head_dim))
    angles = torch.arange(4096, device=env.device).unsqueeze(1) * 0.01
    angles = angles * torch.arange(1, head_dim // 2 + 1, device=env.device)
    return [heads, angles.cos().to(bf16), angles.sin().to(bf16), below(4096)]


def build(case, env, _copies):
    """One call over operands that stay in the cache: in an engine, the kernel before has just written them."""
    kernel = case.key["kernel"]
    name = implementation(env, "small_kernels", kernel)
    function = (FUSED if name == "fused" else PLAIN)[kernel]
    values = operands(kernel, env, case.key["num_tokens"], case.key["width"])

    def call():
        return function(env.torch, *values)

    return Built([call], 1 if name == "fused" else count_launches(env.torch, call))


def count_launches(torch, call):
    """Non-view operators one call dispatches: each is one kernel launch, as near as torch tells without a profiler."""
    from torch.utils._python_dispatch import TorchDispatchMode

    count = 0

    class Counter(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            nonlocal count
            name = function.name()
            moves_nothing = getattr(function, "is_view", False) or any(
                part in name for part in ("::empty", "::detach", "::_to_copy_meta", "::_unsafe_view")
            )
            count += 0 if moves_nothing else 1
            return function(*args, **(kwargs or {}))

    with Counter():
        call()
    return count


def _flat(torch, result):
    parts = result if isinstance(result, tuple) else (result,)
    return torch.cat([part.float().reshape(-1) for part in parts])


def compare(kernel, env, tokens, width):
    """Relative difference of the fused and the plain kernel on equal operands; raises any error of the fused one."""
    env.arena.begin_case()
    values = operands(kernel, env, tokens, width)
    copies = [value.clone() for value in values]
    want = _flat(env.torch, PLAIN[kernel](env.torch, *values))
    got = _flat(env.torch, FUSED[kernel](env.torch, *copies))
    return ((got - want).norm() / want.norm()).item()
