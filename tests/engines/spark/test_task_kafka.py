"""Tasks on a real Kafka, without Spark: every form of handler, and what can go wrong."""

from __future__ import annotations

import signal
import sys
import threading
import uuid
from functools import partial
from typing import Any

import pytest

from redrive.clock import WallClock
from redrive.config import load_settings
from redrive.engines.spark import marks, runtime, task
from redrive.engines.spark.planner import Planner
from redrive.engines.spark.ranges import Range
from redrive.engines.spark.spec import Spec
from redrive.engines.spark.task_report import SliceReport
from redrive.errors import DataLossError
from redrive.kafka.admin import Admin
from redrive.kafka.log import KafkaLog
from redrive.kafka.progress import KafkaProgress
from redrive.kafka.publisher import KafkaPublisher
from redrive.kafka.transactional_producer import TransactionalProducer
from redrive.ports import Position
from redrive.record import Write

COUNT = 300
IMPATIENT = {"message.timeout.ms": 2000, "socket.timeout.ms": 3000}


class Tasks:
    """Runs tasks of one app in this process."""

    def __init__(self, world: Any, target: str, **spec: Any) -> None:
        self.world = world
        options: dict[str, Any] = {"settings": world.settings, "slots": 8, **spec}
        self.spec = Spec(
            target=target,
            folder=str(world.folder),
            run=uuid.uuid4().hex[:8],
            scratch=str(world.folder),
            **options,
        )
        self.lateness: list[int] = []

    def run(self, *topics: str, delay: int | None = None) -> list[SliceReport]:
        """One task for all that is ahead in these topics."""
        ranges = []
        for topic in topics:
            committed = self.world.committed(topic)
            for place, (begin, end) in self.world.log.all_bounds(self.world.places(topic)).items():
                at = committed.get(place, Position(begin))
                if end > at.offset:
                    ranges.append(Range(*place, at.offset, end, delay, at.metadata))
        report = task.run(self.spec, ranges)
        self.lateness += report.lateness
        return report.slices


@pytest.fixture(autouse=True)
def _close_runtimes():
    """They would live as long as the process, as in a Python worker."""
    yield
    for made in runtime.runtimes.pop_all():
        made.close()


@pytest.fixture
def tasks(world):
    """Makes the app, its output topic and its input."""

    def make(source: str, count: int = COUNT, partitions: int = 2, **spec: Any) -> Tasks:
        target = world.app(source, partitions)
        world.create(world.topic("out"))
        world.send("in", *(b"%d" % number for number in range(count)))
        return Tasks(world, target, **spec)

    return make


def numbers(count: int = COUNT) -> list[bytes]:
    return sorted(b"%d" % number for number in range(count))


FORMS = {
    "sync": """
        app = App(NAME)

        @app.handler(topic("in"))
        def handle(record, ctx):
            ctx.send(topic("out"), record.value)
    """,
    "threads": """
        app = App(NAME, concurrency=8, ordering="unordered")

        @app.handler(topic("in"))
        def handle(record, ctx):
            time.sleep(0.001)
            ctx.send(topic("out"), record.value)
    """,
    "async": """
        import asyncio
        app = App(NAME, concurrency=20)

        @app.handler(topic("in"))
        async def handle(record, ctx):
            await asyncio.sleep(0.001)
            ctx.send(topic("out"), record.value)
    """,
    "batch": """
        app = App(NAME)

        @app.handler(topic("in"), batch=50)
        def handle(records, ctx):
            for record in records:
                ctx.send(topic("out"), record.value)
    """,
    "manual": """
        from threading import Timer
        app = App(NAME, concurrency=50, ordering="unordered")

        @app.handler(topic("in"), ack="manual", timeout="30s")
        def handle(record, ctx):
            ctx.send(topic("out"), record.value)
            Timer(0.05 if record.offset % 2 else 0.01, ctx.ack).start()
    """,
}


@pytest.mark.parametrize(
    ("form", "delivery"),
    [
        *((form, "at-least-once") for form in FORMS),
        *((form, "transaction") for form in FORMS if form != "manual"),  # which the app refuses
    ],
)
def test_every_form_of_handler(world, tasks, form, delivery):
    made = tasks(FORMS[form].replace("App(NAME", f"App(NAME, delivery={delivery!r}"))
    reports = made.run("in")
    assert [report.trouble or report.fatal for report in reports] == ["", ""]
    assert sum(report.counts["done"] for report in reports) == COUNT
    assert sorted(world.values("out")) == numbers()
    assert world.lag("in") == 0


