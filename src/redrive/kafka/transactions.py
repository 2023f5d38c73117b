"""Kafka transactions: messages and progress, all or nothing."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from threading import Thread
from typing import TYPE_CHECKING, Final

import confluent_kafka
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer

from redrive import failpoints
from redrive.config import Settings
from redrive.errors import RedriveError
from redrive.kafka.config import consumer_config, make_handle, producer_config
from redrive.kafka.errors import BrokerError, not_allowed
from redrive.kafka.handover import KafkaHandover, Outlet
from redrive.permissions import transactional_prefix
from redrive.record import TopicPartition, Write

if TYPE_CHECKING:
    from redrive.ports import Position

TIMEOUT: Final = 30.0
_OFFSETS_TIMEOUT: Final = 15.0
_FENCED: Final = frozenset(
    {"_FENCED", "INVALID_PRODUCER_EPOCH", "PRODUCER_FENCED", "FENCED_INSTANCE_ID"}
)

_NOT_ALLOWED: Final[dict[str, Callable[[str], str]]] = {
    # Not that of topics: a transaction with a refused write says which one it was.
    "TRANSACTIONAL_ID_AUTHORIZATION_FAILED": lambda group: (
        f"WRITE on transactional ids that begin with {transactional_prefix(group)}"
    ),
    "GROUP_AUTHORIZATION_FAILED": lambda group: f"READ on group {group}",
}


class FencedError(RedriveError):
    """Another run of the app has taken over the partition."""


class TransactionError(BrokerError):
    """A transaction did not commit; its producer is finished."""


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
        config = producer_config(settings)
        config["transactional.id"] = self.id
        config["transaction.timeout.ms"] = 60_000
        self._outlet = Outlet(make_handle(Producer, config))
        self._membership = None if member else _membership(settings, app)
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
        self._call("begin", self._outlet.producer.begin_transaction)
        try:
            handed = self._outlet.hand_over(writes)
            self._commit(handed, offsets, membership or self._membership)
        except BaseException:
            self._abort()
            raise

    def _commit(
        self,
        handed: KafkaHandover,
        offsets: list[confluent_kafka.TopicPartition],
        membership: object,
    ) -> None:
        producer = self._outlet.producer
        try:
            failpoints.hit("after-produce", producer.flush)
            self._call(
                "send offsets to",
                lambda: _within(
                    _OFFSETS_TIMEOUT,
                    lambda: producer.send_offsets_to_transaction(offsets, membership, TIMEOUT),
                ),
            )
            _check_taken(handed)
            self._call("commit", lambda: producer.commit_transaction(TIMEOUT))
        except TransactionError:
            handed.poll(0)  # for librdkafka's word on refused writes, before the abort adds to it
            _check_taken(handed)
            raise

    def _abort(self) -> None:
        try:
            self._outlet.producer.abort_transaction(5.0)
        except KafkaException:
            pass  # the broker aborts it: at once for the next owner of the id, or by its time-out

    def _call(self, verb: str, call: object) -> None:
        try:
            call()  # type: ignore[operator]  # -- one of the producer's methods
        except KafkaException as raised:
            error = raised.args[0]
            if error.name() in _FENCED:
                raise FencedError(
                    f"another run of the app {self._group} is active: it has taken over"
                    f" {self.id}; this run stops, and nothing of what it had begun is committed"
                ) from None
            if error.name() in _NOT_ALLOWED:
                needs = _NOT_ALLOWED[error.name()](self._group)
                what = f"{verb} a transaction of {self.id}"
                raise not_allowed(what, error.name(), needs) from None
            raise TransactionError(
                f"cannot {verb} a transaction of {self.id} ({error.name()}: {error.str()}): it is"
                " taken back, and its records will run again"
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


def _check_taken(handed: KafkaHandover) -> None:
    """A write that librdkafka did not take is none of its transaction's: it would commit."""
    error = handed.error()
    if error is not None:
        raise error
