"""Strict order on Spark, without the JVM: a walk on which tasks die, come late, or are suspended.

A task that is suspended goes on after others have planned and handled its house. Python workers
die in handlers, and right before or after each write and each commit.
"""

from __future__ import annotations

import random
import signal
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from time import monotonic
from typing import Any, Final

from memory_engine import MemoryTask, MiniSpark, WorkerDied, memory_runtime

from redrive import App, Backoff, InPlace, RetryPolicy
from redrive.engines.spark import marks, slices, task
from redrive.engines.spark.marks import RivalError, new_run
from redrive.engines.spark.planner import Planner
from redrive.engines.spark.ranges import Range
from redrive.errors import RedriveError
from redrive.ports import Position
from redrive.processing.order import key_gate
from redrive.processing.order.blocked_keys import BlockedKeys
from redrive.record import TopicPartition, Write

STEPS: Final = 40
ODD: Final = 0.5
"""How often a kind of trouble is part of a walk."""
SUSPENDED: Final = 10.0
"""Seconds: longer than a task goes without a look at its houses."""


class Mortal:
    """A port of a Python worker that may die right before or after it does something durable."""

    def __init__(self, port: Any, walk: StrictWalk) -> None:
        self._port = port
        self._walk = walk

    def __getattr__(self, name: str) -> Any:
        return getattr(self._port, name)

    def _do(self, name: str, *given: Any, **named: Any) -> Any:
        self._walk.may_die()
        found = getattr(self._port, name)(*given, **named)
        self._walk.may_die()
        return found

    def hand_over(self, *given: Any, **named: Any) -> Any:
        return self._do("hand_over", *given, **named)

    def publish(self, *given: Any) -> Any:
        return self._do("publish", *given)


class MortalProgress(Mortal):
    """The same, of a run: it looks for a newer one before it commits, as `progress_of`."""

    def __init__(self, progress: Any, walk: StrictWalk, run: str) -> None:
        super().__init__(progress, walk)
        self._run = run

    def commit(self, positions: Mapping[TopicPartition, Position]) -> None:
        marks.look("shop", self._run, positions, self._port)
        self._do("commit", positions)


class Cluster(MiniSpark):
    """Its Python workers are mortal."""

    walk: StrictWalk

    def run_task(self, ranges: Sequence[Range], name: str = "") -> list[Any]:
        return self.run_task_of(self.spec, ranges, name)

    def run_task_of(self, spec: Any, ranges: Sequence[Range], name: str = "") -> list[Any]:
        """Run a task of some run, perhaps not of the newest."""
        signal.signal(signal.SIGINT, signal.default_int_handler)
        with memory_runtime(self.app, self.broker, self.log, self.clock) as runtime:
            runtime.run = spec.run
            runtime.scope.timer = self.walk.timer
            runtime.progress = MortalProgress(runtime.progress, self.walk, spec.run)  # type: ignore[assignment]  # -- stands for the real one
            runtime.writer = Mortal(runtime.writer, self.walk)  # type: ignore[assignment]  # -- stands for the real one
            return MemoryTask(spec, runtime).run_all(ranges, name)


