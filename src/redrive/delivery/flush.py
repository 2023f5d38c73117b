"""FlushDelivery: write, wait until it is durable, and only then count the record as complete."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from redrive import failpoints
from redrive.delivery.held import Held, Item
from redrive.delivery.refusing import RefusingTopics
from redrive.errors import PublishError, RedriveError
from redrive.processing.outcomes import Outcome, Report
from redrive.record import Write

if TYPE_CHECKING:
    from redrive.ports import Clock, Handover, Publisher
    from redrive.processing.processor import PartitionProcessor


Noted = tuple["PartitionProcessor", Report]
Complete = tuple["PartitionProcessor", "Outcome | int"]
"""An outcome that is durable, or how many records are done with all that they have sent."""

log: Final = logging.getLogger("redrive.delivery")


class _OnTheWay(NamedTuple):
    handover: Handover
    noted: list[Noted]
    items: list[Item]


class FlushDelivery:
    """At least once: everything is durable before its offset is complete.

    `take` only takes note. `pump` hands over, in one thread, all that has come in between, once
    what was handed over before is durable: nobody waits for the broker as long as there is work.

    What becomes of refused writes depends on why (`errors.Refusal`). A record whose message its
    topic does not take ends as dead; all others wait, and nobody is called again for them.
    """

    def __init__(
        self,
        publisher: Publisher,
        clock: Clock,
        sent_to: Collection[str] = (),
        known: set[str] | None = None,
    ) -> None:
        """`sent_to` are the topics that handlers have sent to, whenever it is looked at.

        `known` are those that were found to take writes, also by others of this process.
        """
        self._publisher = publisher
        self._sent_to = sent_to
        self._known = set() if known is None else known
        self._asked = set(self._known)
        self._clock = clock
        self._noted: deque[Noted] = deque()
        self._on_the_way: _OnTheWay | None = None
        self._again: list[Item] = []
        """Refused once: they are tried by themselves, beside what is on its way."""
        self._beside: _OnTheWay | None = None
        self._topics = RefusingTopics(publisher.refusing, clock)
        self._held = Held(self._topics)
        self.taken = 0
        """How many reports were taken."""
        self.settled = 0
        """How many of them, in the order in which they came, are durable or refused."""

    def take(self, processor: PartitionProcessor, report: Report) -> None:
        """Take note of outcomes."""
        self._noted.append((processor, report))
        self.taken += 1

    @property
    def refused(self) -> int:
        """How many records wait because what was to be written for them was refused."""
        beside = self._beside
        return len(self._held) + len(self._again) + (0 if beside is None else len(beside.items))

    @property
    def refusal(self) -> str:
        """Why, in one sentence."""
        return self._topics.reason

    @property
    def outstanding(self) -> bool:
        """Whether something was noted or handed over that is neither durable nor refused yet."""
        return bool(self._noted or self._again or self._on_the_way or self._beside)

    def pump(self, wait: float = 0) -> list[Complete]:
        """Hand over what was noted; returns what has become complete.

        With `wait`, up to that many seconds are given to what is on its way.
        """
        self._again += self._held.due(self._clock.now()) if len(self._held) else ()
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
        return self._held.next_due

    def _hand_over(self) -> list[Complete]:
        writes: list[Write] = []
        noted: list[Noted] = []
        if len(self._sent_to) > len(self._asked):
            news = {*self._sent_to} - self._asked
            self._asked |= news
            self._known |= news - self._topics.are_shut(news)
        shut = self._topics.shut
        while self._noted:
            processor, report = self._noted.popleft()
            if shut:
                report = self._open(processor, report, shut)
            noted.append((processor, report))
            for _, sends, _ in report.sent:
                writes += sends
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
        """What of a report can be written now; the rest is held behind what its topics refused."""
        rest = Report()
        for item in _items(processor, report):
            if any(write.topic in shut for write in item.writes):
                self._held.hold_behind(item)
            else:
                _add(rest, item)
        return rest

    def _hand_over_beside(self) -> list[Complete]:
        # Those of partitions that went are their next owner's.
        items = [each for each in self._again if not each.processor.closed]
        writes = [write for item in items for write in item.writes]
        if writes:
            self._beside = _OnTheWay(self._publisher.hand_over(writes, alone=True), [], items)
        self._again = []
        return [] if writes else self._settle_beside(items, None)

    def _settle(self, noted: list[Noted], error: PublishError | None) -> list[Complete]:
        complete: list[Complete] = []
        if error is not None:
            items = [item for each in noted for item in _items(*each)]
            fine: list[Item] = []
            for item, reasons in _blamed(items, error):
                if not reasons:
                    fine.append(item)
                elif any(reason.kind == "message" for reason in reasons):
                    self._again.append(item)  # a batch is refused for one that is in it
                else:
                    self._held.hold(item, reasons)
            complete = self._settled(fine)
        else:
            for processor, report in noted:
                if report.outcomes and not self._forgotten(processor, report.outcomes):
                    complete += self._settled(_items(processor, report))
                    continue
                processor.settle(report.offsets)
                if done := len(report.done) + len(report.sent):
                    complete.append((processor, done))
                complete += [(processor, outcome) for outcome in report.outcomes]
        self.settled += len(noted)
        return complete

    def _settle_beside(self, items: list[Item], error: PublishError | None) -> list[Complete]:
        fine: list[Item] = []
        for item, reasons in _blamed(items, error) if error else ((each, ()) for each in items):
            if not reasons:
                fine.append(item)
            else:
                self._refused(item, reasons)
        for item in reversed(self._held.taken(fine)):
            report = Report()
            _add(report, item)
            self._noted.appendleft((item.processor, report))
            self.taken += 1
        return self._settled(fine)

    def _refused(self, item: Item, reasons: Sequence[PublishError]) -> None:
        """Decide about a record whose writes were refused also by themselves."""
        wrong = next((each for each in reasons if each.kind == "message"), None)
        if wrong is None:
            self._held.hold(item, reasons)
        elif item.subject is not None:
            sent = (item.offset, [*item.writes], item.subject)
            report = Report()
            report.outcomes.append(item.processor.refused(sent, wrong, self._clock.now()))
            self.take(item.processor, report)
        else:
            self._without_sends(item, reasons, wrong)

    def _without_sends(
        self, item: Item, reasons: Sequence[PublishError], wrong: PublishError
    ) -> None:
        """The end of a record does not depend on what its recovery sends; all else does."""
        sends = set(map(id, item.outcome.sends)) if item.outcome is not None else set()
        own = [write for write in item.writes if id(write) not in sends]
        if len(own) == len(item.writes):
            self._held.hold(item, reasons)
            return
        log.error("%s; its record ends without what its recovery has sent", wrong)
        self._again.append(item._replace(writes=own))

    def _settled(self, items: Iterable[Item]) -> list[Complete]:
        complete: list[Complete] = []
        for item in items:
            if item.outcome is not None and not self._forgotten(item.processor, [item.outcome]):
                why = PublishError("dead letters cannot be forgotten in the inbox yet")
                self._held.hold(item._replace(writes=()), [why])
                continue
            item.processor.settle([item.offset])
            complete.append((item.processor, 1 if item.outcome is None else item.outcome))
        return complete

    def _forgotten(self, processor: PartitionProcessor, outcomes: Sequence[Outcome]) -> bool:
        """Have dead letters forgotten that no unit of work has buried: they may be replayed."""
        # Those of a unit of work have nothing left to write, and are forgotten with its commit.
        buried = [each for each in outcomes if each.kind == "bury" and each.writes]
        try:
            return not buried or processor.forget(buried)
        except RedriveError as error:
            log.error("%s; records that were buried wait for it", error)  # noqa: TRY400 -- no mistake of ours
            return False


def _items(processor: PartitionProcessor, report: Report) -> list[Item]:
    return [
        *(Item(processor, offset, (), None) for offset in report.done),
        *(Item(processor, offset, sends, None, work) for offset, sends, work in report.sent),
        *(Item(processor, each.offset, each.writes, each) for each in report.outcomes),
    ]


def _add(report: Report, item: Item) -> None:
    """And back."""
    if item.outcome is not None:
        report.outcomes.append(item.outcome)
    elif item.subject is not None:
        report.sent.append((item.offset, [*item.writes], item.subject))
    else:
        report.done.append(item.offset)


def _blamed(
    items: Iterable[Item], error: PublishError
) -> Iterator[tuple[Item, list[PublishError]]]:
    """Each record with what of it was refused, and why; all of it where that is not known."""
    reasons = dict(zip(map(id, error.refused), error.reasons, strict=True))
    for item in items:
        if not reasons and item.writes:
            yield item, [error]
            continue
        refused = [write for write in item.writes if id(write) in reasons]
        # Only those are tried again: the others are durable, and would be there twice.
        left = item._replace(writes=refused) if refused else item
        yield left, [reasons[id(write)] for write in refused]
