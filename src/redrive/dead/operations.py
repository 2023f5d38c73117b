"""Operations: what operators do about dead letters, each with who, when and why.

An operation that replays letters is a job: it knows how far it has come, and goes on from
there whoever goes on with it.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from datetime import UTC, datetime
from typing import Any, Final, Literal

from redrive.dead.filters import Filter
from redrive.dead.masking import MASK

Kind = Literal["replay", "discard", "rewind"]
"""`rewind`: not letters, but records of source topics are handled again."""
Status = Literal["running", "paused", "stopped", "cancelled", "done"]
"""`stopped`: by itself, as too many letters died again."""
UNFINISHED: Final = ("running", "paused", "stopped")
DONE: Final[Mapping[str, str]] = {
    "replay": "sent",
    "discard": "discarded",
    "rewind": "rewound",
}
"""What is counted for letters that an operation has dealt with."""
_OF_LETTERS: Final = ("text", "keys", "ids", "headers")
"""What filters name of the letters themselves."""
_OF_RECORDS: Final = ("keys", "edited")
"""The same of options."""
_OUTCOME: Final[Mapping[str, str]] = {
    "replay": "replayed",
    "discard": "discarded",
    "rewind": "are handled again",
}


@dataclass(frozen=True, kw_only=True)
class Operation:
    """One operation on the letters of one dead topic, or on the records that an app has handled."""

    id: str
    kind: Kind
    by: str
    at: int
    """When it began, in milliseconds since 1970."""
    why: str = ""
    app: str | None = None
    """The app whose letters they are; "" if nobody has named one."""
    dialect: str = "auto"
    """How their headers are read."""
    status: Status = "running"
    said: str = ""
    """Why it is in that state, and who has put it there."""
    updated: int = 0
    topic_id: str = ""
    """The id of the dead topic: offsets mean nothing in one that was recreated."""
    filter: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    """How a replay is done: fix, rate, ramp, and so on."""
    ends: Mapping[str, int] = field(default_factory=dict)
    """By partition, the offset after the last letter that it is about: taken at its start."""
    cursor: Mapping[str, int] = field(default_factory=dict)
    """By partition, the first offset that it has not looked at."""
    counts: Mapping[str, int] = field(default_factory=dict)
    """`sent`, `discarded` or `rewound`, and those that were left out, by reason."""
    run: str = ""
    """Of one that is done in shards: tells those of this run from earlier ones. Its cursor and its
    counts are then those from before; what has been done since is with the shards."""
    too_many_failed: bool = False
    """Whether it came to its end, but more copies failed again than `stop_above` allows."""
    closed: bool = False
    """Whether its shards have to stop: no new one may begin."""

    @property
    def unfinished(self) -> bool:
        """Whether it can go on."""
        return self.status in UNFINISHED

    @property
    def outcome(self) -> str:
        """What became of those that it has dealt with, for people."""
        return _OUTCOME[self.kind]

    @property
    def about(self) -> str:
        """What it is about, in a word."""
        return "records" if self.kind == "rewind" else "letters"

    def resumed_by(self, named: str) -> str:
        """The command that continues it, given how one names the letters."""
        command = "redrive rewind" if self.kind == "rewind" else "redrive dead jobs"
        return f"{command} {named} --resume {self.id}"

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
        counted = (*DONE.values(), "deleted", "forgotten")
        return {why: count for why, count in self.counts.items() if why not in counted}

    def without_values(self) -> Operation:
        """As people may see it who may not see all of its letters.

        Whoever ran a command may have named a letter by what is masked in it.
        """
        if self.letters.as_seen:
            return self
        named = {name: _hidden(each) for name, each in self.filter.items() if name in _OF_LETTERS}
        given = {name: _hidden(each) for name, each in self.options.items() if name in _OF_RECORDS}
        return self.change(filter={**self.filter, **named}, options={**self.options, **given})

    def as_data(self) -> dict[str, Any]:
        """As it is written to the state topic, and for JSON."""
        return asdict(self)

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> Operation:
        """And back; what a newer version of redrive has added is left out."""
        known = {each.name for each in fields(cls)}
        return cls(**{name: value for name, value in data.items() if name in known})


def _hidden(value: Any) -> Any:
    return MASK if isinstance(value, str) else [MASK] * len(value)


def new_id(kind: Kind, now: int) -> str:
    """An id that sorts by time: `replay-20250701-120816-3f2a`."""
    at = datetime.fromtimestamp(now / 1000, UTC)
    return f"{kind}-{at:%Y%m%d-%H%M%S}-{secrets.token_hex(2)}"
