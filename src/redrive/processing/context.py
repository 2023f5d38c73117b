"""Context: what a handler can ask and say about the record it is given."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, MutableMapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from redrive.envelope import Envelope, user_headers
from redrive.errors import ContextError
from redrive.handler import undeclared
from redrive.ids import MessageId
from redrive.processing.work import TakenCareOf
from redrive.record import Headers, Record, Write, is_topic_name

if TYPE_CHECKING:
    from redrive.processing.scope import Scope
    from redrive.processing.work import Result, Work

_new: Final = tuple.__new__
_LAST_PARTITION: Final = (1 << 31) - 1
_MOST_TOPICS: Final = 10_000
_MOST_SHOWN: Final = 200

HeadersGiven = Headers | Sequence[tuple[str, bytes | None]] | Mapping[str, bytes | None]


class RecordLog(logging.LoggerAdapter[logging.Logger]):
    """A logger that knows its record; what is passed as `extra=` is told as well."""

    def process(
        self, msg: Any, kwargs: MutableMapping[str, Any]
    ) -> tuple[Any, MutableMapping[str, Any]]:
        """Add what is known of the record."""
        kwargs["extra"] = {**(kwargs.get("extra") or {}), **(self.extra or {})}
        return msg, kwargs


class _Sender:
    """What contexts of one record and of a batch have in common."""

    __slots__ = ("_allowed", "_open", "_scope", "_sends")

    def __init__(self, scope: Scope, allowed: tuple[str, ...] | None) -> None:
        """`allowed` are the topics that can be sent to; None: any."""
        self._scope = scope
        self._allowed = allowed
        self._sends: list[Write] | None = None
        self._open = True

    def send(
        self,
        topic: str,
        value: object,
        *,
        key: bytes | str | None = None,
        headers: HeadersGiven = (),
        partition: int | None = None,
        id: MessageId = None,  # noqa: A002 -- the word for it, and only a parameter
    ) -> None:
        """Write a message if, and only if, this record is done: never for an attempt that failed.

        Bytes and None are written as they are, text as UTF-8, dicts, lists and numbers as JSON.
        With `id` (an outbox only), a record that sends what was sent before is a duplicate.
        """
        if not self._open:
            raise ContextError(
                f"ctx.send({topic!r}) after the record's outcome: its messages were published with"
                " it; send before the handler returns (or before ctx.ack())"
            )
        if type(value) is not bytes:
            value = _encoded(value)
        if type(key) is not bytes:
            key = _bytes("key", key)
        allowed = self._allowed
        if allowed is not None and topic not in allowed:
            raise ContextError(f"ctx.send({topic!r}): {undeclared(topic, allowed)}")
        if topic not in self._scope.sent_to or partition is not None:
            _check_place(topic, partition, self._scope.sent_to)
        made = (topic, key, value, _headers(headers) if headers else (), partition, None)
        write = _new(Write, made)  # a Write, by the tuple's own constructor: in half the time
        if id is not None:
            write = self._scope.identified(write, id)
        if self._sends is None:
            self._sends = [write]
        else:
            self._sends.append(write)

    @property
    def db(self) -> Any:
        """The connection whose transaction the record's outcome is part of.

        A `psycopg.Connection`, in async handlers a `psycopg.AsyncConnection`. Its transaction is
        not the handler's to end: it is committed with the outcome.
        """
        if not self._open:
            raise ContextError(
                "ctx.db after the record's outcome: its transaction has ended with it; use it"
                " before the handler returns"
            )
        return self._scope.connection()

    @property
    def resources(self) -> Any:
        """What `@app.resource` opened in this process, by name."""
        return self._scope.resources

    @property
    def trying(self) -> bool:
        """Whether this call is only tried (`redrive dead try`): it must have no effect."""
        return self._scope.trying

    def close(self) -> list[Write] | None:
        """End the context; gives what was sent."""
        self._open = False
        return self._sends


class Context(_Sender):
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
        return self._scope.envelope(self._work)

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
        """The same at every attempt, and no other record's: for third parties that honour one."""
        envelope = self.envelope
        return f"{envelope.app}/{self._work.handler.id_scope}/{envelope.id}"

    @property
    def log(self) -> RecordLog:
        """A logger that tells app, topic, partition, offset, id and attempt."""
        envelope = self._scope.known(self._work)
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
        """End the context; gives what was sent, and whether the record is taken care of."""
        sends = super().close()
        return TakenCareOf(sends or ()) if self._acked else sends


class BatchContext(_Sender):
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
        """End the context and those of its records; gives what was sent for the whole batch."""
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


def _check_place(topic: str, partition: int | None, good: set[str]) -> None:
    # Names that were good once are remembered: this is asked for every message.
    if topic not in good:
        if not (isinstance(topic, str) and is_topic_name(topic)):
            raise ContextError(f"ctx.send: {topic!r} is not a name a Kafka topic can have")
        if len(good) < _MOST_TOPICS:
            good.add(topic)
    if partition is not None and not (type(partition) is int and 0 <= partition <= _LAST_PARTITION):
        raise ContextError(f"ctx.send({topic!r}): there is no partition {partition!r}")


def _encoded(value: object) -> bytes | None:
    if isinstance(value, dict | list | int | float):
        return json.dumps(value, separators=(",", ":")).encode()
    return _bytes("value", value)


def _header(pair: object) -> tuple[str, bytes | None]:
    match pair:
        case (str(name), value) if name.isascii() or _is_text(name):
            if "\0" not in name:  # librdkafka would cut it off there
                return name, _bytes(f"header {name!r}", value)
    raise ContextError(
        f"ctx.send: {pair!r} cannot be a header: it is a name, which is text, and a value"
    )


def _is_text(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _bytes(what: str, given: object) -> bytes | None:
    if given is None or isinstance(given, bytes):
        return given
    if isinstance(given, str):
        return given.encode()
    raise ContextError(
        f"ctx.send: the {what} is {type(given).__name__}; encode it to bytes or text first"
    )


def _headers(given: HeadersGiven) -> Headers:
    headers = tuple(map(_header, given.items() if isinstance(given, Mapping) else given))
    # Headers are often passed on from the record: redrive's own are about that record, not this.
    return user_headers(headers)
