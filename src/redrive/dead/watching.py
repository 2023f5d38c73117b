"""Watching: what became of the copies of a replay, as far as Kafka shows it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from redrive.dead.dialects import number, text
from redrive.dead.letter import Letter
from redrive.envelope import header_of
from redrive.record import Record, TopicPartition

if TYPE_CHECKING:
    from redrive.dead.letters import DeadLetters
    from redrive.dead.operations import Operation
    from redrive.ports import Progress

_OPERATION = header_of("operation")
_ATTEMPT = header_of("attempt")


class Fate(NamedTuple):
    """What became of copies; all others were handled."""

    dead: int
    """Died again."""
    parked: int
    """Failed again, and wait for another attempt."""
    waiting: int
    """Were not handled yet."""

    @property
    def failed(self) -> int:
        """How many failed again."""
        return self.dead + self.parked


class Watch:
    """Looks for the copies of one operation."""

    def __init__(
        self, letters: DeadLetters, operation: Operation, progress: Progress | None
    ) -> None:
        self._letters = letters
        self._log = letters.log
        self._app = letters.app
        self._id = operation.id
        self._progress = progress
        self._dead = 0
        self._seen = {int(name): end for name, end in operation.ends.items()}
        """Up to where the dead topic was looked at: what dies again dies behind the job's ends."""

    @property
    def delay(self) -> int:
        """Milliseconds that copies wait before they are handled."""
        delays = () if self._app is None else self._app.delay_topics.values()
        return next(iter(delays), 0)

    def look(self) -> Fate:
        """What became of the copies by now."""
        self._look_at_dead()
        parked = waiting = 0
        for record in self._ahead():
            if text(record.header(_OPERATION) or b"") != self._id:
                continue
            if (number(record.header(_ATTEMPT) or b"") or 1) > 1:
                parked += 1
            else:
                waiting += 1
        return Fate(self._dead, parked, waiting)

    def _look_at_dead(self) -> None:
        topic = self._letters.topic
        for partition in range(self._log.partitions(topic)):
            place = TopicPartition(topic, partition)
            first, end = self._log.bounds(place)
            start = max(self._seen.get(partition, 0), first)
            for batch in self._log.batches(place, start, end):
                found = (Letter(record, self._letters.dialect) for record in batch)
                self._dead += sum(each.operation == self._id for each in found)
            self._seen[partition] = max(start, end)

    def _ahead(self) -> list[Record]:
        """Copies can only be among what the app has not committed yet."""
        if self._app is None or self._progress is None:
            return []
        topics = [*self._app.handlers, *self._app.waiting_topics(self._log.names(self._app.name))]
        places = [
            TopicPartition(topic, partition)
            for topic in topics
            for partition in range(self._log.partitions(topic))
        ]
        committed = self._progress.committed(places)
        found: list[Record] = []
        for place in places:
            first, end = self._log.bounds(place)
            start = max(first, committed[place].offset) if place in committed else first
            for batch in self._log.batches(place, start, end):
                found += [each for each in batch if each.header(_OPERATION) is not None]
        return found
