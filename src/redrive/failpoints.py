"""Points between durable steps, at which `redrive prove` kills or stops a process.

When off, a point is a call of a function that does nothing, once per flush or commit. No setting
and no environment variable turns them on: only code that calls `arm`, and only the app that
`redrive prove` runs does that.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

Point = Literal["after-work", "after-produce", "after-database-commit"]
Prepare = Callable[[], object]
Hit = Callable[[Point, Prepare | None], None]


def _nothing(_: Point, __: Prepare | None) -> None:
    pass


_hit: Hit = _nothing


def hit(point: Point, prepare: Prepare | None = None) -> None:
    """The process is at a point; if armed, `prepare` first makes earlier steps durable."""
    _hit(point, prepare)


def arm(act: Hit) -> None:
    """Set what happens at the points of this process."""
    global _hit  # noqa: PLW0603 -- one process, one act
    _hit = act
