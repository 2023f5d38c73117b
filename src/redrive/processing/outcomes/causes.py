"""Causes: why records are parked, buried, discarded or tried again, counted by fingerprint.

Each process tallies its own; whoever speaks to the operator is given what was counted since the
last time. Nothing is done for records that succeed.
"""

from __future__ import annotations

import inspect
import logging
import sys
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from functools import partial
from threading import Lock
from typing import TYPE_CHECKING, Any, Final

from redrive import envelope as envelopes
from redrive.envelope import Envelope, bounded, text_of, type_and_text
from redrive.errors import PastError
from redrive.fingerprint import Fingerprint, fingerprint
from redrive.handler import name_of
from redrive.logs import one_line, shortened
from redrive.processing.outcomes.envelopes import asked
from redrive.processing.outcomes.report import Outcome
from redrive.tuning import (
    CAUSE_GROUP_BYTES,
    CAUSE_MESSAGE_BYTES,
    CAUSE_TRACE_CHARACTERS,
    CAUSES_TOLD_APART,
)

if TYPE_CHECKING:
    from redrive.app import App
    from redrive.record import Record

log: Final = logging.getLogger("redrive.records")

AGAIN: Final = "again"
"""The kind of a failure after which a record is tried again in place, or given back."""
FAILED: Final = ("park", "bury", "discard")
"""Kinds of outcomes that have a cause."""
OTHERS: Final = "(others)"


@dataclass(frozen=True, slots=True)
class Cause:
    """What failures of one kind, of one topic, with one fingerprint have in common."""

    kind: str
    topic: str
    fingerprint: Fingerprint


@dataclass(slots=True)
class Seen:
    """A cause, how often it was seen, and one record as an example."""

    cause: Cause
    count: int
    partition: int
    offset: int
    id: str = ""
    attempt: int = 1
    message: str = ""
    """The text of its error, on one line and bounded."""
    trace: str = ""

    @property
    def place(self) -> str:
        """Where the example is."""
        return f"{self.cause.topic}[{self.partition}]@{self.offset}"

    def as_dict(self) -> dict[str, Any]:
        """As it travels."""
        return asdict(self)

    @classmethod
    def of(cls, told: dict[str, Any]) -> Seen:
        """And back."""
        cause = told["cause"]
        found = cause["fingerprint"]
        made = Fingerprint(**{**found, "frames": tuple(found["frames"])})
        return cls(**{**told, "cause": Cause(cause["kind"], cause["topic"], made)})


class Tally:
    """Counts failures by their cause. May be used from many threads."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._own: frozenset[str] | None = None
        self._seen: dict[Cause, Seen] = {}
        self._misnamed = False
        """Whether it was logged that the app's own fingerprint function fails."""
        self._lock = Lock()

    def __bool__(self) -> bool:
        return bool(self._seen)

    def outcome(self, outcome: Outcome) -> None:
        """Take note of an outcome that is durable."""
        if outcome.kind in FAILED or outcome.error is not None:
            self.note(outcome.kind, outcome.record, outcome.envelope, outcome.error, outcome.reason)

    def note(
        self,
        kind: str,
        record: Record,
        envelope: Envelope | None,
        error: BaseException | None,
        reason: str = "",
    ) -> None:
        """Take note of a failure."""
        if error is None or isinstance(error, PastError):  # as far as the envelope tells
            found = _known(reason, envelope)
        else:
            found = self.fingerprint(record, error, reason)
        cause = Cause(kind, record.topic, found)
        with self._lock:
            if cause not in self._seen and len(self._seen) >= CAUSES_TOLD_APART:
                cause = Cause(kind, record.topic, Fingerprint(reason, OTHERS))
            seen = self._seen.get(cause)
            if seen is None:
                seen = self._seen[cause] = _described(cause, record, envelope, error)
            seen.count += 1
        if log.isEnabledFor(logging.DEBUG):
            _log_one(seen, record, error)

    def fingerprint(self, record: Record, error: BaseException, reason: str = "") -> Fingerprint:
        """What a failure has in common with others: as the app says, or by its class and place."""
        given = self._named(record, error)
        if given is not None:
            return Fingerprint(reason, given)
        if self._own is None:
            self._own = own_modules(self._app)
        return fingerprint(error, reason, self._own)

    def _named(self, record: Record, error: BaseException) -> str | None:
        """What the app calls the group; None where it says nothing, or cannot."""
        if self._app.name_group is None:
            return None
        try:
            given = asked("it", self._app.name_group, record, error)
            return None if given is None else one_line(bounded(given, CAUSE_GROUP_BYTES))
        except Exception as mistake:  # noqa: BLE001 -- a user's function may raise anything
            if not self._misnamed:
                name = name_of(self._app.name_group)
                said = type_and_text(mistake)
                log.warning(
                    "fingerprint %s failed (%s): failures are grouped without it", name, said
                )
            self._misnamed = True
            return None

    def take(self) -> list[Seen]:
        """What was counted since the last time."""
        with self._lock:
            seen, self._seen = self._seen, {}
        return [*seen.values()]


