"""Letter: one dead letter, whoever wrote it."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any, Final

from redrive.dead import dialects
from redrive.dead.dialects import UNKNOWN, Dialect
from redrive.fingerprint import Fingerprint
from redrive.history import Tried, attempts
from redrive.record import Headers, Record

_JAVA_FRAME: Final = re.compile(r"^[ \t]+at ([\w.$<>/@-]+)\(", re.MULTILINE)
_NO_NUMBERS: Final = re.compile(r"[0-9]+")


class Letter:
    """One dead letter: a record of a dead topic, read in the dialect of whoever wrote it.

    Fields are read when asked for: a scan over a million letters needs few of them.
    """

    __slots__ = ("_headers", "dialect", "record")

    def __init__(self, record: Record, dialect: Dialect | None = None) -> None:
        self.record = record
        """As it is in the dead topic."""
        # If a header repeats, the last one counts, as in Kafka's own clients.
        self._headers = dict(record.headers)
        self.dialect = dialects.recognised(self._headers) if dialect is None else dialect

    @property
    def place(self) -> str:
        """Where it is: `shop.dead[0]@17`. This names it, in commands and in its replay."""
        return self.record.place

    @property
    def died(self) -> int | None:
        """When it was written to the dead topic, in milliseconds since 1970."""
        return self.record.timestamp

    @property
    def headers(self) -> Headers:
        """The headers that the record had before it died."""
        return self.dialect.without_own(self.record.headers)

    # What its writer says of it

    @property
    def id(self) -> str | None:
        """The record's id, if it was written by redrive."""
        return self._text("id")

    @property
    def app(self) -> str | None:
        """The app, consumer group or connector that could not handle it."""
        return self._text("app")

    @property
    def origin_topic(self) -> str | None:
        return self._text("origin_topic")

    @property
    def origin_partition(self) -> int | None:
        return self._number("origin_partition")

    @property
    def origin_offset(self) -> int | None:
        return self._number("origin_offset")

    @property
    def origin_timestamp(self) -> int | None:
        return self._number("origin_timestamp")

    @property
    def origin(self) -> str | None:
        """Where it came from: `orders[3]@4711`, as far as it is known."""
        if self.origin_topic is None:
            return None
        partition, offset = self.origin_partition, self.origin_offset
        where = "" if partition is None else f"[{partition}]"
        return f"{self.origin_topic}{where}" + ("" if offset is None else f"@{offset}")

    @property
    def reason(self) -> str | None:
        """Why it is dead, in one word; of Kafka Connect: at which stage."""
        return self._text("dead_reason")

    @property
    def error_type(self) -> str | None:
        return self._text("error_type")

    @property
    def error_message(self) -> str | None:
        return self._text("error_message")

    @property
    def error_trace(self) -> str | None:
        return self._text("error_trace")

    @property
    def attempt(self) -> int | None:
        """How many attempts there were."""
        return self._number("attempt")

    @property
    def history(self) -> list[Tried]:
        """When the last attempts failed, and with what."""
        return attempts(self._text("history"))

    @property
    def replay_of(self) -> str | None:
        """The place of the letter that this is a copy of, if it was replayed and died again."""
        return self._text("replay_of")

    @property
    def replay_count(self) -> int:
        """How often it was replayed."""
        return self._number("replay_count") or 0

    @property
    def operation(self) -> str | None:
        """The operation that replayed it last."""
        return self._text("operation")

    # What it has in common with others

    @property
    def group(self) -> str:
        """The id of its group: the same for letters of one cause."""
        given = self._text("error_group")
        if given is not None:
            return given
        return _foreign_group(self.reason or "", self.error_type or "", self._raised_in())

    def as_data(self) -> dict[str, Any]:
        """What is known of it, for JSON; without key, value and headers."""
        return {
            "place": self.place,
            "dialect": self.dialect.name,
            "died": self.died,
            "group": self.group,
            "reason": self.reason,
            "error_type": self.error_type,
            "error_message": self.error_message,
            "app": self.app,
            "id": self.id,
            "origin": self.origin,
            "attempt": self.attempt,
            "replay_of": self.replay_of,
            "replay_count": self.replay_count,
            "operation": self.operation,
        }

    def _raised_in(self) -> str:
        """Of Java's exceptions: the method that raised the innermost one, if a trace was kept."""
        if self.dialect is UNKNOWN or not (trace := self.error_trace):
            return ""
        innermost = trace.rpartition("Caused by: ")[2]
        frame = _JAVA_FRAME.search(innermost)
        return "" if frame is None else _NO_NUMBERS.sub("", frame[1])  # as in lambda$7

    def _text(self, field: str) -> str | None:
        return self.dialect.value(field, self._headers)  # type: ignore[return-value]  # -- it is read as text

    def _number(self, field: str) -> int | None:
        return self.dialect.value(field, self._headers)  # type: ignore[return-value]  # -- it is read as a number


@lru_cache(maxsize=1024)
def _foreign_group(reason: str, error: str, raised_in: str) -> str:
    return Fingerprint(reason, error, (raised_in,) if raised_in else ()).id
