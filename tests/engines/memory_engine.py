"""The Spark engine without Spark and without Kafka: its own planner and tasks, in memory."""

from __future__ import annotations

import json
import shutil
import signal
import tempfile
import weakref
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from time import monotonic_ns
from typing import Any, NamedTuple

from redrive import App
from redrive.clock import steady
from redrive.config import Settings
from redrive.engines.rules_watch import RulesWatch
from redrive.engines.spark.lost_tasks import is_begun, label, replaced, told
from redrive.engines.spark.news import News
from redrive.engines.spark.outages.shared_book import book_of
from redrive.engines.spark.outages.task_guards import TaskGuards
from redrive.engines.spark.outages.told import Told
from redrive.engines.spark.own_houses import OwnHouses, writer
from redrive.engines.spark.planner import Planner
from redrive.engines.spark.ranges import Range
from redrive.engines.spark.runtime import Runtime
from redrive.engines.spark.spec import Spec
from redrive.engines.spark.task import Task
from redrive.engines.spark.task_report import SliceReport
from redrive.engines.words import LaneName
from redrive.kafka.errors import NoLeaderError
from redrive.kafka.room import Room
from redrive.kafka.transactional_producer import FencedError
from redrive.ports import Position, Progress
from redrive.processing.calls.scope import Scope
from redrive.processing.dispatcher import Dispatcher
from redrive.processing.execution.executors import InlineExecutor, executor_for
from redrive.processing.execution.resources import Resources
from redrive.processing.progress.notes import without_notes
from redrive.record import Record, TopicPartition, Write
from redrive.testing.memory_broker import MemoryBroker
from redrive.testing.virtual_clock import VirtualClock


class WorkerDied(KeyboardInterrupt):
    """What a handler raises to die: the one thing that no handler's error handling holds back."""

    told = (
        "org.apache.spark.SparkException: Python worker exited unexpectedly (crashed). Consider"
        " setting 'spark.python.worker.faulthandler.enabled'"
    )
    """What Spark says of it, as it was seen."""


class ExecutorLost(WorkerDied):
    """The executor is gone, and all Python workers with it."""

    told = (
        "ExecutorLostFailure (executor 0 exited caused by one of the running tasks) Reason: Command"
        " exited with code 137"
    )


class NeverStarted(WorkerDied):
    """A Python worker that a loaded machine did not start in time."""

    told = "org.apache.spark.SparkException: Python worker failed to connect back."


class MemoryLog:
    """What planner and tasks ask of a log, answered by the broker in memory."""

    def __init__(self, broker: MemoryBroker) -> None:
        self._broker = broker
        self.stable: dict[TopicPartition, int] = {}
        """Where open transactions begin: nobody may read past."""
        self.without_leader: set[TopicPartition] = set()

    def leaderless(self, names: Collection[str]) -> set[TopicPartition]:
        return {place for place in self.without_leader if place.topic in names}

    def topics(self, names: Collection[str]) -> dict[str, tuple[str, int]]:
        there = [name for name in names if self._broker.partitions(name)]
        return {
            name: (self._broker.topic_id(name), self._broker.partitions(name)) for name in there
        }

    def names(self, prefix: str = "") -> list[str]:
        return self._broker.names(prefix)

    def topic_id(self, topic: str) -> str:
        return self._broker.topic_id(topic)

    def bounds(self, partition: TopicPartition) -> tuple[int, int]:
        return self.all_bounds([partition])[partition]

    def all_bounds(
        self, partitions: Collection[TopicPartition], *, wait_for_leaders: bool = True
    ) -> dict[TopicPartition, tuple[int, int]]:
        found = {}
        if self.without_leader & {*partitions}:
            raise NoLeaderError(partitions)
        for place in partitions:
            begin, end = self._broker.bounds(place)
            found[place] = (begin, min(end, self.stable.get(place, end)))
        return found

    def undecided(self, partitions: Collection[TopicPartition]) -> set[TopicPartition]:
        return {*partitions} & self.stable.keys()

    def appended_since(
        self, times: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, tuple[int, int] | None]:
        return {place: self._since(place, time) for place, time in times.items()}

    def batches(
        self, partition: TopicPartition, start: int, end: int, *, size: int = 100, wait: float = 0
    ) -> Iterator[list[Record]]:
        while partition in self.without_leader:
            yield []
        records = self._broker.read(partition, start, end)
        for first in range(0, len(records), size):
            yield records[first : first + size]

    def _since(self, place: TopicPartition, time: int) -> tuple[int, int] | None:
        records = self._broker.read(place, *self._broker.bounds(place))
        first = bisect_left(records, time, key=lambda record: record.timestamp or 0)
        if first == len(records):
            return None
        return records[first].offset, records[first].timestamp or 0


