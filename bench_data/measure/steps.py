#!/usr/bin/env python3
"""Times whole steps of a dense model on this machine's GPU: one CUDA graph, graphs between the layers' attention, and neither.

Kernels are those of `--engine vllm` for attention and of the kit for the rest, with weights and a KV cache of every layer's own. A step is
what vLLM's model runner launches from the embedding to the greedy token. There is no scheduler, and no host work but the launches.
Usage: README.md next to this file.
"""

import argparse
import csv
import gc
import os
import statistics
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import attention  # noqa: E402
import paged  # noqa: E402
from fused import FUSED  # noqa: E402
from timing import captured  # noqa: E402

# hidden size, query heads, KV heads, head size, intermediate size, layers, vocabulary: of one GPU.
MODELS = {
    "llama-3.1-8b": (4096, 32, 8, 128, 14336, 32, 128256),
    # A rank of four, without its all-reduces.
    "llama-3.1-70b-tp4": (8192, 16, 2, 128, 7168, 80, 32064),
}
DEVICE = "cuda"
MODES = ("full", "piecewise", "none")
# (chunks, tokens of each, their prior KV, decodes, context of each)
STEPS = (
    *((0, 0, 0, n, c) for n in (1, 8, 32, 128, 256) for c in (256, 1024, 4096) if n * c <= 262_144),
    *((1, q, c, 0, 0) for q in (16, 64, 256, 512, 1024, 2048, 8192) for c in (0, 4096)),
    *((1, q, c, n, 1024) for q in (16, 128, 512, 2048) for c in (0, 2048) for n in (8, 64, 128)),
    (4, 512, 0, 32, 1024), (16, 128, 0, 32, 1024), (8, 64, 2048, 64, 1024),
)
COLUMNS = (
    "model", "cudagraph_mode", "num_prefills", "num_scheduled_tokens", "num_computed_tokens", "num_decodes", "kv_tokens_total",
    "latency_us", "host_us", "launches",
)


