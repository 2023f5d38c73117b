"""App: where a user's handlers and choices meet.

An app is only data: it consumes nothing by itself. Engines ask it for handlers, topics and policy.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final, Literal, TypeVar, Unpack, get_args, overload

from redrive.backoff import GiveBack
from redrive.config import SettingsArguments
from redrive.durations import Duration, milliseconds, text
from redrive.errors import ConfigurationError
from redrive.guarantees import GUARANTEES, Delivery
from redrive.ids import IdOf
from redrive.policy import RetryPolicy
from redrive.record import is_topic_name

Ordering = Literal["partition", "key", "unordered"]
Ack = Literal["auto", "manual"]
Commit = Literal["batch", "immediate"]
OnDataLoss = Literal["stop", "continue"]
Engine = Literal["spark", "worker"]

_Function = TypeVar("_Function", bound=Callable[..., Any])
_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,200}")
_MAX_CONCURRENCY: Final = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Handler:
    """A user's function for one source topic, with what was chosen for it."""

    topic: str
    call: Callable[..., Any]
    is_async: bool
    batch: int | None
    """The most records per call, for a batch handler; None: one record per call."""
    ack: Ack
    decode: Callable[[bytes | None], Any] | None
    id: IdOf | None
    retry: RetryPolicy
    timeout: int | None
    recover: Callable[..., Any] | None = None
    recover_is_async: bool = False
    is_frame: bool = False
    """Whether it takes a DataFrame and gives one: on Spark only."""

    def replace(self, **changes: Any) -> Handler:
        """The same with some of it changed."""
        return replace(self, **changes)


