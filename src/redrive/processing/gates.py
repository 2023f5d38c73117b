"""Gates: what begins during an outage: probes, then more and more.

Driven by the dispatcher, under its lock.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from typing import TYPE_CHECKING

from redrive.processing.outcomes.report import Report
from redrive.processing.processor import PartitionProcessor
from redrive.processing.work import Assigned, Work

if TYPE_CHECKING:
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
            if breaker.state == "suspect":
                stalled = _is_stalled(topic, processors)
                _rouse(self._guards.look(topic, now, stalled=stalled), processors)
            if breaker.is_shut:
                if topic not in self._shut:
                    told += self._close(topic, processors, now)
                self._guards.say_loud(topic, now)
                self._let_out(topic, processors, now)
            elif topic in self._shut:
                self._shut.remove(topic)
                for each in processors:
                    each.reopen(topic)
        return told

    def next_look(self, now: int) -> int | None:
        """When there is something to do, in steady time; None: not by itself.

        A probe that could have begun by now waits for a record, whose coming is noticed.
        """
        steady = self._guards.steady(now)
        times = [each.next_look() for each in self._guards.breakers.values()]
        return min((time for time in times if time is not None and time > steady), default=None)

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

    def _let_out(self, topic: str, processors: Sequence[PartitionProcessor], now: int) -> None:
        """Let out as many as may begin: of all partitions in turn, and of all keys in each."""
        breaker, steady = self._guards.breakers[topic], self._guards.steady(now)
        while breaker.may_begin(steady) > 0 and (work := self._next(topic, processors)) is not None:
            self._guards.let_out(topic, work)

    def _next(self, topic: str, processors: Sequence[PartitionProcessor]) -> Work | None:
        for each in sorted(processors, key=lambda each: self._turns.get(each.assigned, 0)):
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
