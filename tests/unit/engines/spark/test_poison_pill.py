"""Deadly records: each of them is found and buried, and nobody else ever is."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from memory_engine import ExecutorLost, MiniSpark, NeverStarted, WorkerDied

from redrive import App, Retry, RetryPolicy
from redrive.engines.spark.lost_tasks import is_begun, label, replaced, told
from redrive.engines.spark.poison_pill import PoisonSearch
from redrive.engines.spark.ranges import Range
from redrive.guarantees import Delivery
from redrive.ports import Position
from redrive.processing.progress import done_beyond
from redrive.record import Record, TopicPartition
from redrive.tuning import TOPICS_EVERY

PLACE = TopicPartition("in", 0)


def copying_app(
    handle: Callable[[Record], None],
    delivery: Delivery = "at-least-once",
    concurrency: int = 1,
    **options: Any,
) -> App:
    app = App("app", delivery=delivery, ordering="partition", concurrency=concurrency, **options)

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


def proven_at(offset: int, then: int | None = None) -> PoisonSearch:
    """Two Python workers have died with the record at that offset alone; `then` it begins there."""
    search = PoisonSearch()
    died = {"ranges": [["in", 0, offset, offset + 1]], "begun": True}
    search.note({PLACE: Position(offset)}, [died])
    search.note({PLACE: Position(offset if then is None else then)}, [died])
    return search


def test_what_is_proven_of_a_record_is_said_of_no_other_that_has_taken_its_place():
    search = proven_at(5)
    assert [job[0].search for job in search.tasks([Range("in", 0, 5, 9)], 4)] == ["proven"]
    search = proven_at(5, then=50)  # it was deleted, and all up to there with it
    assert [job[0].search for job in search.tasks([Range("in", 0, 50, 90)], 4)] == ["alone"]
    search = proven_at(5)
    search.forget("in")  # it was recreated, and has come as far
    assert [job[0].search for job in search.tasks([Range("in", 0, 5, 9)], 4)] == [""]


def test_a_topic_that_is_recreated_while_a_record_is_to_be_buried_loses_none_of_its_own():
    spark = MiniSpark(copying_app(deadly(b"0"), on_data_loss="continue"))
    spark.broker.create("out")
    spark.send("in", b"0", b"1")
    planner = spark.planner("main")
    while (plan := planner.plan())[0][0].search != "proven":
        spark.run_batch(plan)
    spark.broker.delete("in")
    spark.broker.create("in")
    spark.send("in", b"2")
    spark.clock.advance(TOPICS_EVERY)
    while plan := planner.plan():
        spark.run_batch(plan)
    assert spark.dead == []
    assert spark.values("out") == [b"2"]


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
    """Drivers that are killed again and again, each with its first job."""
    alive = False

    def handle(record: Record) -> None:
        if record.value == b"0" and not alive:
            raise WorkerDied

    spark = MiniSpark(copying_app(handle))
    spark.broker.create("out")
    spark.send("in", b"0", b"1")
    for _ in range(10):
        spark.run_batch(spark.planner().plan(), to_its_end=False)
    assert spark.deaths == 10
    alive = True
    spark.run()
    assert spark.dead == []
    assert spark.values("out") == [b"0", b"1"]


@pytest.mark.parametrize("how", [ExecutorLost, NeverStarted])
@pytest.mark.parametrize("delivery", ["at-least-once", "transaction"])
def test_a_task_that_was_lost_otherwise_buries_nobody_however_often(how, delivery):
    """An executor that is lost takes the Python workers of innocent records along."""
    deadly = True

    def handle(record: Record) -> None:
        if record.value == b"3" and deadly:
            raise how

    spark = MiniSpark(copying_app(handle, delivery))
    spark.broker.create("out")
    spark.send("in", *(b"%d" % number for number in range(5)))
    planner = spark.planner()
    for _ in range(30):
        (said,) = spark.run_batch(planner.plan())
        assert how.told in said["trouble"]
        assert "no attempt is counted" in said["trouble"]
    assert spark.deaths == 30
    deadly = False
    spark.run()
    assert spark.dead == []
    assert {*spark.values("out")} == {b"%d" % number for number in range(5)}


def test_a_record_that_is_searched_for_is_not_held_guilty_of_a_lost_executor():
    """Alone in its task, it dies once by itself, and again and again with its executor."""
    deaths = [WorkerDied, *[ExecutorLost] * 10]

    def handle(_: Record) -> None:
        if deaths:
            raise deaths.pop(0)

    spark = MiniSpark(copying_app(handle))
    spark.broker.create("out")
    spark.send("in", b"0")
    spark.run()
    assert deaths == []
    assert spark.dead == []
    assert spark.values("out") == [b"0"]


def test_a_worker_that_dies_before_it_begins_with_a_record_buries_nobody():
    """As with a resource whose opening kills the process."""
    spark = MiniSpark(copying_app(lambda _: None))
    spark.broker.create("out")
    spark.send("in", b"0")
    deaths = 20

    def die() -> None:
        nonlocal deaths
        deaths -= 1
        if deaths >= 0:
            raise WorkerDied

    spark.starting = die
    spark.run()
    assert deaths < 0
    assert spark.dead == []
    assert spark.values("out") == [b"0"]


def test_what_is_done_beyond_a_record_that_is_tried_alone_stays_known():
    dying = True

    def handle(record: Record) -> None:
        if record.value == b"0" and dying:
            raise WorkerDied

    spark = MiniSpark(copying_app(handle))
    spark.broker.create("out")
    spark.send("in", b"0", b"1", b"2")
    spark.progress.commit({PLACE: Position(0, done_beyond.encode(0, [(1, 3)]))})
    planner = spark.planner()
    while spark.deaths < 3:
        spark.run_batch(planner.plan())
    dying = False
    spark.run()
    assert spark.values("out") == [b"0"]


def test_many_suspects_leave_a_task_to_the_others():
    """All partitions of a task are suspected, but none of another's waits for them."""
    spark = MiniSpark(copying_app(deadly(b"bad")), partitions=8, slots=4)
    spark.broker.create("out")
    for number in range(8):
        spark.send("in", b"a%d" % number, partition=number)
    spark.send("in", b"bad", partition=1)
    planner = spark.planner()
    spark.run_batch(planner.plan())
    for number in range(8):
        spark.send("in", b"b%d" % number, partition=number)
    plan = planner.plan()
    assert len(plan) == 3
    assert [[each.search for each in task] for task in plan[:2]] == [["alone"], ["alone"]]
    assert {each.search for each in plan[2]} == {""}
    spark.run()
    assert spark.dead == [b"bad"]
    assert len({*spark.values("out")}) == 16


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
    spark.broker.refuse("app.dead", error="UNKNOWN_TOPIC_OR_PART")
    planner = spark.planner()
    for _ in range(5):
        spark.run_batch(planner.plan())
    assert spark.deaths == 3  # in company, and twice alone
    assert spark.reports[-1].refused == 1
    assert spark.committed(PLACE).offset == 0
    spark.broker.accept("app.dead")
    spark.clock.advance("1m")
    spark.run_batch(planner.plan())
    assert spark.dead == [b"0"]
    assert spark.deaths == 3
    assert planner.plan() == []


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


