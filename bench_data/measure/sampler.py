"""The sampler's kernels over rows of 32-bit logits: torch's own operators, as vLLM 0.15 calls them.

Source: `vllm/v1/sample/sampler.py`, `ops/topk_topp_sampler.py`, `ops/penalties.py` and
`vllm/model_executor/layers/utils.py` of vLLM 0.15.1. A row of the table has the sampled rows as `num_tokens` and the
vocabulary as `width`. Names are those of the operators that `ridgepoint predict-step` prints.
"""

TOP_P = 0.9
TOP_K = 20
REPETITION = 1.1
PROMPT_TOKENS = 512


def penalties(torch, logits, prompt, output):
    """Repetition, frequency and presence penalties, with the counts of prompt and output tokens that they need.

    vLLM applies the first with a kernel of its own, which is faster than torch's operators. The other two are zero, so that repeated
    calls leave the logits in range.
    """
    rows, vocabulary = logits.shape

    def counted(tokens):
        counts = torch.zeros((rows, vocabulary + 1), dtype=torch.long, device=logits.device)
        counts.scatter_add_(1, tokens, torch.ones_like(tokens))
        counts = counts[:, :vocabulary]
        return counts, counts > 0

    _, in_prompt = counted(prompt)
    counts, in_output = counted(output)
    factor = torch.where(in_prompt | in_output, REPETITION, 1.0)
    logits.mul_(torch.where(logits > 0, 1.0 / factor, factor))
    logits.sub_(counts * 0.0)
    return logits.sub_(in_output * 0.0)


def top_p_sort(torch, logits):
    """Logits of each row in ascending order, with their places."""
    return torch.sort(logits, dim=-1, descending=False)


def top_p_cumsum(torch, probabilities):
    """The running sum of each row, in place of it."""
    return torch.cumsum(probabilities, dim=-1, out=probabilities)


def top_p_mask(torch, logits, ordered, places, sums):
    """Masks what is beyond the cut, and puts the rest back to its places."""
    ordered.softmax(dim=-1)
    mask = sums <= 1.0 - TOP_P
    mask[:, -1] = False
    ordered.masked_fill_(mask, -float("inf"))
    return logits.scatter_(dim=-1, index=places, src=ordered)


def top_k(torch, logits):
    """Masks all but the k largest logits of each row, without a sort of all."""
    least = logits.topk(TOP_K, dim=-1).values[:, -1:]
    return logits.masked_fill_(logits < least, -float("inf"))


def sampling(torch, raw):
    """Chooses a token of each row at random: cast, temperature, softmax, random numbers, division, argmax."""
    probabilities = raw.float().div_(0.7).softmax(dim=-1, dtype=torch.float32)
    random = torch.empty_like(probabilities).exponential_()
    return probabilities.div_(random).argmax(dim=-1)


PLAIN = {
    "penalties": penalties,
    "top_p_sort": top_p_sort,
    "top_p_cumsum": top_p_cumsum,
    "top_p_mask": top_p_mask,
    "top_k": top_k,
    "sampling": sampling,
}


def operands(kernel, env, rows, vocabulary):
    """Fresh operands of a kernel."""
    torch = env.torch
    if kernel == "sampling":
        return env.arena.take(torch.bfloat16, ((rows, vocabulary),))
    (logits,) = env.arena.take(torch.float32, ((rows, vocabulary),))
    if kernel == "penalties":
        generator = torch.Generator().manual_seed(3)
        shape = (rows, PROMPT_TOKENS)
        return [logits] + [torch.randint(vocabulary, shape, generator=generator).to(env.device) for _ in range(2)]
    if kernel == "top_p_mask":
        ordered, places = top_p_sort(torch, logits)
        return [logits, ordered, places, ordered.softmax(dim=-1).cumsum(dim=-1)]
    return [logits]
