"""What an outbound topic does not take: nobody is called again for it."""

from __future__ import annotations

import psycopg
import pytest
from running import EngineUnderTest, World

from redrive.envelope import parse
from redrive.guarantees import GUARANTEES
from redrive.ledger.migrating import migrate

DELIVERIES = ("at-least-once", "idempotent", "transaction")
APP = """
    app = App(NAME, delivery={delivery!r}, database={dsn!r})

    @app.handler(topic("in"))
    def handle(record, ctx):
        note(value=record.value[:4].decode())
        ctx.send(topic("out"), record.value, key=record.key)

    @app.handler(topic("other"))
    def fine(record, ctx):
        note(fine=record.value.decode())
"""


@pytest.fixture(params=DELIVERIES)
def delivery(request: pytest.FixtureRequest) -> str:
    chosen: str = request.param
    return chosen


@pytest.fixture
def target(world: World, delivery: str, request: pytest.FixtureRequest) -> str:
    dsn = "postgresql://nobody@127.0.0.1:9/none"
    if GUARANTEES[delivery].database:
        dsn = request.getfixturevalue("redrive_database")
        with psycopg.connect(dsn) as connection:
            migrate(connection)
    return world.app(APP.format(delivery=delivery, dsn=dsn), partitions=1)


@pytest.fixture
def is_kept(engine: EngineUnderTest, delivery: str) -> bool:
    """Whether what came of a call is kept until it can be written."""
    return engine.name == "worker" and not GUARANTEES[delivery].database


def calls(world: World) -> list[str]:
    return [note["value"] for note in world.notes() if "value" in note]


def fine(world: World) -> list[str]:
    return [note["fine"] for note in world.notes() if "fine" in note]


def test_a_missing_topic_holds_its_records_and_nobody_is_called_again(
    world, start, target, is_kept, caplog
):
    world.send("in", b"7", b"8")
    run = start(target)
    world.wait(run, "the refusal", lambda: run.handle.refused == 2)
    # However often others run meanwhile.
    for number in range(5):
        world.send("other", b"%d" % number)
        world.wait(run, "the others", lambda n=number: len(fine(world)) == n + 1)
        assert run.handle.refused == 2
    assert sorted(calls(world)) == ["7", "8"]
    world.wait(run, "its report", lambda: run.handle.figures.total("done") == 5)
    (told,) = [each for each in caplog.messages if "stay where they are" in each]
    assert f"a write to {world.topic('out')} was refused" in told
    world.create(world.topic("out"))
    world.wait(run, "the writes", lambda: world.lag("in") == 0)
    run.stop()
    assert sorted(world.values("out")) == [b"7", b"8"]
    # Where the outcomes were kept, nobody is called again; elsewhere once.
    assert len(calls(world)) == (2 if is_kept else 4)
    assert run.handle.refused == 0
    assert run.handle.figures.total("done") == 7


@pytest.mark.parametrize("until", ["once", "empty"])
def test_a_run_that_is_to_end_does_and_says_what_is_missing(world, start, target, until):
    world.send("in", b"7", b"8")
    world.send("other", b"1", b"2")
    run = start(target, until=until)
    with pytest.raises(Exception, match=r"2 records .*\.out.* does not exist"):
        run.handle.await_termination(60)
    assert sorted(calls(world)) == ["7", "8"]
    assert sorted(fine(world)) == ["1", "2"]
    assert (world.lag("in"), world.lag("other")) == (2, 0)


def test_a_message_that_its_topic_does_not_take_ends_its_record_without_another_call(
    world, start, target
):
    world.create(world.topic("out"))
    world.topics.configure(world.topic("out"), {"max.message.bytes": "1000"})
    large = b"huge" + b"x" * 5000
    world.send("in", b"7", large, b"8")
    run = start(target)
    world.wait(run, "the end", lambda: world.lag("in") == 0)
    run.stop()
    assert sorted(world.values("out")) == [b"7", b"8"]
    (letter,) = world.records("dead")
    envelope = parse(letter.headers)
    assert (letter.value, envelope.dead_reason) == (large, "refused-write")
    assert "larger than the topic allows" in (envelope.error_message or "")
    assert sorted(calls(world)) == ["7", "8", "huge"]
    assert run.handle.figures.total("done") == 2
    assert run.handle.figures.total("bury") == 1
