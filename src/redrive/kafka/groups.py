"""The subscriptions and assignments of a consumer group, read without joining it.

With librdkafka's older request: the newer one aborts the whole process when the group's coordinator
goes away. It supports only groups of the classic protocol.
"""

from __future__ import annotations

import struct
import warnings
from typing import Any, Final, NamedTuple

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from redrive.kafka.admin import Admin
from redrive.record import TopicPartition
from redrive.tuning import GROUP_SECONDS

_STABLE: Final = "Stable"
_UUID: Final = 37
"""The length of what a broker appends to a member's name to make its id: a dash and a UUID."""


class Member(NamedTuple):
    """A member of a group, as its coordinator sees it."""

    name: str
    """Its `group.instance.id`, or its client id if it has none."""
    topics: frozenset[str]
    """Its subscription."""
    places: frozenset[TopicPartition]
    """Its assignment."""


def members_of(admin: Admin, group: str) -> list[Member] | None:
    """The members of a group; None while it has no assignment: it is empty, or rebalancing."""
    found = admin.ask(f"look at the members of group {group}", lambda client: _look(client, group))
    if found is None or found.state != _STABLE:
        return None
    members = []
    for one in found.members:
        topics, owned = _subscription(one.metadata)
        places = _assignment(one.assignment)
        if not owned <= places:
            return None  # it is giving some up: it will rejoin, and another member gets them
        members.append(Member(one.id[:-_UUID], topics, places))
    return members


def _look(client: AdminClient, group: str) -> Any:
    with warnings.catch_warnings():
        # It is deprecated in favour of the newer request: see above.
        warnings.filterwarnings("ignore", "list_groups", DeprecationWarning)
        found = next(iter(client.list_groups(group, timeout=GROUP_SECONDS)), None)
    if found is not None and found.error is not None:
        raise KafkaException(found.error)
    return found


class _Reader:
    """Reads Kafka's binary format."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def number(self, form: str) -> int:
        """A number, in a format of `struct`."""
        (value,) = struct.unpack_from(form, self._data, self._at)
        self._at += struct.calcsize(form)
        return int(value)

    def text(self) -> str:
        """A string."""
        size = self.number(">h")
        self._at += size
        return self._data[self._at - size : self._at].decode()

    def skip_bytes(self) -> None:
        """Skip bytes; a size of -1 means null."""
        size = self.number(">i")
        self._at += max(0, size)

    def places(self) -> frozenset[TopicPartition]:
        """Partitions, by topic."""
        found = []
        for _ in range(self.number(">i")):
            topic = self.text()
            found += [TopicPartition(topic, self.number(">i")) for _ in range(self.number(">i"))]
        return frozenset(found)


def _subscription(data: bytes) -> tuple[frozenset[str], frozenset[TopicPartition]]:
    """The topics, and the partitions that the member had when it joined."""
    reader = _Reader(data)
    version = reader.number(">h")
    topics = frozenset(reader.text() for _ in range(reader.number(">i")))
    reader.skip_bytes()
    return topics, reader.places() if version else frozenset()


def _assignment(data: bytes) -> frozenset[TopicPartition]:
    if not data:
        return frozenset()
    reader = _Reader(data)
    reader.number(">h")  # the version: this part is the same in all of them
    return reader.places()
