"""librdkafka's own mock cluster, in this process: brokers that can be told to have no leader."""

from __future__ import annotations

import ctypes
from pathlib import Path

import confluent_kafka
from confluent_kafka import Producer

_NOBODY = -1
_HEAD_OF_AN_OBJECT = 16
"""Bytes of a Python object before its own fields: a client's first is librdkafka's handle."""


class MockCluster:
    """Brokers of librdkafka's; real clients talk to them over loopback."""

    def __init__(self, brokers: int) -> None:
        self._lib = _library()
        self._owner = Producer({"bootstrap.servers": "none", "test.mock.num.brokers": brokers})
        handle = ctypes.c_void_p.from_address(id(self._owner) + _HEAD_OF_AN_OBJECT)
        self._cluster = ctypes.c_void_p(self._lib.rd_kafka_handle_mock_cluster(handle))
        self.bootstrap = self._lib.rd_kafka_mock_cluster_bootstraps(self._cluster).decode()

    def create(self, topic: str, *leaders: int) -> None:
        """Make a topic with a partition for each of these brokers."""
        create = self._lib.rd_kafka_mock_topic_create
        assert create(self._cluster, topic.encode(), len(leaders), 1) == 0
        for partition, leader in enumerate(leaders):
            self.set_leader(topic, leader, partition)

    def set_leader(self, topic: str, leader: int | None, partition: int = 0) -> None:
        """Who leads a partition; None: nobody."""
        number = _NOBODY if leader is None else leader
        set_leader = self._lib.rd_kafka_mock_partition_set_leader
        assert set_leader(self._cluster, topic.encode(), partition, number) == 0

    def set_down(self, broker: int) -> None:
        """End a broker; what it leads has nobody."""
        assert self._lib.rd_kafka_mock_broker_set_down(self._cluster, broker) == 0

    def set_up(self, broker: int) -> None:
        """Begin it again."""
        assert self._lib.rd_kafka_mock_broker_set_up(self._cluster, broker) == 0


def _library() -> ctypes.CDLL:
    """The library that confluent_kafka brings along."""
    beside = Path(confluent_kafka.__file__).parent.parent / "confluent_kafka.libs"
    library = ctypes.CDLL(str(next(beside.glob("librdkafka*.so*"))))
    library.rd_kafka_handle_mock_cluster.restype = ctypes.c_void_p
    library.rd_kafka_mock_cluster_bootstraps.restype = ctypes.c_char_p
    library.rd_kafka_mock_cluster_bootstraps.argtypes = [ctypes.c_void_p]
    return library
