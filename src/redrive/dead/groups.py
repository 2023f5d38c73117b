"""Groups: letters of one cause, counted. Bounded, however many letters there are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Final

from redrive.dead.letter import Letter
from redrive.dead.showing import See, Seen
from redrive.dead.states import State
from redrive.tuning import DEAD_GROUPS, DEAD_PATTERNS

OTHERS: Final = "(others)"


@dataclass(slots=True)
class Group:
    """Letters of one cause."""

    id: str
    reason: str | None = None
    error_type: str | None = None
    count: int = 0
    states: Counter[str] = field(default_factory=Counter)
    first: int | None = None
    """When the first of them died, in milliseconds since 1970."""
    last: int | None = None
    topics: Counter[str] = field(default_factory=Counter)
    """Where they come from."""
    patterns: Counter[str] = field(default_factory=Counter)
    """Their messages, without what differs from letter to letter."""
    example: str = ""
    """The place of one of them: the last one that was seen."""

    def add(self, seen: Seen, state: State) -> None:
        """Count one letter."""
        letter = seen.letter
        self.count += 1
        self.states[state] += 1
        died = letter.died
        if died is not None:
            self.first = died if self.first is None else min(self.first, died)
            self.last = died if self.last is None else max(self.last, died)
        _count(self.topics, letter.origin_topic or "(unknown)")
        _count(self.patterns, seen.pattern)
        self.example = letter.place

    def merge(self, other: Group) -> None:
        """Count what another process has counted of the same group."""
        self.count += other.count
        self.states += other.states
        self.first = pick(min, self.first, other.first)
        self.last = pick(max, self.last, other.last)
        for mine, theirs in ((self.topics, other.topics), (self.patterns, other.patterns)):
            for name, count in theirs.items():
                _count(mine, name, count)
        self.example = other.example

    def as_data(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "group": self.id,
            "reason": self.reason,
            "error_type": self.error_type,
            "count": self.count,
            "states": dict(self.states),
            "first": self.first,
            "last": self.last,
            "topics": dict(self.topics.most_common()),
            "patterns": dict(self.patterns.most_common()),
            "example": self.example,
        }

    @classmethod
    def of(cls, data: dict[str, Any]) -> Group:
        """And back."""
        counted: dict[str, Any] = {
            name: Counter(data[name]) for name in ("states", "topics", "patterns")
        }
        rest = {name: value for name, value in data.items() if name != "group"}
        return cls(data["group"], **{**rest, **counted})


class Groups:
    """Counts letters by group: what may be seen of them, and nothing else."""

    def __init__(self, see: See) -> None:
        """`see`: what may be seen of a letter; `DeadLetters.seen`, or `Seen` where all may."""
        self._see = see
        self._found: dict[str, Group] = {}

    def __len__(self) -> int:
        return len(self._found)

    def add(self, letter: Letter, state: State) -> Group:
        """Count one letter; returns the group that has it now."""
        return self.add_seen(self._see(letter), state)

    def add_seen(self, seen: Seen, state: State) -> Group:
        """The same, for whoever has looked at the letter before."""
        group = self._of(seen.letter.group, seen.reason, seen.error_type)
        group.add(seen, state)
        return group

    def merge(self, groups: Iterable[Group]) -> None:
        """Count what another process has counted."""
        for each in groups:
            self._of(each.id, each.reason, each.error_type).merge(each)

    def largest_first(self) -> list[Group]:
        """All of them; those that many letters are in first."""
        return sorted(self._found.values(), key=lambda group: (-group.count, group.id))

    def _of(self, group_id: str, reason: str | None, error_type: str | None) -> Group:
        found = self._found.get(group_id)
        if found is None:
            if len(self._found) >= DEAD_GROUPS:
                group_id, reason, error_type = OTHERS, None, None
            found = self._found.setdefault(group_id, Group(group_id, reason, error_type))
        return found


def pick(choose: Callable[[Iterable[int]], int], one: int | None, other: int | None) -> int | None:
    """The smaller or larger one of two times, as far as they are known."""
    known = [each for each in (one, other) if each is not None]
    return choose(known) if known else None


def _count(counter: Counter[str], name: str, count: int = 1) -> None:
    if name not in counter and len(counter) >= DEAD_PATTERNS:
        name = OTHERS
    counter[name] += count
