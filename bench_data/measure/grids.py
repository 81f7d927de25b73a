"""The cases of every table, per tier (`tiny`, `quick`, `default`, `full`). No torch here.

Cases carry a priority: 0 is for shapes that published kernel tables lack (prefill chunks with prior KV, uneven decode
lengths, many KV heads, small kernels), 1 the rest. Inside a priority the order is shuffled with a fixed seed,
so that a run stopped by its time budget still covers the whole range of shapes instead of one corner.
"""

import random
from dataclasses import dataclass, field

import sampler

ATTENTION = ("attention_prefill", "attention_decode", "attention_mixed")
TABLES = (*ATTENTION, "small_kernels", "moe", "gemm")
# Tables of which the kit times the kernels of an engine.
ENGINE_TABLES = {"torch": TABLES, "vllm": ATTENTION}
TIERS = ("tiny", "quick", "default", "full")
DTYPES = ("bfloat16", "fp8", "fp8_block")
SMALL_KERNELS = (
    "empty_launch", "rms_norm", "fused_add_rms_norm", "rotary", "silu_and_mul",
    "reshape_and_cache", "residual_add", "quantise_fp8", "embedding",
)
SAMPLER_KERNELS = tuple(sampler.PLAIN)


@dataclass(frozen=True)
class Case:
    """One row to measure: `key` holds the table's columns without `latency_us` (and `launches`)."""

    table: str
    priority: int
    key: dict = field(hash=False)
    max_over_mean: float = 1.0

    @property
    def name(self):
        """The key as one line, for spread.csv and messages."""
        return " ".join(f"{column}={value}" for column, value in self.key.items())


# (num_heads, num_kv_heads, head_dim) per GPU. 32/8: 8B models; 64/8, 16/2, 8/1: 70B models at TP 1, 4, 8;
# 32/32 and 40/40: models without grouped queries, of which decode tables elsewhere have none.
_HEADS = {
    "tiny": ((4, 2, 16), (2, 2, 16)),
    "quick": ((32, 8, 128), (8, 1, 128), (32, 32, 128)),
    "default": ((32, 8, 128), (64, 8, 128), (8, 1, 128), (16, 2, 128), (32, 32, 128), (64, 8, 64)),
    "full": (
        (32, 8, 128), (64, 8, 128), (8, 1, 128), (16, 2, 128), (32, 32, 128), (64, 8, 64),
        (40, 40, 128), (16, 16, 128), (16, 4, 128), (4, 1, 128), (32, 4, 128), (16, 8, 256),
    ),
}

_PREFILL = {
    "tiny": {"q": (1, 5, 16), "c": (0, 3, 32), "batch": (1, 3), "max_tokens": 256},
    "quick": {
        "q": (16, 64, 256, 512, 2048, 8192), "c": (0, 512, 2048, 8192, 16384), "batch": (1, 8), "max_tokens": 65536,
    },
    "default": {
        "q": (8, 32, 128, 256, 512, 1024, 2048, 4096, 8192),
        "c": (0, 256, 1024, 2048, 4096, 8192, 16384, 32768),
        "batch": (1, 4, 16),
        "max_tokens": 131072,
    },
    "full": {
        "q": (2, 8, 16, 32, 64, 128, 256, 384, 512, 768, 1024, 2048, 4096, 8192, 16384),
        "c": (0, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768, 65536, 131072),
        "batch": (1, 2, 4, 16, 32),
        "max_tokens": 262144,
    },
}
# FLOP are quadratic in the lengths: a few huge cases would use up the budget and add nothing.
_PREFILL_MAX_FLOP = {"tiny": 1e9, "quick": 3e12, "default": 1e13, "full": 6e13}

