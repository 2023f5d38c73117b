"""TaskGuards: the guards of one task. It holds what fails, and tells; it decides little by itself.

Where its own records are enough it sees that there is an outage, and ends early; or that others
pass, and the policy decides. All else is decided by the book, which knows all tasks of both lanes.
During an outage it lets so many records out as it was given: the book says what follows from it.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Sequence
from hashlib import sha256
from typing import TYPE_CHECKING

from redrive.breaker import Breaker
from redrive.engines.spark.outages.told import Held, LetOut, Looked, Token, Told
from redrive.processing.outcomes.guard_log import GuardLog
from redrive.processing.outcomes.guards import FingerprintOf, Guards
from redrive.processing.work import Work
from redrive.record import TopicPartition
from redrive.tuning import GUARD_LOOK, GUARD_PASSING_KEPT

if TYPE_CHECKING:
    from redrive.engines.spark.ranges import Guarded, Range
    from redrive.guard import Guard
    from redrive.handler import Handler


class TaskGuards(Guards):
    """The guards of the task that runs in this process."""

    def __init__(
        self,
        handlers: Iterable[Handler],
        concurrency: int,
        fingerprint: FingerprintOf,
        steady: Callable[[int], int],
    ) -> None:
        super().__init__(handlers, concurrency, fingerprint, steady)
        self.log = _Silent()
        self._given: dict[str, dict[TopicPartition, Guarded]] = {}
        """What was planned, by handler and partition."""
        self._lanes: dict[str, int | None] = {}
        self._looked: dict[str, list[Looked]] = {}
        self._passing: dict[str, deque[tuple[int, int]]] = {}
        """How many calls have succeeded when."""
        self._failed: dict[str, list[Token]] = {}
        """Whose failures an outage was seen by."""
        self._stopped: int | None = None
        """When it was found that another task has seen an outage."""

    def begin(self, ranges: Sequence[Range], concurrency: int, now: int) -> None:
        """Forget what the task before has seen, and go by what was planned."""
        moved = now - self.steady(now)
        self.log = _Silent()
        self._failures.clear()
        self._own.clear()
        self._given.clear()
        self._lanes.clear()
        self._looked, self._failed = {}, {}
        self._passing.clear()
        self._stopped = None
        for each in ranges:
            for guarded in each.guarded:
                self._given.setdefault(guarded.topic, {})[each.place] = guarded
        for topic, breaker in self.breakers.items():
            given = [*self._given.get(topic, {}).values()]
            made: Breaker[Work] = Breaker(breaker.guard, concurrency)
            if given and given[0].is_shut:
                made = Ration(breaker.guard, self._rations(topic))
            if given:
                made.opened = given[0].opened - moved
                made.ended = None if given[0].ended is None else given[0].ended - moved
            self.breakers[topic] = made

    def _rations(self, topic: str) -> Counter[TopicPartition]:
        return Counter({place: each.ration for place, each in self._given[topic].items()})

    # As guards of one process, but for what others decide

    def failed(self, work: Work, error: BaseException, now: int) -> int | None:
        """As before; but what the book has found to be the record's own is its policy's."""
        given = self._given.get(work.handler.topic, {}).get(work.assigned.place)
        if given is not None and work.offset in given.own:
            breaker = self.breakers[work.handler.topic]
            if breaker.guard.sees_outage(error):
                with self._lock:
                    breaker.let_out_ended(work, self.steady(now))
                return None
        return super().failed(work, error, now)

    def have_passed(self, topic: str, count: int, works: Iterable[Work], now: int) -> None:
        """As before; it is told, too, for tasks that see nothing but failures."""
        if topic in self.breakers:
            at = self.steady(now) // GUARD_LOOK * GUARD_LOOK
            seen = self._passing.setdefault(topic, deque(maxlen=GUARD_PASSING_KEPT))
            before = seen.pop()[1] if seen and seen[-1][0] == at else 0
            seen.append((at, before + count))
        super().have_passed(topic, count, works, now)

    def take_held(self, topic: str) -> list[Work]:
        """As before; whose failures these were is told."""
        held = super().take_held(topic)
        self._failed[topic] = [token_of(work) for work in held]
        return held

    def look(self, topic: str, now: int, *, stalled: bool, lanes: int | None = None) -> list[Work]:
        """As before; but where others may know more, nothing is decided because nothing moves."""
        self._lanes[topic] = lanes
        if any(not each.alone for each in self._given.get(topic, {}).values()):
            return super().look(topic, now, stalled=False)
        return super().look(topic, now, stalled=stalled, lanes=lanes)

    def waits_since(self, work: Work, since: int) -> int:
        """Since when it is due: another task may have read it before, at any time since then."""
        return max(work.due or 0, since) or work.received

    def may_let_out(self, topic: str, place: TopicPartition) -> bool:
        """Whether a partition's ration is not used up."""
        breaker = self.breakers[topic]
        return not isinstance(breaker, Ration) or breaker.rations[place] > 0

    def tried(self, topic: str, place: TopicPartition) -> Collection[int]:
        """Those that have failed as probes before."""
        given = self._given.get(topic, {}).get(place)
        return () if given is None else given.tried

    def keeps_here(self, topic: str) -> bool:
        """As before; a record that goes to its origin is one of the ration."""
        breaker = self.breakers.get(topic)
        if not isinstance(breaker, Ration):
            return super().keeps_here(topic)
        return not breaker.takes_one()

    # When the task is to end, and what it tells

    @property
    def sees_outage(self) -> bool:
        """Whether this task has found out by itself that there is an outage."""
        return any(each.is_shut and not isinstance(each, Ration) for each in self.breakers.values())

    @property
    def decides(self) -> bool:
        """Whether it will be decided here, before long, about some that are held."""
        return any(
            each.time_decides or (each.held and self._is_alone(topic))
            for topic, each in self.breakers.items()
        )

    def _is_alone(self, topic: str) -> bool:
        return all(each.alone for each in self._given.get(topic, {}).values())

    def others_see_outage(self, now: int) -> None:
        """Note that the task ends because another has seen one."""
        self._stopped = self.steady(now)

    def looked_at(self, place: TopicPartition, end: int, held: Counter[str]) -> None:
        """Note that nothing of a range is left but what waits for the end of outages."""
        for topic, breaker in self.breakers.items():
            if isinstance(breaker, Ration):
                looked = Looked(place, end, held[topic])
                self._looked.setdefault(topic, []).append(looked)

    def told(self, now: int) -> list[Told]:
        """What the book has to know."""
        steady = self.steady(now)
        with self._lock:
            found = [self._told(topic, each, steady) for topic, each in self.breakers.items()]
        return [each for each in found if each]

    def _told(self, topic: str, breaker: Breaker[Work], steady: int) -> Told:
        told = Told(topic, said=self.log.said.get(topic, ""), looked=self._looked.get(topic, []))
        if isinstance(breaker, Ration):
            told.let_out = breaker.results
            return told
        told.took, told.passed = breaker.taking, breaker.seen_passing
        if self._stopped is not None:
            seen = self._passing.get(topic, ())
            told.passing = [(self._stopped - at, count) for at, count in seen]
        told.held = [
            Held(token_of(work), key_text(key), cause, steady - at, passed)
            for work, key, cause, at, passed in breaker.undecided
        ]
        told.lanes = self._lanes.get(topic)
        if breaker.is_shut and breaker.why is not None:
            told.why, told.held = breaker.why, []
            told.probe_in = max(0, breaker.free_at - steady)
            told.failed = self._failed.get(topic, [])
        return told


