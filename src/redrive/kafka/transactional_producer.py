"""Kafka transactions: messages and progress, all or nothing."""

from __future__ import annotations

import logging
import os
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future
from itertools import chain, pairwise
from math import inf
from threading import Thread
from time import monotonic
from typing import TYPE_CHECKING, Final

import confluent_kafka
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer

from redrive import failpoints
from redrive.config import Settings
from redrive.errors import PublishError, RedriveError
from redrive.kafka import warm_up
from redrive.kafka.config import consumer_config, make_handle, transactional_config
from redrive.kafka.errors import (
    BrokerError,
    NotAllowedError,
    may_be_for_another,
    not_allowed,
)
from redrive.kafka.handover import TAKEN_BACK, KafkaHandover, Outlet, Refused
from redrive.kafka.missing import missing_on_topics
from redrive.kafka.room import parts, room_of
from redrive.permissions import transactional_prefix
from redrive.record import TopicPartition, Write
from redrive.tuning import (
    TRANSACTION_CALL_SECONDS,
    TRANSACTION_FLUSH,
    TRANSACTION_LEAST_SECONDS,
    TRANSACTION_OFFSETS_SECONDS,
    TRANSACTION_PARTS,
    TRANSACTION_ROUNDS,
    TRANSACTION_SHARE,
)

if TYPE_CHECKING:
    from redrive.ports import Position

log: Final = logging.getLogger("redrive.publishing")

_Place = tuple[str, int | None]