_DECODE = {
    "tiny": {"mean": (8, 40), "batch": (1, 4), "ratio": (1.0, 2.0), "max_tokens": 512},
    "quick": {
        "mean": (256, 1024, 2048, 4096), "batch": (1, 4, 8, 32, 64, 128), "ratio": (1.0, 2.0, 4.0),
        "max_tokens": 600_000,
    },
    "default": {
        "mean": (64, 256, 512, 1024, 2048, 4096, 8192, 16384),
        "batch": (1, 2, 4, 8, 16, 32, 64, 128, 256),
        "ratio": (1.0, 1.5, 2.0, 4.0, 8.0),
        "max_tokens": 1_100_000,
    },
    "full": {
        "mean": (16, 64, 256, 512, 1024, 1536, 2048, 4096, 8192, 16384, 32768, 65536),
        "batch": (1, 2, 4, 8, 12, 16, 24, 32, 48, 64, 96, 128, 256, 512),
        "ratio": (1.0, 1.5, 2.0, 4.0, 8.0, 16.0),
        "max_tokens": 2_200_000,
    },
}
# One prefill chunk beside decodes of equal lengths. Every length, prefix and batch is one of the tables above as well, so that the call
# can be compared with its two kinds alone.
_MIXED = {
    "tiny": {"q": (5,), "c": (0, 3), "decodes": (1, 4), "mean": (8,)},
    "quick": {"q": (16, 256, 2048), "c": (0, 2048), "decodes": (1, 8, 32, 128), "mean": (1024, 4096)},
    "default": {
        "q": (32, 128, 512, 2048), "c": (0, 1024, 4096), "decodes": (1, 8, 32, 128), "mean": (512, 2048),
    },
    "full": {
        "q": (2, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192), "c": (0, 1024, 4096, 16384),
        "decodes": (1, 2, 4, 8, 16, 32, 64, 128, 256, 512), "mean": (256, 512, 1024, 2048, 4096, 8192),
    },
}
# Sliding windows (0 = full attention) are measured for the first head layouts of a tier only.
_WINDOWS = {"tiny": (8,), "quick": (), "default": (), "full": (128, 4096)}
_WINDOWED_LAYOUTS = 1

_SMALL = {
    "tiny": {"tokens": (1, 7), "hidden": (64,), "inner": (96,), "vocabulary": (512,)},
    "quick": {
        "tokens": (1, 16, 128, 1024, 8192), "hidden": (4096, 8192), "inner": (14336,), "vocabulary": (128256,),
    },
    "default": {
        "tokens": (1, 4, 16, 64, 128, 256, 512, 1024, 2048, 4096, 8192),
        "hidden": (2048, 4096, 8192),
        "inner": (3584, 14336, 28672),
        "vocabulary": (32000, 128256),
    },
    "full": {
        "tokens": (1, 2, 4, 8, 16, 32, 64, 128, 192, 256, 384, 512, 768, 1024, 2048, 4096, 8192, 16384),
        "hidden": (1024, 2048, 3072, 4096, 5120, 6144, 7168, 8192),
        "inner": (1536, 3584, 7168, 14336, 28672),
        "vocabulary": (32000, 64000, 128256, 151936, 201088),
    },
}
# Rows of logits at most: no server samples more tokens in a step, and a row of 201,088 has 2.4 MB with its places.
MOST_SAMPLED = 256
# Width a kernel works on: "hidden" for what runs on the residual stream, "inner" for the activation, "vocabulary" for logits,
# fixed element counts per token for what runs on heads ((H + G) * e for rotary, 2 * G * e for the KV write).
_SMALL_WIDTHS = {"rotary": (1152, 5120, 9216), "reshape_and_cache": (256, 2048, 8192)}
_TINY_WIDTHS = {"rotary": (256,), "reshape_and_cache": (256,)}