class StrictWalk:
    """One run of the engine's own planner and tasks in strict order, step by step."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.faults: Counter[str] = Counter()
        self.violation: str | None = None
        self._sent: dict[tuple[TopicPartition, int], bytes] = {}
        self._effects: dict[object, dict[int, int]] = defaultdict(dict)
        self._time = 0
        self._later = 0.0
        self._dies_in: int | None = None
        self._dies_at_step: int | None = None
        self._suspended_in: int | None = None
        self._depth = 0
        self._late: list[tuple[Any, Sequence[Range]]] = []
        self._first = InPlace(2, Backoff("1s")) if self.random.random() < 0.2 else None
        partitions = self.random.choice([1, 2])
        self._partitions = partitions
        self.spark = Cluster(
            self._make_app(),
            partitions=partitions,
            max_records=self.random.choice([3, 20, 500_000]),
            commit_every=self.random.choice([0, 0, 1000]),
            horizon=0,
            # What waits in place has its time from a clock that stands still meanwhile.
            batch_deadline=5000 if self._first is None else 20,
        )
        self.spark.walk = self
        self._begin_run()

    def timer(self) -> float:
        """A clock that goes on while a task is suspended."""
        return monotonic() + self._later

    def walk(self) -> str | None:
        """Take all steps, and let everything come to rest; what was found."""
        steps = [(6, self._send), (8, self._run_batch), (4, self._let_time_pass)]
        odd = [
            (2, self._cancel_batch),
            (2, self._run_late),
            (2, self._die),
            (2, self._die_at_a_step),
            (2, self._suspend),
            (1, self._begin_run),
            (1, self._plan_anew),
            (1, self._refuse),
        ]
        steps += [each for each in odd if self.random.random() < ODD]
        for _ in range(STEPS):
            self.random.choices([s for _, s in steps], [w for w, _ in steps])[0]()
            if self.violation is not None:
                return self.violation
        self._rest()
        return self.violation

    # The app

    def _make_app(self) -> App:
        app = App(
            "shop",
            ordering="strict",
            retry=RetryPolicy("1m 1m 5m", first=self._first),
            concurrency=1,
            on_data_loss="continue",
            max_behind=self.random.choice([2, 100_000]),
        )

        @app.handler("in")
        def handle(record: Any, ctx: Any) -> None:
            if self._dies_in is not None:
                self._dies_in -= 1
                if self._dies_in < 0:
                    self._dies_in = None
                    raise WorkerDied
            failures = int(record.value)
            fails = ctx.attempt <= failures if self._first is None else ctx.attempt <= failures // 2
            if not fails:
                self._time += 1
                self._effects[record.partition, record.key][record.offset] = self._time
            self._may_be_suspended()
            if fails:
                raise ConnectionError("not now")

        return app

    def may_die(self) -> None:
        if self._dies_at_step is not None:
            self._dies_at_step -= 1
            if self._dies_at_step < 0:
                self._dies_at_step = None
                raise WorkerDied

    def _may_be_suspended(self) -> None:
        if self._suspended_in is None:
            return
        self._suspended_in -= 1
        if self._suspended_in < 0:
            self._suspended_in = None
            self._others_go_on()

    def _others_go_on(self) -> None:
        """Beside a task that stands still: it is given up, and its house planned again."""
        self.faults["suspended"] += 1
        for _ in range(self.random.randint(1, 4)):
            if self.random.random() < 0.5:
                self._let_time_pass()
            if self.random.random() < 0.5:
                self._send()
            for ranges in self._plan():
                try:
                    self.spark.run_task(ranges)
                except WorkerDied:
                    self.faults["worker died"] += 1
        self._later += SUSPENDED

    # Steps

    def _begin_run(self) -> None:
        """Another run begins; the one before does not know yet."""
        run = new_run(self.spark.clock.now(), self._positions().values())
        self.spark.spec = replace(self.spark.spec, run=run)
        self._plan_anew()
        self._plan()

    def _plan_anew(self) -> None:
        """The planner's process dies; another one begins."""
        self.planner = self.spark.planner("main")

    def _send(self) -> None:
        for _ in range(self.random.randint(1, 6)):
            number = self.random.randrange(self._partitions)
            value = self.random.choice([b"0", b"0", b"0", b"1", b"2", b"3"])
            key = self.random.choice([b"a", b"b", b"c"])
            place = TopicPartition("in", number)
            self._sent[place, self.spark.broker.bounds(place)[1]] = key
            self.spark.broker.publish([Write("in", key, value, (), number)])

    def _run_batch(self) -> None:
        plan = self._plan()
        if plan:
            self.spark.run_batch(plan)
        else:
            self.spark.clock.advance("2s")  # what was left as it was is looked at again

    def _cancel_batch(self) -> None:
        """A job is cancelled: some of its tasks will run when nobody waits for them."""
        for ranges in self._plan():
            self.faults["late task"] += 1
            self._late.append((self.spark.spec, ranges))

    def _run_late(self) -> None:
        if not self._late:
            return
        spec, ranges = self._late.pop(self.random.randrange(len(self._late)))
        try:
            self.spark.run_task_of(spec, ranges)
        except (RedriveError, WorkerDied):
            self.faults["late task ended"] += 1

    def _die(self) -> None:
        self.faults["worker died"] += 1
        self._dies_in = self.random.randint(0, 5)
        self._run_batch()
        self._dies_in = None

    def _die_at_a_step(self) -> None:
        self.faults["worker died at a step"] += 1
        self._dies_at_step = self.random.randint(0, 8)
        self._run_batch()
        self._dies_at_step = None

    def _suspend(self) -> None:
        self._suspended_in = self.random.randint(0, 5)
        self._run_batch()
        self._suspended_in = None

    def _refuse(self) -> None:
        """A room takes nothing for a while."""
        self.faults["refused"] += 1
        topic = self.random.choice([self.spark.app.behind_topic, *self.spark.app.delay_topics])
        self.spark.broker.refuse(topic)
        self._run_batch()
        self.spark.broker.accept(topic)

    def _let_time_pass(self) -> None:
        self.spark.clock.advance(self.random.choice(["1s", "1m", "2m", "6m"]))

    # What must hold

    def _plan(self) -> list[list[Range]]:
        planner: Planner = self.planner
        try:
            return planner.plan()
        except RivalError as error:
            self.violation = f"ended: the newest run stops: {error}"
        return []

    def _positions(self) -> dict[TopicPartition, Any]:
        topics = ("in", *self.spark.app.delay_topics, self.spark.app.behind_topic)
        places = [TopicPartition(topic, n) for topic in topics for n in range(self._partitions)]
        return self.spark.progress.committed(places)

    def _check(self) -> None:
        """Of what ran more than once the last time counts: those are in order.

        Not before all is at rest: what was not committed when a worker died runs again, from the
        first of it on.
        """
        for lane, effects in self._effects.items():
            if sorted(effects, key=effects.__getitem__) != sorted(effects):
                self.violation = f"overtaken: {lane} in {sorted(effects, key=effects.get)}"

    def _rest(self) -> None:
        self._late.clear()
        for _ in range(200):
            self.spark.clock.advance("6m")
            self._run_batch()
            if self.planner.status.empty:
                break
        self._check()
        if self.violation is not None:
            return
        done = {
            (TopicPartition("in", lane[0]), offset)
            for lane, effects in self._effects.items()
            for offset in effects
        }
        dead = {(each.origin_partition, each.origin_offset) for each in self._dead()}
        left = [
            each for each in self._sent
            if each not in done and (each[0].partition, each[1]) not in dead
        ]  # fmt: skip
        if left:
            self.violation = f"stuck: {[f'{place}@{offset}' for place, offset in left[:5]]}"
        elif not self.planner.status.empty:
            self.violation = f"stuck: {self.planner.status.ahead.lag} left"

    def _dead(self) -> Iterator[Any]:
        from redrive.envelope import parse

        for record in self.spark.broker.records(self.spark.app.dead_topic):
            yield parse(record.headers)


@contextmanager
def _small(walk: StrictWalk) -> Iterator[None]:
    """Less is at hand than in life, and clocks go on while a task stands still."""
    ahead: dict[str, Any] = BlockedKeys.__init__.__kwdefaults__  # type: ignore[assignment]  # -- it has some
    before = key_gate.FOLLOWERS_AT_HAND, ahead["ahead"]
    modules = task, slices
    key_gate.FOLLOWERS_AT_HAND = walk.random.choice([1, 3, 1000])  # type: ignore[misc]  # -- put back
    ahead["ahead"] = walk.random.choice([1, 3, 100])
    for module in modules:
        module.monotonic = walk.timer  # type: ignore[attr-defined]  # -- put back
    try:
        yield
    finally:
        key_gate.FOLLOWERS_AT_HAND, ahead["ahead"] = before  # type: ignore[misc]  # -- put back
        for module in modules:
            module.monotonic = monotonic  # type: ignore[attr-defined]  # -- put back


def walk_strictly(seed: int) -> StrictWalk:
    """Walk by a seed."""
    made = StrictWalk(seed)
    with _small(made):
        made.walk()
    return made
