"""Context: what a handler can ask and say about the record it is given."""

from __future__ import annotations

import logging
from collections.abc import MutableMapping, Sequence
from typing import Any, Final

from redrive.envelope import Envelope
from redrive.errors import ContextError
from redrive.processing.calls.scope import Scope
from redrive.processing.calls.sending import Sender
from redrive.processing.work import Result, TakenCareOf, Work
from redrive.record import Record, Write

_MOST_SHOWN: Final = 200


class RecordLog(logging.LoggerAdapter[logging.Logger]):
    """A logger that knows its record; what is passed as `extra=` is logged as well."""

    def process(
        self, msg: Any, kwargs: MutableMapping[str, Any]
    ) -> tuple[Any, MutableMapping[str, Any]]:
        """Add what is known of the record."""
        kwargs["extra"] = {**(kwargs.get("extra") or {}), **(self.extra or {})}
        return msg, kwargs


class Context(Sender):
    """What a handler can ask and say about its record."""

    __slots__ = ("_work",)

    def __init__(self, work: Work, scope: Scope) -> None:
        self._scope = scope
        self._allowed = work.handler.sends
        self._sends = None
        self._open = True
        self._work = work

    @property
    def envelope(self) -> Envelope:
        """What redrive knows of the record: id, origin, first receipt, attempt, last error."""
        return self._scope.envelopes.of(self._work)

    @property
    def attempt(self) -> int:
        """Which attempt this is: 1 at first, one more each time the record was parked."""
        envelope = self._work.envelope
        return 1 if envelope is None else envelope.attempt

    @property
    def record(self) -> Record:
        """The record itself."""
        return self._work.record

    @property
    def consumer(self) -> Any:
        """The consumer of the record's partition: `pause()`, `resume()`, `position` (worker)."""
        return self._scope.consumer(self._work)

    @property
    def tries(self) -> int:
        """Which call within this attempt: above 1 when tried in place or given back."""
        return self._work.tries

    @property
    def idempotency_key(self) -> str:
        """Unique to the record, the same at every attempt: for services that accept such a key."""
        envelope = self.envelope
        return f"{envelope.app}/{self._work.handler.id_scope}/{envelope.id}"

    @property
    def log(self) -> RecordLog:
        """A logger that adds app, topic, partition, offset, id and attempt."""
        envelope = self._scope.envelopes.for_report(self._work)
        return RecordLog(
            self._scope.log,
            {
                "app": envelope.app,
                "topic": envelope.origin_topic,
                "partition": envelope.origin_partition,
                "offset": envelope.origin_offset,
                "id": envelope.id,
                "attempt": envelope.attempt,
            },
        )

    def ack(self) -> None:
        """The record is done (manual-ack handlers): from any thread, in any order, any time."""
        self._acknowledge("ack")

    def fail(self, error: BaseException) -> None:
        """The record failed (manual-ack handlers): the policy decides, as if it had been raised."""
        self._acknowledge("fail", _failure("ctx.fail()", error))

    def _acknowledge(self, verb: str, error: BaseException | None = None) -> None:
        if self._work.handler.ack != "manual":
            raise ContextError(
                f"ctx.{verb}() in the handler of {self._work.handler.topic!r}, whose records are"
                ' acknowledged when it returns: add ack="manual" to @app.handler'
            )
        if not self._open:
            return  # the first word counts
        sends = self.close()
        result: Result = sends if error is None else error
        self._scope.acknowledge(self._work, self, result)


class RecoveryContext(Context):
    """What a recovery can ask and say about its record."""

    __slots__ = ("_acked",)

    def __init__(self, work: Work, scope: Scope) -> None:
        super().__init__(work, scope)
        self._allowed = work.handler.recover_sends
        self._acked = False

    def ack(self) -> None:
        """The recovery takes care of the record: done when it returns, not buried or discarded."""
        self._acked = True

    def fail(self, error: BaseException) -> None:
        """Refused: a recovery fails by raising, and is then tried again."""
        raise ContextError("ctx.fail() in a recovery: raise the error instead") from error

    def close(self) -> list[Write] | None:
        """End the context; returns what was sent, and whether the record is taken care of."""
        sends = super().close()
        return TakenCareOf(sends or ()) if self._acked else sends


class BatchContext(Sender):
    """What a batch handler can ask and say about its records."""

    __slots__ = ("_contexts", "_failures")

    def __init__(self, works: Sequence[Work], scope: Scope) -> None:
        super().__init__(scope, works[0].handler.sends if works else None)
        self._contexts = {id(work.record): Context(work, scope) for work in works}
        self._failures: dict[int, BaseException] = {}

    @property
    def log(self) -> logging.Logger:
        """The app's logger."""
        return self._scope.log

    def of(self, record: Record) -> Context:
        """The context of one record: its envelope, and messages that go out only if it is done."""
        return self._contexts[self._known(record)]

    def fail(self, record: Record, error: BaseException) -> None:
        """That record failed: the policy decides about it. The others count."""
        self._failures[self._known(record)] = _failure("ctx.fail(record, ...)", error)

    def failure_of(self, record: Record) -> BaseException | None:
        """How a record failed, if that was said."""
        return self._failures.get(self._known(record))

    def close(self) -> list[Write] | None:
        """End the context and those of its records; returns what was sent for the whole batch."""
        for context in self._contexts.values():
            context.close()
        return super().close()

    def results(self) -> list[Result]:
        """What came of each record, once the handler has returned."""
        shared = self.close()
        results: list[Result] = []
        for record, context in self._contexts.items():
            own = context.close()
            if record in self._failures:
                results.append(self._failures[record])
            else:
                # Messages of the whole batch go out with the first record that is done.
                results.append([*(shared or ()), *(own or ())] if shared or own else None)
                shared = None
        return results

    def _known(self, record: Record) -> int:
        if id(record) not in self._contexts:
            raise ContextError(
                f"{record.place} is not one of this call's records: pass the record itself"
            )
        return id(record)


def _failure(verb: str, error: object) -> BaseException:
    """What a record failed with: also if whoever says so does not pass an exception."""
    if isinstance(error, BaseException):
        return error
    if isinstance(error, str):
        what = f"the text {error[:_MOST_SHOWN]!r}"
    elif isinstance(error, type):
        what = f"the class {error.__name__}"
    else:
        what = "None" if error is None else f"a {type(error).__name__}"
    return ContextError(
        f'{verb} was given {what}, not an exception: pass one, such as ValueError("why")'
    )
