"""Book: one breaker per handler, for the tasks and planners of both lanes.

What tasks tell is noted when their batch is over. A planner asks for a ration before it plans
records of a handler that is in an outage, and gets none while the other lane has it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import chain
from operator import itemgetter
from typing import Any, NamedTuple, TypeAlias

from redrive.breaker import Breaker, Why
from redrive.engines.spark.outages.told import Held, LetOut, Token, Told
from redrive.engines.spark.ranges import Guarded
from redrive.engines.words import LaneName
from redrive.guard import Guard
from redrive.record import TopicPartition
from redrive.tuning import (
    GUARD_LANES,
    GUARD_PASSING,
    GUARD_SETTLE,
    GUARD_TRIED,
    GUARD_TURN,
)

Slot: TypeAlias = tuple[str, int, int]
"""One of a lane's ration: which record it will be is not known before it has run."""


class _Seen(NamedTuple):
    at: int
    held: Held | None
    """None: these have passed."""
    passed: int


@dataclass
class Page:
    """What is known of one handler."""

    breaker: Breaker[Token]
    said: str = ""
    """What failed, in words."""
    given: dict[LaneName, list[Slot]] = field(default_factory=dict)
    """The rations that lanes have."""
    waits: dict[LaneName, int | None] = field(default_factory=dict)
    """How many records wait for the end of the outage, as a planner saw it last; None: some do."""
    last: LaneName | None = None
    """Which lane had the latest ration."""
    turns: dict[TopicPartition, int] = field(default_factory=dict)
    """When each partition had its latest, counted in rations."""
    tried: dict[TopicPartition, list[int]] = field(default_factory=dict)
    """Who has failed as a probe."""
    own: dict[TopicPartition, set[int]] = field(default_factory=dict)
    """Who fails by itself: its next failure is its policy's."""
    looked: dict[TopicPartition, tuple[int, int]] = field(default_factory=dict)
    """Up to where nothing is left of a partition but what waits, and how many of these."""

    def waits_in(self, place: TopicPartition, end: int) -> bool:
        """Whether records wait in a partition, as far as is known."""
        reached, held = self.looked.get(place, (-1, 0))
        return reached < end or held > 0

    def waiting(self, ends: Mapping[TopicPartition, int]) -> int | None:
        """How many records wait in these partitions; None: some were not looked at yet."""
        looked = [self.looked.get(place, (-1, 0)) for place in ends]
        if any(reached < end for (reached, _), end in zip(looked, ends.values(), strict=True)):
            return None
        return sum(held for _, held in looked)

    def forget_outage(self) -> None:
        """Forget what counts only while it lasts."""
        self.tried.clear()
        self.looked.clear()
        self.waits.clear()
        self.last = None


