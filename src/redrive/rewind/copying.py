"""Copying: handles old records of some keys again, by copies for this app alone.

Progress stays where it is, and the app may run meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from redrive import envelope as envelopes
from redrive.dead.copies import LeftOut, in_its_room, target
from redrive.dead.desk import check_same
from redrive.dead.selection import Chosen
from redrive.processing.calls import invoke
from redrive.record import Record, TopicPartition, Write
from redrive.rewind.plan import why_not

if TYPE_CHECKING:
    from redrive.app import App
    from redrive.dead.copies import Copy
    from redrive.dead.desk import Desk
    from redrive.dead.operations import Operation
    from redrive.ports import Clock
    from redrive.processing.work import Work
    from redrive.rewind.old_records import Old, OldRecords
    from redrive.rewind.targets import Span


class Copying:
    """Which records are copied, and what is written for them."""

    def __init__(
        self,
        app: App,
        records: OldRecords,
        spans: Sequence[Span],
        clock: Clock,
        *,
        keys: Collection[str],
        forget: bool,
        no_topic: Collection[str],
    ) -> None:
        """`no_topic` are the source topics for whose copies there is no topic."""
        self._app = app
        self._records = records
        self._spans = spans
        self._clock = clock
        self._keys = keys
        self._forget = forget
        self._no_topic = no_topic
        self.passed: dict[str, int] = {}
        """The ends of partitions that were looked at from end to end."""

    @property
    def deleted(self) -> int:
        """Offsets that retention has deleted before they were read."""
        return self._records.deleted

    def rest(
        self, desk: Desk, operation: Operation, stopping: Callable[[], object]
    ) -> Iterator[Chosen]:
        """What becomes of each record from the cursor on, partition by partition."""
        del desk  # it knows letters only
        for span in self._spans:
            start = operation.cursor.get(str(span.place), span.start)
            for old in self._records.of(span, self._keys, start=start, stopping=stopping):
                copy = self._copy(old, operation.id)
                # What is left out was not asked for: its id may be that of a record out of range.
                forgets = self._forget and not isinstance(copy, LeftOut)
                yield Chosen(old.record, copy, done=old.stands.own if forgets else None)
            self.passed[str(span.place)] = span.end

    def check(self, desk: Desk, operation: Operation) -> None:
        """See that the source topics are still those that the operation began with."""
        for topic, topic_id in operation.options["topics"].items():
            check_same(desk.letters.log, topic, topic_id, operation)

    def partition_of(self, record: Record) -> str:
        """Records may come from several topics."""
        return str(TopicPartition(record.topic, record.partition))

    def prepare(self, some: Sequence[Chosen]) -> int:
        """Forget ids before their copies are there: the app may be quick."""
        wanted = [each.done for each in some if each.done is not None]
        return self._records.standings.forget(wanted)

    def marks(self, desk: Desk, chosen: Chosen, operation: Operation) -> list[Write]:
        """None: the operation's progress says it all."""
        del desk, chosen, operation
        return []

    def _copy(self, old: Old, operation: str) -> Copy:
        why = why_not(old, as_copies=True, forget=self._forget, no_topic=self._no_topic)
        if why is not None or old.work is None:
            return LeftOut(why or "broken-headers")
        return self._write(target(self._app, old.record.topic), old.work, operation)

    def _write(self, topic: str, work: Work, operation: str) -> Write:
        record, now = work.record, self._clock.now()
        at_origin = topic == record.topic
        if work.envelope is None:
            invoke.decode(work)  # its id may be a field of it
        envelope = replace(
            self._records.standings.scope.envelopes.for_report(work),
            first_received=now,  # its policy counts from now
            due=None if at_origin else now,
            operation=operation,
        )
        headers = envelope.headers(envelopes.user_headers(record.headers))
        write = Write(topic, record.key, record.value, headers)
        if not at_origin:
            return in_its_room(self._app, write, record.partition)
        return write._replace(partition=record.partition, timestamp=record.timestamp)
