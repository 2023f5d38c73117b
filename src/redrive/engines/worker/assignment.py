"""Assignment: the partitions this worker has, and what happens when they come and go.

All of it runs in the poll thread, inside callbacks of librdkafka. What else that thread does goes
on: `meanwhile` is called while something is waited for.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

from redrive.engines.offset_reset import is_of_another
from redrive.engines.worker.partition import Partition
from redrive.engines.worker.reader import kafkas, places
from redrive.errors import RedriveError
from redrive.kafka.errors import BrokerError, NotAllowedError
from redrive.ports import Position
from redrive.record import TopicPartition
from redrive.threads import Looking, attending
from redrive.tuning import FINISH_LOOK_EVERY

if TYPE_CHECKING:
    from redrive.app import App
    from redrive.engines.worker.commits import Commits
    from redrive.engines.worker.counting import Counting
    from redrive.engines.worker.delivery_thread import DeliveryThread
    from redrive.engines.worker.rooms import Rooms
    from redrive.engines.worker.start_offsets import StartOffsets
    from redrive.engines.worker.subscription import Subscription
    from redrive.kafka.transactional_producer import TransactionalProducer
    from redrive.processing.calls.scope import Scope
    from redrive.processing.dispatcher import Dispatcher
    from redrive.processing.order.key_gate import KeyGate

log: Final = logging.getLogger("redrive.worker")


class Assignment:
    """The partitions this worker has."""

    def __init__(
        self,
        *,
        app: App,
        topics: Subscription,
        scope: Scope,
        dispatcher: Dispatcher,
        delivering: DeliveryThread,
        start_offsets: StartOffsets,
        counting: Counting,
        rooms: Rooms,
        revoke_wait: float,
        on_trouble: Callable[[RedriveError], None],
        on_postponed: Callable[[list[TopicPartition]], None],
        meanwhile: Callable[[], None],
    ) -> None:
        self.partitions: dict[TopicPartition, Partition] = {}
        self.settled = False
        """Whether the group has said to this worker which partitions it has, if any."""
        self.ends: dict[TopicPartition, int] = {}
        """Where partitions end that must not be read further."""
        self.foreign: set[TopicPartition] = set()
        """Partitions that the group assigned although nobody here subscribes to their topics: as
        such they are neither read nor committed."""
        self.commits: Commits
        self._app = app
        self._topics = topics
        self._scope = scope
        self._dispatcher = dispatcher
        self._delivering = delivering
        self._start_offsets = start_offsets
        self._counting = counting
        self.rooms = rooms
        self.revoke_wait = revoke_wait
        """Seconds that running work has to end when its partition goes."""
        self._on_trouble = on_trouble
        self._on_postponed = on_postponed
        self._meanwhile = meanwhile

    # librdkafka calls these

    def on_assign(self, consumer: Any, assigned: list[Any]) -> None:
        """Partitions come: they begin at what was committed."""
        self._counting.rebalances["assigned"] += 1
        self.settled = True
        found, foreign = self._sorted_out(places(assigned))
        log.info("assigned: %s", ", ".join(map(str, found)) or "nothing more")
        try:
            with attending(self._meanwhile, every=FINISH_LOOK_EVERY, name="redrive-assigned"):
                producers = self._start_offsets.fence_off(found)
                ready, roomless = self.rooms.of(found)
                starts = self._start_offsets.find(ready)
                gates = self.rooms.gates(starts)
        except RedriveError as error:
            if isinstance(error, BrokerError) and not isinstance(error, NotAllowedError):
                log.warning("%s: looking again for where the partitions start", error)
                # Ours, but not read: nothing is known of them yet.
                consumer.incremental_assign(assigned)
                consumer.pause(assigned)
                self._on_postponed(found)
            else:
                self._on_trouble(error)
                consumer.incremental_unassign(assigned)
            return
        # What the group assigned before, against its members' wishes, may be a room now.
        owned = self.rooms.owned(consumer)
        if taken := [kafkas(place) for place in starts if place in owned]:
            consumer.incremental_unassign(taken)
        strangers = [place for place in foreign if place not in owned]
        unread = [kafkas(place) for place in (*strangers, *roomless) if place not in starts]
        consumer.incremental_assign(
            [kafkas(place, Position(start.offset)) for place, start in starts.items()] + unread
        )
        consumer.pause(unread)
        # librdkafka remembers that a partition was paused, also when it was away meanwhile.
        consumer.resume([kafkas(place) for place in starts])
        for place, start in starts.items():
            self.open(place, start, producers.get(place), gates.get(place))
        if roomless:
            self._on_postponed(roomless)

    def on_revoke(self, consumer: Any, revoked: list[Any]) -> None:
        """Partitions go: end what runs, commit, forget."""
        self._counting.rebalances["revoked"] += 1
        going, found = self._with_rooms(consumer, revoked)
        log.info("revoked: %s", ", ".join(str(each.place) for each in found) or "nothing")
        self.finish(found, self.revoke_wait)
        for each in found:
            self.close(each)
        self._unassign(consumer, going)

    def on_lost(self, consumer: Any, gone: list[Any]) -> None:
        """Others have them already: whatever was under way no longer counts."""
        self._counting.rebalances["lost"] += 1
        self.settled = False
        going, found = self._with_rooms(consumer, gone)
        log.warning("lost: %s", ", ".join(str(each.place) for each in found) or "nothing")
        for each in found:
            self.close(each)
        self._unassign(consumer, going)

    def _with_rooms(
        self, consumer: Any, named: list[Any]
    ) -> tuple[list[TopicPartition], list[Partition]]:
        """Partitions that go, with those that follow them; and which of them are read here.

        What was set aside, to be taken up again, is not read, but the consumer has it still.
        """
        going = places(named)
        ours = [place for place in going if place not in self.foreign]
        owned = (place for place in self.rooms.owned(consumer) if place not in self.foreign)
        among = dict.fromkeys((*self.partitions, *owned))
        self.foreign.difference_update(going)
        followed = self.rooms.with_followers(ours, among)
        found = [each for place in followed if (each := self.partitions.get(place))]
        return [*dict.fromkeys((*going, *followed))], found

    def _unassign(self, consumer: Any, going: list[TopicPartition]) -> None:
        """Let go of these, but for what is still here as a room of another."""
        gone = [place for place in going if place not in self.partitions]
        if self.rooms.strict:  # some may have gone before, and librdkafka refuses what it has not
            owned = self.rooms.owned(consumer)
            gone = [place for place in gone if place in owned]
        consumer.incremental_unassign([kafkas(place) for place in gone])

    # What they are made of

    def open(
        self,
        place: TopicPartition,
        start: Position,
        producer: TransactionalProducer | None,
        gate: KeyGate | None = None,
    ) -> Partition:
        """Take up a partition."""
        each = Partition(
            self._scope,
            place,
            start,
            delay=self._app.delay_of(place.topic),
            topic_id=self._scope.topic_ids[place.topic],
            gate=gate,
        )
        each.committed = None  # written down at once: "latest" must not mean a later time
        self.partitions[place] = each
        each.end = self.ends.get(place)  # only now: whoever moves ends on moves those of all here
        self._delivering.open(each, producer)
        self._dispatcher.add(each.processor)
        return each

    def finish(self, partitions: list[Partition], seconds: float, *, last: bool = False) -> None:
        """Hand out nothing more of them, wait for what runs, make it durable, commit.

        With `last` a commit is not waited for longer either: nobody polls after it.

        Records that wait for their backoff or for a manual acknowledgement are given back: they are
        not waited for, and run again elsewhere.
        """
        began = monotonic()
        until = began + seconds
        for each in partitions:
            self._dispatcher.withdraw(each.processor)
        looking = Looking(self._meanwhile, FINISH_LOOK_EVERY)
        while (now := monotonic()) < until and any(each.processor.lots for each in partitions):
            threading.Event().wait(min(looking.seconds, until - now))
            looking()
        self._dispatcher.tick()  # for what is done of lots that still run
        late = [str(each.place) for each in partitions if each.processor.lots]
        if late and seconds:  # else it was said by whoever has waited
            log.warning(
                "%s: handlers are still running after %.1f s; no longer waiting for them: their"
                " records run again, and their results here are ignored",
                ", ".join(late),
                monotonic() - began,
            )
        self._delivering.finish(partitions, max(until, monotonic() + 1), self._meanwhile)
        if not self._app.guarantee.transactional:
            with attending(self._meanwhile, every=FINISH_LOOK_EVERY, name="redrive-revoked"):
                self.commits.commit_now(partitions, until if last else None)

    def note_committed(self, each: Partition, position: Position) -> None:
        """Note that a commit is durable: keys may have waited for it.

        It may be about the topic that had the name before: nothing of this one is committed by it.
        """
        if not is_of_another(position, each.topic_id):
            self._dispatcher.committed(each.processor, position)

    def close(self, each: Partition) -> None:
        """Forget a partition."""
        self._dispatcher.remove(each.processor)
        self._delivering.forget(each)
        self.partitions.pop(each.place, None)

    def _sorted_out(
        self, assigned: list[TopicPartition]
    ) -> tuple[list[TopicPartition], list[TopicPartition]]:
        """Those to be read, and those that are not: see `rejoining.py`."""
        shared_out = self._topics.shared_out
        foreign = [place for place in assigned if place.topic not in shared_out]
        self.foreign.update(foreign)
        return [place for place in assigned if place not in self.foreign], foreign
