#!/usr/bin/env python3
"""Writes a folder as a run on a GPU writes it, with a handful of made-up rows, for the reader's tests.

Times are not measured. Each is the nominal time of `estimates.py`: 4 us and the larger of FLOP at 400 TFLOP/s and
bytes at 2.5 TB/s. The card is made up, too, and the certificate says `kind = "not a measurement"`. Everything
else goes through the code of a real run. No torch, no GPU:

    python3 bench_data/measure/synthetic.py --out lab/tests/fixtures/measuring_kit
"""

import argparse
import os
import sys
import types

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import device  # noqa: E402
import grids  # noqa: E402
import measure  # noqa: E402
import writer  # noqa: E402
from estimates import work_of  # noqa: E402
from runner import Outcome  # noqa: E402
from timing import plan_graph, summarise  # noqa: E402

DATE = "2026-01-01T00:00:00+00:00"
NOTE = "synthetic: times from a formula for a card that does not exist, written by synthetic.py"
L2_BYTES = 50 * 2**20

# Values that a row of the quick grid must have to be in the folder; those not named are free.
CHOSEN = {
    "attention_prefill": {
        "num_kv_heads": (8,), "batch_size": (1,), "num_scheduled_tokens": (512, 2048),
        "num_computed_tokens": (0, 2048),
    },
    "attention_decode": {"num_kv_heads": (8,), "batch_size": (8, 32), "kv_tokens_total": (8192, 32768)},
    "attention_mixed": {
        "num_kv_heads": (8,), "num_scheduled_tokens": (256,), "num_decodes": (8, 32), "kv_tokens_total": (8192, 32768),
    },
    "small_kernels": {"num_tokens": (1, 128), "width": (1, 256, 1152, 4096, 14336, 128256)},
    "moe": {"num_experts": (8,), "num_tokens": (16, 1024), "moe_tp_size": (1,), "dtype": ("bfloat16",)},
    "gemm": {"n": (6144,), "m": (1, 128), "dtype": ("bfloat16", "fp8")},
}


def made_up_card():
    """The part of torch that `device.certificate` reads, for a card that does not exist."""
    properties = types.SimpleNamespace(multi_processor_count=100, total_memory=80 * 2**30, L2_cache_size=L2_BYTES)
    cuda = types.SimpleNamespace(
        get_device_properties=lambda _: properties, get_device_name=lambda _: "made-up GPU",
        get_device_capability=lambda _: (9, 0),
    )
    return types.SimpleNamespace(__version__="0.0.0+synthetic", cuda=cuda, version=types.SimpleNamespace(cuda="0.0"))


def cases_of(table):
    """The chosen cases of the quick grid, in a fixed order."""
    chosen = CHOSEN[table]
    cases = grids.cases(table, "quick")
    kept = [case for case in cases if all(case.key[name] in values for name, values in chosen.items())]
    return sorted(kept, key=lambda case: case.name)


def outcome_of(table):
    """Rows and spreads of a table, as `runner.run_table` returns them."""
    cases = cases_of(table)
    outcome = Outcome(planned=len(cases))
    for case in cases:
        work = work_of(case)
        timing = summarise([share * work.nominal_us for share in (0.99, 1.0, 1.01)])
        plan = plan_graph(work.nominal_us, work.rotating_bytes, L2_BYTES)
        row = dict(case.key, latency_us=timing.median_us)
        if table == "small_kernels":
            row["launches"] = 1
        spread = {"table": table, "row": case.name, "calls_per_graph": plan.calls, "buffer_copies": plan.copies}
        spread["samples"] = timing.samples
        for name in ("min_us", "p25_us", "median_us", "p75_us", "max_us"):
            spread[name] = round(getattr(timing, name), 4)
        outcome.rows.append(row)
        outcome.spreads.append(spread)
    return outcome


def write(folder):
    """Write the folder."""
    options = types.SimpleNamespace(device="cuda", engine="torch", repeats=3)
    smi = {"driver_version": "000.00", "power.limit": "700.00", "clocks.max.sm": "1980"}
    asked, device.nvidia_smi = device.nvidia_smi, lambda _fields: smi
    try:
        born = measure.birth(made_up_card(), options, ["--quick"], DATE)
    finally:
        device.nvidia_smi = asked
    born.update(kind="not a measurement", command="python3 bench_data/measure/synthetic.py")
    os.makedirs(folder, exist_ok=True)
    counts, spreads = {}, []
    for table in grids.TABLES:
        outcome = outcome_of(table)
        writer.write_table(folder, table, outcome.rows)
        counts[table] = outcome.counts()
        spreads += outcome.spreads
    writer.write_spread(folder, spreads)
    sources = {table: "none: a formula" for table in grids.TABLES}
    meta = measure.certificate_of(born, "none: a formula", [(1500, 2600)], 0.0, [NOTE], sources, counts)
    writer.write_meta(folder, meta)


def main(argv=None):
    """Entry point: 0 done, 2 wrong usage."""
    parser = argparse.ArgumentParser(prog="synthetic.py", description=__doc__.splitlines()[0])
    parser.add_argument("--out", required=True, help="folder to write to; its files are replaced")
    write(parser.parse_args(argv).out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
