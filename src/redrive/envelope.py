"""What redrive knows of a record, and how it travels in `redrive-*` headers.

The headers are text, so that any Kafka tool can show them; times are milliseconds since 1970, as in
Kafka's own timestamps. They are replaced at each hop, never appended: a record does not grow by
being retried. All other headers, even `redrive-` ones, are the user's and are left alone.
"""

from __future__ import annotations

import traceback
from dataclasses import MISSING, dataclass, fields, replace
from typing import Final

from redrive.errors import EnvelopeError
from redrive.fingerprint import class_name
from redrive.history import Tried, added
from redrive.record import Headers, Record

ERROR_MESSAGE_BYTES: Final = 1024
ERROR_TRACE_BYTES: Final = 8192
_PREFIX: Final = "redrive-"


@dataclass(frozen=True, slots=True, kw_only=True)
class Envelope:
    """What redrive knows of a record.

    Each field is one header: `first_received` is `redrive-first-received`; None is no header.
    """

    app: str
    id: str
    id_scope: str | None = None
    """The scope in which the id is unique, if that is not its origin topic."""
    origin_topic: str
    origin_partition: int
    origin_offset: int
    origin_timestamp: int | None = None
    first_received: int
    attempt: int = 1
    """Which attempt comes next: 1 on the source topic, one more each time the record is parked."""
    due: int | None = None
    """When the record may leave the delay topic it is in."""
    not_before: int | None = None
    """When its handler may run, if that is later than one hop: `Retry(after=...)`."""
    error_type: str | None = None
    error_message: str | None = None
    error_trace: str | None = None
    error_group: str | None = None
    """What failures of the same cause have in common: `Fingerprint.id`."""
    history: str | None = None
    """When the last attempts failed, and with what: the texts of `history.Tried`."""
    dead_reason: str | None = None
    """Why it is dead; in a delay topic: why it will be, once its recovery has succeeded."""
    unhandled_since: int | None = None
    """Since when it has been due in versions of the app that have no handler for it."""
    replay_of: str | None = None
    """Of a dead letter that was replayed: where that is."""
    replay_count: int | None = None
    """How often it was replayed."""
    operation: str | None = None
    """The id of the operation that did so last."""

    def failed(
        self, error: BaseException, *, at: int, group: str | None = None, trace: bool = False
    ) -> Envelope:
        """A copy with the error, truncated: exception text is untrusted input."""
        error_type = bounded(class_name(type(error)), ERROR_MESSAGE_BYTES)
        return replace(
            self,
            error_type=error_type,
            error_message=bounded(text_of(error), ERROR_MESSAGE_BYTES),
            error_trace=bounded(trace_of(error), ERROR_TRACE_BYTES) if trace else None,
            error_group=group,
            history=added(self.history, Tried(self.attempt, at, error_type)),
        )

    def headers(self, user: Headers) -> Headers:
        """The user's headers as they were, then redrive's."""
        ours = (
            (header, str(value).encode())
            for name, header in _HEADER_OF.items()
            if (value := getattr(self, name)) is not None
        )
        return (*user, *ours)


_HEADER_OF: Final = {
    field.name: _PREFIX + field.name.replace("_", "-") for field in fields(Envelope)
}
FIELDS: Final = tuple(_HEADER_OF)
"""The names of all fields."""
_FIELD_OF: Final = {header: name for name, header in _HEADER_OF.items()}
HEADERS: Final = tuple(_FIELD_OF)
"""The names of redrive's own headers."""
_NUMBERS: Final = frozenset(
    ("origin_partition", "origin_offset", "origin_timestamp", "first_received", "attempt")
) | {"due", "not_before", "unhandled_since", "replay_count"}
_SMALL: Final = ("origin_partition", "attempt", "replay_count")
_SIGNED: Final = ("origin_timestamp",)
"""Kafka accepts times before 1970."""
# Kafka's partitions have 32 bits, its offsets and times 64; so do Spark's columns.
_INT32: Final = (1 << 31) - 1
_INT64: Final = (1 << 63) - 1
_ADDRESS: Final = ("redrive-app", "redrive-origin-topic")
_NEEDED: Final = (
    *(_HEADER_OF[field.name] for field in fields(Envelope) if field.default is MISSING),
    _HEADER_OF["attempt"],
)
_NEVER_EMPTY: Final = tuple(header for header in _NEEDED if _FIELD_OF[header] not in _NUMBERS)


def header_of(field: str) -> str:
    """The header that carries a field of the envelope."""
    return _HEADER_OF[field]


