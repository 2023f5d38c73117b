"""Judging: what becomes of single records, by the same processor as for handlers of records.

Of a frame's rows only those that are parked or buried come here, and the records that the handler
never saw because nothing is to be handled: written for another app, broken, on their way.
"""

from __future__ import annotations

from dataclasses import dataclass

from redrive.app import App
from redrive.parked_rules import ParkedRule
from redrive.ports import Position
from redrive.processing.calls.scope import Scope
from redrive.processing.outcomes.report import Outcome, Report
from redrive.processing.processor import PartitionProcessor
from redrive.processing.progress.acks import AckTracker
from redrive.record import Record, TopicPartition


@dataclass(frozen=True, slots=True)
class NotDue:
    """The record has to wait, and all behind it wait with it."""

    until: int


@dataclass(frozen=True, slots=True)
class ForHandler:
    """The record is one for the handler."""


class Judge:
    """Judges records of one topic-partition, in the order of their offsets."""

    def __init__(
        self,
        app: App,
        place: TopicPartition,
        *,
        start: int,
        topic_id: str,
        delay: int | None,
        now: int,
        rules: tuple[ParkedRule, ...] = (),
        delay_topic_id: str = "",
    ) -> None:
        """`topic_id` is of the source topic; `rules` are about records of this delay topic."""
        tracker = AckTracker(Position(start))
        topic = place.topic if app.frame_handler is None else app.frame_handler.topic
        ids = {topic: topic_id} if delay is None else {place.topic: delay_topic_id, topic: topic_id}
        scope = Scope(app, ids)
        scope.parked_rules = rules
        self._processor = PartitionProcessor(scope, place, tracker, delay=delay)
        self._now = now

    def failed(self, record: Record, error: Exception) -> Outcome:
        """What becomes of a record that was parked, buried, or has failed."""
        report = self._processor.offer([record], self._now)
        if not report:
            lot = self._processor.next()
            assert lot is not None, f"{record.place} was shown to the handler, but is not for it"  # noqa: S101 -- the columns and the processor have the same rules
            lot.results.append(error)
            report = self._processor.end(lot, self._now)
        return self._taken(report)

    def unseen(self, record: Record) -> Outcome | NotDue | ForHandler:
        """What becomes of a record that the handler did not see."""
        processor = self._processor
        report = processor.offer([record], self._now)
        if report:
            return self._taken(report)
        lot = processor.next()
        if lot is None:
            return NotDue(processor.next_due() or self._now)
        if not lot.recovering:
            return ForHandler()
        # It ended before, as one of an app that had a recovery: a frame has none to wait for.
        lot.results.append(None)
        return self._taken(processor.end(lot, self._now))

    def proven(self, record: Record, reason: str, error: Exception) -> Outcome:
        """Bury a record that was proven to be at fault."""
        return self._taken(self._processor.bury(record, reason, error, self._now))

    def _taken(self, report: Report) -> Outcome:
        self._processor.settle(report.offsets)
        return report.outcomes[0]
