"""Watching: what became of the copies of a replay, as far as Kafka shows it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from redrive.dead.dialects import number
from redrive.dead.letter import Letter
from redrive.envelope import header_of
from redrive.ports import Position
from redrive.processing.progress.done_beyond import decode, includes
from redrive.record import Record, TopicPartition, partitions_of

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

    @property
    def settled(self) -> bool:
        """Whether all are handled or dead: nothing changes any more."""
        return not self.parked and not self.waiting


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
        self._seen = {
            TopicPartition(letters.topic, int(name)): end for name, end in operation.ends.items()
        }
        """Up to where the dead topic was looked at: what dies again dies behind the job's ends."""
        self._without: dict[TopicPartition, int] = {}
        """Up to where there are no copies among what is ahead: it need not be read again."""

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
            if (number(record.header(_ATTEMPT) or b"") or 1) > 1:
                parked += 1
            else:
                waiting += 1
        return Fate(self._dead, parked, waiting)

    def follow(
        self, show: Callable[[Fate], None], stopping: Callable[[], bool], wait: Callable[[], None]
    ) -> Fate:
        """Look until all copies are handled or dead, or somebody wants to stop."""
        while True:
            fate = self.look()
            show(fate)
            if fate.settled or stopping():
                return fate
            wait()

    def _look_at_dead(self) -> None:
        for place in self._dead_places():
            first, end = self._log.bounds(place)
            start = max(self._seen.get(place, 0), first)
            for batch in self._log.batches(place, start, end):
                found = (Letter(record, self._letters.dialect) for record in batch)
                self._dead += sum(each.operation == self._id for each in found)
            self._seen[place] = max(start, end)

    def _dead_places(self) -> list[TopicPartition]:
        """Where copies die again: of an app that was renamed, in another topic than before."""
        topics = [self._letters.topic, *(() if self._app is None else (self._app.dead_topic,))]
        return [
            TopicPartition(topic, partition)
            for topic in dict.fromkeys(topics)
            for partition in range(self._log.partitions(topic))
        ]

    def _ahead(self) -> Iterator[Record]:
        """Copies can only be among what the app has not committed yet."""
        if self._app is None or self._progress is None:
            return
        topics = [*self._app.handlers, *self._app.waiting_topics(self._log.names(self._app.name))]
        places = partitions_of({topic: self._log.partitions(topic) for topic in topics})
        committed = self._progress.committed(places)
        for place in places:
            first, end = self._log.bounds(place)
            position = committed.get(place, Position(first))
            start, mine = max(first, position.offset, self._without.get(place, 0)), end
            done = decode(position)
            for batch in self._log.batches(place, start, end):
                for record in batch:
                    if record.header(_OPERATION) == self._id.encode():
                        mine = min(mine, record.offset)
                        if not includes(done, record.offset):
                            yield record
            self._without[place] = max(start, mine)