def user_headers(headers: Headers) -> Headers:
    """The headers without redrive's own."""
    return tuple(header for header in headers if header[0] not in _FIELD_OF)


def addressee(headers: Headers) -> tuple[str, str] | None:
    """The app and the origin topic, if redrive wrote the record.

    Cheaper than `parse`, and never fails: it is called for every record that has headers.
    """
    found = {name: value for name, value in headers if name in _ADDRESS and value is not None}
    if len(found) < len(_ADDRESS):
        return None
    return (
        found["redrive-app"].decode(errors="replace"),
        found["redrive-origin-topic"].decode(errors="replace"),
    )


def parse(headers: Headers) -> Envelope:
    """The envelope in these headers; EnvelopeError lists everything that is missing or broken."""
    # If a header repeats, the last one counts, as in Kafka's own clients.
    found = {name: value or b"" for name, value in headers if name in _FIELD_OF}
    problems = [f"{header} is missing" for header in _NEEDED if header not in found]
    problems += [f"{header} is empty" for header in _NEVER_EMPTY if found.get(header) == b""]
    values: dict[str, str | int] = {}
    for header, value in found.items():
        field = _FIELD_OF[header]
        try:
            text = value.decode()
            values[field] = _number(field, text) if field in _NUMBERS else text
        except UnicodeDecodeError:
            problems.append(f"{header} is not text")
        except ValueError:
            problems.append(f"{header} is {text[:40]!r}, not a number in its range")
    if problems:
        raise EnvelopeError(
            "; ".join(problems) + ": was the record written by something other than redrive?"
        )
    return Envelope(**values)  # type: ignore[arg-type]  # -- names and types were checked above


def fresh(
    record: Record, *, app: str, message_id: str, now: int, id_scope: str | None = None
) -> Envelope:
    """The envelope of a record that was just read from its source topic."""
    return Envelope(
        app=app,
        id=message_id,
        id_scope=None if id_scope == record.topic else id_scope,
        origin_topic=record.topic,
        origin_partition=record.partition,
        origin_offset=record.offset,
        origin_timestamp=record.timestamp,
        first_received=now,
    )


def at_origin(record: Record, envelope: Envelope) -> Record:
    """A parked record as its handler sees it: with its origin, and with the user's headers."""
    return Record(
        topic=envelope.origin_topic,
        partition=envelope.origin_partition,
        offset=envelope.origin_offset,
        key=record.key,
        value=record.value,
        headers=user_headers(record.headers),
        timestamp=envelope.origin_timestamp,
    )


def _number(field: str, text: str) -> int:
    # int() alone would accept "1_000", " 7 " and other scripts' digits, which redrive never writes.
    digits = text.removeprefix("-") if field in _SIGNED else text
    if not (digits.isascii() and digits.isdigit()) or len(digits) > 19:
        raise ValueError(text)
    number = int(text)
    largest = _INT32 if field in _SMALL else _INT64
    if not -_INT64 - 1 <= number <= largest or (field == "attempt" and number < 1):
        raise ValueError(text)
    return number


def text_of(error: BaseException) -> str:
    """The error's text, even if its own `__str__` fails."""
    try:
        return str(error)
    except BaseException as broken:  # noqa: BLE001 -- a __str__ that raises must not hide the failure
        return f"(no message: {type(broken).__name__} in {type(error).__name__}.__str__)"


def type_and_text(error: BaseException) -> str:
    """The error's class and text: what a sentence about it says."""
    return f"{type(error).__name__}: {text_of(error)}"


def trace_of(error: BaseException) -> str:
    """The stack trace, starting where redrive calls the user's function, if there is one."""
    trace = error.__traceback__
    while trace is not None and _is_ours(trace.tb_frame.f_globals.get("__name__")):
        trace = trace.tb_next
    try:
        told = traceback.TracebackException(type(error), error, trace or error.__traceback__)
        return "".join(told.format())
    except BaseException as broken:  # noqa: BLE001 -- odd attributes, groups in groups: as for its text
        return f"(no trace: {type(broken).__name__} while {type(error).__name__} was formatted)"


def _is_ours(module: object) -> bool:
    return str(module).startswith("redrive.")


def bounded(text: str, limit: int) -> str:
    """The text, truncated to that many bytes of UTF-8."""
    data = text.encode(errors="backslashreplace")
    if len(data) <= limit:
        return data.decode()
    return data[: limit - 3].decode(errors="ignore") + "..."
