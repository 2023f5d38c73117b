"""OwnHouses: those that the task under way handles, and whether they are still its own.

Spark lets tasks of a job that failed go on for a while, and an executor that it has given up may
come back. Such a task knows of keys what was true once. So the claim of the plan that counts stands
beside the committed offset of the source partition, and a task looks for its own before it
commits, before it writes into a room, and now and then.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from redrive.engines.offset_reset import is_of_another
from redrive.engines.spark.ranges import House
from redrive.errors import PublishError, RedriveError
from redrive.ports import Handover, Position, Publisher
from redrive.processing.progress.notes import CLAIM, noted
from redrive.record import TopicPartition, Write

if TYPE_CHECKING:
    from redrive.app import App
    from redrive.ports import Progress


class LostHouseError(RedriveError):
    """A later task handles the partition."""


class OwnHouses:
    """The houses of the task under way in one process. May be used from many threads."""

    def __init__(self, app: App, progress: Progress) -> None:
        self._app = app
        self._progress = progress
        self._claims: dict[TopicPartition, str] = {}
        self._lock = threading.Lock()
        self._written = threading.Condition(self._lock)
        self.writing = 0
        """How many units of work are writing, or about to."""

    def take(self, houses: Collection[House]) -> dict[TopicPartition, Position]:
        """Begin with these; returns what is committed in all their partitions."""
        ids = {place: topic_id for house in houses for place, topic_id in house.places}
        found = self._progress.committed(ids)
        with self._lock:
            self._claims = {house.source: house.claim for house in houses}
            for source in self._claims:
                self._check(source, found)
        for place, topic_id in ids.items():
            if place not in found or is_of_another(found[place], topic_id):
                raise LostHouseError(f"what is committed in {place} is not what was planned with")
        return found

    def leave(self) -> None:
        """They are nobody's: what comes late for them is not written."""
        with self._lock:
            self._claims = {}

    def look(self, sources: Collection[TopicPartition] = ()) -> None:
        """See that these are still its own, or all: a LostHouseError says that one is not."""
        with self._lock:
            mine = sources or list(self._claims)
        if mine:
            found = self._progress.committed(mine)
            with self._lock:
                for source in mine:
                    self._check(source, found)

    def look_before(self, writes: Iterable[Write]) -> None:
        """The same, for those into whose rooms something is about to be written."""
        topics = {write.topic for write in writes}
        rooms = {topic for topic in topics if self._app.delay_of(topic) is not None}
        (source,) = self._app.handlers
        numbers = {write.partition for write in writes if write.topic in rooms}
        if numbers:
            self.look([TopicPartition(source, number or 0) for number in numbers])

    @contextmanager
    def while_written(self, writes: Iterable[Write]) -> Iterator[None]:
        """Look, and have it known that something is written within the block."""
        with self._lock:
            self.writing += 1  # before the look: whoever leaves, and waits, misses nobody
        try:
            self.look_before(writes)
            yield
        finally:
            with self._written:
                self.writing -= 1
                self._written.notify_all()

    def wait_for_writes(self, seconds: float) -> None:
        """Wait until nothing is being written, or for that time."""
        with self._written:
            self._written.wait_for(lambda: not self.writing, seconds)

    def _check(self, source: TopicPartition, found: Mapping[TopicPartition, Position]) -> None:
        position = found.get(source)
        claim = self._claims.get(source)
        if claim is None or position is None or noted(position, CLAIM) != claim:
            raise LostHouseError(
                f"{source} is handled by a later task, whose claim is there: this one ends"
            )


class LookingPublisher:
    """Writes into rooms only what is of houses that are still its own."""

    def __init__(self, publisher: Publisher, houses: OwnHouses) -> None:
        self._publisher = publisher
        self._houses = houses

    @property
    def not_allowed(self) -> RedriveError | None:
        """The missing permission that a write ran into, if any."""
        return self._publisher.not_allowed

    def hand_over(self, writes: Sequence[Write], *, alone: bool = False) -> Handover:
        """Begin to write all of them; LostHouseError, if it must not."""
        self._houses.look_before(writes)
        return self._publisher.hand_over(writes, alone=alone)

    def publish(self, writes: Sequence[Write]) -> None:
        """Write all of them; where it must not, a PublishError for which nobody is to blame."""
        try:
            with self._houses.while_written(writes):
                self._publisher.publish(writes)
        except PublishError:
            raise
        except RedriveError as why:
            error = PublishError(str(why))
            error.kind = "outage"
            raise error from why

    def refusing(self, topics: Collection[str]) -> dict[str, PublishError]:
        """Which of these topics accept nothing at all now, and why."""
        return self._publisher.refusing(topics)


def writer(app: App, publisher: Publisher, houses: OwnHouses) -> Publisher:
    """What an app's tasks write with."""
    return LookingPublisher(publisher, houses) if app.ordering == "strict" else publisher
