"""Simulation: a handler's whole retry life, in virtual time and in milliseconds."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial, wraps
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

from redrive import envelope as envelopes
from redrive.durations import Duration, milliseconds, text
from redrive.envelope import Envelope
from redrive.errors import ConfigurationError, PublishError, RedriveError
from redrive.guarantees import WITH_DATABASE
from redrive.ports import Position
from redrive.processing.outcomes.report import Outcome
from redrive.processing.progress import done_beyond
from redrive.record import Headers, Record, TopicPartition, Write
from redrive.testing.memory_broker import MemoryBroker, MemoryHandover
from redrive.testing.memory_store import MemoryStore
from redrive.testing.runner import Runner
from redrive.testing.virtual_clock import VirtualClock

if TYPE_CHECKING:
    from redrive.app import App
    from redrive.dead.steering import Steering
    from redrive.handler import Handler

_LONGEST: Final = "365d"
_DELAY_TOPIC: Final = {"message.timestamp.type": "LogAppendTime"}


@dataclass(frozen=True)
class Attempt:
    """One call of a handler (or of a recovery) with one record."""

    after: str
    """How long after the simulation's start, as text: "1h10m"."""
    record: Record
    attempt: int
    tries: int
    error: BaseException | None
    recovery: bool = False

    @property
    def topic(self) -> str:
        """The source topic."""
        return self.record.topic


@dataclass(frozen=True)
class Kept:
    """A record that redrive wrote: parked, or dead."""

    topic: str
    record: Record
    """As it came from its origin."""
    envelope: Envelope

    @property
    def reason(self) -> str | None:
        """Why it is dead."""
        return self.envelope.dead_reason


