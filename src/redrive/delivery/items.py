"""Items: records that are complete once their writes are durable; and what if those are refused."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from redrive.processing.outcomes.report import Outcome, Report

if TYPE_CHECKING:
    from redrive.delivery.refusing_topics import RefusingTopics
    from redrive.errors import PublishError
    from redrive.processing.processor import PartitionProcessor
    from redrive.processing.work import Work
    from redrive.record import Record, Write

log: Final = logging.getLogger("redrive.delivery")
_new: Final = tuple.__new__

Key = tuple[str, bytes]
"""A topic, and a key in it."""
Reasons = Mapping[int, "PublishError"]
"""Why writes were refused, by the id of each."""


class Item(NamedTuple):
    """One record that is complete once its writes are durable."""

    processor: PartitionProcessor
    offset: int
    writes: Sequence[Write]
    outcome: Outcome | None
    """None: the record is done, and these are what its handler has sent."""
    subject: Work | Record | None = None
    """The record, where its handler has sent something."""


def items_of(processor: PartitionProcessor, report: Report) -> list[Item]:
    """All records of a report."""
    return [
        *(Item(processor, offset, (), None) for offset in report.done),
        # By the tuple's own constructor, in half the time: there is one for nearly every record.
        *[_new(Item, (processor, offset, sends, None, of)) for offset, sends, of in report.sent],
        *(Item(processor, each.offset, each.writes, each) for each in report.outcomes),
    ]


def keys_of(item: Item) -> set[Key]:
    """Where the order of its messages counts."""
    return {(write.topic, write.key) for write in item.writes if write.key is not None}


def report_of(items: Iterable[Item]) -> Report:
    """And back."""
    report = Report()
    for item in items:
        if item.outcome is not None:
            report.outcomes.append(item.outcome)
        elif item.subject is not None:
            report.sent.append((item.offset, [*item.writes], item.subject))
        else:
            report.done.append(item.offset)
    return report


def reasons_of(error: PublishError) -> Reasons:
    """Why each write was refused."""
    return dict(zip(map(id, error.refused), error.reasons, strict=True))


def blamed(items: Iterable[Item], error: PublishError) -> Iterator[tuple[Item, list[PublishError]]]:
    """Each record with what of it was refused, and why; all of it where that is not known."""
    reasons = reasons_of(error)
    for item in items:
        if not reasons and item.writes:
            yield item, [error]
            continue
        refused = [write for write in item.writes if id(write) in reasons]
        # Only those are tried again: the others are durable, and would be there twice.
        left = item._replace(writes=refused) if refused else item
        yield left, [reasons[id(write)] for write in refused]


def instead(item: Item, reasons: Reasons, now: int) -> Item | None:
    """What ends a record whose message its topic does not take; None: it waits.

    For its topics, or for the end of a run that would bury too much. Nobody is called. The end of a
    record does not depend on what its recovery sends; all else does.
    """
    found = ((write, reasons.get(id(write))) for write in item.writes)
    wrong = {id(write): why for write, why in found if why is not None and why.kind == "message"}
    if not wrong:
        return None
    if item.subject is not None:
        sent = (item.offset, [*item.writes], item.subject)
        outcome = item.processor.refused(sent, next(iter(wrong.values())), now)
        if outcome is None:
            return None
        return Item(item.processor, item.offset, outcome.writes, outcome)
    sends = set() if item.outcome is None else set(map(id, item.outcome.sends))
    if not sends & wrong.keys():
        return None
    why = next(wrong[each] for each in wrong if each in sends)
    log.error("%s; its record is buried without what its recovery sent", why)
    return item._replace(writes=[write for write in item.writes if id(write) not in sends])


class Hold(NamedTuple):
    """From which record on a partition waits, and for which topics."""

    offset: int
    topics: frozenset[str]
    records: int = 0
    """How many of the transaction that was taken back wait for them."""

    def of(self, items: Iterable[Item]) -> list[Item]:
        """Those of these that wait for the topics; others only for their turn."""
        return [
            item
            for item in items
            if item.offset >= self.offset
            and any(write.topic in self.topics for write in item.writes)
        ]


def taken_back(
    items: Iterable[Item], error: PublishError, topics: RefusingTopics, now: int
) -> tuple[list[Item], Hold | None]:
    """What of a transaction goes into the next one, and from where on it has to wait.

    It was taken back because of refused writes: nobody is called again for any of its records.
    """
    reasons = reasons_of(error)
    found: list[Item] = []
    hold: Hold | None = None
    for item in items:
        refused = [write for write in item.writes if id(write) in reasons]
        other = instead(item, reasons, now) if refused else item
        if other is None:
            for write in refused:
                topics.note(reasons[id(write)])
            hold = hold or Hold(item.offset, frozenset(write.topic for write in refused))
        found.append(other or item)
    return found, hold and hold._replace(records=len(hold.of(found)))
