"""What the options of `redrive run --engine worker` promise."""

from __future__ import annotations

import json
import os
import re
import sys
import urllib.error
import urllib.request
from time import time

import confluent_kafka
import pytest
from driver import Driver

from redrive.cli.view import summary
from redrive.engines.worker import one_core
from redrive.engines.worker.lag import LagMonitor
from redrive.envelope import Envelope
from redrive.errors import DataLossError, ResourceError
from redrive.record import Write

NOTES = """
    app = App(NAME, {choices})

    @app.handler(topic("in"))
    def handle(record, ctx):
        note(value=record.value.decode(), attempt=ctx.attempt)
        if record.value.startswith(b"late") and ctx.attempt == 1:
            raise Retry("later")
"""


def handled(world):
    return sorted(note["value"] for note in world.notes())


def test_once_ends_with_what_is_there_and_due(world, start):
    target = world.app(NOTES.format(choices="retry=RetryPolicy('1h')"))
    world.send("in", b"1", b"2", b"late")
    run = start(target, until="once")
    assert run.worker.await_termination(60)
    assert handled(world) == ["1", "2", "late"]
    assert world.lag("in") == 0
    assert world.count("retry.1h") == world.lag("retry.1h") == 1
    told = list(summary(run.worker, time()))
    parked = f"1 parked in {world.topic('retry.1h')}"
    assert told[-1].startswith((f"{parked}, next due in 59m", f"{parked}, next due in 1h")), told


def test_once_runs_what_is_parked_and_due(world, start):
    target = world.app(NOTES.format(choices="retry=RetryPolicy('1ms')"), partitions=1)
    world.publisher.publish([parked(world, "retry.1ms", b"due")])
    assert start(target, until="once").worker.await_termination(60)
    assert handled(world) == ["due"]


def test_until_empty_waits_for_what_is_parked(world, start):
    target = world.app(NOTES.format(choices="retry=RetryPolicy('1s')"))
    world.send("in", b"1", b"late")
    run = start(target, until="empty")
    assert run.worker.await_termination(60)
    assert [(note["value"], note["attempt"]) for note in world.notes()][-1] == ("late", 2)
    assert (world.lag("in"), world.lag("retry.1s")) == (0, 0)
    assert run.worker.figures.total("done") == 2


@pytest.mark.parametrize("until", ["once", "empty"])
def test_what_a_transaction_has_parked_is_waited_for_until_it_can_be_read(
    world, start, monkeypatch, until
):
    """One that is committed ends a little later in each of its partitions."""
    choices = "delivery='transaction', retry=RetryPolicy('1ms')"
    target = world.app(NOTES.format(choices=choices), partitions=1)
    world.send("in", b"1")
    looks = []
    look = LagMonitor.look
    monkeypatch.setattr(LagMonitor, "look", lambda self: (looks.append(None), look(self))[1])
    with world.open_transaction(parked(world, "retry.1ms", b"2")):
        run = start(target, until=until)
        world.wait(run, "the other one", lambda: world.lag("in") == 0)
        seen = len(looks)
        world.wait(run, "some looks", lambda: len(looks) > seen + 5 or run.worker.ended.is_set())
        assert not run.worker.ended.is_set()
    assert run.worker.await_termination(60)
    assert handled(world) == ["1", "2"]


def parked(world, topic, value):
    """What is written to a delay topic for a record of `in`."""
    envelope = Envelope(
        app=world.prefix,
        id="parked",
        origin_topic=world.topic("in"),
        origin_partition=0,
        origin_offset=0,
        first_received=0,
        attempt=2,
        due=1,
    )
    return Write(world.topic(topic), None, value, envelope.headers(()))


@pytest.mark.parametrize("delivery", ["at-least-once", "transaction"])
def test_from_latest_is_committed_at_once(world, start, delivery):
    """So that what comes before the first record is handled is not passed over by a restart."""
    target = world.app(NOTES.format(choices=f"delivery={delivery!r}"), partitions=1)
    (place,) = world.places("in")
    world.send("in", b"old", b"older")
    run = start(target, start_from="latest")
    begun = world.committed("in")  # before it has joined: others that start now go by it
    run.stop()
    assert begun[place].offset == world.committed("in")[place].offset == 2
    world.send("in", b"new")
    run = start(target, start_from="latest", until="empty")
    assert run.worker.await_termination(60)
    assert handled(world) == ["new"]


def delete_up_to(world, offset):
    (place,) = world.places("in")
    request = [confluent_kafka.TopicPartition(*place, offset)]
    for future in world.admin.client.delete_records(request).values():
        future.result(30)


