"""App: where a user's handlers and choices meet.

An app is only data and consumes nothing by itself: engines ask it for handlers, topics and policy.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from copy import copy
from functools import cached_property
from itertools import chain
from typing import Any, Final, Never, TypeVar, Unpack, cast, overload

from redrive import validation
from redrive.choices import Ack, AfterBury, Commit, Engine, OnDataLoss, Ordering
from redrive.config import SettingsArguments
from redrive.durations import Duration, milliseconds, optional_milliseconds, text
from redrive.errors import ConfigurationError
from redrive.guarantees import GUARANTEES, Delivery, Guarantee
from redrive.guard import Guard
from redrive.handler import Handler, accepts, as_called, is_async, name_of, topics_named, yields
from redrive.ids import IdOf
from redrive.policy import RetryPolicy
from redrive.record import Record
from redrive.secret import guarded
from redrive.tuning import MAX_BEHIND

_Function = TypeVar("_Function", bound=Callable[..., Any])
_DEAD: Final = ".dead"


def rules_topic_of(app: str) -> str:
    """The topic that stores operators' rules for the parked records of an app of that name."""
    # Beside the delay topics, and not one of them: who may read those may read it.
    return f"{app}.retry.rules"


def state_topic_of(dead_topic: str) -> str:
    """The topic that stores what operators did about a dead topic's records."""
    return f"{dead_topic}.state"


def owner_of(dead_topic: str) -> str:
    """In whose name operators work on a dead topic: its app's, whoever they are.

    They fence each other by it, so it must not depend on how they have named the topic.
    """
    return dead_topic.removesuffix(_DEAD) or dead_topic


