"""Watching: what became of the copies of a replay, as far as Kafka shows it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from redrive.dead.dialects import number
from redrive.dead.letter import Letter
from redrive.dead.scan import read_range
from redrive.envelope import header_of
from redrive.ports import Position
from redrive.processing.progress.done_beyond import Range, decode, includes
from redrive.record import Record, TopicPartition, partitions_of

if TYPE_CHECKING:
    from redrive.dead.letters import DeadLetters
    from redrive.dead.operations import Operation
    from redrive.ports import Progress

_OPERATION = header_of("operation")
_ATTEMPT = header_of("attempt")
_REPLAY_OF = header_of("replay_of")


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
        self._died: set[bytes | None] = set()
        """The letters whose copies have died and are ahead of the app's progress all the same."""
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
        fate = self._look()
        if fate.settled and self._app is not None and self._app.guarantee.transactional:
            # Progress may be seen a little before what was written with it.
            for place in self._dead_places() + self._places(self._waiting_topics()):
                self._log.settle(place)
            fate = self._look()
        return fate

    def _look(self) -> Fate:
        # In this order: a copy that dies meanwhile is then seen where it was, or where it is.
        ahead = self._ahead()
        self._died |= self._look_at_dead()
        still_ahead: set[bytes | None] = set()
        parked = waiting = 0
        for record in self._copies(ahead):
            if (letter := record.header(_REPLAY_OF)) in self._died:
                still_ahead.add(letter)
            elif (number(record.header(_ATTEMPT) or b"") or 1) > 1:
                parked += 1
            else:
                waiting += 1
        self._died = still_ahead
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

    def _look_at_dead(self) -> set[bytes | None]:
        """Count those that have died since the last look; returns of which letters they are."""
        died: set[bytes | None] = set()
        for place in self._dead_places():
            first, end = self._log.bounds(place)
            start = max(self._seen.get(place, 0), first)
            for record in read_range(self._log, place, start, end, _left_alone):
                letter = Letter(record, self._letters.dialect)
                if letter.operation == self._id:
                    self._dead += 1
                    died.add(record.header(_REPLAY_OF))
            self._seen[place] = max(start, end)
        return died

    def _dead_places(self) -> list[TopicPartition]:
        """Where copies die again: of an app that was renamed, in another topic than before."""
        topics = [self._letters.topic, *(() if self._app is None else (self._app.dead_topic,))]
        return self._places(dict.fromkeys(topics))

    def _waiting_topics(self) -> list[str]:
        app = self._app
        return [] if app is None else [*app.waiting_topics(self._log.names(app.name))]

    def _places(self, topics: Iterable[str]) -> list[TopicPartition]:
        return partitions_of({topic: self._log.partitions(topic) for topic in topics})

    def _ahead(self) -> list[_Ahead]:
        """Copies can only be among what the app has not committed yet."""
        if self._app is None or self._progress is None:
            return []
        places = self._places([*self._app.handlers, *self._waiting_topics()])
        committed = self._progress.committed(places)
        found = []
        for place in places:
            first, end = self._log.bounds(place)
            position = committed.get(place, Position(first))
            start = max(first, position.offset, self._without.get(place, 0))
            found.append(_Ahead(place, start, end, decode(position)))
        return found

    def _copies(self, ahead: Iterable[_Ahead]) -> Iterator[Record]:
        """The copies among it that are not handled."""
        for place, start, end, done in ahead:
            mine = end
            for record in read_range(self._log, place, start, end, _left_alone):
                if record.header(_OPERATION) == self._id.encode():
                    mine = min(mine, record.offset)
                    if not includes(done, record.offset):
                        yield record
            self._without[place] = max(start, mine)


class _Ahead(NamedTuple):
    """What the app has not committed of one partition."""

    place: TopicPartition
    start: int
    end: int
    done: list[Range]
    """What is handled of it all the same."""


def _left_alone(_offsets: int) -> None:
    """What retention has deleted cannot be handled any more."""
