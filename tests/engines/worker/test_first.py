"""Blocking and stateful retry on a worker, and what a handler can ask of its consumer."""

from __future__ import annotations

from collections import defaultdict

import pytest

from redrive.envelope import parse
from redrive.record import Write

COUNT = 80


def tries(world, value):
    return [note for note in world.notes() if note.get("value") == value]


@pytest.mark.parametrize("ordering", ["key", "partition"])
def test_a_record_that_is_tried_in_place_holds_up_only_its_lane(world, start, ordering):
    target = world.app(
        f"""
        app = App(NAME, ordering={ordering!r}, concurrency=4)

        @app.handler(topic("in"), retry=RetryPolicy(
            first=InPlace(attempts=None, backoff=Backoff("10ms", cap="50ms"))))
        def handle(record, ctx):
            note(value=record.value.decode(), tries=ctx.tries)
            if record.value == b"bad" and not Path(NOTES).with_name("mended").exists():
                raise Retry("for ever")
        """,
        partitions=1,
    )
    topic = world.topic("in")
    rest = [(b"good", b"%d" % number) for number in range(20)]
    world.publisher.publish([
        Write(topic, b"bad", b"bad"), Write(topic, b"bad", b"behind"),
        *(Write(topic, key, value) for key, value in rest),
    ])  # fmt: skip
    run = start(target)
    world.wait(run, "many tries", lambda: len(tries(world, "bad")) >= 10)
    others = {note["value"] for note in world.notes()} - {"bad"}
    if ordering == "partition":
        assert others == set()
    else:
        world.wait(run, "the others", lambda: bool(tries(world, "19")))
        assert not tries(world, "behind")
    assert world.committed("in")[world.places("in")[0]].offset == 0
    (world.folder / "mended").touch()
    world.wait(run, "all", lambda: world.lag("in") == 0)
    run.stop()
    counted = [note["tries"] for note in tries(world, "bad")]
    assert counted == list(range(1, len(counted) + 1))
    assert all(len(tries(world, value.decode())) == 1 for _, value in [*rest, (b"", b"behind")])
    assert world.values("dead") == []


@pytest.mark.parametrize("ordering", ["key", "partition", "unordered"])
def test_given_back_records_are_read_again_counted_and_lose_nobody(world, start, ordering):
    """With little room in flight: reading must go back even where it is held back."""
    target = world.app(
        f"""
        from redrive import GiveBack

        app = App(NAME, ordering={ordering!r}, concurrency=4)

        @app.handler(topic("in"), retry=RetryPolicy(
            first=GiveBack(attempts=3, backoff=Backoff("5ms", cap="20ms"))))
        def handle(record, ctx):
            note(value=record.value.decode(), tries=ctx.tries, key=record.key.decode())
            number = int(record.value)
            if number % 10 == 0 or (number % 7 == 0 and ctx.tries < 3):
                raise Retry("again")
        """,
        partitions=1,
    )
    topic = world.topic("in")
    world.publisher.publish(
        [Write(topic, b"%d" % (number % 5), b"%d" % number) for number in range(COUNT)]
    )
    run = start(target, max_in_flight=20)
    world.wait(run, "all", lambda: world.lag("in") == 0)
    run.stop()
    called = defaultdict(list)
    for note in world.notes():
        called[int(note["value"])].append(note["tries"])
    for number in range(COUNT):
        again = number % 10 == 0 or number % 7 == 0
        assert called[number] == ([1, 2, 3] if again else [1]), number
    assert sorted(int(value) for value in world.values("dead")) == list(range(0, COUNT, 10))
    assert run.worker.counting.rebalances["lost"] == 0