class MemoryTransactions:
    """A transactional producer: all or nothing, and the newest of one id fences the others."""

    def __init__(self, broker: MemoryBroker, app: App) -> None:
        self._owner = broker.take_over(app.name)
        self._progress = broker.progress(app.name)
        self.room = Room()
        self.commits: list[tuple[list[Write], dict[TopicPartition, Position]]] = []

    def commit(self, writes: Sequence[Write], positions: Mapping[TopicPartition, Position]) -> None:
        self._owner.commit(writes, {})
        self._progress.commit(positions)
        bare = {place: without_notes(position) for place, position in positions.items()}
        self.commits.append((list(writes), bare))

    def close(self) -> None:
        pass


class MemoryFences:
    """Producers of which only the newest for a partition can commit."""

    def __init__(self, broker: MemoryBroker) -> None:
        self._broker = broker
        self._newest: dict[TopicPartition, int] = {}

    def fence(self, app: str, place: TopicPartition) -> MemoryFence:
        self._newest[place] = self._newest.get(place, 0) + 1
        return MemoryFence(self, place, self._newest[place], self._broker.progress(app))

    def check(self, place: TopicPartition, epoch: int) -> None:
        if self._newest[place] != epoch:
            raise FencedError(f"another has taken over {place}")


class MemoryFence(NamedTuple):
    fences: MemoryFences
    place: TopicPartition
    epoch: int
    progress: Progress

    def commit(self, writes: Sequence[Write], positions: Mapping[TopicPartition, Position]) -> None:
        self.fences.check(self.place, self.epoch)
        self.progress.commit(positions)


class MemoryTask(Task):
    """A task whose transactions are in memory."""

    transactions: MemoryTransactions

    def producer(self, place: TopicPartition) -> Any:
        return self.transactions


class PassingClock(VirtualClock):
    """Time passes by itself, too: for tasks that wait."""

    def __init__(self) -> None:
        super().__init__()
        self._began = monotonic_ns()

    def now(self) -> int:
        return super().now() + (monotonic_ns() - self._began) // 1_000_000


