"""Measures the cases of a table one after the other within a time budget, and counts the skipped ones."""

import gc
import time
from dataclasses import dataclass, field

import kernels
from estimates import work_of
from timing import plan_graph

# Share of the time budget per table; what one leaves over goes to those after it.
BUDGET_SHARES = {
    "attention_prefill": 0.22, "attention_decode": 0.26, "attention_mixed": 0.12, "small_kernels": 0.06, "moe": 0.17,
    "gemm": 0.17,
}
_MEMORY_SHARE = 0.8
_FLUSH_EVERY_CASES = 100


class DeviceLost(Exception):
    """The GPU no longer answers because a kernel faulted. Earlier rows stay valid; the run cannot go on."""


@dataclass
class Outcome:
    """Rows of a table, their spreads, and counts of cases by result."""

    rows: list = field(default_factory=list)
    spreads: list = field(default_factory=list)
    planned: int = 0
    too_large: int = 0
    out_of_memory: int = 0
    unsupported: int = 0
    out_of_time: int = 0
    notes: list = field(default_factory=list)

    def counts(self):
        """The section of meta.toml on this table."""
        section = {
            "planned": self.planned, "measured": len(self.rows), "skipped_too_large": self.too_large,
            "skipped_out_of_memory": self.out_of_memory, "skipped_unsupported": self.unsupported,
            "skipped_out_of_time": self.out_of_time,
        }
        if self.spreads:
            relative = sorted((s["p75_us"] - s["p25_us"]) / s["median_us"] for s in self.spreads)
            section["median_spread_pct"] = round(100 * relative[len(relative) // 2], 3)
            section["p90_spread_pct"] = round(100 * relative[int(0.9 * (len(relative) - 1))], 3)
        return section


def is_out_of_memory(error):
    """Whether an exception, or one it was raised from, says that memory ran out."""
    while error is not None:
        if "OutOfMemory" in type(error).__name__ or "out of memory" in str(error).lower():
            return True
        error = error.__cause__ or error.__context__
    return False


def release_memory(env):
    """Free the memory that a failed case holds."""
    env.arena.clear()
    gc.collect()
    if env.device == "cuda":
        env.torch.cuda.empty_cache()


def deadlines(tables, start, budget_s):
    """Function from a table to its deadline, called when the table starts: its share of the remaining time."""
    def deadline(table, now):
        left = tables[tables.index(table):]
        share = BUDGET_SHARES[table] / sum(BUDGET_SHARES[name] for name in left)
        return now + share * max(start + budget_s - now, 0.0)

    return deadline


def device_bytes(env):
    """Memory of the device; a case near it is not even tried."""
    if env.device != "cuda":
        return 2**30
    return env.torch.cuda.mem_get_info()[1]


def trim_cache(env):
    """Return the memory that freed graphs left cached once it grows to half the device, before an allocation fails."""
    if env.device == "cuda" and env.torch.cuda.memory_reserved() > 0.5 * device_bytes(env):
        env.torch.cuda.empty_cache()


def measure_case(case, env, timer):
    """(row, spread) of one case."""
    work = work_of(case)
    plan = plan_graph(work.nominal_us, work.rotating_bytes, timer.l2_bytes)
    built = kernels.build(case, env, plan.copies)
    probed_us = timer.probe_us(built.calls[0])
    # Short kernels probe at the host's launch time, which says nothing; long ones correct the nominal guess.
    if probed_us > max(200.0, work.nominal_us):
        calls = plan_graph(probed_us, work.rotating_bytes, timer.l2_bytes).calls
        plan = type(plan)(calls, min(plan.copies, calls))
    timing = timer.time(built.calls[: plan.copies], plan)
    row = dict(case.key, latency_us=timing.median_us)
    if case.table == "small_kernels":
        row["launches"] = built.launches
    spread = {
        "table": case.table, "row": case.name, "calls_per_graph": plan.calls, "buffer_copies": plan.copies,
        "samples": timing.samples,
    }
    for name in ("min_us", "p25_us", "median_us", "p75_us", "max_us"):
        spread[name] = round(getattr(timing, name), 4)
    return row, spread


def run_table(cases, env, timer, deadline_s, flush):
    """Measure `cases` in order until done or past the deadline; `flush(outcome)` saves the rows so far."""
    outcome = Outcome(planned=len(cases))
    try:
        for index, case in enumerate(cases):
            if time.monotonic() > deadline_s:
                outcome.out_of_time = len(cases) - index
                break
            _one(case, env, timer, outcome)
            if (index + 1) % _FLUSH_EVERY_CASES == 0:
                flush(outcome)
                trim_cache(env)
    finally:
        flush(outcome)
    return outcome


def _one(case, env, timer, outcome):
    work = work_of(case)
    if work.rotating_bytes + work.other_bytes > _MEMORY_SHARE * device_bytes(env):
        outcome.too_large += 1
        return
    try:
        row, spread = measure_case(case, env, timer)
    except kernels.Unsupported as error:
        outcome.unsupported += 1
        _note(outcome, case, error)
    except Exception as error:  # noqa: BLE001: one bad shape must not end a run
        if is_out_of_memory(error):
            outcome.out_of_memory += 1
            del error
            release_memory(env)
        else:
            outcome.unsupported += 1
            _note(outcome, case, error)
        _require_device(env, outcome)
    else:
        outcome.rows.append(row)
        outcome.spreads.append(spread)


def _note(outcome, case, error):
    lines = str(error).strip().splitlines()
    text = f"{case.table}: {type(error).__name__}: {lines[0][:200] if lines else ''}"
    if text not in outcome.notes and len(outcome.notes) < 10:
        outcome.notes.append(text)


def _require_device(env, outcome):
    if env.device != "cuda":
        return
    try:
        env.torch.cuda.synchronize()
    except RuntimeError as error:
        raise DeviceLost(f"{error}".splitlines()[0]) from error
