"""Broker errors as sentences: shared by Kafka and the in-memory broker.

BrokerError                 the broker could not be reached, or refused
├── NotAllowedError         this user lacks a permission: a retry does not help
│   └── WriteNotAllowedError    for a write: also a PublishError
├── MissingTopicError       there is no such topic
├── NoLeaderError           no broker leads a partition now
└── OffsetsGoneError        the log does not have the requested offset

Nothing here imports librdkafka: reasons are named as Kafka's protocol names them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from copy import copy
from typing import Final

from redrive.errors import PublishError, RedriveError, Refusal
from redrive.record import TopicPartition, Write

METADATA_BYTES: Final = 4095
"""The most commit metadata that librdkafka and a broker with default settings accept."""


_DOCTOR: Final = "; `redrive doctor module:app` lists everything that is missing"


class BrokerError(RedriveError):
    """The broker could not be reached, or refused."""


class NotAllowedError(BrokerError):
    """This user lacks a permission: a retry does not help, so the run ends."""

    @property
    def alone(self) -> str:
        """Without the advice to run `redrive doctor`: for that command itself."""
        return str(self).removesuffix(_DOCTOR)


def not_allowed(what: str, reason: str, needs: str = "") -> NotAllowedError:
    """What cannot be done, and what to grant for it, if that is known."""
    grant = f"grant {needs}" if needs else "a permission is missing"
    return NotAllowedError(f"not allowed to {what} ({reason}): {grant}{_DOCTOR}")


def is_not_allowed(reason: str) -> bool:
    """Whether Kafka's name for an error says that a permission is missing."""
    return reason.endswith("AUTHORIZATION_FAILED")


class WriteNotAllowedError(PublishError, NotAllowedError):
    """A write was refused, as this user lacks a permission."""


def first_not_allowed(reasons: Iterable[Exception]) -> NotAllowedError | None:
    """The first of several that says that a permission is missing."""
    return next((one for one in reasons if isinstance(one, NotAllowedError)), None)


class MissingTopicError(BrokerError):
    """There is no such topic."""

    def __init__(self, topic: str) -> None:
        super().__init__(
            f'topic "{topic}" does not exist: create it, or run `redrive topics module:app --apply`'
        )
        self.topic = topic


class NoLeaderError(BrokerError):
    """No broker leads a partition now."""

    def __init__(self, partitions: Collection[TopicPartition]) -> None:
        super().__init__(
            f"no leader for some of {', '.join(map(str, partitions))}: check the brokers"
        )


class OffsetsGoneError(BrokerError):
    """The log does not have the requested offset."""

    def __init__(self, partition: TopicPartition, offset: int) -> None:
        super().__init__(
            f"{partition}: offset {offset} is not in the log: deleted by retention, or the topic"
            " was recreated; compare the bounds, and choose with on_data_loss how to go on"
        )
        self.partition = partition
        self.offset = offset


def ends_before(partition: TopicPartition, found: int, wanted: int) -> BrokerError:
    """The log is shorter than the requested range."""
    return BrokerError(
        f"{partition} ends at offset {found}, before the requested offset {wanted}: ask for its"
        " bounds again; if they have not changed, a broker came back with a shorter log"
    )


def silent(partition: TopicPartition, reached: int, end: int, seconds: float) -> BrokerError:
    """Nothing arrived, although there is something to read."""
    return BrokerError(
        f"{partition}: nothing could be read at offset {reached} for {seconds:.0f} s, although the"
        f" log goes to at least {end}: check the broker that leads the partition"
    )


def metadata_too_long(group: str, partition: TopicPartition) -> BrokerError:
    """A commit whose metadata no broker would accept."""
    return BrokerError(
        f"group {group}: the metadata for {partition} is longer than {METADATA_BYTES} bytes: store"
        " fewer offsets in it"
    )


