"""Header names that are not UTF-8, with messages that behave as confluent_kafka's were seen to."""

from __future__ import annotations

import ctypes
from typing import Any

from redrive.kafka.log import records_of
from redrive.record import TopicPartition

PLACE = TopicPartition("orders", 0)


def with_a_hole(value: bytes | None) -> tuple[Any, ...]:
    """A pair whose first place nothing is in: not even None."""
    make = ctypes.pythonapi.PyTuple_New
    make.argtypes, make.restype = [ctypes.c_ssize_t], ctypes.py_object
    fill = ctypes.pythonapi.PyTuple_SetItem
    fill.argtypes = [ctypes.c_void_p, ctypes.c_ssize_t, ctypes.py_object]
    made: tuple[Any, ...] = make(2)
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(value))
    fill(id(made), 1, value)
    return made


class Odd:
    """A message: asked for its headers it raises once, and then has holes."""

    def __init__(self, *headers: tuple[bytes, bytes | None]) -> None:
        self._names = headers
        self._made: list[Any] | None = None

    def headers(self) -> list[Any] | None:
        if self._made is not None:
            return self._made
        error: UnicodeDecodeError | None = None
        self._made = []
        for name, value in self._names:
            try:
                self._made.append((name.decode(), value))
            except UnicodeDecodeError as found:
                error = found
                self._made.append(with_a_hole(value))
        if error is not None:
            raise SystemError("returned a result with an exception set") from error
        return self._made

    def offset(self) -> int:
        return 0

    def key(self) -> bytes:
        return b"k"

    def value(self) -> bytes:
        return b"v"

    def timestamp(self) -> tuple[int, int]:
        return 1, 7


def headers(*messages: Odd) -> list[Any]:
    return [record.headers for record in records_of(list(messages), PLACE)]  # type: ignore[arg-type]  # -- as much of messages as is asked for


def test_bytes_that_are_no_text_are_shown_and_everything_else_is_as_it_was():
    odd = Odd((b"good", b"1"), (b"\xffodd", b"2"), (b"null", None))
    [record] = records_of([odd], PLACE)  # type: ignore[arg-type]  # -- as above
    assert record == (
        "orders",
        0,
        0,
        b"k",
        b"v",
        (("good", b"1"), (r"\xffodd", b"2"), ("null", None)),
        7,
    )


def test_each_of_several_messages_has_its_own():
    plain, none = Odd((b"a", b"1")), Odd()
    odd, other = Odd((b"\xff", None)), Odd((b"b", b""), (b"\xfe", b"2"))
    assert headers(plain, odd, none, other) == [
        (("a", b"1"),),
        ((r"\xff", None),),
        (),
        (("b", b""), (r"\xfe", b"2")),
    ]


def test_of_several_in_one_message_the_last_is_known():
    found = headers(Odd((b"\xfe", b"1"), (b"ok", b"2"), (b"\xff", b"3")))
    assert found == [(("\ufffd", b"1"), ("ok", b"2"), (r"\xff", b"3"))]
