"""Stats: how many letters, of which kinds, and when they died. Bounded."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final

from redrive.dead.groups import OTHERS, pick
from redrive.dead.showing import Seen
from redrive.dead.states import State
from redrive.tuning import DEAD_GROUPS

HOUR: Final = 3_600_000


@dataclass
class Stats:
    """Letters, counted by what an operator asks first."""

    letters: int = 0
    bytes: int = 0
    first: int | None = None
    last: int | None = None
    states: Counter[str] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)
    errors: Counter[str] = field(default_factory=Counter)
    topics: Counter[str] = field(default_factory=Counter)
    dialects: Counter[str] = field(default_factory=Counter)
    hours: Counter[int] = field(default_factory=Counter)
    """By the hour in which they died, in milliseconds since 1970."""

    def add(self, seen: Seen, state: State) -> None:
        """Count one letter."""
        letter = seen.letter
        self.letters += 1
        self.bytes += letter.record.size
        self.states[state] += 1
        died = letter.died
        if died is not None:
            self.first = died if self.first is None else min(self.first, died)
            self.last = died if self.last is None else max(self.last, died)
            _count(self.hours, died // HOUR * HOUR, -1)
        _count(self.reasons, seen.reason or "(none)", OTHERS)
        _count(self.errors, seen.error_type or "(none)", OTHERS)
        _count(self.topics, letter.origin_topic or "(unknown)", OTHERS)
        self.dialects[letter.dialect.name] += 1

    def merge(self, others: Iterable[Stats]) -> None:
        """Count what other processes have counted."""
        for each in others:
            self.letters += each.letters
            self.bytes += each.bytes
            self.first = pick(min, self.first, each.first)
            self.last = pick(max, self.last, each.last)
            for name in ("states", "reasons", "errors", "topics", "dialects", "hours"):
                rest: object = -1 if name == "hours" else OTHERS
                for word, count in getattr(each, name).items():
                    _count(getattr(self, name), word, rest, count)

    def as_data(self) -> dict[str, Any]:
        """For JSON."""
        counted = ("states", "reasons", "errors", "topics", "dialects", "hours")
        return {
            "letters": self.letters,
            "bytes": self.bytes,
            "first": self.first,
            "last": self.last,
            **{name: dict(getattr(self, name).most_common()) for name in counted},
        }

    @classmethod
    def of(cls, data: dict[str, Any]) -> Stats:
        """And back."""
        made = cls(data["letters"], data["bytes"], data["first"], data["last"])
        for name in ("states", "reasons", "errors", "topics", "dialects"):
            setattr(made, name, Counter(data[name]))
        made.hours = Counter({int(hour): count for hour, count in data["hours"].items()})
        return made


def _count(counter: Counter[Any], name: object, others: object, count: int = 1) -> None:
    counter[name if name in counter or len(counter) < DEAD_GROUPS else others] += count
