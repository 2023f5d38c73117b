"""Reopening: partitions that start again, while they stay this worker's.

Their topic was recreated, or their transaction failed.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import TYPE_CHECKING, Final

from redrive.engines.worker.reader import kafkas
from redrive.errors import DataLossError, RedriveError
from redrive.kafka.errors import NotAllowedError
from redrive.ports import Position
from redrive.threads import OnDeath, start_thread
from redrive.tuning import REOPEN_WAIT

if TYPE_CHECKING:
    from confluent_kafka import Consumer

    from redrive.engines.worker.assignment import Assignment
    from redrive.engines.worker.loop import Loop
    from redrive.engines.worker.partition import Partition
    from redrive.engines.worker.start_offsets import StartOffsets
    from redrive.kafka.transactional_producer import TransactionalProducer
    from redrive.processing.order.key_gate import KeyGate
    from redrive.record import TopicPartition

log: Final = logging.getLogger("redrive.worker")


class Reopening:
    """Lets go of what was under way in a partition, and reads it again from what was committed."""

    def __init__(
        self,
        consumer: Consumer,
        loop: Loop,
        assignment: Assignment,
        start_offsets: StartOffsets,
        *,
        on_trouble: Callable[[RedriveError], None],
        on_death: OnDeath,
        is_over: Callable[[], bool],
    ) -> None:
        self._consumer = consumer
        self._loop = loop
        self._assignment = assignment
        self._start_offsets = start_offsets
        self._on_trouble = on_trouble
        self._on_death = on_death
        self._is_over = is_over

    def reopen_recreated(self, ids: Mapping[str, str]) -> None:
        """Topics as they are seen: partitions of one that was deleted and recreated start again.

        librdkafka reads on in it at the old offset, as if it were the same.
        """
        self._start_offsets.note_topics(ids)
        old = [
            each
            for each in list(self._assignment.partitions.values())
            if ids.get(each.place.topic, each.topic_id) != each.topic_id
        ]
        if old:
            self._loop.ask(partial(self.set_aside, old))

    def set_aside(self, partitions: Collection[Partition]) -> None:
        """Let go of all that is under way; only the poll thread calls it."""
        mine = self._assignment.partitions
        going = [each.place for each in partitions if mine.get(each.place) is each]
        rooms = self._assignment.rooms
        partitions = [mine[place] for place in rooms.with_followers(going, list(mine))]
        if not partitions:
            return
        self._consumer.pause([kafkas(each.place) for each in partitions])
        for each in partitions:
            self._assignment.close(each)
        self.later(rooms.sources([each.place for each in partitions]))

    def take_up_new_rooms(self) -> None:
        """Take those up again that lack a room, as its topic came later: with all of them."""
        assignment = self._assignment
        outgrown = assignment.rooms.outgrown(list(assignment.partitions))
        if outgrown:
            log.info("%s: taken up again, with new topics", ", ".join(map(str, outgrown)))
            places = assignment.rooms.with_followers(outgrown, list(assignment.partitions))
            partitions = [assignment.partitions[place] for place in places]
            assignment.finish(partitions, assignment.revoke_wait)
            self.set_aside(partitions)

    def later(self, places: Collection[TopicPartition]) -> None:
        """Take partitions up that are this worker's, in a while."""
        timer = threading.Timer(REOPEN_WAIT, self._loop.ask, [partial(self._begin, places)])
        timer.daemon = True
        timer.start()

    def _begin(self, places: Collection[TopicPartition]) -> None:
        places = self._waiting(places)
        if places:
            # In a thread of its own: a transaction's end may take its time, and others poll on.
            find = partial(self._find, places)
            start_thread(find, name="redrive-reopening", on_death=self._on_death)

    def _waiting(self, places: Collection[TopicPartition]) -> list[TopicPartition]:
        owned = {(one.topic, one.partition) for one in self._consumer.assignment()}
        return [
            place for place in places if place in owned and place not in self._assignment.partitions
        ]

    def _find(self, places: Collection[TopicPartition]) -> None:
        try:
            producers = self._start_offsets.fence_off(places)
            rooms = self._assignment.rooms
            ready, roomless = rooms.of(places)
            starts = self._start_offsets.find(ready)
            gates = rooms.gates(starts)
        except (DataLossError, NotAllowedError) as error:
            self._on_trouble(error)
        except RedriveError as error:
            if not self._is_over():
                listed = ", ".join(map(str, places))
                log.warning("%s cannot be read yet: %s", listed, error)
                self.later(places)
        else:
            self._loop.ask(partial(self._open, starts, producers, gates))
            if roomless:
                self.later(roomless)

    def _open(
        self,
        starts: Mapping[TopicPartition, Position],
        producers: Mapping[TopicPartition, TransactionalProducer],
        gates: Mapping[TopicPartition, KeyGate],
    ) -> None:
        owned = {(one.topic, one.partition) for one in self._consumer.assignment()}
        waiting = self._waiting(self._assignment.rooms.sources(starts))
        for place in self._assignment.rooms.with_followers(waiting, starts):
            start = starts[place]
            self._assignment.open(place, start, producers.get(place), gates.get(place))
            # Not by a seek: one that met the end of what is there is not read any more.
            if place in owned:  # a room is not, if it was not found the first time
                self._consumer.incremental_unassign([kafkas(place)])
            self._consumer.incremental_assign([kafkas(place, Position(start.offset))])
            self._consumer.resume([kafkas(place)])
