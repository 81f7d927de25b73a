"""The description of the machine for the birth certificate. It only reads: no clock or power setting is changed."""

import os
import subprocess


def nvidia_smi(fields):
    """Values of `nvidia-smi --query-gpu` for the first visible GPU as strings; absent ones are left out."""
    command = ["nvidia-smi", "--query-gpu=" + ",".join(fields), "--format=csv,noheader,nounits"]
    first = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")[0].strip()
    if first:
        command.append("--id=" + first)
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):
        return {}
    return parse_row(fields, done.stdout)


def parse_row(fields, text):
    """The first line of nvidia-smi's csv as a dict without the unknown values ('[N/A]')."""
    lines = text.strip().splitlines()
    if not lines:
        return {}
    values = [value.strip() for value in lines[0].split(",")]
    if len(values) != len(fields):
        return {}
    return {field: value for field, value in zip(fields, values) if value and not value.startswith("[")}


def clocks_mhz():
    """(SM clock, memory clock) right now, None where unknown; read just after work, before the card idles."""
    row = nvidia_smi(("clocks.sm", "clocks.mem"))
    return tuple(int(row[name]) if row.get(name, "").isdigit() else None for name in ("clocks.sm", "clocks.mem"))


def _number(text, kind):
    """The number in a text of nvidia-smi; None if it is absent or not a number."""
    try:
        return kind(text) if text is not None else None
    except ValueError:
        return None


def certificate(torch, device):
    """The part of meta.toml that describes software and card; None stands for an unknown value."""
    if device == "cpu":
        return {"framework": "torch", "version": torch.__version__, "device": "cpu"}
    properties = torch.cuda.get_device_properties(0)
    row = nvidia_smi(("driver_version", "power.limit", "clocks.max.sm"))
    return {
        "framework": "torch",
        "version": torch.__version__,
        "device": torch.cuda.get_device_name(0),
        "compute_capability": "{}.{}".format(*torch.cuda.get_device_capability(0)),
        "multiprocessors": properties.multi_processor_count,
        "memory_bytes": properties.total_memory,
        "l2_bytes": getattr(properties, "L2_cache_size", None),
        "driver": row.get("driver_version"),
        "cuda": torch.version.cuda,
        "power_limit_watt": _number(row.get("power.limit"), float),
        "max_sm_clock_mhz": _number(row.get("clocks.max.sm"), int),
    }