def test_no_record_of_a_quick_handler_overtakes_one_that_is_given_back(world, start):
    """Some take long: so records of one key wait straight, and in its lane, at the same time."""
    target = world.app(
        """
        from redrive import GiveBack

        app = App(NAME, ordering="key", concurrency=8)
        last = {}

        @app.handler(topic("in"), retry=RetryPolicy(
            first=GiveBack(attempts=4, backoff=Backoff("3ms", factor=1, jitter=0))))
        def handle(record, ctx):
            number = record.offset
            if number < last.get(record.key, 0):
                note(overtaken=number, by=last[record.key])
            if number % 401 == 0:
                time.sleep(0.03)
            if number % 97 == 0 and ctx.tries <= 2:
                raise Retry("again")
            last[record.key] = number
        """,
        partitions=1,
    )
    topic = world.topic("in")
    world.publisher.publish([Write(topic, b"%d" % (n * n % 499), b"") for n in range(12_000)])
    run = start(target)
    world.wait(run, "all", lambda: world.lag("in") == 0)
    run.stop()
    assert world.notes() == []


def test_a_recovery_that_fails_does_not_bring_the_attempts_back(world, start):
    target = world.app("""
        from redrive import GiveBack

        app = App(NAME)
        failures = iter([OSError("first"), OSError("second")])

        @app.handler(topic("in"), retry=RetryPolicy("200ms", first=GiveBack(
            attempts=2, backoff=Backoff("5ms"))))
        def handle(record, ctx):
            note(value="handler", attempt=ctx.attempt, tries=ctx.tries)
            raise Retry("never works")

        @app.recover
        def recover(record, error, ctx):
            note(value="recovery", attempt=ctx.attempt, error=str(error))
            for failure in failures:
                raise failure
            ctx.send(topic("out"), record.value)
    """)
    world.create(world.topic("out"))
    world.send("in", b"one")
    run = start(target)
    world.wait(run, "the burial", lambda: world.count("dead") == 1)
    run.stop()
    handled = [(note["attempt"], note["tries"]) for note in tries(world, "handler")]
    assert handled == [(1, 1), (1, 2), (2, 1)]
    assert [note["attempt"] for note in tries(world, "recovery")] == [2, 2, 2]
    assert "never works" in tries(world, "recovery")[0]["error"]
    assert world.values("out") == [b"one"]
    (letter,) = world.records("dead")
    assert parse(letter.headers).dead_reason == "exhausted"


def test_a_recovery_that_acknowledges_its_record_has_taken_care_of_it(world, start):
    target = world.app("""
        app = App(NAME)

        @app.handler(topic("in"))
        def handle(record, ctx):
            raise Bury("no")

        @app.recover
        def recover(record, error, ctx):
            if record.value == b"mine":
                ctx.send(topic("out"), record.value)
                ctx.ack()
    """)
    world.create(world.topic("out"))
    world.send("in", b"mine", b"theirs")
    run = start(target)
    world.wait(run, "both", lambda: world.lag("in") == 0)
    run.stop()
    assert world.values("out") == [b"mine"]
    assert world.values("dead") == [b"theirs"]


def test_a_handler_pauses_and_resumes_its_partition_and_asks_where_it_is(world, start):
    target = world.app(
        """
        app = App(NAME, concurrency=2, ordering="partition")
        paused = []

        @app.handler(topic("in"), ack="manual")
        def handle(record, ctx):
            assert ctx.record is record
            note(value=record.value.decode(), partition=record.partition,
                 position=ctx.consumer.position)
            if record.value == b"pause":
                ctx.consumer.pause()
                paused.append(ctx.consumer)
            if record.value == b"resume":
                paused.pop().resume()
            ctx.ack()
        """,
        partitions=2,
    )
    topic = world.topic("in")
    world.publisher.publish([Write(topic, None, b"pause", (), 0)])
    run = start(target)
    world.wait(run, "the pause", lambda: bool(tries(world, "pause")))
    (partition,) = (
        each for place, each in run.worker.assignment.partitions.items()
        if place.partition == 0 and place.topic == topic
    )  # fmt: skip
    world.wait(run, "it", lambda: partition.paused)
    world.publisher.publish(
        [Write(topic, None, b"held", (), 0), Write(topic, None, b"other", (), 1)]
    )
    world.wait(run, "the other partition", lambda: bool(tries(world, "other")))
    assert not tries(world, "held")
    assert partition.paused
    world.publisher.publish([Write(topic, None, b"resume", (), 1)])
    world.wait(run, "the one that was held", lambda: bool(tries(world, "held")))
    run.stop()
    assert tries(world, "held")[0]["position"] == 2
    assert world.lag("in") == 0
