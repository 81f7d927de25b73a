"""The files a run leaves behind: csv tables, `spread.csv` and the birth certificate `meta.toml`.

Pure Python, no torch. `COLUMNS`, `META_KEYS` and `COUNT_KEYS` are the contract with the reader in `ridgepoint
calibrate`, which refuses any other name. Every file is written under a temporary name and renamed, so a reader
never sees half a file.
"""

import csv
import math
import os
import tempfile

COLUMNS = {
    "gemm": ("dtype", "m", "n", "k", "latency_us"),
    "attention_prefill": (
        "num_heads", "num_kv_heads", "head_dim", "kv_cache_dtype", "window_size",
        "batch_size", "num_scheduled_tokens", "num_computed_tokens", "latency_us",
    ),
    "attention_decode": (
        "num_heads", "num_kv_heads", "head_dim", "kv_cache_dtype", "window_size",
        "batch_size", "kv_tokens_total", "kv_tokens_max", "latency_us",
    ),
    "attention_mixed": (
        "num_heads", "num_kv_heads", "head_dim", "kv_cache_dtype", "window_size", "num_prefills",
        "num_scheduled_tokens", "num_computed_tokens", "num_decodes", "kv_tokens_total", "latency_us",
    ),
    "moe": (
        "dtype", "num_tokens", "hidden_size", "intermediate_size", "top_k", "num_experts",
        "moe_tp_size", "moe_ep_size", "distribution", "latency_us",
    ),
    "small_kernels": ("kernel", "num_tokens", "width", "launches", "latency_us"),
}

# Keys of meta.toml; all but `notes`, a list of texts, hold one value.
META_KEYS = (
    "kind", "framework", "version", "device", "compute_capability", "multiprocessors", "memory_bytes", "l2_bytes",
    "driver", "cuda", "power_limit_watt", "max_sm_clock_mhz", "sm_clock_mhz", "memory_clock_mhz", "date", "command",
    "repeats", "statistic", "duration_s", "notes",
)
# Keys of its sections `[tables.<table>]`; the section `[kernel_source]` has the tables' names as keys.
COUNT_KEYS = (
    "planned", "measured", "skipped_too_large", "skipped_out_of_memory", "skipped_unsupported", "skipped_out_of_time",
    "median_spread_pct", "p90_spread_pct",
)

SPREAD_COLUMNS = (
    "table", "row", "calls_per_graph", "buffer_copies", "samples",
    "min_us", "p25_us", "median_us", "p75_us", "max_us",
)


def write_atomically(path, text):
    """Write `text` to a temporary neighbour of `path`, flush it to disk and rename it into place."""
    folder = os.path.dirname(os.path.abspath(path))
    handle, temporary = tempfile.mkstemp(dir=folder, prefix="." + os.path.basename(path) + ".", suffix=".tmp")
    try:
        with os.fdopen(handle, "w", encoding="utf-8", newline="") as out:
            out.write(text)
            out.flush()
            os.fsync(out.fileno())
        # mkstemp makes the file private to its owner; a result is meant to be shared.
        umask = os.umask(0)
        os.umask(umask)
        os.chmod(temporary, 0o666 & ~umask)
        os.replace(temporary, path)
    except BaseException:
        if os.path.exists(temporary):
            os.unlink(temporary)
        raise


def _csv_text(columns, rows):
    class Sink(list):
        def write(self, piece):
            self.append(piece)

    sink = Sink()
    writer = csv.writer(sink, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(rows)
    return "".join(sink)


def _check_row(table, row):
    columns = COLUMNS[table]
    if set(row) != set(columns):
        missing = sorted(set(columns) - set(row))
        unknown = sorted(set(row) - set(columns))
        raise ValueError(f"{table}.csv: row {row} lacks columns {missing} and has unknown columns {unknown}")
    latency_us = row["latency_us"]
    if not (math.isfinite(latency_us) and latency_us > 0.0):
        raise ValueError(f"{table}.csv: latency_us must be finite and positive, found {latency_us} in {row}")


def write_table(folder, table, rows):
    """Write `<table>.csv` sorted by key; refuse wrong columns, non-positive times and duplicate keys."""
    columns = COLUMNS[table]
    seen = {}
    for row in rows:
        _check_row(table, row)
        key = tuple(row[name] for name in columns[:-1])
        if key in seen:
            raise ValueError(f"{table}.csv: key {key} measured twice: {seen[key]} and {row['latency_us']}")
        seen[key] = row["latency_us"]
    ordered = [(*key, f"{seen[key]:.4f}") for key in sorted(seen)]
    path = os.path.join(folder, table + ".csv")
    write_atomically(path, _csv_text(columns, ordered))
    return path


def write_spread(folder, rows):
    """Write `spread.csv`: one line per measured row with the quantiles of its samples."""
    lines = [[row[name] for name in SPREAD_COLUMNS] for row in rows]
    path = os.path.join(folder, "spread.csv")
    write_atomically(path, _csv_text(SPREAD_COLUMNS, lines))
    return path


def _toml_value(value):
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ValueError(f"meta.toml takes finite numbers only, found {value}")
        return repr(value)
    if isinstance(value, (list, tuple)):
        if not value:
            return "[]"
        return "[\n" + "".join(f"    {_toml_value(item)},\n" for item in value) + "]"
    return '"' + "".join(_toml_char(char) for char in str(value)) + '"'


def _toml_char(char):
    if char in '"\\':
        return "\\" + char
    if ord(char) < 0x20 or ord(char) == 0x7F:
        return f"\\u{ord(char):04x}"
    return char


def meta_text(meta):
    """`meta.toml` as text: plain values first, then one section per nested dict; `None` is left out."""
    plain, sections = [], []
    for key, value in meta.items():
        if isinstance(value, dict):
            sections.append((key, value))
        elif value is not None:
            plain.append(f"{key} = {_toml_value(value)}\n")
    text = "".join(plain)
    for name, section in sections:
        text += f"\n[{name}]\n"
        text += "".join(f"{key} = {_toml_value(value)}\n" for key, value in section.items() if value is not None)
    return text


def _unknown_keys(meta):
    for key, value in meta.items():
        section, _, table = key.partition(".")
        if not isinstance(value, dict):
            known = META_KEYS
            names = [key]
        elif table:
            known = COUNT_KEYS if section == "tables" and table in COLUMNS else ()
            names = list(value)
        else:
            known = tuple(COLUMNS) if section == "kernel_source" else ()
            names = list(value)
        yield from (f"{key}.{name}" if isinstance(value, dict) else name for name in names if name not in known)


def write_meta(folder, meta):
    """Write the birth certificate of a run; section names may hold dots (`tables.gemm`). Refuses unknown keys."""
    unknown = list(_unknown_keys(meta))
    if unknown:
        raise ValueError(f"meta.toml: {', '.join(unknown)}: not among the keys that the reader knows")
    path = os.path.join(folder, "meta.toml")
    write_atomically(path, meta_text(meta))
    return path
