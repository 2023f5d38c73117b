"""Records that Kafka takes, however odd: handled, parked and handled again, on every engine."""

from __future__ import annotations

from raw_producer import produce_with_headers

from redrive.record import Write

TWICE = """
    app = App(NAME, retry=RetryPolicy("100ms"))

    @app.handler(topic("in"))
    def handle(record, ctx):
        note(
            value=record.value.decode(), attempt=ctx.attempt, time=record.timestamp,
            headers=[[name, value.decode("latin1")] for name, value in record.headers],
        )
        if ctx.attempt == 1:
            raise Retry("once more")
"""
BEFORE_1970 = -86_400_000
ODD = [["good", "of good"], ["\\xff\\xfename", "of \xff\xfename"], ["last", "of last"]]


def test_times_before_1970_and_names_that_are_no_text_survive_a_park(world, start):
    target = world.app(TWICE, partitions=1)
    topic = world.topic("in")
    world.publisher.publish(
        [
            Write(topic, None, b"no time", timestamp=-1),
            Write(topic, None, b"old", timestamp=BEFORE_1970),
        ]
    )
    produce_with_headers(world.bootstrap, topic, b"odd", b"good", b"\xff\xfename", b"last")
    world.send("in", b"after them")
    run = start(target)
    world.wait(run, "all, twice", lambda: len(world.notes()) >= 8)
    run.stop()
    seen = {(note["value"], note["attempt"]): note for note in world.notes()}
    assert len(seen) == len(world.notes()) == 8
    assert [seen["no time", attempt]["time"] for attempt in (1, 2)] == [None, None]
    assert [seen["old", attempt]["time"] for attempt in (1, 2)] == [BEFORE_1970, BEFORE_1970]
    assert [seen["odd", attempt]["headers"] for attempt in (1, 2)] == [ODD, ODD]
    assert world.count("dead") == 0
