"""Deadly records: each of them is found and buried, and nobody else ever is."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from memory_engine import ATTEMPTS, MiniSpark, WorkerDied

from redrive import App, Retry, RetryPolicy
from redrive.engines.spark import probing
from redrive.engines.spark.probing import Probe
from redrive.guarantees import Delivery
from redrive.ports import Position
from redrive.record import Record, TopicPartition

PLACE = TopicPartition("in", 0)


# The states


@pytest.mark.parametrize("attempt", [0, 1])
def test_one_death_is_no_suspicion(attempt):
    assert probing.begin("", attempt, 100) is None


def test_after_two_deaths_a_range_is_halved():
    assert probing.begin("", 2, 100) == Probe(50)
    assert probing.begin("r1:AAE=", 3, 1) == Probe(1)


def test_the_first_attempt_of_a_task_tries_the_same_again():
    for metadata in ("p1:50:0", "p1:1:0", "p1:1:1", "p1:50"):
        found = probing.begin(metadata, 0, 100)
        assert found is not None
        assert (found.size, found.deaths) == (int(metadata.split(":")[1]), metadata.count(":1:1"))


def test_a_death_with_many_halves_them_and_one_alone_is_counted():
    assert probing.begin("p1:50:0", 1, 100) == Probe(25)
    assert probing.begin("p1:1:0", 1, 100) == Probe(1, 1)
    found = probing.begin("p1:1:1", 3, 100)
    assert found is not None
    assert found.proven


def test_what_was_not_begun_cannot_have_killed():
    found = probing.begin(Probe(1).onward, 3, 100)
    assert found == Probe(1, 0)


@pytest.mark.parametrize(
    "metadata", ["", "p1:", "p1:0:0", "p1:x:1", "p2:1:1", "r1:AAE=", "p1:1:1x"]
)
def test_text_that_is_no_probe_is_none(metadata):
    assert probing.read(metadata) is None


def test_what_is_written_is_what_is_read():
    assert probing.read(Probe(7, 1).metadata) == Probe(7, 1, tried=True)
    assert probing.read(Probe(7, 1).onward) == Probe(7)


# The whole search, by the real task


def copying_app(
    handle: Callable[[Record], None], delivery: Delivery = "at-least-once", concurrency: int = 1
) -> App:
    app = App("app", delivery=delivery, ordering="partition", concurrency=concurrency)

    @app.handler("in")
    def copy(record, ctx):
        handle(record)
        ctx.send("out", record.value)

    return app


def deadly(*values: bytes) -> Callable[[Record], None]:
    def handle(record: Record) -> None:
        if record.value in values:
            raise WorkerDied

    return handle


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.integers(0, 3), min_size=1, max_size=60),
    st.sets(st.integers(0, 59), max_size=3),
    st.sampled_from(["at-least-once", "transaction"]),
)
def test_every_deadly_record_is_buried_and_nobody_else(gaps, places, delivery):
    """Gaps before each record; with `transaction`, nobody runs to its end twice either."""
    names = [b"%d" % number for number in range(len(gaps))]
    killers = {names[place] for place in places if place < len(names)}
    spark = MiniSpark(copying_app(deadly(*killers), delivery))
    spark.broker.create("out")
    for name, gap in zip(names, gaps, strict=True):
        spark.broker.gap(PLACE, gap)
        spark.send("in", name)
    spark.run()
    assert set(spark.dead) == killers
    assert len(spark.dead) == len(killers)
    assert set(spark.values("out")) == set(names) - killers
    if delivery == "transaction":
        assert spark.values("out") == [name for name in names if name not in killers]
    assert not any(report.trouble or report.fatal for report in spark.reports)


def test_the_dead_letter_is_the_record_with_its_reason():
    spark = MiniSpark(copying_app(deadly(b"3")))
    spark.broker.create("out")
    spark.send("in", *(b"%d" % number for number in range(5)))
    spark.run()
    (letter,) = spark.broker.records("app.dead")
    assert letter.value == b"3"
    assert letter.header("redrive-dead-reason") == b"killed-worker"
    assert letter.header("redrive-origin-offset") == b"3"
    assert b"died twice with in[0]@3 and nothing else" in (
        letter.header("redrive-error-message") or b""
    )


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 40), st.integers(0, 200), st.sampled_from(["at-least-once", "transaction"]))
def test_one_kill_from_outside_never_buries(count, when, delivery):
    calls = 0

    def killed_once(_: Record) -> None:
        nonlocal calls
        calls += 1
        if calls == when + 1:
            raise WorkerDied

    spark = MiniSpark(copying_app(killed_once, delivery))
    spark.broker.create("out")
    names = [b"%d" % number for number in range(count)]
    spark.send("in", *names)
    spark.run()
    assert spark.dead == []
    assert set(spark.values("out")) == set(names)


def test_one_kill_from_outside_while_another_record_is_probed_buries_only_that_one():
    for when in range(60):
        calls = 0

        def handle(record: Record, at: int = when) -> None:
            nonlocal calls
            calls += 1
            if calls == at or record.value == b"5":
                raise WorkerDied

        spark = MiniSpark(copying_app(handle, "transaction"))
        spark.broker.create("out")
        spark.send("in", *(b"%d" % number for number in range(10)))
        spark.run()
        assert spark.dead == [b"5"], when


def test_cancelled_jobs_never_count():
    """Jobs whose first attempt is always the last: a driver that is killed again and again."""
    alive = False

    def handle(record: Record) -> None:
        if record.value == b"0" and not alive:
            raise WorkerDied

    spark = MiniSpark(copying_app(handle))
    spark.broker.create("out")
    spark.send("in", b"0", b"1")
    spark.progress.commit({PLACE: Position(0, Probe(1, 1).metadata)})
    for _ in range(10):
        spark.run_batch(spark.planner().plan(), attempts=1)
    assert spark.committed(PLACE) == Position(0, Probe(1, 1).metadata)
    alive = True
    spark.run()
    assert spark.dead == []
    assert spark.values("out") == [b"0", b"1"]


def test_ranges_in_one_task_do_not_count_each_others_deaths():
    spark = MiniSpark(copying_app(deadly(b"bad")), partitions=3, slots=2)
    spark.broker.create("out")
    for number in range(3):
        spark.send("in", b"a%d" % number, b"b%d" % number, partition=number)
    spark.send("in", b"bad", partition=1)
    spark.run()
    assert spark.dead == [b"bad"]
    assert len(set(spark.values("out"))) == 6


def test_a_refused_burial_does_not_kill_again():
    spark = MiniSpark(copying_app(deadly(b"0")))
    spark.broker.create("out")
    spark.send("in", b"0")
    spark.broker.refuse("app.dead")
    for _ in range(4):
        spark.run_batch(spark.planner().plan())
    deaths = spark.deaths
    assert deaths < 3 * ATTEMPTS
    spark.run_batch(spark.planner().plan())
    assert spark.deaths == deaths
    assert "was refused" in spark.reports[-1].trouble
    assert spark.committed(PLACE) == Position(0, Probe(1, 2).metadata)
    spark.broker.accept("app.dead")
    spark.run()
    assert spark.dead == [b"0"]
    assert spark.deaths == deaths


def test_errors_of_handlers_are_no_deaths():
    app = App("app", retry=RetryPolicy())

    @app.handler("in")
    def fail(record, ctx):
        raise SystemExit if record.value == b"exit" else Retry("no")

    spark = MiniSpark(app)
    spark.send("in", b"exit", b"1")
    spark.run()
    assert spark.deaths == 0
    assert [
        letter.header("redrive-dead-reason") for letter in spark.broker.records("app.dead")
    ] == [b"exhausted", b"exhausted"]


def test_a_mistake_of_ours_is_no_death_and_stops_the_run(monkeypatch):
    """Spark would try again, and that looks like a death."""
    spark = MiniSpark(copying_app(lambda _: None))
    spark.broker.create("out")
    spark.send("in", b"0")
    monkeypatch.setattr(spark.broker, "publish", lambda _: {}["ours"])
    (report,) = spark.run_task([*spark.planner().plan()[0]])
    assert "KeyError" in report.fatal
    assert report.end == 0