class Simulation:
    """Runs an app on an in-memory broker, in virtual time.

        with Simulation(app) as sim:
            sim.send("item.update", {"id": "7", "status": "SOLD"}, key="7")
            sim.run_until_empty()
            assert [each.after for each in sim.attempts] == ["0s", "5m", "10m"]

    Nothing runs between calls. `run` does what can be done now; `advance` lets time pass. With the
    `broker` and `clock` of another simulation it continues where that one stopped: the next version
    of the app (with its `store`, too), or another app next to it.

    With a delivery that has a database, `db` is what handlers get as `ctx.db`; inbox and outbox are
    in memory, and the outbox is published as soon as it is committed.
    """

    def __init__(
        self,
        app: App,
        *,
        partitions: int = 1,
        resources: Mapping[str, object] | None = None,
        db: object | None = None,
        clock: VirtualClock | None = None,
        broker: MemoryBroker | None = None,
        store: MemoryStore | None = None,
    ) -> None:
        _check(app, db, clock, broker)
        self.app = app
        self.clock = clock or VirtualClock()
        self.broker = broker or MemoryBroker(self.clock)
        self.attempts: list[Attempt] = []
        self.outcomes: list[Outcome] = []
        """All outcomes except plain successes, in the order in which they became durable."""
        self._started = self.clock.now()
        self._resources = resources
        self._publisher = _CreatingPublisher(self.broker)
        self.store = store or MemoryStore(self.clock, db=db, publish=self._publisher.publish)
        """Inbox and outbox, if the app's delivery has them."""
        if app.frame_handler is not None:
            raise ConfigurationError(
                f'app "{app.name}": a frame handler runs on Spark only; redrive.testing.frames'
                " builds its input frames, and shows outcomes as rows"
            )
        self._watched = app.with_handlers(self._watched_handler)
        strict = [app.behind_topic] if app.ordering == "strict" else []
        own = (*app.delay_topics, *strict, app.dead_topic, app.rules_topic)
        for topic in (*app.handlers, *own):
            if not self.broker.partitions(topic):
                config = _DELAY_TOPIC if topic in app.delay_topics else None
                self.broker.create(topic, partitions, config)
        self._runner = self._new_runner()

    # What happens

    def send(
        self,
        topic: str,
        value: object,
        *,
        key: bytes | str | None = None,
        headers: Headers = (),
        partition: int | None = None,
        timestamp: int | None = None,
    ) -> None:
        """Write a record. Bytes and None as they are, strings as UTF-8, anything else as JSON."""
        if not self.broker.partitions(topic):
            self.broker.create(topic)
        key = key.encode() if isinstance(key, str) else key
        write = Write(topic, key, _encoded(value), headers, partition, timestamp)
        self.broker.publish([write])

    def run(self) -> None:
        """Do everything that can be done at this moment; the clock does not move."""
        self._runner.run()
        self.store.relay()

    def advance(self, duration: Duration) -> None:
        """Let time pass, with everything happening when it is due."""
        end = self.clock.now() + milliseconds(duration)
        self.run()
        while (due := self._runner.next_due()) is not None and due <= end:
            self.clock.set(max(due, self.clock.now()))
            self.run()
        self.clock.set(end)

    def run_until_empty(self, limit: Duration = _LONGEST) -> None:
        """Let time pass until nothing is waiting; at most up to the limit."""
        end = self.clock.now() + milliseconds(limit)
        self.run()
        while (due := self._runner.next_due()) is not None:
            if due > end:
                raise AssertionError(
                    f"still waiting after {limit}: {len(self.parked)} parked; next at"
                    f" {text(due - self._started)}"
                )
            self.clock.set(max(due, self.clock.now()))
            self.run()

    def crash(self) -> None:
        """Lose everything that is not on the broker, and restart from the committed offsets."""
        self._runner.crash()
        self._runner = self._new_runner()

    @property
    def steering(self) -> Steering:
        """What operators can say about parked records: `hold`, `run_now`, `release`."""
        from redrive.dead.steering import (
            Steering,  # it brings a Kafka client that nobody else needs
        )

        return Steering(
            self.app,
            log=self.broker,
            progress=self.broker.progress(self.app.name),
            publisher=self.broker,
            clock=self.clock,
            by="test",
        )

    # What can be asked

    @property
    def now(self) -> str:
        """How long the simulation has been running, as text: "2h40m"."""
        return text(self.clock.now() - self._started)

    def sent(self, topic: str) -> list[Record]:
        """The records in any topic: those that handlers sent, and those that tests did."""
        return self.broker.records(topic) if self.broker.partitions(topic) else []

    @property
    def dead(self) -> list[Kept]:
        """What is in the dead topic."""
        return [_kept(record) for record in self.broker.records(self.app.dead_topic)]

    @property
    def parked(self) -> list[Kept]:
        """What is waiting in the delay topics, and behind records that are."""
        topics = self.app.waiting_topics(self.broker.names(f"{self.app.name}."))
        return [_kept(record) for topic in topics for record in self._ahead(topic)]

    @property
    def lag(self) -> int:
        """How many records of source topics are not complete."""
        return sum(len(self._ahead(topic)) for topic in self.app.handlers)

    def close(self) -> None:
        """Close the app's resources."""
        self._runner.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _new_runner(self) -> Runner:
        return Runner(
            self._watched,
            log=self.broker,
            progress=self.broker.progress(self.app.name),
            publisher=self._publisher,
            clock=self.clock,
            resources=self._resources,
            store=self.store if self.app.guarantee.database else None,
            watch=self.outcomes.append,
        )

    def _ahead(self, topic: str) -> list[Record]:
        """The records of a topic that are not complete."""
        places = [TopicPartition(topic, number) for number in range(self.broker.partitions(topic))]
        committed = self.broker.progress(self.app.name).committed(places)
        found: list[Record] = []
        for place in places:
            start, end = self.broker.bounds(place)
            position = committed.get(place, Position(start))
            done = done_beyond.decode(position)
            found += [
                record
                for record in self.broker.read(place, position.offset, end)
                if not any(first <= record.offset < last for first, last in done)
            ]
        return found

    def _watched_handler(self, handler: Handler) -> Handler:
        if handler.batch is not None:
            call = self._watched_batch(handler.call, is_async=handler.is_async)
        else:
            call = self._watched_call(handler.call, is_async=handler.is_async)
        if handler.recover is None:
            return handler.replace(call=call)
        recover = self._watched_recover(handler.recover, is_async=handler.recover_is_async)
        return handler.replace(call=call, recover=recover)

    def _watched_call(self, call: Callable[..., Any], *, is_async: bool) -> Callable[..., Any]:
        def note(record: Record, ctx: Any) -> Callable[[BaseException | None], None]:
            return partial(self._note, record, ctx, recovery=False)

        return _noted(call, lambda record, ctx: [note(record, ctx)], is_async=is_async)

    def _watched_batch(self, call: Callable[..., Any], *, is_async: bool) -> Callable[..., Any]:
        def notes(records: Sequence[Record], ctx: Any) -> list[Callable[..., None]]:
            return [partial(self._note_of_batch, record, ctx) for record in records]

        return _noted(call, notes, is_async=is_async)

    def _watched_recover(self, call: Callable[..., Any], *, is_async: bool) -> Callable[..., Any]:
        def notes(record: Record, _: BaseException, ctx: Any) -> list[Callable[..., None]]:
            return [partial(self._note, record, ctx, recovery=True)]

        return _noted(call, notes, is_async=is_async)

    def _note_of_batch(self, record: Record, ctx: Any, error: BaseException | None) -> None:
        self._note(record, ctx.of(record), error or ctx.failure_of(record), recovery=False)

    def _note(
        self, record: Record, ctx: Any, error: BaseException | None, *, recovery: bool
    ) -> None:
        self.attempts.append(Attempt(self.now, record, ctx.attempt, ctx.tries, error, recovery))


