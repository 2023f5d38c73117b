"""Gates: what begins during an outage: probes, then more and more.

Driven by the dispatcher, under its lock.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from typing import TYPE_CHECKING

from redrive.processing.outcomes.guards import key_of
from redrive.processing.outcomes.report import Report
from redrive.processing.processor import PartitionProcessor
from redrive.processing.work import Assigned, Work
from redrive.tuning import GUARD_LANES, GUARD_LOST

if TYPE_CHECKING:
    from redrive.processing.calls.lots import Lot
    from redrive.processing.outcomes.guards import Guards

Told = list[tuple[PartitionProcessor, Report]]


class Gates:
    """Shuts the lanes of handlers during their outages, and lets records out one by one."""

    def __init__(self, guards: Guards) -> None:
        self._guards = guards
        self._shut: set[str] = set()
        """The source topics of handlers whose lanes are shut."""
        self._turns: dict[Assigned, int] = {}
        """When each partition was last asked for a record, counted in such records."""
        self._count = count(1)
        self._looked_for_lost: dict[str, int] = {}

    def add(self, processor: PartitionProcessor, now: int) -> Report:
        """Take up a partition: an outage does not end by a rebalance."""
        report = Report()
        for topic in self._shut:
            processor.shut(topic, now, report)
        return report

    @property
    def idle(self) -> bool:
        """Whether there is nothing to do: no outage, nor a doubt."""
        return not self._shut and self._guards.all_closed

    def act(self, processors: Sequence[PartitionProcessor], now: int) -> Told:
        """Do what follows from what was seen; returns what needed no call."""
        told: Told = []
        for topic, breaker in self._guards.breakers.items():
            if breaker.state == "closed" and topic not in self._shut:
                continue
            self._guards.forget_closed(topic, now)
            if breaker.is_shut:
                self._end_lost(topic, processors, now)
            if breaker.is_to_look(self._guards.steady(now)):
                self._look(topic, processors, now)
            if breaker.is_shut:
                if topic not in self._shut:
                    told += self._close(topic, processors, now)
                self._guards.say_loud(topic, now)
                self._let_out(topic, processors, now)
                if not any(each.waits_for_end(topic) for each in processors):
                    self._guards.nothing_waits(topic, now)
            if topic in self._shut and not breaker.is_shut:
                self._shut.remove(topic)
                for each in processors:
                    each.reopen(topic)
        return told

    def _look(self, topic: str, processors: Sequence[PartitionProcessor], now: int) -> None:
        """Decide about those that are held."""
        stalled = _is_stalled(topic, processors)
        lanes = self._lanes_alone(topic, processors) if stalled else None
        _rouse(self._guards.look(topic, now, stalled=stalled, lanes=lanes), processors)

    def _lanes_alone(self, topic: str, processors: Sequence[PartitionProcessor]) -> int | None:
        """How many lanes have failed at their heads, if they keep enough other keys from a try.

        Fewer than some are never enough: a poisoned record would be an outage.
        """
        guard = self._guards.breakers[topic].guard
        lanes: set[object] = set()
        keys: set[object] = set()
        for work in (each for processor in processors for each in processor.waiting_works()):
            if work.handler.topic == topic:
                lanes.add(work.lane or work)
                keys.add(key_of(work))
                if len(lanes) >= guard.keys:
                    return None
        return max(GUARD_LANES, len(lanes)) if len(keys) >= guard.keys else None

    def next_look(self, now: int) -> int | None:
        """When there is something to do, in steady time; None: not by itself.

        A probe that could have begun by now waits for a record, whose coming is noticed.
        """
        steady = self._guards.steady(now)
        times = [each.next_look(steady) for each in self._guards.breakers.values()]
        return min((time for time in times if time is not None), default=None)

    def _close(self, topic: str, processors: Sequence[PartitionProcessor], now: int) -> Told:
        self._shut.add(topic)
        self._turns = {each.assigned: self._turns.get(each.assigned, 0) for each in processors}
        told: Told = []
        for each in processors:
            report = Report()
            each.shut(topic, now, report)
            told.append((each, report))
        _rouse(self._guards.take_held(topic), processors)
        return told

    def begun(self, lot: Lot, now: int) -> None:
        """Note that a thread has what may have been let out."""
        self._guards.called(lot.handler.topic, lot.works, now)

    def _end_lost(self, topic: str, processors: Sequence[PartitionProcessor], now: int) -> None:
        """Wait no more for those that were let out, and of which nothing will be heard."""
        looked = self._looked_for_lost.get(topic)
        if looked is not None and 0 <= now - looked < GUARD_LOST:
            return
        self._looked_for_lost[topic] = now
        owners = {each.assigned: each for each in processors}
        lost = [
            work
            for work in self._guards.breakers[topic].begun()
            if (owner := owners.get(work.assigned)) is None or not owner.has_under_way(work)
        ]
        self._guards.ended(lost, now)

    def _let_out(self, topic: str, processors: Sequence[PartitionProcessor], now: int) -> None:
        """Let out as many as may begin: of all partitions in turn, and of all keys in each."""
        breaker, steady = self._guards.breakers[topic], self._guards.steady(now)
        while breaker.may_begin(steady) > 0 and (work := self._next(topic, processors)) is not None:
            self._guards.let_out(topic, work)
        self._guards.wants(topic, more=breaker.may_begin(steady) > 0)

    def _next(self, topic: str, processors: Sequence[PartitionProcessor]) -> Work | None:
        for each in sorted(processors, key=lambda each: self._turns.get(each.assigned, 0)):
            if not self._guards.may_let_out(topic, each.partition):
                continue
            work = each.let_out(topic)
            if work is not None:
                self._turns[each.assigned] = next(self._count)
                return work
        return None


def _rouse(works: Sequence[Work], processors: Sequence[PartitionProcessor]) -> None:
    if works:
        for each in processors:
            each.rouse([work for work in works if work.assigned is each.assigned])


def _is_stalled(topic: str, processors: Sequence[PartitionProcessor]) -> bool:
    """Whether no call of a handler runs, and none may begin."""
    for each in processors:
        if any(lot.handler.topic == topic for lot in each.lots):
            return False
        if each.partition.topic == topic and (each.ready or each.unacked):
            return False
    return True
