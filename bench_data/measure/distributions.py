"""KV lengths inside a batch and tokens per expert: pure, deterministic arithmetic.

No torch here, so that the measured shapes can be checked by hand.
"""

import random


def uneven_lengths(batch_size, mean_tokens, max_over_mean, seed=0):
    """KV lengths of a batch with sum `batch_size * mean_tokens` and maximum `max_over_mean * mean_tokens`.

    Lengths follow x^(r-1) with r = `max_over_mean`: r = 1 is even, 2 a straight ramp, larger r a few long
    requests among many short ones. The mean stays fixed while r varies, so the difference between two rows
    is the cost of unevenness alone. The order is shuffled (fixed seed): a real batch is not sorted.
    Raises ValueError if no such lengths of at least 1 exist.
    """
    total = batch_size * mean_tokens
    longest = round(max_over_mean * mean_tokens)
    rest = total - longest
    others = batch_size - 1
    if not (mean_tokens <= longest and others <= rest <= others * longest):
        raise ValueError(
            f"no {batch_size} lengths with mean {mean_tokens} and maximum {longest}; "
            f"max_over_mean must lie in [1, batch_size)"
        )
    weights = [((i + 0.5) / batch_size) ** (max_over_mean - 1.0) for i in range(others)]
    lengths = [longest, *_apportion(weights, rest, 1, longest)]
    random.Random(seed).shuffle(lengths)
    return lengths


def _apportion(weights, total, low, high):
    """Integers in [low, high] proportional to `weights` that sum to `total`."""
    if not weights:
        return []
    scale = total / sum(weights)
    exact = [min(max(weight * scale, low), high) for weight in weights]
    parts = [int(value) for value in exact]
    by_remainder = sorted(range(len(parts)), key=lambda i: parts[i] - exact[i])
    missing = total - sum(parts)
    step = 1 if missing > 0 else -1
    while missing != 0:
        moved = 0
        for i in by_remainder:
            if missing == 0:
                break
            if low <= parts[i] + step <= high:
                parts[i] += step
                missing -= step
                moved += 1
        if moved == 0:
            raise ValueError(f"cannot place {total} into {len(parts)} parts within [{low}, {high}]")
    return parts


def expert_counts(num_tokens, top_k, num_experts, distribution):
    """Tokens that each of all `num_experts` receives; sums to `num_tokens * top_k`, none above `num_tokens`.

    `balanced` differs by at most one token. `power_law_<alpha>` draws expert loads with density x^-alpha on
    [1, 0.8 tokens] (on [0.01, 2] when there are no more pairs than experts, so that most experts idle), at
    evenly spaced quantiles instead of random ones, heaviest expert last.
    """
    if not 1 <= top_k <= num_experts:
        raise ValueError(f"top_k {top_k} must lie in [1, {num_experts}]")
    pairs = num_tokens * top_k
    if distribution == "balanced":
        base, extra = divmod(pairs, num_experts)
        return [base] * (num_experts - extra) + [base + 1] * extra
    if not distribution.startswith("power_law_"):
        raise ValueError(f"distribution must be balanced or power_law_<alpha>, found {distribution}")
    alpha = float(distribution.removeprefix("power_law_"))
    low, high = (1.0, max(0.8 * num_tokens, 1.0)) if pairs > num_experts else (0.01, 2.0)
    weights = [_power_quantile((i + 0.5) / num_experts, alpha, low, high) for i in range(num_experts)]
    return _apportion(weights, pairs, 0, num_tokens)


def _power_quantile(u, alpha, low, high):
    if abs(alpha - 1.0) < 1e-9:
        return low * (high / low) ** u
    power = 1.0 - alpha
    return (low**power + u * (high**power - low**power)) ** (1.0 / power)


def local_counts(counts, moe_ep_size, seed=0):
    """Counts of the experts of the busiest of `moe_ep_size` ranks: the rank that sets the pace of a step.

    Experts are placed on ranks at random (fixed seed), as weights are: by index, not by load.
    """
    if len(counts) % moe_ep_size != 0:
        raise ValueError(f"{len(counts)} experts cannot be split evenly over {moe_ep_size} ranks")
    placed = list(counts)
    random.Random(seed).shuffle(placed)
    size = len(placed) // moe_ep_size
    ranks = [placed[i : i + size] for i in range(0, len(placed), size)]
    return max(ranks, key=sum)


def token_of_pair(counts, num_tokens):
    """Token index of every pair, pairs grouped by expert; no expert gets a token twice (counts <= num_tokens)."""
    return [pair % num_tokens for pair in range(sum(counts))]
