"""The planner and tasks of the Spark engine, without the JVM: what Spark does with them is drawn.

Jobs are cancelled and leave tasks behind, which run late, also beside those of the next run. Python
workers die, days pass, brokers forget offsets, topics are deleted and made again.
"""

from __future__ import annotations

import random
import signal
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from memory_engine import MemoryTask, MiniSpark, WorkerDied, memory_runtime

from redrive import App, Guard, Outage, Retry, RetryPolicy
from redrive.engines.spark import marks
from redrive.engines.spark.marks import RivalError, new_run
from redrive.engines.spark.planner import Planner
from redrive.engines.spark.ranges import Range
from redrive.errors import DataLossError, RedriveError
from redrive.ports import Position
from redrive.processing.progress.notes import TOPIC, noted
from redrive.record import TopicPartition

DAY: Final = 24 * 3600 * 1000
KEPT_FOR: Final = 7 * DAY
"""How long brokers keep an offset that nobody commits again."""
STEPS: Final = 40
GUARDED: Final = 0.3
"""How often the handler has a guard, and what it depends on goes away."""
ODD: Final = 0.5
"""How often a kind of trouble is part of a walk."""


class Newest:
    """The progress of a run, which looks for a newer one before it commits: as `progress_of`."""

    def __init__(self, progress: Any, run: str) -> None:
        self.committed = progress.committed
        self._progress, self._run = progress, run

    def commit(self, positions: Mapping[TopicPartition, Position]) -> None:
        marks.look("shop", self._run, positions, self._progress)
        self._progress.commit(positions)


class Cluster(MiniSpark):
    """Its Python workers know of which run they are."""

    def run_task(self, ranges: Sequence[Range], name: str = "") -> list[Any]:
        return self.run_task_of(self.spec, ranges, name)

    def run_task_of(self, spec: Any, ranges: Sequence[Range], name: str = "") -> list[Any]:
        """Run a task of some run, perhaps not of the newest."""
        signal.signal(signal.SIGINT, signal.default_int_handler)
        with memory_runtime(self.app, self.broker, self.log, self.clock) as runtime:
            runtime.run = spec.run
            runtime.progress = Newest(runtime.progress, spec.run)
            task = MemoryTask(spec, runtime)
            task.transactions = self.transactions
            reports = task.run_all(ranges, name)
            self.told += task.told()
            return reports


