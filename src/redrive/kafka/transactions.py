"""Kafka transactions: messages and progress, all or nothing."""

from __future__ import annotations

import logging
import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from math import inf
from threading import Thread
from time import monotonic
from typing import TYPE_CHECKING, Final

import confluent_kafka
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer

from redrive import failpoints
from redrive.config import Settings
from redrive.errors import PublishError, RedriveError
from redrive.kafka.config import consumer_config, make_handle, transactional_config
from redrive.kafka.errors import BrokerError, NotAllowedError, not_allowed
from redrive.kafka.handover import TAKEN_BACK, KafkaHandover, Outlet, Refused
from redrive.kafka.missing import missing_on_topics
from redrive.kafka.room import room_of
from redrive.permissions import transactional_prefix
from redrive.record import TopicPartition, Write

if TYPE_CHECKING:
    from redrive.ports import Position

log: Final = logging.getLogger("redrive.publishing")

TIMEOUT: Final = 30.0
_OFFSETS_TIMEOUT: Final = 15.0
_MOST_OF_IT: Final = 0.75
"""How much of its time-out a transaction uses: the rest is for taking it back."""
_LEAST: Final = 1.0
_BECAUSE_OF_OTHERS: Final = (
    KafkaError._STATE,  # noqa: SLF001 -- so named
    KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER,
    *TAKEN_BACK,
)
"""What refuses messages of a transaction in which another one was refused."""
_FLUSH: Final = 0.1
_FENCED: Final = frozenset(
    {"_FENCED", "INVALID_PRODUCER_EPOCH", "PRODUCER_FENCED", "FENCED_INSTANCE_ID"}
)

_NOT_ALLOWED: Final[dict[str, Callable[[str], str]]] = {
    # Not that of topics: which of them it was has to be found out.
    "TRANSACTIONAL_ID_AUTHORIZATION_FAILED": lambda group: (
        f"WRITE on transactional ids that begin with {transactional_prefix(group)}"
    ),
    "GROUP_AUTHORIZATION_FAILED": lambda group: f"READ on group {group}",
}


class FencedError(RedriveError):
    """Another run of the app has taken over the partition."""


class TransactionError(BrokerError):
    """A transaction did not commit; its producer is finished."""


class _TopicNotAllowedError(TransactionError):
    """A permission on one of its topics is missing."""


def transactional_id(app: str, place: TopicPartition) -> str:
    """The same on both engines, so that rivals fence each other, and no other app's."""
    return f"{transactional_prefix(app)}{place.topic}/{place.partition}"


