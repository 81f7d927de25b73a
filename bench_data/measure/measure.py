#!/usr/bin/env python3
"""Times the kernels of a serving step on this machine's GPU and writes the csv files that calibration reads.

Usage and method: README.md next to this file.
"""

import argparse
import datetime
import importlib
import os
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import grids  # noqa: E402
import writer  # noqa: E402
from estimates import work_of  # noqa: E402

DEFAULT_BUDGET_S = {"tiny": 600, "quick": 130, "default": 540, "full": 5400}
# Build, capture and replays of a typical case; only for the estimate that --dry-run prints.
NOMINAL_CASE_S = 0.08


def parse(argv):
    """Command line as a namespace; wrong usage exits with 2."""
    parser = argparse.ArgumentParser(prog="measure.py", description=__doc__.splitlines()[0])
    parser.add_argument("--out", help="folder of this run's results; must be new or empty")
    parser.add_argument(
        "--kernels", help="comma-separated tables, all that the engine has by default: " + ", ".join(grids.TABLES)
    )
    parser.add_argument(
        "--engine", choices=tuple(grids.ENGINE_TABLES), default="torch",
        help="whose kernels are timed; vllm: its own attention over a paged cache, where vLLM is installed",
    )
    tier = parser.add_mutually_exclusive_group()
    tier.add_argument("--quick", dest="tier", action="store_const", const="quick", help="about 2 minutes")
    tier.add_argument("--full", dest="tier", action="store_const", const="full", help="up to 90 minutes")
    tier.add_argument("--tiny", dest="tier", action="store_const", const="tiny", help="a test of the logic only")
    parser.add_argument("--seconds-budget", type=float, help="stop measuring after so many seconds")
    parser.add_argument("--repeats", type=int, default=9, help="replays per row; the median counts")
    parser.add_argument(
        "--dtype", default=",".join(grids.DTYPES), help="dtypes of GEMM and experts: " + ", ".join(grids.DTYPES)
    )
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda", help="cpu: not a measurement")
    parser.add_argument("--dry-run", action="store_true", help="print the grid and its bytes, touch no GPU")
    options = parser.parse_args(argv)
    options.tier = options.tier or "default"
    of_engine = grids.ENGINE_TABLES[options.engine]
    options.tables = _listed(parser, "--kernels", options.kernels or ",".join(of_engine), (*grids.TABLES, "allreduce"))
    others = [table for table in options.tables if table not in of_engine]
    if options.engine != "torch" and others:
        parser.error(f"--kernels: {', '.join(others)} of --engine {options.engine} are not timed by this kit")
    options.dtypes = _listed(parser, "--dtype", options.dtype, grids.DTYPES)
    if options.repeats < 1:
        parser.error(f"--repeats must be at least 1, found {options.repeats}")
    if options.device == "cpu" and options.tier != "tiny":
        parser.error("--device cpu tests the logic and needs --tiny")
    if not options.out and not options.dry_run:
        parser.error("--out DIR is needed, unless --dry-run")
    if options.seconds_budget is None:
        options.seconds_budget = DEFAULT_BUDGET_S[options.tier]
    return options


def _listed(parser, flag, text, known):
    names = [name for name in text.split(",") if name]
    unknown = [name for name in names if name not in known]
    if unknown or not names:
        parser.error(f"{flag}: unknown {unknown or 'empty list'}; known: {', '.join(known)}")
    return [name for name in known if name in names]


def dry_run(options, out):
    """Print every case with its bytes, then a summary per table."""
    summary = []
    for table in (name for name in options.tables if name != "allreduce"):
        cases = grids.cases(table, options.tier, options.dtypes)
        works = [work_of(case) for case in cases]
        for case, work in zip(cases, works):
            out.write(f"{table}: {case.name} rotating_bytes={work.rotating_bytes} other_bytes={work.other_bytes}\n")
        largest = max((work.rotating_bytes + work.other_bytes for work in works), default=0)
        first = sum(case.priority == 0 for case in cases)
        summary.append((table, len(cases), first, largest, NOMINAL_CASE_S * len(cases)))
    for table, count, first, largest, seconds in summary:
        out.write(f"{table}: {count} rows, {first} of them first, at most {largest / 2**30:.2f} GiB, about {seconds:.0f} s\n")
    out.write(f"total: {sum(row[1] for row in summary)} rows, about {sum(row[4] for row in summary):.0f} s, "
              f"stopped after {options.seconds_budget:.0f} s\n")


def command_line(argv):
    """The command for the certificate, without the output folder: a path says nothing to others."""
    kept, skip = [], False
    for word in argv:
        if skip or word.startswith("--out="):
            skip = False
            continue
        skip = word == "--out"
        if not skip:
            kept.append(word)
    return " ".join(["python3 bench_data/measure/measure.py", *kept])