class _CreatingPublisher:
    """Creates the topics that handlers send to: a test need not name them."""

    def __init__(self, broker: MemoryBroker) -> None:
        self._broker = broker

    @property
    def not_allowed(self) -> RedriveError | None:
        return self._broker.not_allowed

    def hand_over(self, writes: Sequence[Write], *, alone: bool = False) -> MemoryHandover:
        self._create({write.topic for write in writes})
        return self._broker.hand_over(writes, alone=alone)

    def publish(self, writes: Sequence[Write]) -> None:
        self._create({write.topic for write in writes})
        self._broker.publish(writes)

    def refusing(self, topics: Collection[str]) -> dict[str, PublishError]:
        self._create(topics)
        return self._broker.refusing(topics)

    def _create(self, topics: Collection[str]) -> None:
        for topic in topics:
            if not self._broker.partitions(topic):
                self._broker.create(topic)


def _noted(
    call: Callable[..., Any],
    notes: Callable[..., list[Callable[[BaseException | None], None]]],
    *,
    is_async: bool,
) -> Callable[..., Any]:
    """The function, wrapped to record the result of each call."""

    def tell(
        told: list[Callable[[BaseException | None], None]], error: BaseException | None
    ) -> None:
        for note in told:
            note(error)

    @wraps(call)
    def watched(*arguments: Any) -> Any:
        told = notes(*arguments)
        try:
            returned = call(*arguments)
        except BaseException as error:
            tell(told, error)
            raise
        tell(told, None)
        return returned

    @wraps(call)
    async def watched_async(*arguments: Any) -> Any:
        told = notes(*arguments)
        try:
            returned = await call(*arguments)
        except BaseException as error:
            tell(told, error)
            raise
        tell(told, None)
        return returned

    return watched_async if is_async else watched


def _check(
    app: App, db: object | None, clock: VirtualClock | None, broker: MemoryBroker | None
) -> None:
    if broker is not None and clock is None:
        raise ConfigurationError("Simulation: broker= needs the clock= that it was created with")
    if db is not None and not app.guarantee.database:
        raise ConfigurationError(
            f'Simulation: db= for the app "{app.name}", whose delivery {app.delivery!r} has no'
            f" database; choose one of {', '.join(map(repr, WITH_DATABASE))}"
        )


def _kept(record: Record) -> Kept:
    envelope = envelopes.parse(record.headers)
    return Kept(record.topic, envelopes.at_origin(record, envelope), envelope)


def _encoded(value: object) -> bytes | None:
    if value is None or isinstance(value, bytes):
        return value
    return value.encode() if isinstance(value, str) else json.dumps(value).encode()
