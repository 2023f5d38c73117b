"""FlushDelivery: write, wait until it is durable, and only then count the record as complete."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Collection, Iterable, Sequence
from itertools import chain
from operator import itemgetter
from typing import TYPE_CHECKING, Final, NamedTuple

from redrive import failpoints
from redrive.clock import steady
from redrive.delivery.items import Item, Key, blamed, instead, items_of, keys_of, report_of
from redrive.delivery.refusing_topics import RefusingTopics, Waiting
from redrive.delivery.waiting_items import WaitingItems
from redrive.errors import PublishError, RedriveError
from redrive.processing.outcomes.report import Outcome, Report
from redrive.record import Write

if TYPE_CHECKING:
    from redrive.ports import Clock, Handover, Publisher
    from redrive.processing.processor import PartitionProcessor


Noted = tuple["PartitionProcessor", Report]
Complete = tuple["PartitionProcessor", "Outcome | int"]
"""An outcome that is durable, or how many records are done with all that they have sent."""

log: Final = logging.getLogger("redrive.delivery")

_sends: Final = itemgetter(1)


class _OnTheWay(NamedTuple):
    handover: Handover
    noted: list[Noted]
    items: list[Item]


class FlushDelivery:
    """At least once: everything is durable before its offset is complete.

    `add` only notes it. `pump` hands over, in one thread, all that has come in between, once
    what was handed over before is durable: nobody waits for the broker as long as there is work.

    What becomes of refused writes depends on why (`errors.Refusal`). A record whose message its
    topic does not take ends as dead; all others wait, and nobody is called again for them.
    """

    def __init__(
        self,
        publisher: Publisher,
        clock: Clock,
        sent_to: Collection[str] = (),
        topics: RefusingTopics | None = None,
    ) -> None:
        """`sent_to` are the topics that handlers have sent to, whenever it is looked at."""
        self._publisher = publisher
        self._sent_to = sent_to
        self._clock = clock
        self._noted: deque[Noted] = deque()
        self._on_the_way: _OnTheWay | None = None
        self._again: list[Item] = []
        """Refused once: they are tried by themselves, beside what is on its way."""
        self._beside: _OnTheWay | None = None
        self._topics = topics or RefusingTopics(publisher.refusing, clock)
        self._waiting_items = WaitingItems(self._topics)
        self._keys: set[Key] = set()
        """Those of all that wait: nobody overtakes a message of its key."""
        self.added = 0
        """How many reports were added."""
        self.settled = 0
        """How many of them, in the order in which they came, are durable or refused; less those
        that are written once more."""

    def add(self, processor: PartitionProcessor, report: Report) -> None:
        """Note outcomes."""
        self._noted.append((processor, report))
        self.added += 1

    @property
    def refused(self) -> int:
        """How many records wait because what was to be written for them was refused."""
        beside = self._beside
        return (
            len(self._waiting_items)
            + len(self._again)
            + (0 if beside is None else len(beside.items))
        )

    def refused_of(self, processor: PartitionProcessor) -> Waiting:
        """Those of one partition."""
        mine = [item for item in self._waiting if item.processor is processor]
        topics = {write.topic for item in mine for write in item.writes}
        return Waiting(len(mine), len(mine), self._topics.reasons(topics))

    @property
    def _waiting(self) -> list[Item]:
        """All records whose writes were refused, with those behind them."""
        beside = [] if self._beside is None else self._beside.items
        return [*beside, *self._again, *self._waiting_items.items]

    @property
    def refusal(self) -> str:
        """Why, in one sentence."""
        return self._topics.reason

    @property
    def outstanding(self) -> bool:
        """Whether something was noted or handed over that is neither durable nor refused yet."""
        return bool(self._noted or self._again or self._on_the_way or self._beside)

    @property
    def is_under_way(self) -> bool:
        """Whether something was handed over that is neither durable nor refused yet."""
        ways = (self._on_the_way, self._beside)
        return any(each is not None and each.handover.outstanding for each in ways)

    def see_off(self, wait: float) -> None:
        """Let what was handed over become durable or refused, and hand over nothing more."""
        for each in (self._on_the_way, self._beside):
            if each is not None:
                each.handover.poll(wait)

    def pump(self, wait: float = 0) -> list[Complete]:
        """Hand over what was noted; returns what has become complete.

        With `wait`, up to that many seconds are given to what is on its way.
        """
        if waiting := len(self._waiting_items):
            again, behind = self._waiting_items.due(steady(self._clock), trying=self._trying)
            self._again += again
            if behind or len(self._waiting_items) + len(again) < waiting:  # or some have gone
                self._note_again(behind)
        complete = [] if self._on_the_way else self._hand_over()
        if self._beside is None and self._again:
            complete += self._hand_over_beside()
        if self._on_the_way is not None:
            handover, noted, _ = self._on_the_way
            handover.poll(wait)
            if not handover.outstanding:
                self._on_the_way = None
                failpoints.hit("after-produce")
                complete += self._settle(noted, handover.error())
        if self._beside is not None:
            handover, _, items = self._beside
            handover.poll(0 if self._on_the_way else wait)
            if not handover.outstanding:
                self._beside = None
                complete += self._settle_beside(items, handover.error())
        return complete

    def next_due(self) -> int | None:
        """When refused writes will be tried again."""
        due = self._waiting_items.next_due(trying=self._trying)
        return None if due is None else due + self._clock.was_set()

    @property
    def _trying(self) -> bool:
        """Whether records are being tried again that were refused."""
        return bool(self._again or self._beside)

    def _hand_over(self) -> list[Complete]:
        writes: list[Write] = []
        noted: list[Noted] = []
        self._topics.meet(self._sent_to)
        shut = self._topics.shut
        while self._noted:
            processor, report = self._noted.popleft()
            if shut or self._keys:
                report = self._open(processor, report, shut)
            if report.outcomes and not self._forgotten(processor, report.outcomes):
                report = report_of(self._without_buried(items_of(processor, report)))
            noted.append((processor, report))
            writes += chain.from_iterable(map(_sends, report.sent))
            for outcome in report.outcomes:
                writes += outcome.writes
        if not writes:
            return self._settle(noted, None)
        try:
            self._on_the_way = _OnTheWay(self._publisher.hand_over(writes), noted, [])
        except BaseException:
            self._noted.extendleft(reversed(noted))  # a mistake of ours: nobody is forgotten for it
            raise
        return []

    def _open(self, processor: PartitionProcessor, report: Report, shut: set[str]) -> Report:
        """What of a report can be written now; the rest is held behind what was refused."""
        rest: list[Item] = []
        for item in items_of(processor, report):
            keys = keys_of(item)
            if keys & self._keys or any(write.topic in shut for write in item.writes):
                self._waiting_items.hold_behind(item)
                self._keys |= keys
            else:
                rest.append(item)
        return report_of(rest)

    def _hand_over_beside(self) -> list[Complete]:
        # Those of partitions that went are their next owner's.
        items = [each for each in self._again if not each.processor.closed]
        ended = ((each.processor, each.outcome) for each in items if each.outcome is not None)
        if not all(self._forgotten(processor, [outcome]) for processor, outcome in ended):
            items = self._without_buried(items)
        writes = [write for item in items for write in item.writes]
        if writes:
            self._beside = _OnTheWay(self._publisher.hand_over(writes, alone=True), [], items)
        self._again = []
        return [] if writes else self._settle_beside(items, None)

    def _settle(self, noted: list[Noted], error: PublishError | None) -> list[Complete]:
        complete: list[Complete] = []
        if error is not None:
            items = [item for each in noted for item in items_of(*each)]
            fine: list[Item] = []
            blocked: set[Key] = set()
            for item, reasons in blamed(items, error):
                if not reasons:
                    fine.append(item)
                    continue
                keys = keys_of(item)
                self._keys |= keys
                others = [reason for reason in reasons if reason.kind != "message"]
                if len(others) < len(reasons) and not keys & blocked:
                    self._again.append(item)  # a batch is refused for one that is in it
                else:
                    self._waiting_items.hold(item, others)
                    blocked |= keys
            complete = self._settled(fine)
        else:
            for processor, report in noted:
                processor.settle(report.offsets)
                if done := len(report.done) + len(report.sent):
                    complete.append((processor, done))
                complete += [(processor, outcome) for outcome in report.outcomes]
        self.settled += len(noted)
        return complete

    def _settle_beside(self, items: list[Item], error: PublishError | None) -> list[Complete]:
        fine: list[Item] = []
        for item, reasons in blamed(items, error) if error else ((each, ()) for each in items):
            if not reasons:
                fine.append(item)
            else:
                self._refused(item, reasons)
        self._note_again(self._waiting_items.taken(fine))
        return self._settled(fine)

    def _note_again(self, behind: list[Item]) -> None:
        """Let records be written that waited behind others, unless they still have to wait."""
        self._keys = {key for item in self._waiting for key in keys_of(item)}
        for item in reversed(behind):
            self._noted.appendleft((item.processor, report_of([item])))
            self.settled -= 1  # not `added`: other threads count there, and neither would be seen

    def _refused(self, item: Item, reasons: Sequence[PublishError]) -> None:
        """Decide about a record whose writes were refused also by themselves."""
        why = dict(zip(map(id, item.writes), reasons, strict=False))
        other = instead(item, why, self._clock.now())
        if other is None:
            self._waiting_items.hold(item, reasons)
        else:
            self._again.append(other)

    def _settled(self, items: Iterable[Item]) -> list[Complete]:
        complete: list[Complete] = []
        for item in items:
            item.processor.settle([item.offset])
            complete.append((item.processor, 1 if item.outcome is None else item.outcome))
        return complete

    def _forgotten(self, processor: PartitionProcessor, outcomes: Sequence[Outcome]) -> bool:
        """Have dead letters forgotten that no unit of work has buried: they may be replayed.

        Before they are written: while the database is away, they would be written in vain, and by
        each process that takes the partition up once more.
        """
        buried = [each for each in outcomes if _is_buried(each)]
        try:
            if buried:
                processor.forget(buried)
        except RedriveError as error:
            log.error("%s; buried records wait until it accepts them", error)  # noqa: TRY400 -- no mistake of ours
            return False
        return True

    def _without_buried(self, items: Iterable[Item]) -> list[Item]:
        """Hold those whose dead letters cannot be forgotten yet; returns the others."""
        rest: list[Item] = []
        for item in items:
            if item.outcome is not None and _is_buried(item.outcome):
                why = PublishError("dead letters cannot be forgotten in the inbox yet")
                self._waiting_items.hold(item, [why])
                self._keys |= keys_of(item)
            else:
                rest.append(item)
        return rest


def _is_buried(outcome: Outcome) -> bool:
    # Those of a unit of work have nothing left to write, and are forgotten with its commit.
    return outcome.kind == "bury" and bool(outcome.writes)