@pytest.mark.parametrize("delivery", ["at-least-once", "transaction"])
@pytest.mark.parametrize("ordering", ["partition", "key"])
def test_a_deadline_ends_a_task_with_exact_progress(world, tasks, delivery, ordering):
    made = tasks(
        f"""
        app = App(NAME, delivery={delivery!r}, ordering={ordering!r}, concurrency=4)

        @app.handler(topic("in"))
        def handle(record, ctx):
            time.sleep(0.02)
            note(done=record.value.decode())
            ctx.send(topic("out"), record.value)
        """,
        batch_deadline=1000,
    )
    # A broker's first transaction may take longer than all of the time that a task has.
    world.wait(None, "a part of it", lambda: bool(made.run("in") and world.values("out")))
    assert 0 < len(world.values("out")) < COUNT
    while world.lag("in"):
        made.run("in")
    assert sorted(world.values("out")) == numbers()
    if delivery == "at-least-once":  # what was done beyond the prefix is remembered
        assert len(world.notes()) == COUNT


RETRIES = """
    app = App(NAME, retry=RetryPolicy("200ms 600ms"))

    @app.handler(topic("in"))
    def handle(record, ctx):
        note(value=record.value.decode(), attempt=ctx.attempt, due=ctx.envelope.due)
        if ctx.attempt < int(record.value) + 1:
            raise Retry("not yet")
        ctx.send(topic("out"), record.value)
"""


def test_parked_records_run_when_they_are_due_and_never_before(world, tasks):
    made = tasks(RETRIES, count=3, partitions=1)
    made.run("in")
    assert world.values("out") == [b"0"]
    made.run("retry.200ms", delay=200)
    assert sorted(world.values("out")) == [b"0", b"1"]

    def run_the_last() -> bool:
        made.run("retry.600ms", delay=600)  # it ends early while there is long to wait
        return sorted(world.values("out")) == [b"0", b"1", b"2"]

    world.wait(None, "the last one", run_the_last)
    parked = [note for note in world.notes() if note["attempt"] > 1]
    assert len(parked) == len(made.lateness) == 3
    assert all(note["at"] >= note["due"] for note in parked)
    assert all(late >= 0 for late in made.lateness)


def test_no_due_record_waits_for_a_held_one(world, tasks):
    made = tasks(
        """
        app = App(NAME, retry=RetryPolicy("100ms", extra_delays="3s 1h"))

        @app.handler(topic("in"))
        def handle(record, ctx):
            if ctx.attempt == 1:
                raise Retry("later", after={0: "3s", 1: "100ms", 2: "1h"}[int(record.value)])
            note(value=int(record.value), due=ctx.envelope.due)
        """,
        count=3,
        partitions=1,
    )
    made.run("in")
    delays = {"retry.1h": 3_600_000, "retry.3s": 3000, "retry.100ms": 100}
    ranges = [Range(*world.places(topic)[0], 0, 1, delay) for topic, delay in delays.items()]
    reports = task.run(made.spec, ranges).slices
    assert [note["value"] for note in world.notes()] == [1]
    assert {report.topic: report.end for report in reports} == {
        world.topic("retry.1h"): 0, world.topic("retry.3s"): 0, world.topic("retry.100ms"): 1,
    }  # fmt: skip
    world.wait(
        None, "the held one", lambda: bool(task.run(made.spec, ranges[:2])) and not held(world)
    )
    assert [note["value"] for note in world.notes()] == [1, 0]
    assert all(note["at"] >= note["due"] for note in world.notes())


def held(world: Any) -> int:
    return world.lag("retry.3s")


def test_what_is_not_acknowledged_in_time_is_parked(world, tasks):
    made = tasks(
        """
        app = App(NAME, concurrency=10, ordering="unordered", retry=RetryPolicy("1h"))

        @app.handler(topic("in"), ack="manual", timeout="300ms")
        def handle(record, ctx):
            if record.value != b"1":
                ctx.ack()
        """,
        count=3,
        partitions=1,
    )
    (report,) = made.run("in")
    assert report.counts == {"done": 2, "park": 1}
    assert world.values("retry.1h") == [b"1"]
    assert world.lag("in") == 0


