"""Operations: what operators do about dead letters, each with who, when and why.

An operation that drives letters again is a job: it knows how far it has come, and goes on from
there whoever goes on with it.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from datetime import UTC, datetime
from typing import Any, Final, Literal

from redrive.dead.filters import Filter

Kind = Literal["replay", "discard"]
Status = Literal["running", "paused", "stopped", "cancelled", "done"]
"""`stopped`: by itself, as too many letters died again."""
UNFINISHED: Final = ("running", "paused", "stopped")
DONE: Final[Mapping[str, str]] = {"replay": "sent", "discard": "discarded"}
"""What is counted for letters that an operation has dealt with."""


@dataclass(frozen=True, kw_only=True)
class Operation:
    """One operation on the letters of one dead topic."""

    id: str
    kind: Kind
    by: str
    at: int
    """When it began, in milliseconds since 1970."""
    why: str = ""
    status: Status = "running"
    said: str = ""
    """Why it is in that state, and who has put it there."""
    updated: int = 0
    topic_id: str = ""
    """The id of the dead topic: offsets mean nothing in one that was created again."""
    filter: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    """How a replay is done: fix, rate, ramp, and so on."""
    ends: Mapping[str, int] = field(default_factory=dict)
    """By partition, the offset after the last letter that it is about: taken at its start."""
    cursor: Mapping[str, int] = field(default_factory=dict)
    """By partition, the first offset that it has not looked at."""
    counts: Mapping[str, int] = field(default_factory=dict)
    """`sent` or `discarded`, and those that were left out, by reason."""

    @property
    def unfinished(self) -> bool:
        """Whether it can go on."""
        return self.status in UNFINISHED

    @property
    def letters(self) -> Filter:
        """Which letters it is about."""
        return Filter.of(self.filter)

    @property
    def left(self) -> int:
        """How many offsets it has not looked at: no fewer than letters."""
        return sum(end - self.cursor.get(place, 0) for place, end in self.ends.items())

    def change(self, **changes: Any) -> Operation:
        """A copy with some fields changed."""
        return replace(self, **changes)

    @property
    def done(self) -> int:
        """How many letters it has dealt with."""
        return self.counts.get(DONE[self.kind], 0)

    @property
    def left_out(self) -> dict[str, int]:
        """How many it has left out, by reason."""
        counted = (*DONE.values(), "deleted")
        return {why: count for why, count in self.counts.items() if why not in counted}

    def as_data(self) -> dict[str, Any]:
        """As it is written to the state topic, and for JSON."""
        return asdict(self)

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> Operation:
        """And back; what a newer version of redrive has added is left out."""
        known = {each.name for each in fields(cls)}
        return cls(**{name: value for name, value in data.items() if name in known})


def new_id(kind: Kind, now: int) -> str:
    """An id that sorts by time: `replay-20250701-120816-3f2a`."""
    at = datetime.fromtimestamp(now / 1000, UTC)
    return f"{kind}-{at:%Y%m%d-%H%M%S}-{secrets.token_hex(2)}"
