"""Chooses the implementation of each kernel: the fastest of those that agree with a plain reference.

A choice holds for the whole run, so that a table never mixes kernels. meta.toml names it.
"""

import math

import attention
import kernels
import small
from estimates import work_of
from fused import FUSED
from grids import ATTENTION, SAMPLER_KERNELS, SMALL_KERNELS, Case
from timing import plan_graph

# bf16 results against float32 ones: rounding of inputs to the second product and of the output.
REL_BF16 = 2e-2
# fp8 activations keep three bits of mantissa; the second expert product sees them rounded.
REL_FP8_MOE = 8e-2


def _try(check):
    """(error, None) of a check, or (None, reason) if it raised."""
    try:
        return check(), None
    except Exception as error:  # noqa: BLE001: whatever a private operator raises, it is not to be timed
        lines = str(error).strip().splitlines()
        return None, f"{type(error).__name__}: {lines[0][:160] if lines else ''}"


def _passes(env, what, name, check, tolerance):
    error, reason = _try(check)
    if error is not None and math.isfinite(error) and error <= tolerance:
        return True
    if reason is None:
        reason = f"off from the reference by {error:.3g}, tolerance {tolerance:.3g}"
    env.refused.setdefault(what, []).append(f"{name}: {reason}")
    return False


def _worst(env, name, problems):
    return max(
        (attention.check(env.torch, name, problem, env.device) for problem in problems),
        key=lambda error: math.inf if math.isnan(error) else error,
    )


def _probe_case(phase, window):
    key = {
        "num_heads": 32, "num_kv_heads": 8, "head_dim": 128, "kv_cache_dtype": "bfloat16",
        "window_size": 1024 if window else 0,
    }
    if phase == "attention_decode":
        key.update(batch_size=64, kv_tokens_total=64 * 2048, kv_tokens_max=4096)
        return Case(phase, 0, key, 2.0)
    if phase == "attention_mixed":
        key.update(
            num_prefills=1, num_scheduled_tokens=512, num_computed_tokens=2048, num_decodes=64, kv_tokens_total=64 * 2048
        )
        return Case(phase, 0, key)
    key.update(batch_size=2, num_scheduled_tokens=1024, num_computed_tokens=4096)
    return Case(phase, 0, key)


def choose_attention(env, timer, phase, engine="torch", window=False):
    """Check every backend of the device; if several pass, keep the fastest on one typical shape."""
    what = (phase, "window") if window else (phase,)
    on_gpu = env.device == "cuda"
    problems = attention.check_problems(phase, *((128, 64) if on_gpu else (16, 8)))
    if window:
        problems = [attention.windowed(problem, 16) for problem in problems]
    of_torch = attention.CUDA_BACKENDS if on_gpu else attention.CPU_BACKENDS
    names = attention.ENGINE_BACKENDS.get(engine, of_torch)
    passing = [
        name for name in names
        if _passes(env, what, name, lambda: _worst(env, name, problems), attention.REL_BF16_ATTENTION)
    ]
    if not passing:
        return
    env.chosen[what] = passing[0]
    if not on_gpu or len(passing) == 1:
        return
    case = _probe_case(phase, window)
    times = {}
    for name in passing:
        env.chosen[what] = name
        work = work_of(case)
        plan = plan_graph(work.nominal_us, work.rotating_bytes, timer.l2_bytes)
        median_us, _ = _try(lambda: _timed(env, timer, case, plan))
        times[name] = median_us if median_us is not None else math.inf
    best = min(passing, key=times.get)
    env.chosen[what] = best
    for name in passing:
        if name != best:
            text = f"{name}: correct, but {times[name]:.0f} us against {times[best]:.0f} us of {best}"
            env.refused.setdefault(what, []).append(text)


def _timed(env, timer, case, plan):
    calls = kernels.build(case, env, plan.copies).calls
    timer.probe_us(calls[0])
    return timer.time(calls, plan).median_us


def choose_gemm(env, dtypes):
    """A dtype is measured if its product agrees with float32 on the same operands."""
    for dtype in dtypes:
        what = ("gemm", dtype)
        if _passes(env, what, dtype, lambda: kernels.check_gemm(env, dtype), REL_BF16):
            env.chosen[what] = dtype