@pytest.mark.parametrize(
    "delivery", ["at-least-once", pytest.param("transaction", marks=pytest.mark.chaos)]
)
def test_a_broker_that_goes_away_is_a_trouble_and_loses_nothing(
    world, tasks, redrive_stack, monkeypatch, delivery
):
    monkeypatch.setattr(runtime, "Admin", partial(Admin, patience=1))
    monkeypatch.setattr(runtime, "KafkaLog", partial(KafkaLog, patience=3))
    monkeypatch.setattr("redrive.kafka.transactional_producer.TRANSACTION_CALL_SECONDS", 3.0)
    made = tasks(
        f"""
        app = App(NAME, delivery={delivery!r}, ordering="partition", retry=RetryPolicy("1s"))

        @app.handler(topic("in"))
        def handle(record, ctx):
            note(begun=record.offset)
            time.sleep(0.005)
            ctx.send(topic("out"), record.value)
        """,
        settings=load_settings({"bootstrap": world.bootstrap, "librdkafka": IMPATIENT}, environ={}),
    )
    broker = redrive_stack.brokers[0]

    def stop_in_the_middle() -> None:
        world.wait(None, "some work", lambda: len(world.notes()) > 30)
        broker.stop()

    stopping = threading.Thread(target=stop_in_the_middle)
    stopping.start()
    try:
        reports = made.run("in")
    finally:
        stopping.join()
        broker.start()
    assert any(report.trouble or report.refused for report in reports)
    assert not any(report.fatal for report in reports)
    world.wait(None, "the rest", lambda: bool(made.run("in") and not world.lag("in")))
    assert {*world.values("out")} == {*numbers()}
    assert world.values("dead") == []
    if delivery == "transaction":
        assert sorted(world.values("out")) == numbers()


def test_a_resource_that_cannot_be_opened_is_a_trouble_until_it_can(world, tasks):
    made = tasks(
        """
        app = App(NAME)
        DOWN = Path(NOTES + ".down")

        @app.resource
        def warehouse():
            if DOWN.exists():
                raise ConnectionError("the warehouse does not answer")
            yield "warehouse"

        @app.handler(topic("in"))
        def handle(record, ctx):
            ctx.send(topic("out"), record.value)
        """
    )
    down = world.folder / "notes.jsonl.down"
    down.touch()
    for _ in range(3):
        for report in made.run("in"):
            assert (report.start, report.end, report.fatal) == (0, 0, "")
            assert "the warehouse does not answer" in report.trouble
    down.unlink()
    made.run("in")
    assert sorted(world.values("out")) == numbers()


def test_a_transaction_that_dies_leaves_outputs_and_progress_as_one(world, tasks):
    made = tasks(
        """
        app = App(NAME, delivery="transaction", ordering="partition")

        @app.handler(topic("in"))
        def handle(record, ctx):
            time.sleep(0.004)
            if record.offset == 250:
                raise KeyboardInterrupt
            ctx.send(topic("out"), record.value)
        """,
        partitions=1,
    )
    # As by Ctrl-C, whatever those who started the tests have made of that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with pytest.raises(KeyboardInterrupt):
        made.run("in")
    at = world.committed("in").get(world.places("in")[0], Position(0)).offset
    assert world.values("out") == [b"%d" % number for number in range(at)]


@pytest.mark.parametrize("delivery", ["at-least-once", "transaction"])
def test_what_a_task_commits_for_a_topic_that_was_recreated_in_the_middle_is_no_progress(
    world, tasks, delivery
):
    made = tasks(
        f"""
        app = App(NAME, delivery={delivery!r}, ordering="partition")

        @app.handler(topic("in"))
        def handle(record, ctx):
            if record.offset == 100 and MIDDLE:
                MIDDLE.pop()()

        MIDDLE = []
        """,
        partitions=1,
    )
    (place,) = world.places("in")

    def make_again() -> None:
        world.topics.delete(place.topic)
        world.topics.create(place.topic, 1, {})
        world.publisher = KafkaPublisher(world.settings)
        world.send("in", *numbers(2 * COUNT))

    sys.modules[made.spec.target.partition(":")[0]].MIDDLE.append(make_again)
    ((only,),) = planner_of(made).plan()
    task.run(made.spec, [only])
    if delivery == "at-least-once":  # a transaction that began before the topic may not end
        assert world.committed("in")[place].offset > 0
    with pytest.raises(DataLossError, match="was deleted and recreated since its progress"):
        planner_of(made).plan()


