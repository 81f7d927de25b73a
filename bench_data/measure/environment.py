"""The objects that builders of calls share: the environment, a built case, and the implementation chosen for it."""

from dataclasses import dataclass, field


class Unsupported(Exception):
    """This torch or this device cannot run the case; the message says what is missing."""


@dataclass
class Built:
    """Calls to time, one per buffer copy, and how many kernels one call launches (None: not counted)."""

    calls: list
    launches: int = None


@dataclass
class Env:
    """Torch, the device, the arena, and the implementation chosen per table and dtype."""

    torch: object
    device: str
    arena: object
    chosen: dict = field(default_factory=dict)
    refused: dict = field(default_factory=dict)


def implementation(env, *what):
    """Name of the implementation chosen for a table and dtype; raises `Unsupported` if none passed its check."""
    name = env.chosen.get(what)
    if name is None:
        reasons = "; ".join(env.refused.get(what, ())) or "no implementation"
        raise Unsupported(f"{' '.join(what)}: {reasons}")
    return name