class App:
    """A named set of handlers; its name is the consumer group and the prefix of its topics.

    Delivery, ordering and concurrency belong to the app, because progress belongs to its consumer
    group and its delay topics are shared. If you need two guarantees, write two apps.
    """

    def __init__(
        self,
        name: str,
        *,
        delivery: Delivery = "at-least-once",
        ordering: Ordering = "key",
        concurrency: int = 1,
        max_behind: int = MAX_BEHIND,
        after_bury: AfterBury = "continue",
        retry: RetryPolicy | None = None,
        guard: Guard | None = None,
        stop_on_dead: float | None = None,
        commit: Commit | None = None,
        on_data_loss: OnDataLoss = "stop",
        error_traces: bool = False,
        inbox_ttl: Duration | None = None,
        unhandled: Duration | None = "1d",
        database_connections: int = 8,
        sends: str | Iterable[str] | None = None,
        was: str | None = None,
        masked: str | Iterable[str] = (),
        **settings: Unpack[SettingsArguments],
    ) -> None:
        """`sends=` lists the topics that handlers and recoveries may send to: see `handler`.

        `unhandled=` is how long a parked record waits for a version of the app that has its
        handler, before it is buried as `no-handler`; None means forever.

        `was=` is the app's previous name: its progress and its parked records are taken over.

        `guard=` stops calling a handler while what it depends on is away: see `Guard`.

        `stop_on_dead=0.5` ends the run if half of its records, or more, would be buried.

        `max_behind=` is how many records of one key may wait behind one that is parked, and
        `after_bury=` what becomes of them when it is buried; both with `ordering="strict"`.

        `masked=` names fields that commands and the console hide: `card.number`, or `number`.
        """
        self.name = name
        self.was = was
        self.delivery = delivery
        self.ordering = ordering
        self.concurrency = concurrency
        self.max_behind = max_behind
        self.after_bury = after_bury
        self._problems: list[str] = []
        self.retry = self._policy("retry", retry, RetryPolicy())
        self.guard = self._guard("guard", guard, None)
        self.stop_on_dead = stop_on_dead
        self.commit = commit
        self.on_data_loss = on_data_loss
        self.error_traces = error_traces
        self.inbox_ttl = optional_milliseconds("inbox_ttl", inbox_ttl, self._problems)
        """How long ids are remembered, in milliseconds; None: as long as records can come back."""
        self.unhandled = optional_milliseconds("unhandled", unhandled, self._problems)
        """How long parked records wait for a version with their handler, in milliseconds."""
        self.database_connections = database_connections
        self.sends = topics_named(sends)
        self.masked = (masked,) if isinstance(masked, str) else tuple(masked)
        """Fields of values that are not shown to operators."""
        known = SettingsArguments.__annotations__
        self._problems += validation.of_words(App.__init__, "App()", settings, known)
        given = {word: value for word, value in settings.items() if word in known}
        self.settings = cast("SettingsArguments", guarded(given))
        self.resources: dict[str, Callable[..., Any]] = {}
        self._handlers: dict[str, Handler] = {}
        self._recoveries: dict[str | None, Callable[..., Any]] = {}
        self.name_group: Callable[[Record, BaseException], str | None] | None = None
        """Names the group of a failure, if the user has a function for it: `@app.fingerprint`."""

    # What users write

    def handler(
        self,
        topic: str,
        *,
        decode: Callable[[Any], Any] | None = None,
        id: IdOf | None = None,  # noqa: A002 -- the word for it, and only a parameter
        id_scope: str | None = None,
        payload: Callable[[Record], Any] | None = None,
        retry: RetryPolicy | None = None,
        guard: Guard | None = None,
        batch: int | None = None,
        ack: Ack = "auto",
        timeout: Duration | None = None,
        sends: str | Iterable[str] | None = None,
        **unknown: Never,
    ) -> Callable[[_Function], _Function]:
        """Make the function the handler of that source topic: `(record, ctx)`, sync or async.

        With `batch=100` it takes up to that many records at once: `(records, ctx)`. With
        `ack="manual"` a record is done when `ctx.ack()` is called, from any thread, in any order.
        `sends=` lists the topics that it may send to besides the app's; `redrive topics` creates
        them and `redrive doctor` checks them.

        An id belongs to its source topic; handlers with the same `id_scope=` share theirs.
        `payload=` returns what has to be equal if two records have the same id.
        """
        if callable(topic):
            self._problems.append(
                f'@app.handler needs a topic: @app.handler("orders") on {name_of(topic)}'
            )
        self._refuse_words(App.handler, f'@app.handler("{topic}")', unknown)

        def register(function: _Function) -> _Function:
            self._add_handler(
                Handler(
                    topic=topic,
                    call=as_called(function),
                    is_async=is_async(function),
                    batch=batch,
                    ack=ack,
                    decode=decode,
                    id=id,
                    id_scope=topic if id_scope is None else id_scope,
                    payload=payload,
                    retry=self._policy(f'handler of "{topic}": retry', retry, self.retry),
                    guard=self._guard(f'handler of "{topic}": guard', guard, self.guard),
                    timeout=optional_milliseconds(
                        f'handler of "{topic}": timeout', timeout, self._problems
                    ),
                    sends=topics_named(sends),
                )
            )
            return function

        return register

    def frame(
        self,
        topic: str,
        *,
        retry: RetryPolicy | None = None,
        sends: str | Iterable[str] | None = None,
        **unknown: Never,
    ) -> Callable[[_Function], _Function]:
        """Make the function, DataFrame to DataFrame, the frame handler of that source topic.

        Spark only. It gets the columns of Spark's Kafka source plus `redrive`, and returns the
        same rows with an `outcome` made by `redrive.spark.done()`, `send()`, `park()` or `bury()`.
        """
        self._refuse_words(App.frame, f'@app.frame("{topic}")', unknown)

        def register(function: _Function) -> _Function:
            self._add_handler(
                Handler(
                    topic=topic,
                    call=function,
                    is_async=is_async(function),
                    retry=self._policy(f'frame handler of "{topic}": retry', retry, self.retry),
                    is_frame=True,
                    sends=topics_named(sends),
                )
            )
            return function

        return register

    def resource(self, function: _Function) -> _Function:
        """Make the (sync or async) generator a resource: `ctx.resources.<name of the function>`.

        It is opened once per worker process, and closed when the process ends.
        """
        name = function.__name__
        self._refuse_after_start(f'the resource "{name}"')
        if name in self.resources:
            self._problems.append(f'resource "{name}" is defined twice: rename one of them')
        elif not (inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function)):
            self._problems.append(
                f'resource "{name}" is not a generator: yield the resource once, and close it'
                " after the yield"
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

    def fingerprint(self, function: _Function) -> _Function:
        """Let the function `(record, error)` name the group that a failure belongs to.

        It returns a short text, the same for failures of one cause; None leaves it to redrive,
        which goes by the error's class and the functions of your code that it was raised in.
        """
        self._refuse_after_start(f"the fingerprint {name_of(function)}")
        if self.name_group is not None:
            self._problems.append(
                f"two fingerprints ({name_of(self.name_group)} and {name_of(function)}): there can"
                " be only one"
            )
        if not accepts(function, 2) or is_async(function) or yields(function):
            self._problems.append(
                f"fingerprint {name_of(function)} must be a plain function of (record, error)"
            )
        self.name_group = function
        return function

    # What engines ask

    @cached_property
    def handlers(self) -> Mapping[str, Handler]:
        """The handlers by source topic. Asking for them closes the app for changes."""
        self.check()
        return {topic: self._complete(handler) for topic, handler in self._handlers.items()}

    def with_handlers(self, change: Callable[[Handler], Handler]) -> App:
        """A copy of the app with changed handlers: for observing and measuring them."""
        changed = copy(self)
        changed.__dict__["handlers"] = {
            topic: change(handler) for topic, handler in self.handlers.items()
        }
        return changed

    @property
    def guarantee(self) -> Guarantee:
        """What its delivery means; of an app that was checked."""
        return GUARANTEES[self.delivery]

    @property
    def frame_handler(self) -> Handler | None:
        """The frame handler, if the app is a pipeline of DataFrames."""
        return next((handler for handler in self._handlers.values() if handler.is_frame), None)

    @property
    def dead_topic(self) -> str:
        """Where buried records go."""
        return f"{self.name}{_DEAD}"

    @property
    def state_topic(self) -> str:
        """The topic that stores what operators did about dead records."""
        return state_topic_of(self.dead_topic)

    @property
    def behind_topic(self) -> str:
        """Where records wait behind one of their key that is parked: followers."""
        # With their prefix, as the one for rules: who may use the delay topics may use it.
        return f"{self.name}.retry.behind"

    @property
    def rules_topic(self) -> str:
        """The topic that stores operators' rules for parked records."""
        return rules_topic_of(self.name)

    def delay_topic(self, delay: int) -> str:
        """The delay topic of that delay, in milliseconds."""
        return f"{self.name}.retry.{text(delay)}"

    def delay_of(self, topic: str) -> int | None:
        """The delay of one of this app's delay topics, by its name; None for other topics.

        This includes topics that no policy uses any more and those under the app's old name:
        records may still be waiting there.
        """
        if topic == self.behind_topic and topic not in self._handlers:
            return 0  # also when the order is not strict any more: followers may still be there
        for name in filter(None, (self.name, self.was)):
            start = f"{name}.retry."
            if topic.startswith(start):
                written = topic.removeprefix(start)
                try:
                    delay = milliseconds(written)
                except ConfigurationError:
                    continue
                if text(delay) == written:
                    return delay
        return None

    def can_do_without(self, topic: str) -> bool:
        """Whether it is a delay topic that no policy uses any more, and that may be deleted."""
        strict = self.ordering == "strict" and topic == self.behind_topic
        return self.delay_of(topic) is not None and topic not in self.delay_topics and not strict

    def waiting_topics(self, names: Iterable[str]) -> dict[str, int]:
        """The delay topics of this app among all topics, with their delays.

        This includes those that no policy uses any more, as records may be waiting there, and those
        from when the app had another name.
        """
        return {name: delay for name in names if (delay := self.delay_of(name)) is not None}

    @cached_property
    def delay_topics(self) -> Mapping[str, int]:
        """The delay topics with their delays, shortest first: one per distinct delay."""
        delays = {hop for handler in self._handlers.values() for hop in handler.retry.hops}
        return {self.delay_topic(delay): delay for delay in sorted(delays)}

    @property
    def outbound_topics(self) -> list[str]:
        """The topics that `sends=` declares, except source topics, which are listed as such."""
        declared = (self.sends, *(handler.sends for handler in self._handlers.values()))
        named = dict.fromkeys(chain.from_iterable(topics or () for topics in declared))
        return [topic for topic in named if topic not in self._handlers]

    def check(self, engine: Engine | None = None) -> None:
        """Raise a ConfigurationError that names every mistake, or do nothing."""
        problems = [*self._problems, *validation.of_app(self, self._handlers, self._recoveries)]
        problems += validation.of_engine(self, self._handlers, engine)
        if problems:
            raise ConfigurationError([f'app "{self.name}": {problem}' for problem in problems])

    # How it is kept

    def _add_handler(self, handler: Handler) -> None:
        self._refuse_after_start(f'the handler of "{handler.topic}"')
        self.__dict__.pop("delay_topics", None)  # of the handlers until now
        if handler.topic in self._handlers:
            self._problems.append(
                f'two handlers for "{handler.topic}"'
                f" ({name_of(self._handlers[handler.topic].call)} and {name_of(handler.call)}): a"
                " source topic can have only one handler"
            )
        self._handlers[handler.topic] = handler

    def _refuse_after_start(self, what: str) -> None:
        if "handlers" in self.__dict__:
            raise ConfigurationError(
                f'app "{self.name}": {what} was added after the app was started: define it in the'
                " app's module"
            )

    def _add_recovery(self, topic: str | None, function: _Function) -> _Function:
        whose = "the app" if topic is None else f'"{topic}"'
        self._refuse_after_start(f"the recovery for {whose}")
        if topic in self._recoveries:
            self._problems.append(f"two recoveries for {whose}: there can be only one")
        if not accepts(function, 3):
            self._problems.append(f"recovery {name_of(function)} must take (record, error, ctx)")
        if yields(function):
            self._problems.append(
                f"recovery {name_of(function)} yields, so its body would never run"
            )
        self._recoveries[topic] = function
        return function

    def _complete(self, handler: Handler) -> Handler:
        """The handler with what the app adds to it: its recovery, and what it can send to."""
        recover = self._recoveries.get(handler.topic, self._recoveries.get(None))
        both = (*(self.sends or ()), *(handler.sends or ()))
        return handler.replace(
            recover=None if recover is None else as_called(recover),
            recover_is_async=recover is not None and is_async(recover),
            sends=None if self.sends is None and handler.sends is None else both,
            recover_sends=None if self.sends is None else both,
        )

    def _refuse_words(
        self, function: Callable[..., Any], called: str, unknown: Iterable[str]
    ) -> None:
        self._problems += validation.of_words(function, called, unknown)

    def _policy(self, where: str, given: RetryPolicy | None, otherwise: RetryPolicy) -> RetryPolicy:
        if given is None or isinstance(given, RetryPolicy):
            return given or otherwise
        self._problems.append(f"{where} is {given!r}; write RetryPolicy({given!r})")
        return otherwise

    def _guard(self, where: str, given: Guard | None, otherwise: Guard | None) -> Guard | None:
        if given is None or isinstance(given, Guard):
            return given or otherwise
        self._problems.append(f"{where} is {given!r}; write Guard()")
        return otherwise