def planner_of(made: Tasks) -> Planner:
    """One that begins now, and knows nothing of those before."""
    settings = made.spec.settings
    return Planner(
        made.world.loaded(made.spec.target),
        made.spec,
        "main",
        log=KafkaLog(settings, made.world.prefix),
        progress=KafkaProgress(settings, made.world.prefix),
        has_members=lambda: False,
        clock=WallClock(),
    )


TAKEN_OVER = """
    app = App(NAME, delivery="transaction", ordering="partition")
    THEIRS = []

    @app.handler(topic("in"))
    def handle(record, ctx):
        if record.offset == 100 and not THEIRS:
            from redrive.config import load_settings
            from redrive.engines.spark.marks import labelled
            from redrive.kafka.transactional_producer import TransactionalProducer
            from redrive.ports import Position
            from redrive.record import TopicPartition
            settings = load_settings({"bootstrap": BOOTSTRAP}, environ={})
            place = TopicPartition(record.topic, 0)
            THEIRS.append(TransactionalProducer(settings, NAME, place))
            if NEWER:
                at = labelled(Position(0), topic_id="", run="9999999999999-theirs")
                THEIRS[0].commit([], {place: at})
        ctx.send(topic("out"), record.value)
"""


def taken_over(world, tasks, *, newer: bool) -> Tasks:
    """A task whose partition is taken over in the middle of it."""
    source = TAKEN_OVER.replace("BOOTSTRAP", repr(world.bootstrap)).replace("NEWER", repr(newer))
    return tasks(source, partitions=1)


def test_a_task_that_is_fenced_off_by_one_of_its_own_run_is_tried_again(world, tasks):
    made = taken_over(world, tasks, newer=False)
    (report,) = made.run("in")
    assert report.fatal == ""
    assert "one of this run that Spark had given up" in report.trouble
    world.wait(None, "the rest", lambda: bool(made.run("in")) and not world.lag("in"))
    assert sorted(world.values("out")) == numbers()


def test_a_task_that_is_left_over_from_a_run_before_fences_nobody_off(world, tasks):
    made = taken_over(world, tasks, newer=False)
    (place,) = world.places("in")
    theirs = TransactionalProducer(world.settings, world.prefix, place)
    theirs.commit([], {place: marks.labelled(Position(0), topic_id="", run="9999999999999-new")})
    (report,) = made.run("in")
    assert "another run of the app" in report.fatal
    theirs.commit([Write(world.topic("out"), None, b"theirs")], {place: Position(1)})
    assert world.values("out") == [b"theirs"]


def test_a_task_whose_partition_was_taken_over_says_so_and_commits_nothing(world, tasks):
    made = taken_over(world, tasks, newer=True)
    (report,) = made.run("in")
    assert "another run of the app" in report.fatal
    assert "the other one runs whatever was not committed" in report.fatal
    at = world.committed("in").get(world.places("in")[0], Position(0)).offset
    assert report.end == at < COUNT
    assert world.values("out") == [b"%d" % number for number in range(at)]


REWOUND = """
    app = App(NAME, ordering="partition")

    @app.handler(topic("in"))
    def handle(record, ctx):
        if record.offset == 100:
            from redrive.config import load_settings
            from redrive.engines.spark.marks import labelled
            from redrive.kafka.progress import KafkaProgress
            from redrive.ports import Position
            from redrive.record import TopicPartition
            settings = load_settings({"bootstrap": BOOTSTRAP}, environ={})
            at = labelled(Position(5), topic_id="", run="9999999999999-rewind-theirs")
            KafkaProgress(settings, NAME).commit({TopicPartition(record.topic, 0): at})
        ctx.send(topic("out"), record.value)
"""


def test_a_task_that_was_rewound_while_its_handler_ran_commits_nothing(world, tasks):
    made = tasks(REWOUND.replace("BOOTSTRAP", repr(world.bootstrap)), partitions=1)
    (report,) = made.run("in")
    assert "was put back by `redrive rewind`" in report.fatal
    assert world.committed("in")[world.places("in")[0]].offset == 5
