"""Probing: which record kills the Python worker? Found by halves, buried only on proof.

A worker that dies leaves no word behind. So what is tried next is written down before it is tried:
in the metadata of the committed offset, as `p1:<size>:<deaths>`. A task attempt that finds it there
follows one that died while trying: it halves the size, and a single record whose worker died twice
is the proof. The first attempt of a task knows nothing of its predecessors (a cancelled job, a
killed driver), and `p1:<size>` is a size that nobody has tried yet: both prove nothing.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

SUSPICIOUS: Final = 2
"""So many attempts of a task have to die before its range is probed."""
PROOF: Final = 2
"""So often a worker has to die with one record alone before that is buried."""
_STATE: Final = re.compile(r"p1:(\d{1,18})(?::(\d{1,4}))?")


@dataclass(frozen=True, slots=True)
class Probe:
    """The next records to try alone, and how often a worker died with them."""

    size: int
    deaths: int = 0
    tried: bool = False
    """Whether somebody had begun with them when it was written down."""

    @property
    def proven(self) -> bool:
        """Whether the single record is known to kill."""
        return self.size == 1 and self.deaths >= PROOF

    @property
    def metadata(self) -> str:
        """What is committed before the records are tried."""
        return f"p1:{self.size}:{self.deaths}"

    @property
    def onward(self) -> str:
        """What is committed when they were harmless, for those behind them."""
        return f"p1:{self.size}"


def read(metadata: str) -> Probe | None:
    """The probe that was under way when this was committed."""
    found = _STATE.fullmatch(metadata)
    if found is None or not int(found[1]):
        return None
    return Probe(int(found[1]), int(found[2] or 0), tried=found[2] is not None)


def begin(metadata: str, attempt: int, size: int) -> Probe | None:
    """How a task attempt begins: with a probe, or without.

    `metadata` is what is committed now; `attempt` is 0 for the first attempt of a task: only later
    ones know that a predecessor died.
    """
    under_way = read(metadata)
    if under_way is None:
        return Probe(_half(size)) if attempt >= SUSPICIOUS else None
    if attempt == 0 or not under_way.tried:
        return under_way
    if under_way.size > 1:
        return Probe(_half(under_way.size))
    return Probe(1, under_way.deaths + 1)


def _half(size: int) -> int:
    return max(1, size // 2)
