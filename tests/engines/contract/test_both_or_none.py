"""Two outbound records of one record, of which the second is refused: both are there, or none."""

from __future__ import annotations

APP = """
    app = App(NAME, delivery="transaction")

    @app.handler(topic("in"))
    def handle(record, ctx):
        note(attempt=ctx.attempt)
        ctx.send(topic("first"), record.value)
        ctx.send(topic("second"), record.value * 1000)
"""


def test_with_a_transaction_both_outbound_records_or_none(world, start):
    world.create(world.topic("first"))
    world.create(world.topic("second"))
    second = world.topic("second")
    target = world.app(APP, partitions=1)
    world.topics.configure(second, {"max.message.bytes": "500"})
    run = start(target)
    world.send("in", b"x")
    world.wait(run, "its end", lambda: world.lag("in") == 0, timeout=90)
    # The first one was written, and taken back: the second one's topic never takes it.
    assert world.values("first") == []
    assert world.values("dead") == [b"x"]
    world.topics.configure(second, {"max.message.bytes": "1000000"})
    world.send("in", b"y")
    world.wait(run, "its end", lambda: world.lag("in") == 0, timeout=90)
    run.stop()
    assert world.values("first") == [b"y"]
    assert world.values("second") == [b"y" * 1000]
    assert (world.values("dead"), len(world.notes())) == ([b"x"], 2)