def test_an_error_that_a_task_raised_ends_the_run_with_its_last_line():
    end = "org.apache.spark.api.python.PythonException: Traceback ...\n  File ...\nKeyError: 'ours'"
    (said,) = map(json.loads, replaced([told([], 0, 0, begun=False)], lambda *_: end))
    assert said["fatal"] == "a task failed: KeyError: 'ours'"
    assert "died" not in said


def test_without_sparks_word_nobody_is_blamed():
    text = told([Range("in", 3, 7, 9)], 0, 0, begun=False)
    (said,) = map(json.loads, replaced([text], lambda *_: ""))
    assert "records from in[3]@7 on (Spark does not say how)" in said["trouble"]
    assert "died" not in said


def test_a_mistake_of_ours_is_no_death_and_stops_the_run(monkeypatch):
    """Spark would try again, and that looks like a death."""
    spark = MiniSpark(copying_app(lambda _: None))
    spark.broker.create("out")
    spark.send("in", b"0")
    monkeypatch.setattr(spark.broker, "publish", lambda _: {}["ours"])
    (report,) = spark.run_task([*spark.planner().plan()[0]])
    assert "KeyError" in report.fatal
    assert report.end == 0


def test_what_a_task_of_a_run_before_had_begun_with_counts_against_nobody():
    """Stages are numbered from the beginning again."""
    spark = MiniSpark(copying_app(deadly(b"0")))
    alone = Range("in", 0, 0, 1, search="alone")
    spark.send("in", b"0")
    with pytest.raises(WorkerDied):
        spark.run_task([alone], label("1-before", 5, 0))
    assert is_begun([alone], label("1-before", 5, 0), lambda: spark.progress)
    assert not is_begun([alone], label("2-now", 5, 0), lambda: spark.progress)
