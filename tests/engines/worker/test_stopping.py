"""How a worker ends: in order, at once, and in spite of handlers that do not."""

from __future__ import annotations

import logging
import os
import signal
import threading
from contextlib import contextmanager

import psycopg
import pytest
from driver import Driver

from redrive.engines.worker.loop import NameInUseError
from redrive.errors import ResourceError
from redrive.ledger.migrating import migrate

WAITS = """
    app = App(NAME, concurrency=2, ordering="unordered")

    @app.handler(topic("in"))
    def handle(record, ctx):
        note(what="start", offset=record.offset)
        while not Path(NOTES).with_name("go").exists():
            time.sleep(0.01)
        note(what="end", offset=record.offset)
"""


@pytest.fixture
def drive(world):
    drivers = []

    def begin(target, *options):
        made = Driver(target, world.folder, world.bootstrap, "--engine", "worker", *options)
        drivers.append(made)
        return made

    yield begin
    for each in drivers:
        each.kill()


@contextmanager
def away(broker, fault):
    if fault == "killed":
        broker.kill()
    else:
        os.kill(broker.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        if fault == "silent":
            os.kill(broker.pid, signal.SIGCONT)
        broker.start()


@pytest.fixture
def threads():
    """Those that began since, by name: other tests may have left some behind."""
    before = {*threading.enumerate()}
    return lambda: {each.name: each for each in threading.enumerate() if each not in before}


def told(world, what):
    return [note["offset"] for note in world.notes() if note["what"] == what]


def test_a_signal_lets_what_runs_end_and_commits_exactly_that(world, drive):
    target = world.app(WAITS, partitions=1)
    world.send("in", *[b"%d" % number for number in range(10)])
    run = drive(target)
    world.wait(run, "two that run", lambda: len(told(world, "start")) == 2)
    run.terminate()
    world.wait(run, "its word", lambda: "stopping" in run.output())
    (world.folder / "go").touch()
    assert run.wait(60) == 0, run.output()
    assert len(told(world, "end")) == 2
    again = drive(target, "--until-empty")
    assert again.wait(60) == 0, again.output()
    assert sorted(told(world, "start")) == list(range(10))  # each once


def test_a_handler_that_does_not_end_is_not_waited_for_longer_than_was_said(world, drive):
    target = world.app(WAITS, partitions=1)
    world.send("in", b"0", b"1", b"2")
    run = drive(target, "--drain", "500ms")
    world.wait(run, "two that run", lambda: len(told(world, "start")) == 2)
    run.terminate()
    assert run.wait(60) == 0, run.output()
    assert run.output().count("3 records were not finished within 0.") == 1
    assert run.output().count("they run again") == 1  # logged once
    assert run.output().count("did not finish and will run again") == 1  # and in the summary
    assert "handlers are still running" not in run.output()
    assert "main  lane: nothing done" in run.output()
    assert "main lane: 3 records did not finish and will run again" in run.output()
    assert world.committed("in")[world.places("in")[0]].offset == 0
    (world.folder / "go").touch()
    again = drive(target, "--until-empty")
    assert again.wait(60) == 0, again.output()
    assert sorted(told(world, "end")) == [0, 1, 2]


def test_a_second_signal_ends_it_at_once(world, drive):
    target = world.app(WAITS, partitions=1)
    world.send("in", b"0")
    run = drive(target)
    world.wait(run, "one that runs", lambda: bool(told(world, "start")))
    run.terminate()
    world.wait(run, "its word", lambda: "stopping" in run.output())
    run.terminate()
    assert run.wait(30) == 128 + signal.SIGTERM


def test_an_error_ends_the_process_also_while_a_handler_hangs(world, drive):
    """At its end Python waits for threads of pools, such as those beside the event loop."""
    target = world.app(
        """
    app = App(NAME)

    @app.resource
    def client():
        yield
        raise ConnectionError("gone already")

    @app.handler(topic("in"))
    def hangs(record, ctx):
        note(what="start", offset=record.offset)
        while True:
            time.sleep(1)  # this is the hanging itself

    @app.handler(topic("other"))
    async def other(record, ctx):
        pass
    """,
        partitions=1,
    )
    world.send("in", b"0")
    run = drive(target, "--drain", "100ms", "--revoke-wait", "100ms")
    world.wait(run, "it hangs", lambda: bool(told(world, "start")))
    run.terminate()
    assert run.wait(60) == 1, run.output()
    assert 'resource "client" could not be closed: ConnectionError: gone already' in run.output()


@pytest.mark.parametrize(
    ("delivery", "fault"),
    [
        ("at-least-once", "killed"),
        ("transaction", "silent"),
        pytest.param("at-least-once", "silent", marks=pytest.mark.chaos),
        pytest.param("transaction", "killed", marks=pytest.mark.chaos),
    ],
)
def test_a_stop_waits_no_longer_than_was_said_for_brokers_that_are_away(
    world, start, redrive_stack, delivery, fault
):
    waits = WAITS.replace("App(NAME", f"App(NAME, delivery={delivery!r}")
    waits = waits.replace('note(what="end"', 'ctx.send(topic("out"), b"")\n        note(what="end"')
    target = world.app(waits, partitions=1)
    world.create(world.topic("out"))
    world.send("in", b"0", b"1")
    run = start(target, drain="1s")
    world.wait(run, "two that run", lambda: len(told(world, "start")) == 2)
    with away(redrive_stack.brokers[0], fault):
        (world.folder / "go").touch()
        world.wait(run, "their ends", lambda: len(told(world, "end")) == 2)
        run.worker.stop(30)  # a session lasts 20 s, a write is tried for 30 s
        assert run.worker.await_termination(0)
    again = start(target, until="empty")
    assert again.worker.await_termination(60)
    assert set(told(world, "end")) == {0, 1}


def test_a_stop_while_it_rejoins_waits_no_longer_either(world, start, redrive_stack):
    target = world.app(WAITS, partitions=1)
    world.send("in", b"0", b"1")
    run = start(target, drain="1s", revoke_wait="1s")
    world.wait(run, "two that run", lambda: len(told(world, "start")) == 2)

    def refuse_its_name():
        raise NameInUseError("its name is in use")

    with away(redrive_stack.brokers[0], "silent"):
        (world.folder / "go").touch()
        world.wait(run, "their ends", lambda: len(told(world, "end")) == 2)
        member = run.worker.member
        member.loop.ask(refuse_its_name)
        world.wait(run, "it is left", lambda: member.is_ending)
        run.worker.stop(30)
        assert run.worker.await_termination(0)  # in order: it was asked to stop
    again = start(target, until="empty")
    assert again.worker.await_termination(60)
    assert set(told(world, "end")) == {0, 1}


HANGS = {
    "sync": """
        @app.handler(topic("in"), timeout="300ms")
        def handle(record, ctx):
            hang_maybe(record)
    """,
    "beside": """
        @app.handler(topic("in"), timeout="300ms")
        def handle(record, ctx):
            hang_maybe(record)

        @app.handler(topic("other"))
        async def other(record, ctx):
            pass
    """,
    "batch": """
        @app.handler(topic("in"), timeout="300ms", batch=1)
        def handle(records, ctx):
            hang_maybe(records[0])
    """,
}


@pytest.mark.parametrize("policy", ["RetryPolicy('1s')", "RetryPolicy()"])
@pytest.mark.parametrize("form", list(HANGS))
def test_a_handler_that_hangs_is_given_up_and_its_policy_decides(
    world, start, form, policy, caplog
):
    caplog.set_level(logging.ERROR, "redrive")
    target = world.app(
        f"""
    app = App(NAME, concurrency=2, retry={policy})

    def hang_maybe(record):
        note(what="start", offset=record.offset)
        while record.value == b"hangs" and not Path(NOTES).with_name("go").exists():
            time.sleep(0.01)
    """
        + HANGS[form].replace("\n    ", "\n"),
        partitions=1,
    )
    world.send("in", b"hangs", b"1", b"hangs", b"2", b"hangs")
    run = start(target)
    world.wait(run, "all", lambda: world.lag("in") == 0)
    if "1s" in policy:
        assert world.count("retry.1s") == 3
    else:
        assert world.values("dead") == [b"hangs"] * 3
    assert run.worker.counting.hung >= 3
    first = next(record for record in caplog.records if "did not end within" in record.message)
    assert f"{world.topic('in')}[0]@0" in first.message
    assert "hang_maybe" in first.message  # its stack
    assert (first.topic, first.partition, first.offset) == (world.topic("in"), 0, 0)
    run.worker.stop(60)
    assert run.worker.ended.is_set()
    (world.folder / "go").touch()


IN_A_TRANSACTION = """
    app = App(
        NAME, delivery="idempotent", database={dsn!r}, concurrency=2, retry=RetryPolicy("1s")
    )

    @app.handler(topic("in"), timeout="300ms")
    def handle(record, ctx):
        # Whoever comes second to write the same waits for the first one's end.
        ctx.db.execute("insert into effect (value) values ('one')")
        note(value=record.value.decode())
        while ctx.attempt == 1 and not Path(NOTES).with_name("go").exists():
            time.sleep(0.01)  # this is the hanging itself: no test waits by it
"""


def test_the_transaction_of_a_handler_that_hangs_is_ended_first(world, start, redrive_database):
    with psycopg.connect(redrive_database, autocommit=True) as connection:
        migrate(connection)
        connection.execute("create table effect (value text primary key)")
        target = world.app(IN_A_TRANSACTION.format(dsn=redrive_database), partitions=1)
        world.send("in", b"hangs")
        run = start(target, until="empty")
        assert run.worker.await_termination(60)
        assert [note["value"] for note in world.notes()] == ["hangs", "hangs"]
        assert connection.execute("select value from effect").fetchall() == [("one",)]
        assert run.worker.counting.hung == 1
        (world.folder / "go").touch()


ENDED = """
    import asyncio

    app = App(NAME, delivery={delivery!r}, database={dsn!r}, retry=RetryPolicy("5m"))

    @app.handler(topic("in"))
    async def handle(record, ctx):
        note(value=record.value.decode())
        {hang}
"""


@pytest.mark.parametrize("delivery", ["at-least-once", "idempotent"])
def test_that_an_async_handler_is_ended_is_nothing_against_its_record(
    world, start, redrive_database, delivery
):
    with psycopg.connect(redrive_database, autocommit=True) as connection:
        migrate(connection)
        source = ENDED.format(
            delivery=delivery, dsn=redrive_database, hang="await asyncio.sleep(60)"
        )
        target = world.app(source, partitions=1)
        world.send("in", b"slow")
        run = start(target, drain=0, revoke_wait=0)
        world.wait(run, "it runs", lambda: bool(world.notes()))
        run.worker.stop(60)
        assert run.worker.ended.is_set()
        assert world.count("retry.5m") == world.count("dead") == 0
        assert world.lag("in") == 1
        assert connection.execute("select count(*) from redrive.inbox").fetchall() == [(0,)]


def test_an_event_loop_that_a_handler_blocks_does_not_hold_up_the_end(
    world, start, threads, caplog
):
    hang = "while not Path(NOTES).with_name('go').exists(): time.sleep(0.01)"
    source = ENDED.format(delivery="at-least-once", dsn="", hang=hang)
    target = world.app(source.replace("database='', ", ""), partitions=1)
    world.send("in", b"blocks")
    run = start(target, drain=0, revoke_wait=0)
    world.wait(run, "it runs", lambda: bool(world.notes()))
    run.worker.stop(60)
    assert run.worker.ended.is_set()
    assert run.worker.left_behind
    assert "a handler blocks it" in caplog.text
    (world.folder / "go").touch()
    loop = threads()["redrive-loop"]
    loop.join(60)
    assert not loop.is_alive()


def test_a_resource_that_raises_when_it_is_closed_is_named_and_everything_else_is_closed(
    world, start, threads
):
    target = world.app(
        """
    app = App(NAME)

    @app.resource
    def client():
        yield
        raise ConnectionError("the server has closed it already")

    @app.handler(topic("in"))
    def handle(record, ctx):
        pass
    """,
        partitions=1,
    )
    world.send("in", b"0", b"1")
    run = start(target)
    world.wait(run, "both", lambda: world.lag("in") == 0)
    assert "redrive-delivery" in threads()
    run.worker.stop(60)
    assert run.worker.ended.is_set()
    with pytest.raises(ResourceError, match='"client" could not be closed: ConnectionError: '):
        run.worker.check()
    assert "redrive-delivery" not in threads()
