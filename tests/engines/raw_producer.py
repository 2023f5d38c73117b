"""Writes what Kafka takes and confluent_kafka cannot: by librdkafka itself."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka import Producer

_TOPIC, _VALUE, _FLAGS, _HEADERS, _END = 1, 4, 7, 10, 0
"""How rd_kafka_producev is told what comes next."""
_MSG_F_COPY = 0x2
_pointer, _text, _number, _size = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int, ctypes.c_size_t


def produce_with_headers(bootstrap: str, topic: str, value: bytes, *headers: bytes) -> None:
    """Write a message with headers of these names; each value is `of` the name."""
    library = _library()
    producer = Producer({"bootstrap.servers": bootstrap})
    library.rd_kafka_headers_new.restype = _pointer
    made = _pointer(library.rd_kafka_headers_new(_size(len(headers))))
    for name in headers:
        given = b"of " + name
        sizes = ctypes.c_ssize_t(len(name)), ctypes.c_ssize_t(len(given))
        added = library.rd_kafka_header_add(made, _text(name), sizes[0], _text(given), sizes[1])
        assert added == 0
    refused = library.rd_kafka_producev(
        _pointer(_rd_kafka_of(producer)),
        _number(_TOPIC), _text(topic.encode()),
        _number(_FLAGS), _number(_MSG_F_COPY),
        _number(_VALUE), _text(value), _size(len(value)),
        _number(_HEADERS), made,
        _number(_END),
    )  # fmt: skip
    assert refused == 0
    assert producer.flush(30) == 0


def _library() -> Any:
    folder = Path(confluent_kafka.__file__).parent.with_name("confluent_kafka.libs")
    found = sorted(folder.glob("librdkafka*.so*"))
    if not found:
        pytest.skip("librdkafka is not where the wheels for Linux have it")
    return ctypes.CDLL(str(found[0]))


def _rd_kafka_of(producer: Producer) -> int | None:
    """The first field after Python's own of an object."""
    return ctypes.c_void_p.from_address(id(producer) + object.__basicsize__).value