class Book:
    """The guards of all handlers. Times are steady ones, in milliseconds."""

    def __init__(self, guards: Mapping[str, Guard], concurrency: int) -> None:
        self.pages = {topic: Page(Breaker(each, concurrency)) for topic, each in guards.items()}
        """By source topic."""

    # What tasks tell

    def note(self, lane: LaneName, told: Iterable[Told], now: int) -> None:
        """Note what the tasks of a batch have seen."""
        found = [*told]
        for topic, page in self.pages.items():
            mine = [each for each in found if each.topic == topic]
            if mine:
                self._note(page, lane, mine, now)

    def _note(self, page: Page, lane: LaneName, told: list[Told], now: int) -> None:
        breaker, was_shut = page.breaker, page.breaker.is_shut
        page.said = next((each.said for each in told if each.said), page.said)
        for each in told:
            for looked in each.looked:
                page.looked[looked.place] = looked.end, looked.held
        for let_out in chain.from_iterable(each.let_out for each in told):
            self._note_let_out(page, lane, let_out, now)
        for each in told:
            if each.why is None:
                continue
            if not breaker.is_shut and _others_pass(each, each.why, told):
                for topic, number, offset in each.failed:
                    page.own.setdefault(TopicPartition(topic, number), set()).add(offset)
            else:
                breaker.told(each.why, now, each.probe_in)
        self._settle(page, told, now)
        if breaker.is_shut and not was_shut:
            page.forget_outage()
            page.own.clear()  # it was an outage after all

    def _note_let_out(self, page: Page, lane: LaneName, let_out: LetOut, now: int) -> None:
        breaker, token, state = page.breaker, let_out.token, page.breaker.state
        place = TopicPartition(*token[:2])
        given = page.given.get(lane, [])
        if given:
            breaker.known_as(given.pop(), token)
        if let_out.result == "passed":
            breaker.let_out_passed(token, now)
        elif let_out.result == "answered":
            breaker.let_out_answered(token, now)
        else:
            key, cause = let_out.key, let_out.cause
            page.tried[place] = [*page.tried.get(place, ()), token[2]][-GUARD_TRIED:]
            if let_out.outage:
                waits = breaker.outage(token, key, cause, now, let_out.after)
            else:
                waits = breaker.failed(token, key, cause, now)
            if not waits:
                page.own.setdefault(place, set()).add(token[2])
        if breaker.state != state:
            page.tried.clear()  # whose fault that was is not known, now that others pass
        if not breaker.is_shut:
            page.forget_outage()

    def _settle(self, page: Page, told: list[Told], now: int) -> None:
        """Decide about what the tasks could not."""
        breaker = page.breaker
        seen = sorted(chain.from_iterable(_seen(each, now) for each in told), key=itemgetter(0))
        if not any(each.held for each in seen):
            return
        for each in seen:
            if each.held is None:
                breaker.passed(each.passed, each.at)
            else:
                breaker.failed(each.held.token, each.held.key, each.held.cause, each.at)
        for task in told:
            if task.took:
                breaker.took(task.took)
        # Those tasks have ended: what they have not seen by now, nobody will.
        settled = max(now, seen[-1].at + GUARD_SETTLE)
        for topic, number, offset in breaker.settle(settled, lanes=_lanes(told)).own:
            page.own.setdefault(TopicPartition(topic, number), set()).add(offset)

    # What planners ask

    def begin(self, lane: LaneName, now: int) -> None:
        """A planner begins: whatever came of the rations of its last batch, they are used up."""
        for page in self.pages.values():
            page.breaker.settle(now)  # what was seen some time ago counts no more
            for slot in page.given.pop(lane, []):
                page.breaker.let_out_ended(slot, now)

    @property
    def shut(self) -> list[str]:
        """The source topics of handlers that are in an outage."""
        return [topic for topic, page in self.pages.items() if page.breaker.is_shut]

    def look(self, lane: LaneName, topic: str, now: int, *, waits: int | None) -> None:
        """Note how many records of a handler wait in a lane; None: some do."""
        page = self.pages[topic]
        page.waits[lane] = waits
        known = [each for each in page.waits.values() if each is not None]
        if len(known) == len(page.waits) and not any(known):
            page.breaker.nothing_waits(now)
        elif len(known) == len(page.waits) and sum(known) < page.breaker.guard.keys:
            page.breaker.few_wait(now)
        if not page.breaker.is_shut:
            page.forget_outage()

    def ration(
        self, lane: LaneName, topic: str, places: Collection[TopicPartition], now: int
    ) -> dict[TopicPartition, int]:
        """How many records of each of these partitions a lane may have called: none, mostly."""
        page = self.pages[topic]
        most = self._most(page, lane, now) if places else 0
        turns = sorted(places, key=lambda place: page.turns.get(place, 0))
        rations: dict[TopicPartition, int] = {}
        for number in range(most):
            place = turns[number % len(turns)]
            rations[place] = rations.get(place, 0) + 1
        if rations:
            turn = max(page.turns.values(), default=0)
            slots = page.given[lane] = [(f" {lane}", turn, number) for number in range(most)]
            for slot in slots:
                page.breaker.begin(slot)
                page.breaker.called(slot, now)
            for number, place in enumerate(rations, 1):
                page.turns[place] = turn + number
            page.last = lane
        return rations

    def _most(self, page: Page, lane: LaneName, now: int) -> int:
        """The lanes take turns where only one may begin, and share if more may."""
        most = page.breaker.may_begin(now)
        other: LaneName = "retry" if lane == "main" else "main"
        if most == 0 or page.waits.get(other, 0) == 0 or page.given.get(other):
            return most
        if most > 1:
            return (most + 1) // 2
        waited = now - page.breaker.free_at
        return 0 if page.last == lane and waited < GUARD_TURN else most

    def guarded(
        self, place: TopicPartition, topic: str, ration: int, moved: int, *, alone: bool
    ) -> Guarded | None:
        """What a task has to know that gets a range; `moved` is what the clock is ahead by."""
        page = self.pages[topic]
        breaker = page.breaker
        told = Guarded(
            topic,
            breaker.opened + moved if breaker.opened else 0,
            None if breaker.ended is None or breaker.is_shut else breaker.ended + moved,
            ration,
            frozenset(page.tried.get(place, ())),
            frozenset(page.own.get(place, ())),
            alone,
        )
        return None if told == Guarded(topic) else told

    def forget_before(self, starts: Mapping[TopicPartition, int]) -> None:
        """Forget records that have ended."""
        for page in self.pages.values():
            for place, start in starts.items():
                if place in page.own:
                    page.own[place] = {each for each in page.own[place] if each >= start}
                if place in page.tried:
                    page.tried[place] = [each for each in page.tried[place] if each >= start]

    # Kept for others

    @property
    def memory(self) -> dict[str, dict[str, Any]]:
        """All that it knows."""
        return {
            topic: {**vars(page), "breaker": page.breaker.memory}
            for topic, page in self.pages.items()
        }

    def recall(self, memory: Mapping[str, Mapping[str, Any]]) -> None:
        """Know that instead."""
        for topic, known in memory.items():
            page = self.pages[topic]
            page.breaker.recall(known["breaker"])
            vars(page).update({**known, "breaker": page.breaker})


def _others_pass(mine: Told, why: Why, told: Iterable[Told]) -> bool:
    """Whether calls of other tasks have succeeded while a task has seen an outage.

    In the second half of that time: what had begun before may still succeed in the first. Those
    that did not end because of it say nothing: nobody knows how the clocks of two machines differ.
    """
    if not why.within:
        return False  # its handler has said so
    others = (each for task in told if task is not mine for each in task.passing)
    passed = sum(count for age, count in others if age <= why.within // 2)
    return passed > GUARD_PASSING * (passed + why.failures)


def _seen(told: Told, now: int) -> Iterable[_Seen]:
    """What a task has seen that it could not decide about, in its order."""
    before, at = 0, now
    for held in sorted(told.held, key=lambda each: each.age, reverse=True):
        at = now - held.age
        if held.passed > before:
            yield _Seen(at, None, held.passed - before)
            before = held.passed
        yield _Seen(at, held, 0)
    if told.held and told.passed > before:
        yield _Seen(now, None, told.passed - before)


def _lanes(told: list[Told]) -> int | None:
    """How many lanes have failed at their heads, if all that wait are behind those."""
    lanes = [each.lanes for each in told]
    known = [each for each in lanes if each is not None]
    return max(GUARD_LANES, sum(known)) if known and len(known) == len(lanes) else None