# (hidden_size, intermediate_size, top_k, num_experts) as Mixtral 8x7B, Qwen3-30B-A3B, Qwen3-235B-A22B, gpt-oss-like.
_MOE_MODELS = {
    "tiny": ((32, 48, 2, 4),),
    "quick": ((4096, 14336, 2, 8), (2048, 768, 8, 128)),
    "default": ((4096, 14336, 2, 8), (2048, 768, 8, 128), (4096, 1536, 8, 128), (5120, 8192, 1, 16)),
    "full": (
        (4096, 14336, 2, 8), (2048, 768, 8, 128), (4096, 1536, 8, 128), (5120, 8192, 1, 16),
        (2880, 2880, 4, 128), (7168, 2048, 8, 256),
    ),
}
_MOE = {
    "tiny": {"tokens": (1, 9), "split": ((1, 1), (2, 1), (1, 2)), "skew": ("balanced", "power_law_1.2")},
    "quick": {"tokens": (1, 16, 128, 1024, 4096), "split": ((1, 1), (4, 1)), "skew": ("balanced", "power_law_1.2")},
    "default": {
        "tokens": (1, 4, 16, 64, 128, 256, 1024, 4096, 8192),
        "split": ((1, 1), (4, 1), (1, 4)),
        "skew": ("balanced", "power_law_1.01", "power_law_1.2"),
    },
    "full": {
        "tokens": (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384),
        "split": ((1, 1), (2, 1), (4, 1), (8, 1), (1, 2), (1, 4), (1, 8)),
        "skew": ("balanced", "power_law_1.01", "power_law_1.2"),
    },
}

# (n, k): projections of 8B at TP 1, 70B at TP 1, 4, 8, a 7B MLP, a small MoE model's attention, and an LM head.
_GEMM_WEIGHTS = (
    (6144, 4096), (4096, 4096), (28672, 4096), (4096, 14336), (128256, 4096),
    (10240, 8192), (8192, 8192), (57344, 8192), (8192, 28672),
    (2560, 8192), (8192, 2048), (14336, 8192), (8192, 7168),
    (1280, 8192), (8192, 1024), (7168, 8192), (8192, 3584),
    (22016, 4096), (5120, 2048), (2048, 4096),
)
_GEMM = {
    "tiny": {"weights": ((32, 48), (64, 16)), "m": (1, 5, 16)},
    "quick": {
        "weights": ((6144, 4096), (4096, 14336), (28672, 4096), (2560, 8192), (8192, 1024)),
        "m": (1, 8, 32, 128, 512, 2048, 8192),
    },
    "default": {
        "weights": _GEMM_WEIGHTS,
        "m": (1, 4, 16, 32, 64, 128, 192, 256, 257, 512, 1024, 2048, 4096, 8192),
    },
    "full": {
        "weights": (*_GEMM_WEIGHTS, (3072, 1536), (1024, 2048), (7168, 2048), (36864, 7168), (152064, 5120)),
        "m": (
            1, 2, 4, 8, 12, 16, 24, 32, 48, 64, 80, 96, 112, 128, 160, 192, 224, 256, 257, 320, 384, 448, 512,
            513, 640, 768, 1024, 1280, 1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384,
        ),
    },
}


def _attention_key(heads, window, batch):
    num_heads, num_kv_heads, head_dim = heads
    return {
        "num_heads": num_heads, "num_kv_heads": num_kv_heads, "head_dim": head_dim,
        "kv_cache_dtype": "bfloat16", "window_size": window, "batch_size": batch,
    }


def _layouts(tier):
    yield from ((heads, 0) for heads in _HEADS[tier])
    for window in _WINDOWS[tier]:
        yield from ((heads, window) for heads in _HEADS[tier][:_WINDOWED_LAYOUTS])


def attention_prefill(tier, _dtypes):
    """Chunks of q tokens on c tokens of prior KV, the same q and c for every request of the batch."""
    grid = _PREFILL[tier]
    for heads, window in _layouts(tier):
        for batch in grid["batch"]:
            for q in grid["q"]:
                for c in grid["c"]:
                    flop = 4.0 * heads[0] * heads[2] * batch * (q * c + q * (q + 1) / 2)
                    if batch * (q + c) > grid["max_tokens"] or flop > _PREFILL_MAX_FLOP[tier]:
                        continue
                    key = _attention_key(heads, window, batch)
                    key.update(num_scheduled_tokens=q, num_computed_tokens=c)
                    yield Case("attention_prefill", 0 if c > 0 else 1, key)


