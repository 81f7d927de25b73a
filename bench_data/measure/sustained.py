#!/usr/bin/env python3
"""Times products over and over until the board's power holds the GPU back, and fits the rates of `[power_limit]`.

Usage: sustained.py --out FILE. About a minute; needs torch built for CUDA.
"""

import argparse
import csv
import os
import statistics
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import device  # noqa: E402

WEIGHTS = ((28672, 4096), (4096, 14336), (6144, 4096), (14336, 8192))
ROWS = (64, 128, 256, 512, 1024, 2048, 8192)
SECONDS = 0.35
# Bytes per second that the power would allow without a FLOP: with fewer, small products come out too long.
BYTES_PER_S = 14e12
FEWEST_ROWS = 512
COLUMNS = ("dtype", "m", "n", "k", "early_us", "late_us", "sm_clock_mhz")


def product(torch, dtype, m, n, k):
    """One call."""
    x = torch.randn(m, k, device="cuda", dtype=torch.bfloat16)
    w = torch.randn(n, k, device="cuda", dtype=torch.bfloat16)
    if dtype == "bfloat16":
        return lambda: x @ w.t()
    one = torch.ones((), device="cuda")
    x, w = x.to(torch.float8_e4m3fn), w.to(torch.float8_e4m3fn)
    return lambda: torch._scaled_mm(x, w.t(), scale_a=one, scale_b=one, out_dtype=torch.bfloat16, use_fast_accum=True)


def timed(torch, call, per_sample):
    """(median of the first samples, median of the last ones) in us per call; a sample is some 1.5 ms."""
    call()
    torch.cuda.synchronize()
    time.sleep(0.15)
    samples, end = [], time.perf_counter() + SECONDS
    while time.perf_counter() < end:
        before, after = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        before.record()
        for _ in range(per_sample):
            call()
        after.record()
        after.synchronize()
        samples.append(1e3 * before.elapsed_time(after) / per_sample)
    return statistics.median(samples[1:6]), statistics.median(samples[-9:])


def sustained_flop_per_s(rows, dtype):
    """FLOP/s beside the bytes of each product: the median over those that fill the GPU."""
    element = 2 if dtype == "bfloat16" else 1
    rates = []
    for of, m, n, k, _, late_us, _ in rows:
        if of == dtype and m >= FEWEST_ROWS:
            moved = element * (n * k + m * k) + 2 * m * n
            rates.append(2.0 * m * n * k / (1e-6 * late_us - moved / BYTES_PER_S))
    return statistics.median(rates)


def main():
    """Entry point."""
    parser = argparse.ArgumentParser(prog="sustained.py", description=__doc__.splitlines()[0])
    parser.add_argument("--out", required=True, help="the csv file to write")
    options = parser.parse_args()
    import torch

    rows = []
    with torch.inference_mode():
        for dtype in ("bfloat16", "fp8"):
            for n, k in WEIGHTS:
                for m in ROWS:
                    per_sample = max(1, int(1.5e-3 * 7e14 / (2.0 * m * n * k)))
                    early_us, late_us = timed(torch, product(torch, dtype, m, n, k), min(per_sample, 300))
                    rows.append((dtype, m, n, k, round(early_us, 2), round(late_us, 2), device.clocks_mhz()[0]))
    with open(options.out, "w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerows([COLUMNS, *rows])
    for dtype in ("bfloat16", "fp8"):
        print(f"{dtype}: {sustained_flop_per_s(rows, dtype):.4g} FLOP/s beside {BYTES_PER_S:.3g} B/s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
