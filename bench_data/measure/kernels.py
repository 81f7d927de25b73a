"""GEMM, attention and grouped experts as lists of calls, one per buffer copy.

Each `build_*` returns a `Built`. Implementations are chosen once per run by `choose`, which checks every
candidate against a plain reference on the device, so that nothing wrong is ever timed.
"""

import math

import attention
import small
from distributions import expert_counts, local_counts, token_of_pair, uneven_lengths
from environment import Built, Env, Unsupported, implementation  # noqa: F401: callers take them from here


def build(case, env, copies):
    """`Built` of a case; raises `Unsupported` if no implementation passed its check."""
    env.arena.begin_case()
    return _BUILDERS[case.table](case, env, copies)


# GEMM: weights lie as (n, k), as in a linear layer, so the right operand is column-major.

def _fp8_per_tensor(torch, device):
    one = torch.ones((), dtype=torch.float32, device=device)
    out = torch.bfloat16
    return lambda x, w: torch._scaled_mm(x, w.t(), scale_a=one, scale_b=one, out_dtype=out, use_fast_accum=True)


def block_scales(torch, m, n, k, device):
    """Scales of 1x128 blocks of x and of 128x128 blocks of w: 0.5 and 0.25, so the product scales by 0.125."""
    # Column-major, also where m is 1 and torch takes any stride for contiguous.
    blocks = math.ceil(k / 128)
    x_scale = torch.empty_strided((m, blocks), (1, m), device=device).fill_(0.5)
    w_scale = torch.full((math.ceil(n / 128), math.ceil(k / 128)), 0.25, device=device)
    return x_scale, w_scale


