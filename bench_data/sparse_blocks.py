#!/usr/bin/env python3
"""Takes timings of whole blocks of sparse attention apart, into csv files that `ridgepoint calibrate` reads.

    bench_data/sparse_blocks.py RIDGEPOINT BLOCKS HARDWARE OUT

BLOCKS is a folder with the public table `dsa_generation_module_perf.parquet`, whose rows time projections, indexer, attention and output
of decodes together. RIDGEPOINT is the command, whose tables price the projections and small kernels.
OUT gets `attention_decode.csv` and `meta.toml`. Needs pandas and pyarrow.

1. Rows with 16-bit projections are kept, because those of fp8 blocks have a launch floor. Heads are 8 to 128.
2. The time of projections and small kernels is taken off.
3. Indexer of decodes: beyond `index_topk` tokens attention reads no more, so that what a block gains is the indexer's. Below, the
   indexer is taken to be linear in tokens. Its two launches are taken to be 8 µs, which only moves time between both parts.
4. Attention is the rest.

Blocks of prompts are not used: they were launched one kernel at a time, and take at least 1.3 to 2 ms whatever their length.
"""

import json
import math
import subprocess
import sys
import tempfile
from pathlib import Path

import pandas as pd

TOPK = 2048
LAUNCH_US = 8.0
FLOOR_US = 2.45
SIZES = [2**k for k in range(11)]
# Name of the model in the tables, the built-in one, attention heads, heads of the indexer.
MODELS = {"V3.2": ("deepseek-v3.2", 128, 64), "GLM": ("glm-5", 64, 32)}
KERNELS = (
    "qkv_a_proj q_b_proj latent_norms rotary indexer_q_proj indexer_k_proj indexer_quant index_cache_write kv_cache_write "
    "q_absorb v_up o_proj"
).split()


class Projections:
    """Time of everything in a block but indexer and attention, by the command's tables."""

    def __init__(self, command: str, hardware: str, folder: Path) -> None:
        self.command, self.hardware, self.folder, self.known = command, hardware, folder, {}
        root = Path(__file__).resolve().parent.parent
        for name, _, _ in MODELS.values():
            config = json.loads((root / "models" / f"{name}.json").read_text())
            config.pop("quantization_config", None)
            config.pop("ridgepoint")
            (folder / f"{name}.json").write_text(json.dumps(config | {"num_hidden_layers": 4}))

    def at(self, name: str, ranks: int, tokens: int) -> float:
        key = (name, ranks, tokens)
        if key not in self.known:
            command = [
                self.command, "predict-step", "--model", self.folder / f"{name}.json", "--hardware", self.hardware,
                "--tensor-parallel-size", ranks, "--correction", "none", "--max-num-batched-tokens", 200_000,
                "--max-num-seqs", 1024, "--decode", f"{tokens}@100", "--format", "json",
            ]
            step = json.loads(subprocess.run([str(word) for word in command], check=True, capture_output=True).stdout)
            times = {of["name"]: of["time_us"] / of["count"] for of in step["operators"]}
            self.known[key] = sum(times[kernel] for kernel in KERNELS)
        return self.known[key]

    def time_us(self, name: str, ranks: int, tokens: int) -> float:
        """Interpolates between sizes, linearly in logarithms."""
        above = min((index for index, size in enumerate(SIZES) if size >= tokens), default=len(SIZES) - 1)
        low, high = SIZES[max(above - 1, 0)], SIZES[above]
        first, last = (math.log(self.at(name, ranks, size)) for size in (low, high))
        share = math.log(tokens / low) / math.log(high / low) if high > low else 0.0
        return math.exp(first + share * (last - first))


def rows(folder: Path, projections: Projections) -> pd.DataFrame:
    """Rows of a table with the time that is left without projections, µs."""
    data = pd.read_parquet(folder / "dsa_generation_module_perf.parquet")
    data = data.rename(columns={"num_heads": "heads", "kv_cache_dtype": "kv", "batch_size": "batch", "isl": "query", "step": "past"})
    data["name"] = [next(key for key in MODELS if key in model) for model in data.model]
    most = data.name.map({key: heads for key, (_, heads, _) in MODELS.items()})
    data = data[(data.gemm_type == "bfloat16") & (data.heads >= 8) & (data.heads <= most)]
    data = data.groupby(["name", "kv", "heads", "batch", "query", "past"], as_index=False).latency.median()
    data["block"], data["tokens"] = data.latency * 1000, data.batch * data["query"]
    model = [(MODELS[name][0], MODELS[name][1] // heads) for name, heads in zip(data.name, data.heads)]
    spent = [projections.time_us(name, ranks, tokens) for (name, ranks), tokens in zip(model, data.tokens)]
    return data.assign(rest=data.block - spent)


def split_decodes(data: pd.DataFrame) -> tuple[pd.DataFrame, pd.Series]:
    """Attention of decodes up to TOPK tokens, and the time of the indexer by model, batch and cached tokens."""
    group = ["name", "kv", "heads", "batch"]
    full = data[data.past == TOPK].set_index(group).block.rename("full")
    longer = data[data.past > TOPK].join(full, on=group).dropna(subset=["full"])
    gained = (longer.block - longer.full).groupby([longer.name, longer.batch, longer.past]).median().clip(lower=0)
    last = gained.groupby(level=[0, 1]).tail(1).reset_index(level=2, name="us")
    slope = last.us / (last.past - TOPK)
    data = data[[(name, batch) in slope.index for name, batch in zip(data.name, data.batch)]].copy()
    indexer = lambda name, batch, past: (  # noqa: E731
        LAUNCH_US + slope[name, batch] * min(past, TOPK) + (gained.get((name, batch, past), math.nan) if past > TOPK else 0)
    )
    data["indexer"] = [indexer(*row) for row in zip(data.name, data.batch, data.past)]
    by_model = data.dropna().groupby(["name", "batch", "past"]).indexer.first()
    data = data[data.past <= TOPK].assign(attention=data.rest - data.indexer)
    return data[data.attention > FLOOR_US], by_model


def main() -> None:
    command, blocks, hardware, out = sys.argv[1], Path(sys.argv[2]), sys.argv[3], Path(sys.argv[4])
    out.mkdir(parents=True, exist_ok=True)
    shared = "num_heads,num_kv_heads,head_dim,kv_cache_dtype,window_size,batch_size"
    with tempfile.TemporaryDirectory() as folder:
        projections = Projections(command, hardware, Path(folder))
        attention, indexer = split_decodes(rows(blocks, projections))
        lines = [f"{shared},kv_tokens_total,kv_tokens_max,latency_us"]
        for (kv, heads, batch, past), time in attention.groupby(["kv", "heads", "batch", "past"]).attention.median().items():
            # A query picks TOPK tokens at most, its own included.
            keys = min(past + 1, TOPK)
            lines.append(f"{heads},1,dsa,{kv},{TOPK},{batch},{batch * keys},{keys},{time:.4f}")
        for (name, batch, past), time in indexer.items():
            lines.append(f"{MODELS[name][2]},1,indexer,fp8,0,{batch},{batch * (past + 1)},{past + 1},{time:.4f}")
        (out / "attention_decode.csv").write_text("\n".join(lines) + "\n")
    (out / "meta.toml").write_text('kind = "measurement"\nframework = "vLLM"\nversion = "0.24.0"\n')


if __name__ == "__main__":
    main()
