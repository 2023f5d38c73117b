"""A worker's poll loop with a consumer that does what the test says."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import privates
from confluent_kafka import KafkaError, KafkaException

from redrive import App
from redrive.engines.figures import Figures
from redrive.engines.worker.assignment import Assignment
from redrive.engines.worker.commits import Commits
from redrive.engines.worker.counting import Counting
from redrive.engines.worker.loop import Loop
from redrive.engines.worker.options import Options
from redrive.engines.worker.rooms import Rooms
from redrive.ports import Position
from redrive.processing.calls.scope import Scope
from redrive.processing.dispatcher import Dispatcher
from redrive.processing.execution.executors import InlineExecutor
from redrive.processing.execution.resources import Resources
from redrive.processing.progress.notes import TOPIC, noted, with_note
from redrive.record import TopicPartition
from redrive.testing import VirtualClock


class Message:
    """What librdkafka gives: a record, or an event of its partition."""

    def __init__(
        self,
        offset: int,
        *,
        key: bytes | None = b"k",
        value: bytes | None = b"v",
        headers: list[tuple[str, bytes]] | None = None,
        topic: str = "t",
        error: int | None = None,
    ) -> None:
        self._offset, self._key, self._value, self._topic = offset, key, value, topic
        self._headers = headers
        self._error = None if error is None else KafkaError(error)

    def error(self) -> KafkaError | None:
        return self._error

    def topic(self) -> str:
        return self._topic

    def partition(self) -> int:
        return 0

    def offset(self) -> int:
        return self._offset

    def key(self) -> bytes | None:
        return self._key

    def value(self) -> bytes | None:
        return self._value

    def headers(self) -> list[tuple[str, bytes]] | None:
        return self._headers

    def timestamp(self) -> tuple[int, int]:
        return (1, 0)


def end_of_partition(offset: int) -> Message:
    return Message(offset, error=privates.PARTITION_EOF)


class FakeConsumer:
    """Gives what was put in; notes what it is asked for."""

    def __init__(self) -> None:
        self.inbox: deque[list[Message]] = deque()
        self.commits: list[tuple[int, str]] = []
        self.sought: list[int] = []
        self.paused: list[bool] = []
        self.failing = False
        self._rest: list[Message] = []
        self.on_commit: Any = None

    def put(self, *messages: Message) -> None:
        self.inbox.append(list(messages))

    def poll(self, _: float) -> Message | None:
        if not self.inbox:
            return None
        first, *self._rest = self.inbox.popleft()
        return first

    def consume(self, _: int, __: float) -> list[Message]:
        rest, self._rest = self._rest, []
        return rest

    def seek(self, place: Any) -> None:
        self.sought.append(place.offset)

    def pause(self, partitions: list[Any]) -> None:
        if partitions:
            self.paused.append(True)

    def resume(self, partitions: list[Any]) -> None:
        if partitions and self.paused and self.paused[-1]:
            self.paused.append(False)

    def list_topics(self, topic: str, timeout: float) -> Any:
        partitions = {0: SimpleNamespace(leader=1)}
        return SimpleNamespace(topics={topic: SimpleNamespace(partitions=partitions)})

    def get_watermark_offsets(self, _: Any, timeout: float, *, cached: bool) -> None: ...

    def incremental_assign(self, _: list[Any]) -> None: ...

    def incremental_unassign(self, _: list[Any]) -> None: ...

    def commit(self, offsets: list[Any], *, asynchronous: bool) -> list[Any]:
        if self.failing:
            raise KafkaException(KafkaError(KafkaError.REBALANCE_IN_PROGRESS))
        self.commits += [(one.offset, without_topic(one)) for one in offsets]
        if asynchronous:
            self.on_commit(None, offsets)
        return offsets


def without_topic(committed: Any) -> str:
    """The metadata of a commit, which says of which topic it is; the test knows only one."""
    position = Position(committed.offset, committed.metadata or "")
    assert noted(position, TOPIC) == "id"
    return with_note(position, TOPIC, "").metadata


class Settling:
    """Whatever comes is durable at once."""

    refused = 0

    def add(self, processor: Any, report: Any) -> None:
        processor.settle(report.offsets)

    def open(self, partition: Any, producer: Any) -> None: ...

    def forget(self, partition: Any) -> None: ...

    def finish(self, partitions: Any, until: float, meanwhile: Any) -> None: ...

    def close(self, seconds: float) -> bool:
        return True


class Bench:
    """All of a worker but its threads, with the partition t[0]."""

    def __init__(self, app: App, **options: Any) -> None:
        self.clock = VirtualClock()
        self.consumer = FakeConsumer()
        self.scope = Scope(app, {"t": "id"}, clock=self.clock)
        self.dispatcher = Dispatcher(self.clock, app.concurrency, self._settle)
        self.counting = Counting(Figures())
        self.delivering = Settling()
        self.start = Position(0)
        self.outage: BaseException | None = None
        self.postponed: list[TopicPartition] = []
        self.start_offsets: Any = SimpleNamespace(  # as much of it as is used
            fence_off=lambda _: {}, find=self._find
        )
        self.meanwhile: Callable[[], None] = lambda: None
        self.assignment = Assignment(
            app=app,
            topics=SimpleNamespace(shared_out=["t"]),  # type: ignore[arg-type]  # -- likewise
            scope=self.scope,
            dispatcher=self.dispatcher,
            delivering=self.delivering,
            start_offsets=self.start_offsets,
            counting=self.counting,
            rooms=Rooms(app, None, None, 1),  # type: ignore[arg-type]  # -- the order is not strict
            revoke_wait=0,
            on_trouble=self._raise,
            on_postponed=self.postponed.extend,
            meanwhile=self._attend,
        )
        commits = Commits(self.consumer, "immediate", self.counting)  # type: ignore[arg-type]  # -- likewise
        self.assignment.commits = commits
        self.gone: list[TopicPartition] = []
        self.loop = Loop(
            app=app,
            consumer=self.consumer,  # type: ignore[arg-type]  # -- likewise
            assignment=self.assignment,
            dispatcher=self.dispatcher,
            delivering=self.delivering,
            commits=commits,
            clock=self.clock,
            options=Options(**options),
            on_gone=self.gone.append,
        )
        self.consumer.on_commit = lambda error, answered: commits.on_commit(
            error, answered, self.assignment.partitions
        )
        self.executor = InlineExecutor(self.scope, Resources(app))
        self.executor.start(self.dispatcher)
        self.assign()

    def assign(self) -> None:
        self.assignment.on_assign(self.consumer, [SimpleNamespace(topic="t", partition=0)])

    def revoke(self) -> None:
        self.assignment.on_revoke(self.consumer, [SimpleNamespace(topic="t", partition=0)])

    def lose(self) -> None:
        self.assignment.on_lost(self.consumer, [SimpleNamespace(topic="t", partition=0)])

    def step(self, *messages: Message, run: bool = True) -> None:
        """One turn with these messages; then what may run runs, and is committed in another."""
        if messages:
            self.consumer.put(*messages)
        self.loop.step()
        if run:
            self.dispatcher.tick()
            self.executor.run()
            self.loop.step()

    @property
    def partition(self) -> Any:
        return self.assignment.partitions[TopicPartition("t", 0)]

    def close(self) -> None:
        self.executor.close()

    def _settle(self, processor: Any, report: Any) -> None:
        self.delivering.add(processor, report)

    def _find(self, places: list[TopicPartition]) -> dict[TopicPartition, Position]:
        if self.outage is not None:
            raise self.outage
        return dict.fromkeys(places, self.start)

    def _attend(self) -> None:
        self.meanwhile()

    def _raise(self, error: BaseException) -> None:
        raise error