_BECAUSE_OF_OTHERS: Final = (
    KafkaError._STATE,  # noqa: SLF001 -- so named
    KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER,
    KafkaError._INVALID_DIFFERENT_RECORD,  # noqa: SLF001 -- so named
    *TAKEN_BACK,
)
"""What refuses messages of a transaction in which another one was refused."""
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
    """One transactional id.

    After a PublishError, which names the writes that were refused, nothing of the transaction is
    left, and others can follow. After any other error it is finished: a new one has to be made.
    """

    def __init__(
        self, settings: Settings, app: str, place: TopicPartition, *, member: bool = False
    ) -> None:
        """With `member`, each commit is given the word of a consumer of the app's group."""
        self.id = transactional_id(app, place)
        self._group = app
        self._settings = settings
        self.room = room_of(settings.servers())
        """How much one transaction takes: a commit takes no more than that at once."""
        self._config = transactional_config(settings, self.id)
        self._seconds: float = int(self._config["transaction.timeout.ms"]) / 1000
        self._began = inf
        self._refusing: set[str] = set()
        self._skips = False
        """Whether the numbers of its messages may have a gap.

        librdkafka goes on behind the number of a message that its broker refused. The next
        transaction is then taken back for it, and with that the numbers start again.
        """
        self._suspects: set[int] = set()
        """The identities of writes that were refused together, perhaps for one of them."""
        self._membership = None if member else _membership(settings, app)
        self._begin_to_use()

    def _begin_to_use(self) -> None:
        """Take the id over: whoever had it before is fenced off."""
        self._made = min(int(self._config.get("batch.size", self.room.batch)), self.room.batch)
        """Bytes of the batches that its producer makes, at most."""
        self._batch = self._made
        """Of those that it is given at once, where they have to be smaller."""
        self.outlet = Outlet(make_handle(Producer, {**self._config, "batch.size": self._made}))
        self._call(
            "begin to use",
            lambda: self.outlet.producer.init_transactions(TRANSACTION_CALL_SECONDS),
        )

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
        if self._membership is None and self.room.batch < self._made:
            # The quicker way to smaller batches: a member that has lost the partition cannot commit
            # by any producer. Others keep theirs for one task only.
            self._begin_to_use()
        while self._refusing:  # else it believes for long what it saw last
            warm_up.meet(self.outlet.producer, self._refusing.pop())
        self._suspects = set()
        rounds = iter(range(TRANSACTION_ROUNDS))
        while not self._commit(writes, offsets, membership or self._membership, rounds):
            pass

    def _commit(
        self,
        writes: Sequence[Write],
        offsets: list[confluent_kafka.TopicPartition],
        membership: object,
        rounds: Iterator[int],
    ) -> bool:
        """False: it was taken back, and has to be written again, in smaller batches or as it was.

        By the same producer: before another one had the id, somebody else could take it over,
        commit, and be fenced off by that one, which would commit the same once more.
        """
        self._call("begin", self.outlet.producer.begin_transaction)
        self._began = monotonic()
        handed = KafkaHandover(writes, self.outlet)
        try:
            self._hand_over(writes, handed)
            self._end(handed, offsets, membership)
            self.room.was_in_time(writes, 1 - self._left / (TRANSACTION_SHARE * self._seconds))
        except (TransactionError, PublishError) as error:
            handed.poll(0)
            certain = _named(handed.refused)
            handed.refused[:] = _own_fault(handed.refused)
            refusal = handed.error()  # before the abort, which refuses the others
            self._refusing = {one.write.topic for one in handed.refused}
            if refusal is None and not self._left:
                self.room.was_late()
            # Only whoever could take it back still has the id.
            if self._abort():
                if self._is_crowded(handed) or self._is_in_company(handed, certain, rounds):
                    self._skips = True
                    return False
                if self._skips and handed.refused and not _for_themselves(handed.refused):
                    self._skips = False
                    return False
            self._skips = refusal is not None
            raise self._missing(error, handed, offsets) or refusal or error from error
        except BaseException:
            self._abort()
            raise
        finally:
            self._began = inf
        self._skips = False
        return True

    def _hand_over(self, writes: Sequence[Write], handed: KafkaHandover) -> None:
        """Hand over all; a few at a time, where batches have to be smaller than they are made."""
        self._batch = min(self._made, self.room.batch)
        if self._batch == self._made and not self._suspects:
            self.outlet.produce(writes, handed.refused)
            return
        for part in chain.from_iterable(parts(some, self._batch) for some in self._apart(writes)):
            self.outlet.produce(part, handed.refused)
            self._call("write in", lambda: self._flush(handed))
            _check_taken(handed)

    def _missing(
        self,
        error: RedriveError,
        handed: KafkaHandover,
        offsets: list[confluent_kafka.TopicPartition],
    ) -> NotAllowedError | None:
        """Which permission was missing, if one was: refused messages need not say so."""
        if _for_themselves(handed.refused) or not (
            handed.refused or isinstance(error, _TopicNotAllowedError)
        ):
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

    def _is_in_company(
        self, handed: KafkaHandover, certain: Collection[_Place], rounds: Iterator[int]
    ) -> bool:
        """Whether messages were refused together, and it is not known for which of them."""
        those = [
            one
            for one in handed.refused
            if may_be_for_another(one.error.name())
            and (one.write.topic, one.partition) not in certain
        ]
        together = Counter((one.write.topic, one.partition) for one in those)
        found = {id(one.write) for one in those if together[one.write.topic, one.partition] > 1}
        if not found or next(rounds, None) is None:
            return False
        if not self._suspects:
            log.warning(
                "%s refuses a batch of %d messages, perhaps for one of them: its transaction is"
                " written again, in parts, to find out for which",
                those[0].write.topic,
                len(found),
            )
        self._suspects = found
        return True

    def _apart(self, writes: Sequence[Write]) -> Iterator[Sequence[Write]]:
        """The writes in their order, in parts with a few each of those that are suspected."""
        found = [at for at, write in enumerate(writes) if id(write) in self._suspects]
        cuts = found[:: max(1, len(found) // TRANSACTION_PARTS)]
        for begin, end in pairwise([0, *cuts, *[at + 1 for at in found[-1:]], len(writes)]):
            if end > begin:
                yield writes[begin:end]

    def _end(
        self,
        handed: KafkaHandover,
        offsets: list[confluent_kafka.TopicPartition],
        membership: object,
    ) -> None:
        producer = self.outlet.producer
        if handed:  # a commit of progress alone produces nothing
            failpoints.hit("after-produce", lambda: self._call("write in", producer.flush))
        self._call(
            "send offsets to",
            lambda: _within(
                min(TRANSACTION_OFFSETS_SECONDS, self._left + TRANSACTION_LEAST_SECONDS),
                lambda: producer.send_offsets_to_transaction(
                    offsets, membership, TRANSACTION_CALL_SECONDS
                ),
            ),
        )
        # Not by the commit: that goes on waiting for messages behind one that was refused.
        self._call("write in", lambda: self._flush(handed))
        _check_taken(handed)
        within = min(TRANSACTION_CALL_SECONDS, self._left + TRANSACTION_LEAST_SECONDS)
        self._call("commit", lambda: producer.commit_transaction(within))

    def _flush(self, handed: KafkaHandover) -> None:
        """Wait until all messages are written, or one is refused."""
        while self.outlet.producer.flush(TRANSACTION_FLUSH) and not handed.refused:
            if not self._left:
                raise KafkaException(KafkaError(KafkaError._TIMED_OUT))  # noqa: SLF001 -- its name

    @property
    def _left(self) -> float:
        """Seconds that are left for this transaction, before a broker would take it back."""
        return max(0.0, self._began + TRANSACTION_SHARE * self._seconds - monotonic())

    def _abort(self) -> bool:
        """Take it back; where that fails the broker does, by its time-out or for the next owner."""
        try:
            self.outlet.producer.abort_transaction(5.0)
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
                + (f", which has been open for more than {self._seconds:g} s" if expired else "")
                + ": it was aborted, and its records run again"
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


def _named(refused: Sequence[Refused]) -> set[_Place]:
    """The partitions of whose batches a broker said which messages it refused them for."""
    others = KafkaError._INVALID_DIFFERENT_RECORD  # noqa: SLF001 -- its name
    return {(one.write.topic, one.partition) for one in refused if one.error.code() == others}


def _own_fault(refused: Sequence[Refused]) -> Sequence[Refused]:
    """Those that were refused for themselves, if any were: with them the others are, too."""
    return _for_themselves(refused) or refused


def _for_themselves(refused: Sequence[Refused]) -> list[Refused]:
    return [one for one in refused if one.error.code() not in _BECAUSE_OF_OTHERS]


def _check_taken(handed: KafkaHandover) -> None:
    """A write that librdkafka did not take is none of its transaction's: it would commit."""
    error = handed.error()
    if error is not None:
        raise error