def _fail(message):
    sys.stderr.write(f"error: {message}\n")
    return 1


def prepare(options):
    """(torch, None), or (None, message) where this machine cannot measure."""
    try:
        import torch

        importlib.import_module(options.engine)
    except ImportError as error:
        return None, f"{error.name} is not installed; install it, or use --dry-run to see the grid"
    if options.device == "cuda" and not torch.cuda.is_available():
        return None, (
            "no CUDA device is visible to torch; run this on a machine with an NVIDIA GPU, use --dry-run to see "
            "the grid, or --device cpu --tiny to test the logic (not a measurement)"
        )
    if os.path.isdir(options.out) and os.listdir(options.out):
        return None, f"{options.out} is not empty; give every run a folder of its own"
    return torch, None


def warm_up(torch, seconds=1.0):
    """Bring the clocks up before the first row."""
    x = torch.randn(4096, 4096, device="cuda", dtype=torch.bfloat16)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for _ in range(20):
            x @ x
        torch.cuda.synchronize()


def median(values):
    """The middle one of the known values, None if there is none."""
    known = sorted(value for value in values if value is not None)
    return known[len(known) // 2] if known else None


def birth(torch, options, argv, date):
    """The part of the certificate that is known before the first row."""
    import device

    kind = "measurement" if options.device == "cuda" else "not a measurement"
    certificate = device.certificate(torch, options.device)
    if options.engine == "vllm":
        import vllm

        certificate.update(framework="vLLM", version=vllm.__version__)
    return {"kind": kind, **certificate, "date": date, "command": command_line(argv), "repeats": options.repeats}


def certificate_of(born, statistic, clocks, duration_s, notes, kernel_source, counts):
    """The whole certificate; `clocks` are (SM, memory) pairs in MHz and `counts` sections by table."""
    return {
        **born,
        "sm_clock_mhz": median(sm for sm, _ in clocks), "memory_clock_mhz": median(memory for _, memory in clocks),
        "statistic": statistic, "duration_s": round(duration_s, 1), "notes": notes, "kernel_source": kernel_source,
        **{f"tables.{table}": section for table, section in counts.items()},
    }


def run(options, argv, torch):
    """Measure all tables and write the folder; returns the exit code."""
    import choose
    import device
    from buffers import Arena
    from kernels import Env
    from runner import DeviceLost, deadlines, run_table
    from timing import CudaTimer, HostTimer

    on_gpu = options.device == "cuda"
    os.makedirs(options.out, exist_ok=True)
    timer = CudaTimer(torch, options.repeats) if on_gpu else HostTimer(options.repeats)
    env = Env(torch, options.device, Arena(torch, options.device))
    tables = [table for table in options.tables if table != "allreduce"]
    notes = []
    if "allreduce" in options.tables:
        notes.append("allreduce: not measured, it needs several GPUs and this kit uses one")
    start = time.monotonic()
    date = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
    clocks, spreads, counts, lost = [], [], {}, None
    born = birth(torch, options, argv, date)
    # A run that is killed leaves rows behind: what they are must be known by then.
    writer.write_meta(options.out, {**born, "notes": ["unfinished: the run did not reach its end"]})
    if on_gpu:
        warm_up(torch)
    choose.choose(env, timer, tables, options.dtypes, options.engine)
    notes += choose.refusals(env)
    deadline = deadlines(tables, start, options.seconds_budget)

    def flush(table, outcome):
        if outcome.rows:
            writer.write_table(options.out, table, outcome.rows)
        writer.write_spread(options.out, spreads + outcome.spreads)
        if on_gpu:
            clocks.append(device.clocks_mhz())

    for table in tables:
        cases = grids.cases(table, options.tier, options.dtypes)
        try:
            outcome = run_table(cases, env, timer, deadline(table, time.monotonic()), lambda o: flush(table, o))
        except (DeviceLost, KeyboardInterrupt) as error:
            lost = f"{table}: the run stopped here: {str(error) or type(error).__name__}"
            notes.append(lost)
            break
        spreads += outcome.spreads
        counts[table] = outcome.counts()
        notes += outcome.notes
        sys.stderr.write(f"{table}: {outcome.counts()}\n")
        env.arena.clear()
    meta = certificate_of(
        born, timer.statistic, clocks, time.monotonic() - start, notes, choose.kernel_sources(env, tables), counts
    )
    writer.write_meta(options.out, meta)
    return _fail(lost) if lost else 0


def main(argv=None):
    """Entry point: 0 done, 1 cannot measure here, 2 wrong usage."""
    argv = sys.argv[1:] if argv is None else argv
    options = parse(argv)
    if options.dry_run:
        dry_run(options, sys.stdout)
        return 0
    torch, problem = prepare(options)
    if problem:
        return _fail(problem)
    with torch.inference_mode():
        return run(options, argv, torch)


if __name__ == "__main__":
    sys.exit(main())