@pytest.mark.parametrize("choice", ["stop", "continue"])
def test_records_that_are_gone_before_the_start(world, start, choice):
    target = world.app(NOTES.format(choices=f"on_data_loss={choice!r}"), partitions=1)
    world.send("in", b"1")
    first = start(target, until="empty")
    assert first.worker.await_termination(60)
    world.send("in", b"2", b"3", b"4")
    delete_up_to(world, 3)
    run = start(target, until="empty")
    if choice == "stop":
        with pytest.raises(DataLossError, match="2 records were deleted unread"):
            run.worker.await_termination(60)
        assert handled(world) == ["1"]
        assert world.lag("in") == 3
    else:
        assert run.worker.await_termination(60)
        assert handled(world) == ["1", "4"]
        assert len(run.worker.status("main")["lost"]) == 1


@pytest.mark.parametrize("choice", ["stop", "continue"])
def test_records_that_are_gone_while_it_runs(world, start, choice):
    """They are deleted while the partition is held back."""
    target = world.app(
        f"""
        app = App(NAME, on_data_loss={choice!r})

        @app.handler(topic("in"))
        def handle(record, ctx):
            note(value=record.value.decode())
            while record.value == b"0" and not Path(NOTES).with_name("go").exists():
                time.sleep(0.01)
        """,
        partitions=1,
    )
    world.send("in", b"0")
    run = start(target, max_in_flight=1)
    world.wait(run, "the first", lambda: handled(world) == ["0"])
    (partition,) = run.worker.assignment.partitions.values()
    world.wait(run, "it is held back", lambda: partition.paused)
    world.send("in", *[b"%d" % number for number in range(1, 8)])
    delete_up_to(world, 5)
    (world.folder / "go").touch()
    if choice == "stop":
        with pytest.raises(DataLossError, match="deleted unread"):
            run.worker.await_termination(60)
        assert handled(world) == ["0"]
    else:
        world.wait(run, "the rest", lambda: world.lag("in") == 0)
        run.stop()
        assert {"5", "6", "7"} <= set(handled(world))
        assert not {"1", "2"} & set(handled(world))
        assert run.worker.status("main")["lost"]


def test_the_topic_of_a_delay_that_was_removed_is_still_served(world, start):
    target = world.app(NOTES.format(choices="retry=RetryPolicy('1s 2s')"), partitions=1)
    world.send("in", b"late")
    run = start(target)
    world.wait(run, "it is parked", lambda: world.count("retry.1s") == 1)
    run.stop()
    (parked,) = world.records("retry.1s")
    world.app(NOTES.format(choices="retry=RetryPolicy('2s')"), partitions=1)
    sys.modules.pop(target.partition(":")[0])
    run = start(target, until="empty")
    assert run.worker.await_termination(60)
    assert world.lag("retry.1s") == 0
    assert world.notes()[-1]["attempt"] == 2
    assert parked.value == b"late"


@pytest.fixture
def watched(world):
    target = world.app("""
        import logging

        app = App(NAME, retry=RetryPolicy("1h"))

        @app.handler(topic("in"))
        def handle(record, ctx):
            if record.value.startswith(b"bad"):
                raise Bury("no good")
            if record.value == b"early":
                raise Retry("not yet")
            ctx.log.warning("a word of the handler's")
            logging.getLogger("users.own").info("a word of the module's")
    """)
    made = Driver(target, world.folder, world.bootstrap, "--engine", "worker",
                  "--metrics-port", "0", "--log-format", "json")  # fmt: skip
    yield made
    made.kill()


def ask(port, path):
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def test_figures_health_and_lines_for_machines(world, watched):
    world.send("in", b"good", b"bad 1", b"bad 2", b"bad 3", b"early")
    world.wait(watched, "its port", lambda: "metrics: port" in watched.output())
    port = int(re.search(r"metrics: port (\d+)", watched.output())[1])
    world.wait(watched, "ready", lambda: ask(port, "/ready")[0] == 200)
    assert ask(port, "/live") == (200, "ok\n")
    world.wait(watched, "all", lambda: world.lag("in") == 0)
    app, topic = f'app="{world.prefix}"', f'topic="{world.topic("in")}"'
    dead = f'redrive_dead_records_total{{{app},reason="rejected",{topic}}} 3.0'
    world.wait(watched, "all counted", lambda: dead in ask(port, "/metrics")[1])
    code, figures = ask(port, "/metrics")
    assert code == 200
    assert f'redrive_records_total{{{app},lane="main",outcome="done",{topic}}} 1.0' in figures
    assert f'redrive_records_total{{{app},lane="main",outcome="bury",{topic}}} 3.0' in figures
    for name in ("redrive_in_flight_records", "redrive_lag_records", "redrive_lateness_seconds",
                 "redrive_handler_seconds", "redrive_commit_seconds", "redrive_rebalances_total",
                 "redrive_commit_failures_total", "redrive_hung_handlers_total",
                 "redrive_assigned_partitions", "redrive_refused_writes",
                 "redrive_last_outcome_timestamp_seconds",
                 "redrive_oldest_handler_seconds"):  # fmt: skip
        assert name in figures, name
    watched.stop()
    assert watched.wait(1) == 0
    lines = [json.loads(line) for line in watched.output().splitlines()]
    buried, *more = [line for line in lines if line.get("outcome") == "bury"]
    (parked,) = [line for line in lines if line.get("outcome") == "park"]
    (word,) = [line for line in lines if "a word of the handler's" in line["message"]]
    for line in (buried, parked, word):
        assert line["app"] == world.prefix
        assert line["topic"] == world.topic("in")
        assert {"partition", "offset", "id", "attempt"} <= line.keys()
    assert "buried (rejected): redrive.signals.Bury: no good" in buried["message"]
    assert 'raise Bury("no good")' in buried["trace"]
    assert (more or [buried])[-1]["total"] == 3
    assert not any("trace" in line for line in more)
    assert 'raise Retry("not yet")' in parked["trace"]
    (own,) = [line for line in lines if line["logger"] == "users.own"]
    assert own["level"] == "info"
    assert (buried["reason"], buried["attempt"]) == ("rejected", 1)