class App:
    """A named set of handlers; its name is the consumer group and the prefix of its topics.

    Delivery, ordering and concurrency belong to the app, because progress belongs to its consumer
    group and its delay topics are shared. Whoever needs two guarantees writes two apps.
    """

    def __init__(
        self,
        name: str,
        *,
        delivery: Delivery = "at-least-once",
        ordering: Ordering = "key",
        concurrency: int = 1,
        retry: RetryPolicy | None = None,
        commit: Commit | None = None,
        on_data_loss: OnDataLoss = "stop",
        error_traces: bool = False,
        inbox_ttl: Duration | None = None,
        database_connections: int = 8,
        **settings: Unpack[SettingsArguments],
    ) -> None:
        self.name = name
        self.delivery = delivery
        self.ordering = ordering
        self.concurrency = concurrency
        self._problems: list[str] = []
        self.retry = self._policy("retry", retry, RetryPolicy())
        self.commit = commit
        self.on_data_loss = on_data_loss
        self.error_traces = error_traces
        self.inbox_ttl = self._duration("inbox_ttl", inbox_ttl)
        """How long ids are remembered, in milliseconds; None: as long as records can come back."""
        self.database_connections = database_connections
        self.settings = settings
        self.resources: dict[str, Callable[..., Any]] = {}
        self._handlers: dict[str, Handler] = {}
        self._recoveries: dict[str | None, Callable[..., Any]] = {}

    # What users write

    def handler(
        self,
        topic: str,
        *,
        decode: Callable[[Any], Any] | None = None,
        id: IdOf | None = None,  # noqa: A002 -- the word for it, and only a parameter
        retry: RetryPolicy | None = None,
        batch: int | None = None,
        ack: Ack = "auto",
        timeout: Duration | None = None,
    ) -> Callable[[_Function], _Function]:
        """Make the function the handler of that source topic: `(record, ctx)`, sync or async.

        With `batch=100` it takes up to that many records at once: `(records, ctx)`. With
        `ack="manual"` a record is done when `ctx.ack()` is called, from any thread, in any order.
        """
        if callable(topic):
            self._problems.append(
                f'@app.handler needs a topic: @app.handler("orders") on {_name_of(topic)}'
            )

        def register(function: _Function) -> _Function:
            self._add_handler(
                Handler(
                    topic=topic,
                    call=function,
                    is_async=_is_async(function),
                    batch=batch,
                    ack=ack,
                    decode=decode,
                    id=id,
                    retry=self._policy(f'handler of "{topic}": retry', retry, self.retry),
                    timeout=self._duration(f'handler of "{topic}": timeout', timeout),
                )
            )
            return function

        return register

    def frame(
        self, topic: str, *, retry: RetryPolicy | None = None
    ) -> Callable[[_Function], _Function]:
        """Make the function, DataFrame to DataFrame, the frame handler of that source topic.

        On Spark only. It gets the columns of Spark's Kafka source and `redrive`, and gives back the
        same rows with an `outcome` made by `redrive.spark.done()`, `send()`, `park()` or `bury()`.
        """

        def register(function: _Function) -> _Function:
            self._add_handler(
                Handler(
                    topic=topic,
                    call=function,
                    is_async=_is_async(function),
                    batch=None,
                    ack="auto",
                    decode=None,
                    id=None,
                    retry=self._policy(f'frame handler of "{topic}": retry', retry, self.retry),
                    timeout=None,
                    is_frame=True,
                )
            )
            return function

        return register

    def resource(self, function: _Function) -> _Function:
        """Make the (sync or async) generator a resource: `ctx.resources.<name of the function>`.

        It is opened once per worker process, and closed at its end.
        """
        name = function.__name__
        self._refuse_after_start(f'the resource "{name}"')
        if name in self.resources:
            self._problems.append(f'resource "{name}" is defined twice: rename one of them')
        elif not (inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function)):
            self._problems.append(
                f'resource "{name}" is not a generator: yield the resource once, close it after'
            )
        self.resources[name] = function
        return function

    @overload
    def recover(self, given: _Function, /) -> _Function: ...
    @overload
    def recover(self, given: str, /) -> Callable[[_Function], _Function]: ...
    def recover(self, given: Any, /) -> Any:
        """Call the function `(record, error, ctx)` before a record is buried.

        `@app.recover` is for all handlers, `@app.recover("topic")` for the handler of one.
        """
        if isinstance(given, str):
            return lambda function: self._add_recovery(given, function)
        return self._add_recovery(None, given)

    # What engines ask

    @cached_property
    def handlers(self) -> Mapping[str, Handler]:
        """The handlers by source topic. Asking for them closes the app for changes."""
        self.check()
        return {topic: self._with_recovery(handler) for topic, handler in self._handlers.items()}

    def with_handlers(self, change: Callable[[Handler], Handler]) -> App:
        """A copy of the app whose handlers are changed: for watching and measuring them."""
        changed = copy(self)
        changed.__dict__["handlers"] = {
            topic: change(handler) for topic, handler in self.handlers.items()
        }
        return changed

    @property
    def frame_handler(self) -> Handler | None:
        """The frame handler, where the app is a pipeline of DataFrames."""
        return next((handler for handler in self._handlers.values() if handler.is_frame), None)

    @property
    def dead_topic(self) -> str:
        """Where buried records go."""
        return f"{self.name}.dead"

    def delay_topic(self, delay: int) -> str:
        """The delay topic of that delay, in milliseconds."""
        return f"{self.name}.retry.{text(delay)}"

    def delay_of(self, topic: str) -> int | None:
        """The delay of one of this app's delay topics, by its name; None for other topics.

        Also of one that no policy uses any more: records may still be waiting in it.
        """
        written = topic.removeprefix(f"{self.name}.retry.")
        try:
            delay = milliseconds(written)
        except ConfigurationError:
            return None
        return delay if topic == self.delay_topic(delay) else None

    @cached_property
    def delay_topics(self) -> Mapping[str, int]:
        """The delay topics with their delays, shortest first: one per distinct delay."""
        delays = {hop for handler in self._handlers.values() for hop in handler.retry.hops}
        return {self.delay_topic(delay): delay for delay in sorted(delays)}

    def check(self, engine: Engine | None = None) -> None:
        """Raise a ConfigurationError that names every mistake, or do nothing."""
        problems = [*self._problems, *self._own_problems()]
        for handler in self._handlers.values():
            where = f'handler of "{handler.topic}"'
            problems += [f"{where}: {problem}" for problem in self._handler_problems(handler)]
            if engine == "spark" and isinstance(handler.retry.first, GiveBack):
                problems.append(
                    f"{where}: GiveBack exists on the worker only; use InPlace, or --engine worker"
                )
            if engine == "spark" and _is_uninterruptible(handler):
                problems.append(
                    f"{where}: timeout= of a function that is not async exists on the worker only:"
                    " a task cannot go on without it; make it async, or use --engine worker"
                )
        problems += self._frame_problems(engine)
        if engine == "spark" and self.commit is not None:
            problems.append("commit= exists on the worker only: on Spark each task commits")
        if problems:
            raise ConfigurationError([f'app "{self.name}": {problem}' for problem in problems])

    # How it is kept

    def _add_handler(self, handler: Handler) -> None:
        self._refuse_after_start(f'the handler of "{handler.topic}"')
        self.__dict__.pop("delay_topics", None)  # of the handlers until now
        if handler.topic in self._handlers:
            self._problems.append(
                f'two handlers for "{handler.topic}"'
                f" ({_name_of(self._handlers[handler.topic].call)} and"
                f" {_name_of(handler.call)}): one source topic has one handler"
            )
        self._handlers[handler.topic] = handler

    def _refuse_after_start(self, what: str) -> None:
        if "handlers" in self.__dict__:
            raise ConfigurationError(
                f'app "{self.name}": {what} was added after the app was started: define everything'
                " in the app's module"
            )

    def _add_recovery(self, topic: str | None, function: _Function) -> _Function:
        whose = "the app" if topic is None else f'"{topic}"'
        self._refuse_after_start(f"the recovery for {whose}")
        if topic in self._recoveries:
            self._problems.append(f"two recoveries for {whose}: there can be one")
        if not _accepts(function, 3):
            self._problems.append(f"recovery {_name_of(function)} must take (record, error, ctx)")
        self._recoveries[topic] = function
        return function

    def _with_recovery(self, handler: Handler) -> Handler:
        recover = self._recoveries.get(handler.topic, self._recoveries.get(None))
        return handler.replace(
            recover=recover, recover_is_async=recover is not None and _is_async(recover)
        )

    def _own_problems(self) -> Iterator[str]:
        if not (isinstance(self.name, str) and _NAME.fullmatch(self.name)):
            yield "the name must be 1 to 200 letters, digits, '.', '_' or '-': topics carry it"
        words = {
            "delivery": Delivery,
            "ordering": Ordering,
            "on_data_loss": OnDataLoss,
            "commit": Commit | None,
        }
        for option, allowed in words.items():
            given = getattr(self, option)
            known = get_args(Commit) if option == "commit" else get_args(allowed)
            if given not in known and not (option == "commit" and given is None):
                yield f"{option} is {given!r}; it can be {' or '.join(map(repr, known))}"
        if not (_is_whole(self.concurrency) and 1 <= self.concurrency <= _MAX_CONCURRENCY):
            yield f"concurrency is {self.concurrency!r}; it can be 1 to {_MAX_CONCURRENCY}"
        if not (_is_whole(self.database_connections) and self.database_connections >= 1):
            yield f"database_connections is {self.database_connections!r}; at least 1 is needed"
        if not self._handlers:
            yield "it has no handlers: decorate a function with @app.handler(topic)"
        for topic in self._recoveries:
            if topic is not None and topic not in self._handlers:
                yield f'a recovery for "{topic}", which has no handler'

    def _handler_problems(self, handler: Handler) -> Iterator[str]:
        if not (isinstance(handler.topic, str) and is_topic_name(handler.topic)):
            yield "that is not a name a Kafka topic can have"
        if handler.topic == self.dead_topic or handler.topic in self.delay_topics:
            yield "that is one of the app's own topics; give the app another name"
        first = "record" if handler.batch is None else "records"
        taken = ["frame"] if handler.is_frame else [first, "ctx"]
        if not _accepts(handler.call, len(taken)):
            yield f"{_name_of(handler.call)} must take ({', '.join(taken)})"
        if not (handler.batch is None or (_is_whole(handler.batch) and handler.batch >= 1)):
            yield f"batch is {handler.batch!r}: the most records per call, at least 1"
        if inspect.isgeneratorfunction(handler.call) or inspect.isasyncgenfunction(handler.call):
            yield f"{_name_of(handler.call)} yields, and would never run: use ctx.send instead"
        if handler.is_frame and handler.is_async:
            yield f"{_name_of(handler.call)} is async: a frame handler says what Spark shall do"
        if handler.ack not in get_args(Ack):
            yield f"ack is {handler.ack!r}; it can be 'auto' or 'manual'"
        if handler.ack == "manual" and handler.batch is not None:
            yield "manual acks belong to single records: drop batch= or ack="
        yield from self._delivery_problems(handler)

    def _frame_problems(self, engine: Engine | None) -> Iterator[str]:
        frames = [handler for handler in self._handlers.values() if handler.is_frame]
        if not frames:
            return
        where = f'frame handler of "{frames[0].topic}"'
        if engine == "worker":
            yield f"{where}: DataFrames exist on Spark only; use --engine spark"
        if len(self._handlers) > 1:
            yield f"{where}: an app with a frame handler has no other handlers; write a second app"
        if self.delivery in GUARANTEES and GUARANTEES[self.delivery].database:
            yield (
                f"{where}: {self.delivery} needs a database transaction around each record; frame"
                " handlers have at-least-once or transaction"
            )
        if frames[0].retry.first is not None:
            yield f"{where}: first= calls one record again; a frame has delays= only"
        if self._recoveries:
            yield f"{where}: recoveries are called with one record; a frame decides by its outcome"
        if self.resources:
            yield f"{where}: resources are for handlers of records; a frame reads DataFrames"

    def _delivery_problems(self, handler: Handler) -> Iterator[str]:
        if handler.ack == "manual" and self.delivery == "transaction":
            yield (
                "manual acks cannot be combined with transaction: it commits a contiguous prefix"
                " of records, and cannot wait for one of them"
            )
        if self.delivery not in GUARANTEES or not GUARANTEES[self.delivery].database:
            return
        if handler.ack == "manual":
            yield (
                f"manual acks cannot be combined with {self.delivery}: its transaction is committed"
                " when the handler returns, and cannot wait for an acknowledgement"
            )
        if _is_uninterruptible(handler):
            yield (
                f"timeout= with {self.delivery} needs an async handler: the transaction of a"
                " function that does not come back would stay open"
            )

    def _policy(self, where: str, given: RetryPolicy | None, otherwise: RetryPolicy) -> RetryPolicy:
        if given is None or isinstance(given, RetryPolicy):
            return given or otherwise
        self._problems.append(f"{where} is {given!r}; write RetryPolicy({given!r})")
        return otherwise

    def _duration(self, where: str, given: Duration | None) -> int | None:
        if given is None:
            return None
        try:
            return milliseconds(given)
        except ConfigurationError as mistake:
            self._problems.append(f"{where}: {mistake}")
            return None


def _is_uninterruptible(handler: Handler) -> bool:
    return handler.timeout is not None and handler.ack != "manual" and not handler.is_async


def _is_async(function: Callable[..., Any]) -> bool:
    called = getattr(function, "__call__", None)  # noqa: B004 -- an object may be async in its __call__
    # A decorator may make a function async, or hand an async function's coroutine on.
    asked = (function, inspect.unwrap(function), called)
    return any(map(inspect.iscoroutinefunction, asked))


def _name_of(function: Callable[..., Any]) -> str:
    return getattr(function, "__qualname__", None) or repr(function)


def _is_whole(number: object) -> bool:
    return isinstance(number, int) and not isinstance(number, bool)


def _accepts(function: Callable[..., Any], arguments: int) -> bool:
    try:
        inspect.signature(function).bind(*range(arguments))
    except TypeError:
        return False
    except ValueError:  # a built-in that does not tell its signature
        return True
    return True