def moe_check_case(env, dtype):
    hidden, inner = (256, 128) if env.device == "cuda" else (32, 48)
    return Case("moe", 0, {
        "dtype": dtype, "num_tokens": 33, "hidden_size": hidden, "intermediate_size": inner, "top_k": 2,
        "num_experts": 8, "moe_tp_size": 1, "moe_ep_size": 2, "distribution": "power_law_1.2",
    })


def choose_moe(env, dtypes):
    """The grouped GEMM if torch has it and it agrees, else a loop of matmul over experts."""
    for dtype in dtypes:
        if dtype == "fp8_block":
            continue
        what, case = ("moe", dtype), moe_check_case(env, dtype)
        tolerance = REL_BF16 if dtype == "bfloat16" else REL_FP8_MOE
        for name in kernels.GROUPED:
            if _passes(env, what, name, lambda: kernels.check_moe(env, case, name), tolerance):
                env.chosen[what] = name
                break


def choose_small(env):
    """One Triton launch if it compiles and agrees with torch, else torch's own operators."""
    for kernel in SMALL_KERNELS + SAMPLER_KERNELS:
        what = ("small_kernels", kernel)
        env.chosen[what] = "torch"
        if env.device != "cuda" or kernel not in FUSED:
            continue
        width = {"rotary": 1152, "reshape_and_cache": 256}.get(kernel, 1536)
        if _passes(env, what, "fused", lambda: small.compare(kernel, env, 37, width), REL_BF16):
            env.chosen[what] = "fused"


def choose(env, timer, tables, dtypes, engine="torch"):
    """Fill `env.chosen` and `env.refused` for the tables of a run."""
    if "small_kernels" in tables or "moe" in tables:
        choose_small(env)
    for phase in ATTENTION:
        if phase in tables:
            choose_attention(env, timer, phase, engine)
            choose_attention(env, timer, phase, engine, window=True)
    if "gemm" in tables:
        choose_gemm(env, dtypes)
    if "moe" in tables:
        choose_moe(env, dtypes)
    env.arena.clear()


_SOURCES = {
    "fused": "one Triton launch",
    "torch": "torch operators",
    "gemm bfloat16": "torch.matmul (cuBLAS), weights as (n, k)",
    "gemm fp8": "torch._scaled_mm per tensor, operands quantised beforehand, fast accumulation",
    "gemm fp8_block": "torch.nn.functional.scaled_mm, 1x128 by 128x128 blocks, operands quantised beforehand",
    "grouped_mm": (
        "gather, grouped GEMM, silu_and_mul, grouped GEMM, weighted sum; routing decided beforehand; "
        "fp8 quantises activations per token before each GEMM"
    ),
    "matmul_loop": (
        "gather, one matmul per expert, silu_and_mul, one matmul per expert, weighted sum; "
        "routing decided beforehand"
    ),
    "flash_varlen": "torch.ops.aten._flash_attention_forward, cumulative lengths, contiguous KV",
    "varlen_attn": "torch.nn.attention.varlen.varlen_attn, contiguous KV",
    "sdpa_lower_right": "scaled_dot_product_attention with causal_lower_right, contiguous KV",
    "vllm_flash": "vllm.vllm_flash_attn (FlashAttention 3), paged KV in blocks of 16, schedule made beforehand",
    "sdpa_per_request": "scaled_dot_product_attention request by request",
}


def kernel_sources(env, tables):
    """One line per table that names the timed kernel."""
    sources = {}
    for table in tables:
        parts = {}
        for what, name in sorted(env.chosen.items(), key=str):
            if what[0] != table:
                continue
            qualifier = " ".join(what[1:])
            text = _SOURCES.get(f"{table} {qualifier}") or _SOURCES.get(name) or name
            parts.setdefault(text, []).append(qualifier)
        # Without a qualifier, the kernel serves the whole table.
        named = (text if "" in who else f"{', '.join(who)}: {text}" for text, who in parts.items())
        sources[table] = "; ".join(named) or "none"
    return sources


def refusals(env):
    """Named notes on every implementation that was not taken."""
    return [f"{' '.join(what)}: {reason}" for what, reasons in env.refused.items() for reason in reasons]