def attention_decode(tier, _dtypes):
    """One new token per request; the mean KV length fixed while its maximum grows from 1x to 8x the mean."""
    grid = _DECODE[tier]
    for heads, window in _layouts(tier):
        for batch in grid["batch"]:
            for mean in grid["mean"]:
                if batch * mean > grid["max_tokens"]:
                    continue
                for ratio in grid["ratio"]:
                    if ratio > 1.0 and ratio > 0.8 * batch:
                        continue
                    key = _attention_key(heads, window, batch)
                    key.update(kv_tokens_total=batch * mean, kv_tokens_max=round(ratio * mean))
                    lacking = ratio > 1.0 or heads[1] > 8
                    yield Case("attention_decode", 0 if lacking else 1, key, ratio)


def attention_mixed(tier, _dtypes):
    """A chunk of q tokens on c tokens of prior KV in one call with decodes of equal KV lengths."""
    grid = _MIXED[tier]
    for heads, window in _layouts(tier):
        for q in grid["q"]:
            for c in grid["c"]:
                for decodes in grid["decodes"]:
                    for mean in grid["mean"]:
                        if decodes * mean > _DECODE[tier]["max_tokens"]:
                            continue
                        key = _attention_key(heads, window, 1)
                        key["num_prefills"] = key.pop("batch_size")
                        key.update(
                            num_scheduled_tokens=q, num_computed_tokens=c, num_decodes=decodes,
                            kv_tokens_total=decodes * mean,
                        )
                        yield Case("attention_mixed", 0, key)


def small_kernels(tier, _dtypes):
    """The small kernels between the large ones, by tokens and width."""
    grid = _SMALL[tier]
    fixed = _TINY_WIDTHS if tier == "tiny" else _SMALL_WIDTHS
    yield Case("small_kernels", 0, {"kernel": "empty_launch", "num_tokens": 1, "width": 1})
    for kernel in SMALL_KERNELS[1:]:
        widths = fixed.get(kernel) or grid["inner" if kernel == "silu_and_mul" else "hidden"]
        for tokens in grid["tokens"]:
            for width in widths:
                yield Case("small_kernels", 0, {"kernel": kernel, "num_tokens": tokens, "width": width})
    for kernel in SAMPLER_KERNELS:
        for tokens in (tokens for tokens in grid["tokens"] if tokens <= MOST_SAMPLED):
            for width in grid["vocabulary"]:
                yield Case("small_kernels", 0, {"kernel": kernel, "num_tokens": tokens, "width": width})


def moe(tier, dtypes):
    """Routed experts of one GPU: TP splits the intermediate size, EP the experts."""
    grid = _MOE[tier]
    for dtype in dtypes:
        if dtype == "fp8_block":
            continue
        for hidden, inner, top_k, experts in _MOE_MODELS[tier]:
            for tp, ep in grid["split"]:
                for tokens in grid["tokens"]:
                    for skew in grid["skew"]:
                        yield Case("moe", 1, {
                            "dtype": dtype, "num_tokens": tokens, "hidden_size": hidden,
                            "intermediate_size": inner, "top_k": top_k, "num_experts": experts,
                            "moe_tp_size": tp, "moe_ep_size": ep, "distribution": skew,
                        })


def gemm(tier, dtypes):
    """y[m, n] = x[m, k] W[k, n]."""
    for dtype in dtypes:
        for n, k in _GEMM[tier]["weights"]:
            for m in _GEMM[tier]["m"]:
                yield Case("gemm", 1, {"dtype": dtype, "m": m, "n": n, "k": k})


_BUILDERS = {
    "attention_prefill": attention_prefill, "attention_decode": attention_decode,
    "attention_mixed": attention_mixed, "small_kernels": small_kernels, "moe": moe, "gemm": gemm,
}


def cases(table, tier, dtypes=DTYPES):
    """All cases of a table in the order they are measured: by priority, shuffled with a fixed seed within."""
    found = list(_BUILDERS[table](tier, dtypes))
    random.Random(20).shuffle(found)
    found.sort(key=lambda case: case.priority)
    return found
