"""Reopening: partitions that begin anew, while they stay this worker's."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Final

from redrive.engines.starts import DataLossError
from redrive.engines.worker.consuming import kafkas
from redrive.errors import RedriveError
from redrive.kafka.errors import NotAllowedError
from redrive.ports import Position
from redrive.threads import OnDeath, start_thread

if TYPE_CHECKING:
    from confluent_kafka import Consumer

    from redrive.engines.worker.assignment import Assignment
    from redrive.engines.worker.beginnings import Beginnings
    from redrive.engines.worker.loop import Loop
    from redrive.engines.worker.partition import Partition
    from redrive.kafka.transactions import TransactionalProducer
    from redrive.record import TopicPartition

log: Final = logging.getLogger("redrive.worker")

_WAIT: Final = 1.0


class Reopening:
    """Lets go of what was under way in a partition, and reads it again from what was committed."""

    def __init__(
        self,
        consumer: Consumer,
        loop: Loop,
        assignment: Assignment,
        beginnings: Beginnings,
        *,
        on_trouble: Callable[[RedriveError], None],
        on_death: OnDeath,
        is_over: Callable[[], bool],
    ) -> None:
        self._consumer = consumer
        self._loop = loop
        self._assignment = assignment
        self._beginnings = beginnings
        self._on_trouble = on_trouble
        self._on_death = on_death
        self._is_over = is_over

    def set_aside(self, partition: Partition) -> None:
        """Let go of all that is under way; only the poll thread calls it."""
        place = partition.place
        if self._assignment.partitions.get(place) is not partition:
            return
        self._consumer.pause([kafkas(place)])
        self._assignment.close(partition)
        self.later([place])

    def later(self, places: Iterable[TopicPartition]) -> None:
        """Take partitions up that are this worker's, in a while."""
        for place in places:
            timer = threading.Timer(_WAIT, self._loop.ask, [partial(self._begin, place)])
            timer.daemon = True
            timer.start()

    def _begin(self, place: TopicPartition) -> None:
        if self._is_waiting(place):
            # In a thread of its own: a transaction's end may take its time, and others poll on.
            find = partial(self._find, place)
            start_thread(find, name="redrive-reopening", on_death=self._on_death)

    def _is_waiting(self, place: TopicPartition) -> bool:
        owned = {(one.topic, one.partition) for one in self._consumer.assignment()}
        return place in owned and place not in self._assignment.partitions

    def _find(self, place: TopicPartition) -> None:
        try:
            producers = self._beginnings.fence_off([place])
            start = self._beginnings.find([place])[place]
        except (DataLossError, NotAllowedError) as error:
            self._on_trouble(error)
        except RedriveError as error:
            if not self._is_over():
                log.warning("%s cannot be taken up yet: %s", place, error)
                self.later([place])
        else:
            self._loop.ask(partial(self._open, place, start, producers.get(place)))

    def _open(
        self, place: TopicPartition, start: Position, producer: TransactionalProducer | None
    ) -> None:
        if not self._is_waiting(place):
            return
        self._assignment.open(place, start, producer)
        # Not by a seek: one that met the end of what is there is not read any more.
        self._consumer.incremental_unassign([kafkas(place)])
        self._consumer.incremental_assign([kafkas(place, Position(start.offset))])
        self._consumer.resume([kafkas(place)])
