"""Who subscribes to what in a consumer group, and who is assigned what; asked without joining it.

By librdkafka's older request: the newer one ends the whole process when the group's coordinator
goes away. It knows groups of the classic protocol only.
"""

from __future__ import annotations

import struct
import warnings
from typing import Any, Final, NamedTuple

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from redrive.kafka.admin import Admin
from redrive.record import TopicPartition

_STABLE: Final = "Stable"
_SECONDS: Final = 5.0
_UUID: Final = 37
"""How long is what a broker adds to a member's name to make its id: a dash and a UUID."""


class Member(NamedTuple):
    """A member of a group, as its coordinator sees it."""

    name: str
    """Its `group.instance.id`; of a member without one, its client's."""
    topics: frozenset[str]
    """What it subscribes to."""
    places: frozenset[TopicPartition]
    """What it is assigned."""


def members_of(admin: Admin, group: str) -> list[Member] | None:
    """The members of a group; None while no assignment holds: it is empty, or rebalancing."""
    found = admin.ask(f"look at the members of group {group}", lambda client: _look(client, group))
    if found is None or found.state != _STABLE:
        return None
    members = []
    for one in found.members:
        topics, owned = _subscription(one.metadata)
        places = _assignment(one.assignment)
        if not owned <= places:
            return None  # it gives some up: then it joins again, and somebody else gets them
        members.append(Member(one.id[:-_UUID], topics, places))
    return members


def _look(client: AdminClient, group: str) -> Any:
    with warnings.catch_warnings():
        # It is deprecated in favour of the newer request: see above.
        warnings.filterwarnings("ignore", "list_groups", DeprecationWarning)
        found = next(iter(client.list_groups(group, timeout=_SECONDS)), None)
    if found is not None and found.error is not None:
        raise KafkaException(found.error)
    return found


class _Reader:
    """Reads Kafka's binary format."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def number(self, form: str) -> int:
        """A number, in the words of `struct`."""
        (value,) = struct.unpack_from(form, self._data, self._at)
        self._at += struct.calcsize(form)
        return int(value)

    def text(self) -> str:
        """A string."""
        size = self.number(">h")
        self._at += size
        return self._data[self._at - size : self._at].decode()

    def skip_bytes(self) -> None:
        """Bytes that nobody needs; -1 is the size of none."""
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
    reader.number(">h")  # the version: what is read here is the same in all of them
    return reader.places()
