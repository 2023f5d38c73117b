"""Loop: the poll thread. It polls, whatever happens elsewhere; only it touches the consumer."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable
from math import inf
from time import monotonic
from typing import TYPE_CHECKING, Final

from confluent_kafka import Consumer, KafkaError

from redrive.backoff import GiveBack
from redrive.engines.worker.backpressure import Backpressure
from redrive.engines.worker.reader import ByPartition, Reader, kafkas, sorted_out
from redrive.engines.worker.transaction_thread import TransactionThread
from redrive.kafka.admin import is_passing
from redrive.kafka.errors import BrokerError, is_not_allowed, not_allowed
from redrive.ports import Position
from redrive.tuning import FENCED_BY_ITSELF_WITHIN, POLL, POLL_BUSY, POLL_SHORTEST

if TYPE_CHECKING:
    from redrive.app import App
    from redrive.engines.worker.assignment import Assignment
    from redrive.engines.worker.commits import Commits
    from redrive.engines.worker.delivery_thread import DeliveryThread
    from redrive.engines.worker.options import Options
    from redrive.engines.worker.partition import Partition
    from redrive.ports import Clock
    from redrive.processing.dispatcher import Dispatcher
    from redrive.record import TopicPartition

log: Final = logging.getLogger("redrive.worker")

_UNRELEASED: Final = KafkaError(KafkaError.UNRELEASED_INSTANCE_ID).str()
_FENCED: Final = KafkaError(KafkaError.FENCED_INSTANCE_ID).str()
_MISSING: Final = ("UNKNOWN_TOPIC_OR_PART", "_UNKNOWN_TOPIC", "_UNKNOWN_PARTITION")
Command = Callable[[], None]


class NameInUseError(BrokerError):
    """The group does not let this worker in by its name, for a while: it has to join again."""


class Loop:
    """The poll thread."""

    def __init__(
        self,
        *,
        app: App,
        consumer: Consumer,
        assignment: Assignment,
        dispatcher: Dispatcher,
        delivering: DeliveryThread,
        commits: Commits,
        clock: Clock,
        options: Options,
        on_gone: Callable[[TopicPartition], None],
    ) -> None:
        self.polled_at = monotonic()
        """When it last polled; somebody who looks knows by it that it lives."""
        self._out_of_reach_at = -inf
        self._app = app
        self._consumer = consumer
        self._reader = Reader(consumer)
        self._backpressure = Backpressure(consumer)
        self._assignment = assignment
        self._dispatcher = dispatcher
        self._delivering = delivering
        self._commits = commits
        self._clock = clock
        self._options = options
        self._on_gone = on_gone
        self._commands: queue.SimpleQueue[Command] = queue.SimpleQueue()
        self._gives_back = app.ordering == "strict" or any(
            isinstance(handler.retry.first, GiveBack) for handler in app.handlers.values()
        )

    def ask(self, command: Command) -> None:
        """Have something done by the poll thread, soon."""
        self._commands.put(command)

    def note_out_of_reach(self) -> None:
        """Note that no broker could be reached."""
        self._out_of_reach_at = monotonic()

    def note_alive(self) -> None:
        """Nothing is polled on purpose: the worker is not stuck."""
        self.polled_at = monotonic()

    def step(self) -> None:
        """One turn."""
        self.polled_at = monotonic()
        by_partition, ends, errors = sorted_out(self._reader.read(self._patience()))
        self._offer(by_partition)
        partitions = self._assignment.partitions
        for place, end in ends:
            # While one is given back, records before the end may have been passed over.
            if place in partitions and not partitions[place].processor.goes_back:
                partitions[place].reached(end)
                self._dispatcher.reached(partitions[place].processor, end)
        for error, about in errors:
            self._judge(error, about)
        self._serve()
        if self._gives_back:
            self._seek()
        self._hold_back()

    def drain(self, seconds: float, meanwhile: Command, *, polls: bool = True) -> bool:
        """Begin nothing new, wait for what runs and for acknowledgements; whether all ended.

        Without `polls` the consumer is being closed, and whoever does that commits.
        """
        until = monotonic() + seconds
        partitions = self._assignment.partitions
        self._dispatcher.pause()
        if polls:
            self._backpressure.pause(list(partitions.values()))
        while monotonic() < until and self._is_busy():
            self.polled_at = monotonic()
            self._dispatcher.tick()
            if polls:
                self._reader.read(POLL)  # nothing comes but the group's affairs
                self._serve()
            else:
                threading.Event().wait(POLL)
            meanwhile()
        ended = not self._is_busy()
        left = max(0.0, until - monotonic())
        if polls:
            self._assignment.finish(list(partitions.values()), left, last=True)
        return ended

    def _serve(self) -> None:
        """Do what others have asked for, and commit."""
        while not self._commands.empty():
            self._commands.get()()
        if isinstance(self._delivering, TransactionThread):
            self._delivering.note_membership(self._consumer.consumer_group_metadata())
        else:
            self._commits.look(self._assignment.partitions.values())
            if self._commits.not_allowed is not None:
                self._judge(*self._commits.not_allowed)

    def _is_busy(self) -> bool:
        # A list: while the consumer is being closed, another thread lets go of them.
        partitions = list(self._assignment.partitions.values())
        return self._dispatcher.running > 0 or any(each.processor.unacked for each in partitions)

    def _patience(self) -> float:
        """How long the poll may wait: not past the time of a record that is due."""
        upcoming = self._dispatcher.tick()
        longest = POLL_BUSY if self._dispatcher.running else POLL
        if upcoming is None:
            return longest
        return min(longest, max(POLL_SHORTEST, (upcoming - self._clock.now()) / 1000))

    def _offer(self, by_partition: ByPartition) -> None:
        partitions = self._assignment.partitions
        for place, records in by_partition.items():
            each = partitions.get(place)
            if each is None:
                continue  # it went to somebody else meanwhile, who reads them as well
            taken, left = each.parted(records)
            if self._dispatcher.offer(each.processor, taken):
                each.note_received(taken, left)

    def _seek(self) -> None:
        for each in self._assignment.partitions.values():
            offset = self._dispatcher.take_seek(each.processor)
            if offset is not None:
                self._consumer.seek(kafkas(each.place, Position(offset)))
                each.went_back(offset)

    def _hold_back(self) -> None:
        """Pause partitions of which enough is in flight, and go on with those that have room."""
        most, most_bytes = self._options.max_in_flight, self._options.max_bytes_in_flight
        pause: list[Partition] = []
        resume: list[Partition] = []
        for each in self._assignment.partitions.values():
            wants = each.wants_pause(most, most_bytes)
            if wants is not each.paused:
                (pause if wants else resume).append(each)
            if each.left_at is not None and not wants:
                # Its end has moved on since: perhaps before it was paused for it.
                self._consumer.seek(kafkas(each.place, Position(each.left_at)))
                each.left_at = None
        self._backpressure.pause(pause)
        self._backpressure.resume(resume, self._assignment.partitions.values())

    def _judge(self, error: KafkaError, place: TopicPartition | None) -> None:
        """Errors that pass are librdkafka's to try again; the others end the run."""
        name = error.name()
        if name == "_AUTO_OFFSET_RESET" and place is not None:
            self._on_gone(place)
            return
        if name in _MISSING and place is not None and self._app.can_do_without(place.topic):
            return  # whoever looks at topics has said it
        if name == "_MAX_POLL_EXCEEDED":
            log.warning("this worker did not poll for too long (was it suspended?): rejoining")
            return
        if _is(error, _UNRELEASED):
            raise NameInUseError(
                f"this worker's name is still in use in the group {self._app.name}: waiting for"
                " the previous session to time out (or set another --instance)"
            )
        if _is(error, _FENCED):
            if monotonic() - self._out_of_reach_at < FENCED_BY_ITSELF_WITHIN:
                raise NameInUseError(
                    f"brokers were out of reach, and the group {self._app.name} no longer"
                    " recognises this worker: rejoining"
                )
            raise BrokerError(
                f"another worker uses this one's name in the group {self._app.name}: give each its"
                " own --instance"
            )
        if is_not_allowed(name):
            what = f"group {self._app.name}" if place is None else f"topic {place.topic}"
            raise not_allowed(f"read from {what}", name, f"READ on {what}")
        if error.fatal() or not (is_passing(error) or error.retriable()):
            raise BrokerError(f"cannot read ({name}: {error.str()}): see `redrive doctor`")
        log.debug("%s: librdkafka goes on trying", error.str())


def _is(error: KafkaError, text: str) -> bool:
    """Whether it is that one: a fatal error has it in its text only."""
    return text in error.str()