def _fp8_block(torch, x, w):
    functional = torch.nn.functional
    recipe = functional.ScalingType
    x_scale, w_scale = block_scales(torch, x.shape[0], w.shape[0], x.shape[1], x.device)
    # cuBLAS wants the k extent of the weight's scales padded to a multiple of four.
    padded = torch.zeros(w_scale.shape[0], -(-w_scale.shape[1] // 4) * 4, device=x.device)
    padded[:, : w_scale.shape[1]] = w_scale
    w_scale = padded[:, : w_scale.shape[1]].t()
    return lambda x, w: functional.scaled_mm(
        x, w.t(), scale_a=x_scale, scale_recipe_a=recipe.BlockWise1x128,
        scale_b=w_scale, scale_recipe_b=recipe.BlockWise128x128, output_dtype=torch.bfloat16,
    )


def _gemm_call(env, dtype, x, w):
    torch = env.torch
    if dtype == "bfloat16":
        return lambda x, w: torch.matmul(x, w.t())
    return _fp8_per_tensor(torch, env.device) if dtype == "fp8" else _fp8_block(torch, x, w)


def _element_type(torch, dtype):
    return torch.bfloat16 if dtype == "bfloat16" else torch.float8_e4m3fn


def build_gemm(case, env, copies):
    """y = x W^T; the weights rotate, the activations do not: the kernel before has just written them."""
    key = case.key
    implementation(env, "gemm", key["dtype"])
    element = _element_type(env.torch, key["dtype"])
    x, *weights = env.arena.take(element, [(key["m"], key["k"])] + [(key["n"], key["k"])] * copies)
    call = _gemm_call(env, key["dtype"], x, weights[0])
    return Built([lambda w=w: call(x, w) for w in weights])


def check_gemm(env, dtype):
    """Relative error of a GEMM against float32 on the same rounded operands."""
    torch = env.torch
    m, n, k = (64, 256, 512) if env.device == "cuda" else (8, 16, 128)
    env.arena.begin_case()
    x, w = env.arena.take(_element_type(torch, dtype), [(m, k), (n, k)])
    want = x.float() @ w.float().t() * (0.125 if dtype == "fp8_block" else 1.0)
    return attention.relative_error(torch, _gemm_call(env, dtype, x, w)(x, w), want)


# Attention: K and V rotate, the query has just been written.

def problem_of(case):
    """The attention problem of a case."""
    key = case.key
    if case.table == "attention_mixed":
        q_lens = (1,) * key["num_decodes"] + (key["num_scheduled_tokens"],) * key["num_prefills"]
        decode_lens = (key["kv_tokens_total"] // key["num_decodes"],) * key["num_decodes"]
        kv_lens = decode_lens + (key["num_scheduled_tokens"] + key["num_computed_tokens"],) * key["num_prefills"]
    elif case.table == "attention_prefill":
        q_lens = (key["num_scheduled_tokens"],) * key["batch_size"]
        kv_lens = (key["num_scheduled_tokens"] + key["num_computed_tokens"],) * key["batch_size"]
    else:
        q_lens = (1,) * key["batch_size"]
        mean = key["kv_tokens_total"] // key["batch_size"]
        kv_lens = tuple(uneven_lengths(key["batch_size"], mean, case.max_over_mean))
    return attention.Problem(
        key["num_heads"], key["num_kv_heads"], key["head_dim"], key["window_size"], q_lens, kv_lens
    )


def build_attention(case, env, copies):
    """One attention call over a whole batch."""
    problem = problem_of(case)
    what = (case.table, "window") if problem.window > 0 else (case.table,)
    name = implementation(env, *what)
    cache_shapes = attention.cache_shapes(name, problem)
    q, *caches = env.arena.take(env.torch.bfloat16, [problem.query_shape()] + cache_shapes * copies)
    forward = attention.BACKENDS[name](env.torch, problem, env.device)
    copied = (caches[at : at + len(cache_shapes)] for at in range(0, len(caches), len(cache_shapes)))
    return Built([lambda cache=cache: forward(q, *cache) for cache in copied])


# Experts: gather, grouped GEMM, activation, grouped GEMM, weighted sum. The routing is decided beforehand.

def _routing(env, case):
    key, torch = case.key, env.torch
    tokens, top_k = key["num_tokens"], key["top_k"]
    counts = local_counts(
        expert_counts(tokens, top_k, key["num_experts"], key["distribution"]), key["moe_ep_size"]
    )
    token_of = token_of_pair(counts, tokens)
    # Slots whose expert lives on another rank read row 0 with weight 0, as an engine's sum over top_k does.
    rows, weights = [0] * (tokens * top_k), [0.0] * (tokens * top_k)
    for pair, token in enumerate(token_of):
        slot = token * top_k + pair // tokens
        rows[slot], weights[slot] = pair, 1.0 / top_k

    def to(values, dtype):
        return torch.tensor(values, dtype=dtype, device=env.device)

    shares = to(weights, torch.bfloat16).view(tokens, 1, top_k)
    return counts, to(token_of, torch.int64), to(rows, torch.int64), shares


def _grouped_mm(torch, counts, device, dtype, fused):
    offsets = torch.tensor(counts, dtype=torch.int32).cumsum(0, dtype=torch.int32).to(device)
    if dtype == "bfloat16":
        return lambda a, w: torch._grouped_mm(a, w.transpose(-2, -1), offs=offsets)

    w_scales = {}
    # Dynamic per-token quantisation as engines do it; a bare cast would overflow to NaN.
    quantise = small.quantise_fp8 if fused is None else fused

    def scaled(a, w):
        if w.shape[1] not in w_scales:
            w_scales[w.shape[1]] = torch.ones(w.shape[0], w.shape[1], device=device)
        values, a_scale = quantise(torch, a)
        return torch._scaled_grouped_mm(
            values, w.transpose(-2, -1), a_scale.view(-1), w_scales[w.shape[1]],
            offs=offsets, out_dtype=torch.bfloat16, use_fast_accum=True,
        )

    return scaled


def _matmul_loop(torch, counts, device, dtype, fused):
    if dtype != "bfloat16":
        raise NotImplementedError("the loop of matmul is for bfloat16")

    def loop(a, w):
        out = a.new_empty(a.shape[0], w.shape[1])
        begin = 0
        for expert, count in enumerate(counts):
            if count > 0:
                torch.matmul(a[begin : begin + count], w[expert].t(), out=out[begin : begin + count])
            begin += count
        return out

    return loop


GROUPED = {"grouped_mm": _grouped_mm, "matmul_loop": _matmul_loop}


def _moe_operands(case, env, copies):
    key, torch = case.key, env.torch
    hidden, inner = key["hidden_size"], key["intermediate_size"] // key["moe_tp_size"]
    experts = key["num_experts"] // key["moe_ep_size"]
    element = _element_type(torch, key["dtype"])
    x_shape = [(key["num_tokens"], hidden)]
    w_shapes = [(experts, 2 * inner, hidden), (experts, hidden, inner)] * copies
    if element == torch.bfloat16:
        x, *weights = env.arena.take(element, x_shape + w_shapes)
    else:
        (x,), weights = env.arena.take(torch.bfloat16, x_shape), env.arena.take(element, w_shapes)
    return x, list(zip(weights[0::2], weights[1::2]))


def build_moe(case, env, copies, name=None):
    """Routed experts of one rank."""
    key, torch = case.key, env.torch
    name = name or implementation(env, "moe", key["dtype"])
    x, weights = _moe_operands(case, env, copies)
    counts, token_of, rows, share = _routing(env, case)
    fused = small.FUSED["quantise_fp8"] if env.chosen.get(("small_kernels", "quantise_fp8")) == "fused" else None
    product = GROUPED[name](torch, counts, env.device, key["dtype"], fused)
    activate = small.silu_and_mul(torch, env.chosen.get(("small_kernels", "silu_and_mul")))
    tokens, top_k, hidden = key["num_tokens"], key["top_k"], key["hidden_size"]

    def call(up, down):
        inner = activate(product(x.index_select(0, token_of), up))
        out = product(inner, down).index_select(0, rows).view(tokens, top_k, hidden)
        return torch.bmm(share, out).view(tokens, hidden)

    return Built([lambda up=up, down=down: call(up, down) for up, down in weights])


def check_moe(env, case, name):
    """Relative error of the routed experts against float32, expert by expert."""
    torch, functional = env.torch, env.torch.nn.functional
    # Once beforehand: the arena has its final size then, and equal takes below give equal operands.
    _moe_operands(case, env, 1)
    env.arena.begin_case()
    got = build_moe(case, env, 1, name).calls[0]()
    env.arena.begin_case()
    x, [(up, down)] = _moe_operands(case, env, 1)
    counts, token_of, _, _ = _routing(env, case)
    want = torch.zeros(x.shape[0], x.shape[1], device=env.device)
    begin = 0
    for expert, count in enumerate(counts):
        tokens = token_of[begin : begin + count]
        gate, value = (x[tokens].float() @ up[expert].float().t()).chunk(2, dim=1)
        want[tokens] += (functional.silu(gate) * value) @ down[expert].float().t() / case.key["top_k"]
        begin += count
    return attention.relative_error(torch, got, want)


_BUILDERS = {
    "gemm": build_gemm,
    "attention_prefill": build_attention,
    "attention_decode": build_attention,
    "attention_mixed": build_attention,
    "moe": build_moe,
    "small_kernels": small.build,
}
