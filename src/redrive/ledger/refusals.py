"""What Kafka refuses is held back for a while: not lost, not tried all the time, not in the way.

Held is as little as the order allows: a topic that cannot be written to, one aggregate behind a
record that is refused, or one record without key.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final, NamedTuple

from redrive.record import Write

FIRST_WAIT: Final = 1.0
LONGEST_WAIT: Final = 60.0
"""Seconds until what was refused is tried again: doubled each time, up to the second."""

MOST_OF_A_TOPIC: Final = 500
"""So many aggregates of one topic are held one by one; with more, the topic is."""


class Taken(NamedTuple):
    """One row of the outbox, and what is to be published of it."""

    number: int
    write: Write


class Held(NamedTuple):
    """What is not taken for now."""

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


class Refusals:
    """Which rows are held back, why, and until when."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._holds: dict[_Thing, _Hold] = {}

    def hold_topic(self, topic: str, reason: str) -> bool:
        """Nothing is taken for this topic; gives whether that is news."""
        return self._hold(topic, topic, reason)

    def hold(self, taken: Taken, reason: str) -> bool:
        """Nothing is taken of this row's aggregate; gives whether that is news."""
        number, write = taken
        alike = Counter(hold.topic for hold in self._holds.values())
        if alike[write.topic] >= MOST_OF_A_TOPIC:
            return self.hold_topic(write.topic, f"many are refused, at last: {reason}")
        thing: _Thing = number if write.key is None else (write.topic, write.key)
        return self._hold(thing, write.topic, reason)

    def published(self, taken: Iterable[Taken]) -> None:
        """These were taken after all: what had been held is free again."""
        if not self._holds:
            return
        for number, write in taken:
            for thing in (write.topic, (write.topic, write.key or b""), number):
                self._holds.pop(thing, None)

    def now(self) -> Held:
        """What is held at this time; what is due is tried again."""
        now = self._clock()
        things = [thing for thing, hold in self._holds.items() if hold.until > now]
        return Held(
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
        wait = FIRST_WAIT if before is None else min(2 * before.wait, LONGEST_WAIT)
        self._holds[thing] = _Hold(topic, reason, wait, self._clock() + wait)
        return before is None