class Model:
    """Weights and caches of one GPU, and the kernels of a step in pieces that end where a layer's attention begins."""

    def __init__(self, torch, name, cache_tokens):
        self.torch = torch
        self.hidden, self.heads, self.kv_heads, self.head_dim, self.inner, self.layers, self.vocabulary = MODELS[name]
        self.qkv = (self.heads + 2 * self.kv_heads) * self.head_dim
        shapes = [
            (self.qkv, self.hidden), (self.hidden, self.heads * self.head_dim), (2 * self.inner, self.hidden),
            (self.hidden, self.inner),
        ]
        self.weights = [[self.random(shape) for shape in shapes] for _ in range(self.layers)]
        self.norm = torch.ones(self.hidden, device=DEVICE, dtype=torch.bfloat16)
        self.table, self.head = self.random((self.vocabulary, self.hidden)), self.random((self.vocabulary, self.hidden))
        blocks = cache_tokens // paged.BLOCK
        cache = (blocks, 2, paged.BLOCK, self.kv_heads, self.head_dim)
        self.caches = [self.random(cache, 1.0) for _ in range(self.layers)]
        angles = torch.arange(16384, device=DEVICE).unsqueeze(1) * 0.01
        angles = angles * torch.arange(1, self.head_dim // 2 + 1, device=DEVICE)
        self.cosine, self.sine = angles.cos().to(torch.bfloat16), angles.sin().to(torch.bfloat16)

    def random(self, shape, scale=0.02):
        tensor = self.torch.empty(shape, device=DEVICE, dtype=self.torch.bfloat16)
        return tensor.normal_(0.0, scale)

    def before(self, layer, state):
        """Norm, QKV projection, rotary embedding and cache write of a layer."""
        torch, x = self.torch, state["x"]
        if layer == 0:
            state["residual"] = x
            x = FUSED["rms_norm"](torch, x, self.norm)
        else:
            x = FUSED["fused_add_rms_norm"](torch, x, state["residual"], self.norm)
        qkv = x @ self.weights[layer][0].t()
        heads = qkv.view(-1, self.heads + 2 * self.kv_heads, self.head_dim)
        FUSED["rotary"](torch, heads[:, : self.heads + self.kv_heads], self.cosine, self.sine, state["positions"])
        state["q"] = heads[:, : self.heads]
        width = self.kv_heads * self.head_dim
        _, keys, values = qkv.split([self.heads * self.head_dim, width, width], dim=1)
        rows = self.caches[layer].view(-1, width)
        FUSED["reshape_and_cache"](torch, keys, values, rows, rows[paged.BLOCK :], state["slots"])

    def attend(self, layer, state, forward):
        """Attention of a layer."""
        state["attended"] = forward(state["q"], self.caches[layer])

    def after(self, layer, state):
        """Output projection and MLP of a layer."""
        torch = self.torch
        x = state["attended"].view(-1, self.heads * self.head_dim) @ self.weights[layer][1].t()
        x = FUSED["fused_add_rms_norm"](torch, x, state["residual"], self.norm)
        x = FUSED["silu_and_mul"](torch, x @ self.weights[layer][2].t())
        state["x"] = x @ self.weights[layer][3].t()

    def end(self, state):
        """Last norm, logits of the sampled tokens, their greedy choice."""
        x = FUSED["fused_add_rms_norm"](self.torch, state["x"], state["residual"], self.norm)
        logits = x.index_select(0, state["sampled"]) @ self.head.t()
        state["tokens"] = logits.float().argmax(dim=-1)


def problem_of(model, step):
    chunks, q, c, decodes, context = step
    q_lens = (1,) * decodes + (q,) * chunks
    kv_lens = (context,) * decodes + (q + c,) * chunks
    return attention.Problem(model.heads, model.kv_heads, model.head_dim, 0, q_lens, kv_lens)


def pieces(model, step):
    """The step as a list of (function, whether it is attention), and how many kernels it launches as far as known."""
    torch = model.torch
    problem = problem_of(model, step)
    tokens = sum(problem.q_lens)
    forward = paged.vllm_flash(torch, problem, DEVICE)
    ends = torch.tensor(problem.q_lens, device=DEVICE).cumsum(0) - 1
    # Rows of the cache, whose blocks hold 16 keys and then their values, for the last tokens of each request.
    slots = [
        numbers[at // paged.BLOCK] * 2 * paged.BLOCK + at % paged.BLOCK
        for q, kv, numbers in zip(problem.q_lens, problem.kv_lens, paged.block_lists(problem))
        for at in range(kv - q, kv)
    ]
    state = {
        "positions": torch.arange(tokens, device=DEVICE) % 16384, "sampled": ends,
        "slots": torch.tensor(slots, device=DEVICE),
        "ids": torch.randint(model.vocabulary, (tokens,), device=DEVICE),
    }

    def first():
        state["x"] = torch.nn.functional.embedding(state["ids"], model.table)
        model.before(0, state)

    def between(layer):
        model.after(layer - 1, state)
        model.before(layer, state)

    def last():
        model.after(model.layers - 1, state)
        model.end(state)

    listed = [(first, False)]
    for layer in range(model.layers):
        listed.append((lambda layer=layer: model.attend(layer, state, forward), True))
        listed.append(((lambda layer=layer: between(layer + 1)) if layer + 1 < model.layers else last, False))
    return listed, 1 + 10 * model.layers + 5


def timed(torch, run, repeats):
    """(time on the GPU from the first kernel to the last, host time of the launches), medians in us."""
    for _ in range(2):
        run()
    torch.cuda.synchronize()
    on_gpu, on_host = [], []
    for _ in range(repeats):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        began = time.perf_counter()
        start.record()
        run()
        end.record()
        on_host.append(1e6 * (time.perf_counter() - began))
        torch.cuda.synchronize()
        on_gpu.append(1e3 * start.elapsed_time(end))
    return statistics.median(on_gpu), statistics.median(on_host)


def measure(torch, model, step, mode, repeats, side):
    """One row of a step."""
    listed, launches = pieces(model, step)
    for function, _ in listed:
        function()
    torch.cuda.synchronize()
    graphs = []
    if mode == "full":
        graphs = [captured(torch.cuda, side, [function for function, _ in listed])]
        runs = [graphs[0].replay]
    elif mode == "piecewise":
        pool = torch.cuda.graph_pool_handle()
        runs = []
        for function, is_attention in listed:
            if is_attention:
                # Its result lies where the next graph reads it.
                function()
                runs.append(function)
            else:
                graphs.append(captured(torch.cuda, side, [function], pool=pool))
                runs.append(graphs[-1].replay)
    else:
        runs = [function for function, _ in listed]

    def run():
        for part in runs:
            part()

    on_gpu, on_host = timed(torch, run, repeats)
    for graph in graphs:
        graph.reset()
    return on_gpu, on_host, launches


def main():
    """Entry point."""
    parser = argparse.ArgumentParser(prog="steps.py", description=__doc__.splitlines()[0])
    parser.add_argument("--out", required=True, help="the csv file to write")
    parser.add_argument("--models", default=",".join(MODELS), help="comma-separated: " + ", ".join(MODELS))
    parser.add_argument("--modes", default=",".join(MODES), help="comma-separated: " + ", ".join(MODES))
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--cache-tokens", type=int, default=280_000, help="tokens of the KV cache of each layer")
    parser.add_argument("--seconds-budget", type=float, default=120, help="stop measuring after so many seconds")
    options = parser.parse_args()
    import torch

    deadline = time.monotonic() + options.seconds_budget
    names = options.models.split(",")
    with open(options.out, "w", encoding="utf-8", newline="") as file, torch.inference_mode():
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        for index, name in enumerate(names):
            until = time.monotonic() + (deadline - time.monotonic()) / (len(names) - index)
            model = Model(torch, name, options.cache_tokens)
            side = torch.cuda.Stream()
            for step in STEPS:
                for mode in options.modes.split(","):
                    if time.monotonic() > until:
                        break
                    on_gpu, on_host, launches = measure(torch, model, step, mode, options.repeats, side)
                    chunks, q, c, decodes, context = step
                    row = (name, mode, chunks, q, c, decodes, decodes * context)
                    writer.writerow((*row, f"{on_gpu:.2f}", f"{on_host:.2f}", launches))
                    file.flush()
            del model
            gc.collect()
            torch.cuda.empty_cache()
    return 0


if __name__ == "__main__":
    sys.exit(main())