# Room


def test_a_slow_handler_holds_back_its_partition_and_no_other(world, start):
    target = world.app(
        """
        app = App(NAME, concurrency=4, ordering="partition")

        @app.handler(topic("in"))
        def handle(record, ctx):
            while record.partition == 0 and not Path(NOTES).with_name("go").exists():
                time.sleep(0.01)
        """,
        partitions=2,
    )
    topic = world.topic("in")
    world.publisher.publish(
        [Write(topic, b"k", b"x" * 100, (), number % 2) for number in range(20_000)]
    )
    run = start(target, max_in_flight=100)
    slow, fast = world.places("in")
    world.wait(run, "the fast one", lambda: _is_at(world, fast, 10_000))
    held = run.worker.assignment.partitions[slow]
    assert held.paused
    assert held.in_flight <= 100 + 1001  # what one turn may read
    (world.folder / "go").touch()
    world.wait(run, "the slow one", lambda: world.lag("in") == 0)
    run.stop()


def _is_at(world, place, offset):
    found = world.committed("in")
    return place in found and found[place].offset == offset


def test_large_records_are_held_back_by_their_bytes(world, start):
    target = world.app(
        """
        app = App(NAME, concurrency=2, ordering="unordered")

        @app.handler(topic("in"))
        def handle(record, ctx):
            while not Path(NOTES).with_name("go").exists():
                time.sleep(0.01)
        """,
        partitions=1,
    )
    world.send("in", *[b"%03d" % number + b"x" * 200_000 for number in range(200)])
    run = start(target, max_bytes_in_flight=1_000_000)
    world.wait(run, "its partition", lambda: run.worker.assigned == 1)
    (partition,) = run.worker.assignment.partitions.values()
    world.wait(run, "it is held back", lambda: partition.paused)
    # At most what librdkafka had fetched for one turn, however much is in the topic.
    assert partition.bytes_in_flight < 25_000_000
    (world.folder / "go").touch()
    world.wait(run, "all", lambda: world.lag("in") == 0)
    run.stop()


def test_one_core_is_kept_to_while_it_runs(world, start, monkeypatch, tmp_path):
    monkeypatch.setattr(one_core, "folder_of", lambda _: tmp_path)
    target = world.app(
        """
        import os

        app = App(NAME, ordering="unordered", concurrency=8)

        @app.handler(topic("in"))
        def handle(record, ctx):
            note(cores=sorted(os.sched_getaffinity(0)), policy=os.sched_getscheduler(0))
        """
    )
    before = os.sched_getaffinity(0)
    world.send("in", *(b"%d" % number for number in range(50)))
    run = start(target, one_core=True)
    world.wait(run, "all", lambda: len(world.notes()) == 50)
    (cores,) = {tuple(note["cores"]) for note in world.notes()}
    assert len(cores) == 1
    assert {note["policy"] for note in world.notes()} == {os.SCHED_BATCH}
    assert os.sched_getscheduler(0) == os.SCHED_OTHER
    run.worker.stop()
    assert os.sched_getaffinity(0) == before


def test_a_start_that_fails_leaves_the_process_on_all_cores(world, start, monkeypatch, tmp_path):
    monkeypatch.setattr(one_core, "folder_of", lambda _: tmp_path)
    target = world.app(
        """
        app = App(NAME)

        @app.resource
        def broken():
            raise OSError("no such service")
            yield

        @app.handler(topic("in"))
        def handle(record, ctx):
            pass
        """
    )
    before = os.sched_getaffinity(0)
    with pytest.raises(ResourceError, match="no such service"):
        start(target, one_core=True)
    assert os.sched_getaffinity(0) == before