_ADVICE: Final = {
    "MSG_SIZE_TOO_LARGE": (
        "the message is larger than the topic allows: raise the topic's max.message.bytes"
        " (`redrive topics module:app --apply` does that for redrive's own topics)"
    ),
    "UNKNOWN_TOPIC_OR_PART": (
        "the topic does not exist: create it; `redrive topics module:app --apply` does that for"
        " redrive's own topics and those that handlers declare with sends="
    ),
    "_UNKNOWN_PARTITION": "the topic has no such partition: fix the number, or add partitions",
    "INVALID_TIMESTAMP": "the topic rejects messages with that timestamp: check its settings",
    "CLUSTER_AUTHORIZATION_FAILED": (
        "this user may not write idempotently: grant IDEMPOTENT_WRITE on the cluster"
    ),
    "NOT_ENOUGH_REPLICAS": (
        "too few replicas are in sync for min.insync.replicas: bring the brokers back"
    ),
    "LEADER_NOT_AVAILABLE": "a partition of it has no leader: bring its brokers back",
    "TOPIC_EXCEPTION": "that is not a valid topic name: fix it",
    "INVALID_RECORD": (
        "the topic does not accept such a record: a compacted topic refuses records without a key"
    ),
    "POLICY_VIOLATION": "the broker's policy refuses the record: ask whoever runs the cluster",
    "_MSG_TIMED_OUT": (
        "no broker acknowledged it in time: check that the brokers are up and reachable"
    ),
    "_FATAL": "the producer failed fatally: a new one is created, and the write is tried again",
    "_INVALID_ARG": (
        "not a valid message: check the partition, the timestamp and the header names that the"
        " handler set"
    ),
}
_SAME: Final = {
    "_MSG_TIMED_OUT": ("_TIMED_OUT", "_ALL_BROKERS_DOWN", "_TRANSPORT", "REQUEST_TIMED_OUT"),
    "UNKNOWN_TOPIC_OR_PART": ("_UNKNOWN_TOPIC", "UNKNOWN_TOPIC_ID"),
    "MSG_SIZE_TOO_LARGE": ("RECORD_LIST_TOO_LARGE", "INVALID_MSG_SIZE"),
    "NOT_ENOUGH_REPLICAS": ("NOT_ENOUGH_REPLICAS_AFTER_APPEND",),
    "_FATAL": ("_PURGE_QUEUE", "_PURGE_INFLIGHT"),
}
_KINDS: Final[Mapping[str, Refusal]] = {
    "_MSG_TIMED_OUT": "outage",
    "NOT_ENOUGH_REPLICAS": "outage",
    "LEADER_NOT_AVAILABLE": "outage",
    "CLUSTER_AUTHORIZATION_FAILED": "outage",
    "_FATAL": "outage",
    "UNKNOWN_TOPIC_OR_PART": "topic",
    "TOPIC_AUTHORIZATION_FAILED": "topic",
    "TOPIC_EXCEPTION": "topic",
    "MSG_SIZE_TOO_LARGE": "message",
    "INVALID_RECORD": "message",
    "INVALID_TIMESTAMP": "message",
    "POLICY_VIOLATION": "message",
    "_INVALID_ARG": "message",
    "_UNKNOWN_PARTITION": "message",
}
_FOR_ONE_OF_THEM: Final = frozenset(
    {
        "MSG_SIZE_TOO_LARGE",
        "INVALID_RECORD",
        "INVALID_TIMESTAMP",
        "POLICY_VIOLATION",
        "_INVALID_DIFFERENT_RECORD",  # librdkafka's word where several were wrong: not this one
    }
)
"""Why a broker refuses all messages of a batch: because of one of them."""
_MEANS: Final = {other: name for name, others in _SAME.items() for other in others}


def is_of_one_message(reason: str) -> bool:
    """Whether it says nothing about the topic: this one, or another of its batch, is wrong."""
    return _KINDS.get(_MEANS.get(reason, reason)) == "message" or may_be_for_another(reason)


def may_be_for_another(reason: str) -> bool:
    """Whether a message may have been refused because of another one of its batch."""
    return _MEANS.get(reason, reason) in _FOR_ONE_OF_THEM


def publish_error(topic: str, partition: int | None, reason: str, text: str = "") -> PublishError:
    """Which write was refused, why, and what to do. Keys are left out: they may be personal."""
    place = topic if partition is None or partition < 0 else f"{topic}[{partition}]"
    meaning = _MEANS.get(reason, reason)
    advice = _ADVICE.get(meaning, "check the broker's log, then try again")
    told = f": {text}" if text else ""
    if meaning == "TOPIC_AUTHORIZATION_FAILED":
        advice = f"grant WRITE on topic {topic}{_DOCTOR}"
    cls = WriteNotAllowedError if is_not_allowed(meaning) else PublishError
    error = cls(f"a write to {place} was refused ({reason}{told}): {advice}")
    error.topic = topic
    error.kind = _KINDS.get(meaning, "unknown")
    return error


def refusal(
    refused: Sequence[Write], reasons: Sequence[PublishError], of_how_many: int
) -> PublishError:
    """What to raise when several writes were refused: the first error, with all of them attached.

    Always a copy: the reason may be kept, and shared by several threads.
    """
    first = copy(reasons[0])
    first.refused, first.reasons = refused, reasons
    if len(refused) > 1:
        first.add_note(f"{len(refused)} of {of_how_many} writes were refused")
    return first