class SparkWalk:
    """One run of the engine's own planner and tasks, step by step."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.faults: Counter[str] = Counter()
        self.violation: str | None = None
        self.handled: Counter[bytes] = Counter()
        self.gone: set[bytes] = set()
        self.sent: dict[bytes, int] = {}
        self._number = 0
        self._dies_in: int | None = None
        self._disturbed = False
        self._guarded = self.random.random() < GUARDED
        self._away = False
        self._late: list[tuple[Any, Sequence[Range]]] = []
        self._committed_at: dict[TopicPartition, tuple[Any, int]] = {}
        self.spark = Cluster(self._make_app(), partitions=self.random.choice([1, 2]))
        self.start_from = self.random.choice(["earliest", "latest"])
        self.planner: Planner | None = None
        self._begin_run()

    def walk(self) -> str | None:
        """Take all steps, and let everything come to rest; what was found."""
        steps = [(5, self._send), (6, self._run_batch), (2, self._retry_lane)]
        odd = [
            (2, self._cancel_batch),
            (2, self._run_late),
            (2, self._die),
            (1, self._begin_run),
            (1, self._run_old),
            (2, self._let_days_pass),
            (1, self._recreate),
            (2, self._go_away_or_come_back),
        ]
        steps += [each for each in odd if self.random.random() < ODD]
        for _ in range(STEPS):
            self.random.choices([s for _, s in steps], [w for w, _ in steps])[0]()
            self._check()
            if self.violation is not None:
                return self.violation
        self._rest()
        return self.violation

    # The app

    def _make_app(self) -> App:
        guard = Guard() if self._guarded else None
        app = App(
            "shop", retry=RetryPolicy("5m"), concurrency=1, on_data_loss="continue", guard=guard
        )

        @app.handler("in")
        def handle(record: Any, ctx: Any) -> None:
            if self._dies_in is not None:
                self._dies_in -= 1
                if self._dies_in < 0:
                    self._dies_in = None
                    raise WorkerDied
            value = record.value
            if self._away:
                raise Outage("nobody answers")
            if value.endswith(b"!") and ctx.attempt == 1:
                raise Retry("later")
            self.handled[value] += 1

        return app

    # Steps

    def _begin_run(self) -> None:
        """Another run begins; the one before does not know yet."""
        self._pass_over()
        now, found = self.spark.clock.now(), self._positions().values()
        run = new_run(now, found)
        self.spark.spec = replace(self.spark.spec, run=run, start_from=self.start_from)
        self._old = self.planner
        self.planner = self.spark.planner("main")
        self._retries = self.spark.planner("retry")
        self._plan(self.planner)
        self._plan(self._retries)

    def _pass_over(self) -> None:
        """Where nothing is committed, "latest" asks for what comes from now on.

        As in a topic that was made again: Kafka forgets offsets together with their topic.
        """
        committed = self._positions()
        for number in range(self.spark.broker.partitions("in")):
            place = TopicPartition("in", number)
            if self.start_from == "latest" and place not in committed:
                records = self.spark.broker.read(place, *self.spark.broker.bounds(place))
                self.gone |= {record.value or b"" for record in records}

    def _run_old(self) -> None:
        """The run before plans once more: by then it must know that it is not the newest."""
        if self._old is None:
            return
        self.faults["older run"] += 1
        self._plan(self.planner)  # it marks what it finds, also in a topic that was made again
        try:
            self._old.plan()
        except RivalError:
            return
        self.violation = "rival: a run plans on, though a newer one has begun"

    def _send(self) -> None:
        if not self.spark.broker.partitions("in"):
            return
        for _ in range(self.random.randint(1, 6)):
            self._number += 1
            value = b"r%d%s" % (self._number, self.random.choice([b"", b"", b"!"]))
            self.sent[value] = self._number
            self.spark.send("in", value)

    def _go_away_or_come_back(self) -> None:
        """What the handler depends on; it has a guard then."""
        self.faults["outage"] += self._guarded and not self._away
        self._away = self._guarded and not self._away

    def _run_batch(self) -> None:
        self.spark.clock.advance("1s")
        plan = self._plan(self.planner)
        if plan:
            self.spark.run_batch(plan)

    def _cancel_batch(self) -> None:
        """A job is cancelled: some of its tasks ran, some will, when nobody waits for them."""
        for ranges in self._plan(self.planner):
            self.faults["late task"] += 1
            self._disturbed = True
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
        self._disturbed = True
        self._dies_in = self.random.randint(0, 5)
        self._run_batch()
        self._dies_in = None

    def _let_days_pass(self) -> None:
        for _ in range(self.random.randint(1, 9)):
            self.spark.clock.advance(DAY)
            self._expire()
            self._plan(self.planner)
            self._plan(self._retries)

    def _expire(self) -> None:
        now, positions = self.spark.clock.now(), self.spark.broker.progress("shop")
        self._note_commits()
        kept = positions._positions
        for place, (_, at) in list(self._committed_at.items()):
            if now - at > KEPT_FOR and place in kept:
                self.faults["offset expired"] += 1
                del kept[place]

    def _retry_lane(self) -> None:
        self.spark.clock.advance("6m")
        for _ in range(5):
            plan = self._plan(self._retries)
            if not plan:
                return
            self.spark.run_batch(plan)

    def _recreate(self) -> None:
        self.faults["recreate"] += 1
        self._disturbed = True
        self.gone |= {record.value or b"" for record in self.spark.broker.records("in")}
        partitions = self.spark.broker.partitions("in")
        self.spark.broker.delete("in")
        self.spark.broker.create("in", partitions)
        self._committed_at = {p: at for p, at in self._committed_at.items() if p.topic != "in"}

    # What must hold

    def _plan(self, planner: Planner | None) -> list[list[Range]]:
        try:
            return [] if planner is None else planner.plan()
        except RivalError as error:
            self.violation = f"ended: the newest run stops: {error}"
        except DataLossError as error:
            self.violation = f"ended: {error}"
        return []

    def _positions(self) -> dict[TopicPartition, Any]:
        broker = self.spark.broker
        places = [
            TopicPartition(topic, number)
            for topic in ("in", *self.spark.app.delay_topics)
            for number in range(broker.partitions(topic))
        ]
        return self.spark.progress.committed(places)

    def _note_commits(self) -> None:
        now = self.spark.clock.now()
        for place, position in self._positions().items():
            if self._committed_at.get(place, (None, 0))[0] is not position:
                self._committed_at[place] = (position, now)

    def _check(self) -> None:
        """All that is committed is done, parked, or buried: a Python worker died with it twice.

        What a late task commits for a topic of that name before is no progress, and says so.
        """
        self._note_commits()
        kept = (*self.spark.app.delay_topics, self.spark.app.dead_topic)
        parked = {record.value for topic in kept for record in self._of(topic)}
        topic_id = self.spark.broker.topic_id("in")
        for place, position in self._positions().items():
            if place.topic != "in" or noted(position, TOPIC) != topic_id:
                continue
            start, _ = self.spark.broker.bounds(place)
            end = min(position.offset, self.spark.broker.bounds(place)[1])
            for record in self.spark.broker.read(place, start, max(start, end)):
                value = record.value or b""
                if not self.handled[value] and value not in parked and value not in self.gone:
                    where = f"{place}@{record.offset}"
                    self.violation = f"lost: {where} is committed, and {value!r} is not done"
                    return
        spent = {value for value in parked if not value.endswith(b"!")} - self.gone
        if self._guarded and spent and not self._disturbed:
            self.violation = f"spent: {min(spent)!r} was parked, and only an outage was there"
        again = [value for value, count in self.handled.items() if count > 1]
        if again and not self._disturbed:
            self.violation = f"duplicated: {again[0]!r}"

    def _of(self, topic: str) -> list[Any]:
        return self.spark.broker.records(topic)

    def _rest(self) -> None:
        self._away = False
        for _ in range(30):
            self._run_batch()
            self._retry_lane()
            self._check()
            if self.violation is not None:
                return
        dead = {record.value for record in self._of(self.spark.app.dead_topic)}
        left = [v for v in self.sent if not self.handled[v] and v not in self.gone | dead]
        if left:
            self.violation = f"stuck: {left[:5]}"


def walk(seed: int) -> SparkWalk:
    """Walk by a seed."""
    made = SparkWalk(seed)
    made.walk()
    return made