class MiniSpark:
    """Plans batches and runs their tasks one after the other, as often as Spark would."""

    def __init__(
        self,
        app: App,
        *,
        partitions: int = 1,
        slots: int = 8,
        clock: VirtualClock | None = None,
        **spec: Any,
    ) -> None:
        self.app = app
        self.clock = clock or VirtualClock()
        self.broker = MemoryBroker(self.clock)
        self.log = MemoryLog(self.broker)
        self.progress = self.broker.progress(app.name)
        self.transactions = MemoryTransactions(self.broker, app)
        self.reports: list[SliceReport] = []
        self.deaths = 0
        self.starting: Callable[[], None] = lambda: None
        """Called whenever a Python worker starts, before it has anything to do."""
        scratch = tempfile.mkdtemp()
        weakref.finalize(self, shutil.rmtree, scratch)
        self.spec = make_spec(slots=slots, **{"scratch": scratch, **spec})
        self.book = book_of(app, self.spec, lambda: steady(self.clock))
        self.told: list[Told] = []
        """What tasks have seen of guards, until the end of their job."""
        self._jobs = 0
        self._ends: dict[tuple[int, int], str] = {}
        for topic in (*app.handlers, app.dead_topic, app.rules_topic):
            self.broker.create(topic, partitions)
        rooms = [app.behind_topic] if app.ordering == "strict" else []
        for topic in (*app.delay_topics, *rooms):
            self.broker.create(topic, partitions, {"message.timestamp.type": "LogAppendTime"})

    def send(self, topic: str, *values: bytes, partition: int | None = None) -> None:
        self.broker.publish([Write(topic, value, value, (), partition) for value in values])

    def planner(self, lane: LaneName = "main", **changes: Any) -> Planner:
        options: dict[str, Any] = {
            "log": self.log,
            "progress": self.progress,
            "has_members": lambda: False,
            "clock": self.clock,
            "refusing": self.broker.refusing,
            "rules": RulesWatch(self.app, self.broker, every=0).look,
            "book": self.book,
        }
        return Planner(self.app, self.spec, lane, **{**options, **changes})

    def run(self, lane: LaneName = "main", batches: int = 200) -> None:
        """Until there is nothing to do."""
        planner = self.planner(lane)
        for _ in range(batches):
            plan = planner.plan()
            if not plan:
                return
            self.run_batch(plan)
        raise AssertionError(f"still something to do after {batches} batches")

    def run_batch(
        self, plan: Sequence[Sequence[Range]], *, to_its_end: bool = True
    ) -> list[dict[str, Any]]:
        """Run the job of a batch; returns what is said of its tasks that were lost.

        Each of them has a second attempt, which tells what was lost; but not in a job that was
        cancelled, or whose driver died.
        """
        self._jobs += 1
        texts = []
        ended: list[dict[str, Any]] = []
        for number, ranges in enumerate(plan):
            name = label(self.spec.run, self._jobs, number)
            try:
                ended += map(asdict, self.run_task(ranges, name))
            except WorkerDied as death:
                self.deaths += 1
                self._ends[self._jobs, number] = death.told
                begun = is_begun(ranges, name, lambda: self.progress)
                texts.append(told(ranges, self._jobs, number, begun=begun))
        seen, self.told = self.told, []
        if not to_its_end:
            return []
        if self.book is not None:
            with self.book.opened() as book:
                lane: LaneName = "main" if plan[0][0].delay is None else "retry"
                book.note(lane, seen, self.book.steady())
        reports = [json.loads(text) for text in replaced(texts, lambda *task: self._ends[task])]
        News.of([*ended, *reports]).write(self.spec.batch_file("main"))
        return reports

    def run_task(self, ranges: Sequence[Range], name: str = "") -> list[SliceReport]:
        """Run a task in a Python worker of its own."""
        self.starting()
        # Its handlers die as by Ctrl-C, whatever another test has made of that.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        with memory_runtime(self.app, self.broker, self.log, self.clock) as runtime:
            task = MemoryTask(self.spec, runtime)
            task.transactions = self.transactions
            reports = task.run_all(ranges, name)
            self.told += task.told()
        self.reports += reports
        return reports

    def committed(self, place: TopicPartition) -> Position | None:
        """What is committed, without who did it."""
        found = self.progress.committed([place]).get(place)
        return None if found is None else without_notes(found)

    def values(self, topic: str) -> list[bytes | None]:
        return [record.value for record in self.broker.records(topic)]

    @property
    def dead(self) -> list[bytes | None]:
        return self.values(self.app.dead_topic)


@contextmanager
def memory_runtime(
    app: App, broker: MemoryBroker, log: MemoryLog, clock: VirtualClock
) -> Iterator[Runtime]:
    sinks: dict[Any, Any] = {}
    topic_ids: dict[str, str] = {}
    scope = Scope(app, topic_ids, clock=clock, guarded=True, guards=TaskGuards)
    deaths: list[BaseException] = []
    scope.on_death = deaths.append
    dispatcher = Dispatcher(
        clock,
        app.concurrency,
        lambda processor, report: sinks[processor](processor, report),
        scope.guards,
    )
    resources = Resources(app)
    inline = app.concurrency == 1
    executor = InlineExecutor(scope, resources) if inline else executor_for(app, scope, resources)
    executor.start(dispatcher)
    houses = OwnHouses(app, broker.progress(app.name))
    try:
        yield Runtime(
            app=app,
            run="run",
            clock=clock,
            kafka_log=log,  # type: ignore[arg-type]  # -- whatever can be read
            progress=broker.progress(app.name),  # type: ignore[arg-type]  # -- stands for the real one
            marks=broker.progress(app.name),  # type: ignore[arg-type]  # -- stands for the real one
            publisher=broker,  # type: ignore[arg-type]  # -- stands for the real one
            scope=scope,
            topic_ids=topic_ids,
            dispatcher=dispatcher,
            executor=executor,
            sinks=sinks,
            houses=houses,
            writer=writer(app, broker, houses),
            deaths=deaths,
        )
    finally:
        executor.close()


def make_spec(**changes: Any) -> Spec:
    options: dict[str, Any] = {
        "target": "memory:app",
        "folder": "",
        "settings": Settings(),
        "run": "run",
        "scratch": tempfile.gettempdir() + "/redrive-no-such-folder",
        "slots": 8,
        "commit_every": 0,
    }
    return Spec(**{**options, **changes})
