"""What Kafka refuses is held back for a while: not lost, not retried constantly, not in the way.

As little as the order allows is held: a topic that cannot be written to, the aggregate of a refused
record, or a single record without a key.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple

from redrive.record import Write
from redrive.tuning import MOST_HELD_OF_A_TOPIC, REFUSED_ROW_FIRST_WAIT, REFUSED_ROW_LONGEST_WAIT


class Taken(NamedTuple):
    """One row of the outbox, and what is to be published of it."""

    number: int
    write: Write


class Excluded(NamedTuple):
    """What not to take for now."""

    topics: frozenset[str]
    keys: frozenset[tuple[str, bytes]]
    rows: frozenset[int]


_Thing = str | tuple[str, bytes] | int


@dataclass
class _Hold:
    topic: str
    reason: str
    wait: float
    until: float


class HeldBack:
    """Which rows are held back, why, and until when."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._holds: dict[_Thing, _Hold] = {}

    def hold_topic(self, topic: str, reason: str) -> bool:
        """Hold this topic; returns whether that is new."""
        return self._hold(topic, topic, reason)

    def hold(self, taken: Taken, reason: str) -> bool:
        """Hold this row's aggregate; returns whether that is new."""
        number, write = taken
        alike = Counter(hold.topic for hold in self._holds.values())
        if alike[write.topic] >= MOST_HELD_OF_A_TOPIC:
            return self.hold_topic(write.topic, f"many are refused, the latest: {reason}")
        thing: _Thing = number if write.key is None else (write.topic, write.key)
        return self._hold(thing, write.topic, reason)

    def published(self, taken: Iterable[Taken]) -> None:
        """These were accepted after all: release what was held."""
        if not self._holds:
            return
        for number, write in taken:
            for thing in (write.topic, (write.topic, write.key or b""), number):
                self._holds.pop(thing, None)

    def now(self) -> Excluded:
        """What is held at this time; what is due is tried again."""
        now = self._clock()
        things = [thing for thing, hold in self._holds.items() if hold.until > now]
        return Excluded(
            frozenset(thing for thing in things if isinstance(thing, str)),
            frozenset(thing for thing in things if isinstance(thing, tuple)),
            frozenset(thing for thing in things if isinstance(thing, int)),
        )

    def reasons(self) -> dict[str, tuple[int, str]]:
        """By topic: how many things are held there, and the latest reason."""
        found: dict[str, tuple[int, str]] = {}
        for hold in list(self._holds.values()):
            found[hold.topic] = (found.get(hold.topic, (0, ""))[0] + 1, hold.reason)
        return found

    def _hold(self, thing: _Thing, topic: str, reason: str) -> bool:
        before = self._holds.get(thing)
        if before is not None and before.until > self._clock():
            return False  # another row of the same attempt
        wait = (
            REFUSED_ROW_FIRST_WAIT
            if before is None
            else min(2 * before.wait, REFUSED_ROW_LONGEST_WAIT)
        )
        self._holds[thing] = _Hold(topic, reason, wait, self._clock() + wait)
        return before is None