def merged(seen: Iterable[Seen]) -> list[Seen]:
    """The same, with each cause once."""
    found: dict[Cause, Seen] = {}
    for each in seen:
        if each.cause in found:
            found[each.cause].count += each.count
        else:
            found[each.cause] = each
    return [*found.values()]


def own_modules(app: App) -> frozenset[str]:
    """The modules of an app's functions: the user's own code, wherever it is installed."""
    handlers = app.handlers.values()
    functions = [each for handler in handlers for each in (handler.call, handler.recover)]
    modules = {_module(function) for function in functions if function is not None}
    return frozenset(each for each in modules if each.partition(".")[0] not in _PYTHONS_OWN)


_PYTHONS_OWN: Final = sys.stdlib_module_names | {""}


def _module(function: Callable[..., Any]) -> str:
    while isinstance(function, partial):
        function = function.func
    return getattr(inspect.unwrap(function), "__module__", None) or type(function).__module__


def _known(reason: str, envelope: Envelope | None) -> Fingerprint:
    if envelope is None:
        return Fingerprint(reason, "")
    return Fingerprint(reason, envelope.error_type or "", known=envelope.error_group or "")


def _described(
    cause: Cause, record: Record, envelope: Envelope | None, error: BaseException | None
) -> Seen:
    if error is None or isinstance(error, PastError):
        message = "" if envelope is None else envelope.error_message or ""
    else:
        message = text_of(error)
    return Seen(
        cause,
        0,
        record.partition,
        record.offset,
        id="" if envelope is None else envelope.id,
        attempt=1 if envelope is None else _failed_attempt(cause, envelope),
        message=one_line(bounded(message, CAUSE_MESSAGE_BYTES)),
        trace="" if error is None else trace_of(error),
    )


def _failed_attempt(cause: Cause, envelope: Envelope) -> int:
    """The attempt that failed: a parked record's envelope names the next one."""
    is_next = cause.kind in ("park", "hop") and envelope.dead_reason is None
    return envelope.attempt - is_next


def trace_of(error: BaseException) -> str:
    """The stack trace; bounded, as all of this is."""
    return shortened(envelopes.trace_of(error).rstrip(), CAUSE_TRACE_CHARACTERS)


def _log_one(seen: Seen, record: Record, error: BaseException | None) -> None:
    kind = seen.cause.kind
    text = "" if error is None else one_line(bounded(text_of(error), CAUSE_MESSAGE_BYTES))
    log.debug(
        "%s: %s%s %s: %s",
        record.place,
        kind,
        f" ({seen.cause.fingerprint.reason})" if seen.cause.fingerprint.reason else "",
        seen.cause.fingerprint.error,
        text,
        extra={
            "topic": record.topic,
            "partition": record.partition,
            "offset": record.offset,
            "outcome": kind,
            "reason": seen.cause.fingerprint.reason,
        },
    )
