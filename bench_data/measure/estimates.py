"""The work of a case: FLOP, bytes streamed from device memory, bytes held. Pure arithmetic.

Used to size graphs and buffer rotation, to skip cases that cannot fit, and by `--dry-run`. None of it ends
up in a result.
"""

from dataclasses import dataclass

from distributions import expert_counts, local_counts

BF16_BYTES = 2
WEIGHT_BYTES = {"bfloat16": 2, "fp8": 1, "fp8_block": 1}

# Nominal rates that only size the graphs: a fast card ends up with shorter samples, a slow one with longer ones.
NOMINAL_FLOP_PER_S = 400e12
NOMINAL_BYTES_PER_S = 2.5e12
NOMINAL_FLOOR_US = 4.0


@dataclass(frozen=True)
class Work:
    """Work of one call. `rotating_bytes` must not stay in the L2 cache from one call to the next."""

    flop: float
    rotating_bytes: int
    other_bytes: int

    @property
    def nominal_us(self):
        """A rough duration of one call on a data-centre GPU, in microseconds."""
        moved = self.rotating_bytes + self.other_bytes
        return NOMINAL_FLOOR_US + 1e6 * max(self.flop / NOMINAL_FLOP_PER_S, moved / NOMINAL_BYTES_PER_S)


def visible_pairs(scheduled, computed, window):
    """Query-key pairs of one request under a lower-right causal mask, with a sliding window if `window` > 0."""
    if window <= 0:
        return scheduled * computed + scheduled * (scheduled + 1) // 2
    # The first queries see fewer than `window` keys until the window is full.
    growing = min(max(window - computed - 1, 0), scheduled)
    return growing * computed + growing * (growing + 1) // 2 + (scheduled - growing) * window


def work_of(case):
    """`Work` of one call of a case (see `grids.Case`)."""
    return _WORK[case.table](case.key)


def _gemm(key):
    weight = WEIGHT_BYTES[key["dtype"]]
    m, n, k = key["m"], key["n"], key["k"]
    return Work(2.0 * m * n * k, n * k * weight, m * k * weight + m * n * BF16_BYTES)


def _kv_row_bytes(key):
    return 2 * key["num_kv_heads"] * key["head_dim"] * BF16_BYTES


def _prefill(key):
    batch, q, c = key["batch_size"], key["num_scheduled_tokens"], key["num_computed_tokens"]
    width = key["num_heads"] * key["head_dim"]
    flop = 4.0 * width * batch * visible_pairs(q, c, key["window_size"])
    return Work(flop, batch * (q + c) * _kv_row_bytes(key), 2 * batch * q * width * BF16_BYTES)


def _decode(key):
    width = key["num_heads"] * key["head_dim"]
    tokens = key["kv_tokens_total"]
    return Work(4.0 * width * tokens, tokens * _kv_row_bytes(key), 2 * key["batch_size"] * width * BF16_BYTES)


def _mixed(key):
    chunks = _prefill(dict(key, batch_size=key["num_prefills"]))
    decodes = _decode(dict(key, batch_size=key["num_decodes"]))
    return Work(*(getattr(chunks, part) + getattr(decodes, part) for part in ("flop", "rotating_bytes", "other_bytes")))


def _moe(key):
    counts = expert_counts(key["num_tokens"], key["top_k"], key["num_experts"], key["distribution"])
    local = local_counts(counts, key["moe_ep_size"])
    hidden, inner = key["hidden_size"], key["intermediate_size"] // key["moe_tp_size"]
    pairs = sum(local)
    weights = len(local) * 3 * hidden * inner * WEIGHT_BYTES[key["dtype"]]
    activations = pairs * (3 * hidden + 4 * inner) * BF16_BYTES
    return Work(6.0 * pairs * hidden * inner, weights, activations)


def _small(key):
    # Operands of small kernels have just been written by the kernel before: nothing to rotate.
    return Work(0.0, 0, 4 * key["num_tokens"] * key["width"] * BF16_BYTES)


_WORK = {
    "gemm": _gemm,
    "attention_prefill": _prefill,
    "attention_decode": _decode,
    "attention_mixed": _mixed,
    "moe": _moe,
    "small_kernels": _small,
}