class Ration(Breaker[Work]):
    """During an outage: so many records are let out of each partition, and nothing is decided."""

    def __init__(self, guard: Guard, rations: Counter[TopicPartition]) -> None:
        super().__init__(guard, 1)
        self.state = "open"
        self.rations = rations
        self.results: list[LetOut] = []

    def takes_one(self) -> bool:
        """Use up one of it; False: there is none left."""
        place = next((each for each, left in self.rations.items() if left > 0), None)
        if place is not None:
            self.rations[place] -= 1
        return place is not None

    def may_begin(self, now: int) -> int:  # noqa: ARG002 -- at once
        """What is left of it."""
        return max(0, self.rations.total())

    def begin(self, token: Work) -> None:
        """Use up one of it."""
        self.rations[token.assigned.place] -= 1
        super().begin(token)

    def failed(self, token: Work, key: object, cause: str, now: int) -> bool:
        """Note it; a record waits, whether it was let out or had begun before."""
        return self.outage(token, key, cause, now, None, said=False)

    def outage(
        self,
        token: Work,
        key: object,
        cause: str,
        now: int,
        after: int | None,
        *,
        said: bool = True,
    ) -> bool:
        """As for `failed`."""
        if token in self._begun:
            super().let_out_ended(token, now)
            self.results.append(
                LetOut(token_of(token), "failed", key_text(key), cause, said, after)
            )
        return True

    def let_out_passed(self, token: Work, now: int) -> None:
        """Note it."""
        self._note(token, "passed", now)

    def let_out_answered(self, token: Work, now: int) -> None:
        """Note it."""
        self._note(token, "answered", now)

    def _note(self, token: Work, result: str, now: int) -> None:
        if token in self._begun:
            super().let_out_ended(token, now)
            self.results.append(LetOut(token_of(token), result))

    def nothing_waits(self, now: int) -> None:
        """It is open until the book says otherwise."""


class _Silent(GuardLog):
    """The driver says it, once for all tasks."""

    def note(self, topic: str, breaker: Breaker[Work], steady: int) -> None:
        """Say nothing."""

    def say_loud(self, topic: str, breaker: Breaker[Work], steady: int) -> None:
        """Say nothing."""


def token_of(work: Work) -> Token:
    """A record, for somebody in another process."""
    place = work.assigned.place
    return place.topic, place.partition, work.offset


def key_text(key: object) -> str:
    """What tells keys apart, and no more: it travels by the driver."""
    return sha256(repr(key).encode()).hexdigest()[:16]