class TransactionalProducer:
    """One transactional id; after any error it is finished, and a new one has to be made."""

    def __init__(
        self, settings: Settings, app: str, place: TopicPartition, *, member: bool = False
    ) -> None:
        """With `member`, each commit is given the word of a consumer of the app's group."""
        self.id = transactional_id(app, place)
        self._group = app
        self._settings = settings
        self.room = room_of(settings.servers())
        """How much one transaction takes; what is given to `commit` should not be more."""
        self._config = transactional_config(settings, self.id)
        self._seconds: float = int(self._config["transaction.timeout.ms"]) / 1000
        self._began = inf
        self._membership = None if member else _membership(settings, app)
        self._begin_to_use()

    def _begin_to_use(self) -> None:
        """Take the id over: whoever had it before is fenced off."""
        self._batch = min(int(self._config.get("batch.size", self.room.batch)), self.room.batch)
        self._outlet = Outlet(make_handle(Producer, {**self._config, "batch.size": self._batch}))
        self._call("begin to use", lambda: self._outlet.producer.init_transactions(TIMEOUT))

    def commit(
        self,
        writes: Sequence[Write],
        positions: Mapping[TopicPartition, Position],
        membership: object = None,
    ) -> None:
        """Write all and commit the progress in one transaction.

        A member of the group says so by its `membership`: then one that was shut out of the group
        meanwhile cannot commit. Without it, it is said that nobody is in the group.
        """
        offsets = [
            confluent_kafka.TopicPartition(*partition, position.offset, metadata=position.metadata)
            for partition, position in positions.items()
        ]
        while not self._commit(writes, offsets, membership or self._membership):
            self._begin_to_use()
        self.room.was_in_time()

    def _commit(
        self,
        writes: Sequence[Write],
        offsets: list[confluent_kafka.TopicPartition],
        membership: object,
    ) -> bool:
        """False: it was taken back, since batches have to be smaller."""
        self._call("begin", self._outlet.producer.begin_transaction)
        self._began = monotonic()
        handed = KafkaHandover(writes, self._outlet)
        try:
            self._outlet.take(writes, handed.refused)
            self._end(handed, offsets, membership)
        except (TransactionError, PublishError) as error:
            handed.poll(0)
            handed.refused[:] = _own_fault(handed.refused)
            refusal = handed.error()  # before the abort, which refuses the others
            if refusal is None and not self._left:
                self.room.was_late()
            # Only whoever could take it back still has the id.
            if self._abort() and self._is_crowded(handed):
                return False
            raise self._missing(error, handed, offsets) or refusal or error from error
        except BaseException:
            self._abort()
            raise
        finally:
            self._began = inf
        return True

    def _missing(
        self,
        error: RedriveError,
        handed: KafkaHandover,
        offsets: list[confluent_kafka.TopicPartition],
    ) -> NotAllowedError | None:
        """Which permission was missing, if one was: refused messages need not say so."""
        for_themselves = any(one.error.code() not in _BECAUSE_OF_OTHERS for one in handed.refused)
        if for_themselves or not (handed.refused or isinstance(error, _TopicNotAllowedError)):
            return None
        return missing_on_topics(
            self._settings,
            f"commit a transaction of {self.id}",
            "TOPIC_AUTHORIZATION_FAILED",
            written=handed.topics,
            read={one.topic for one in offsets},
        )

    def _is_crowded(self, handed: KafkaHandover) -> bool:
        """Whether a batch was refused for its size, so that smaller ones may be taken."""
        large = Counter(
            (one.write.topic, one.partition)
            for one in handed.refused
            if one.error.code() == KafkaError.MSG_SIZE_TOO_LARGE
        )
        found = next((place for place, messages in large.items() if messages > 1), None)
        if found is None or not self.room.smaller_batches(self._batch):
            return False
        log.warning(
            "%s[%s] refuses batches of %d bytes: its transaction is written again, in smaller ones",
            *found,
            self._batch,
        )
        return True

    def _end(
        self,
        handed: KafkaHandover,
        offsets: list[confluent_kafka.TopicPartition],
        membership: object,
    ) -> None:
        producer = self._outlet.producer
        if handed:  # a commit of progress alone produces nothing
            failpoints.hit("after-produce", lambda: self._call("write in", producer.flush))
        self._call(
            "send offsets to",
            lambda: _within(
                min(_OFFSETS_TIMEOUT, self._left + _LEAST),
                lambda: producer.send_offsets_to_transaction(offsets, membership, TIMEOUT),
            ),
        )
        # Not by the commit: that goes on waiting for messages behind one that was refused.
        self._call("write in", lambda: self._flush(handed))
        _check_taken(handed)
        self._call("commit", lambda: producer.commit_transaction(min(TIMEOUT, self._left + _LEAST)))

    def _flush(self, handed: KafkaHandover) -> None:
        """Wait until all messages are written, or one is refused."""
        while self._outlet.producer.flush(_FLUSH) and not handed.refused:
            if not self._left:
                raise KafkaException(KafkaError(KafkaError._TIMED_OUT))  # noqa: SLF001 -- its name

    @property
    def _left(self) -> float:
        """Seconds that are left for this transaction, before a broker would take it back."""
        return max(0.0, self._began + _MOST_OF_IT * self._seconds - monotonic())

    def _abort(self) -> bool:
        """Take it back; where that fails the broker does, by its time-out or for the next owner."""
        try:
            self._outlet.producer.abort_transaction(5.0)
        except KafkaException:
            return False
        return True

    def _call(self, verb: str, call: object) -> None:
        try:
            call()  # type: ignore[operator]  # -- one of the producer's methods
        except KafkaException as raised:
            error = raised.args[0]
            # After its time-out a broker takes a transaction back, and its producer is fenced off
            # by nobody but that: whether there is a rival shows when the next one begins.
            expired = monotonic() - self._began >= self._seconds
            if error.name() in _FENCED and not expired:
                raise FencedError(
                    f"another run of the app {self._group} is active: it has taken over"
                    f" {self.id}; this run stops, and nothing of what it had begun is committed"
                ) from None
            if error.name() in _NOT_ALLOWED:
                needs = _NOT_ALLOWED[error.name()](self._group)
                what = f"{verb} a transaction of {self.id}"
                raise not_allowed(what, error.name(), needs) from None
            topics = error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
            raise (_TopicNotAllowedError if topics else TransactionError)(
                f"cannot {verb} a transaction of {self.id} ({error.name()}: {error.str()})"
                + (f", which is open for longer than {self._seconds:g} s" if expired else "")
                + ": it is taken back, and its records will run again"
            ) from None


def _within(seconds: float, call: Callable[[], None]) -> None:
    """Make a call whose time-out librdkafka does not keep: it may wait for ever.

    So it does for a group's coordinator that goes away and comes back. Its thread is left behind,
    with its producer: the next one with its id fences it off.
    """
    word: Future[None] = Future()

    def run() -> None:
        try:
            call()
            word.set_result(None)
        except BaseException as error:  # noqa: BLE001 -- it is raised where it is waited for
            word.set_exception(error)

    Thread(target=run, name="redrive-offsets", daemon=True).start()
    try:
        word.result(seconds)
    except TimeoutError:
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT)) from None  # noqa: SLF001 -- its name


_memberships: Final[dict[tuple[str, str, int], object]] = {}


def _membership(settings: Settings, group: str) -> object:
    """The word that nobody is in the group, which only a consumer can give: asked once a process.

    Looking for its coordinator, a new consumer would keep a new producer waiting.
    """
    key = (settings.servers(), group, os.getpid())
    if key not in _memberships:
        consumer = make_handle(Consumer, consumer_config(settings, group))
        _memberships[key] = consumer.consumer_group_metadata()
        consumer.close()
    return _memberships[key]


def _own_fault(refused: Sequence[Refused]) -> Sequence[Refused]:
    """Those that were refused for themselves, if any were: with them the others are, too."""
    return [one for one in refused if one.error.code() not in _BECAUSE_OF_OTHERS] or refused


def _check_taken(handed: KafkaHandover) -> None:
    """A write that librdkafka did not take is none of its transaction's: it would commit."""
    error = handed.error()
    if error is not None:
        raise error
