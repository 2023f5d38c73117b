"""An app whose delivery is changed goes on with what is noted beyond the committed offset."""

from __future__ import annotations

import pytest

from redrive.processing.progress.done_beyond import decode, still_at


def test_a_transaction_runs_nothing_again_that_a_run_at_least_once_has_done(world, start):
    target = world.app(
        """
        app = App(NAME, delivery="transaction")

        @app.handler(topic("in"))
        def handle(record, ctx):
            note(value=record.value.decode())
            ctx.send(topic("away" if record.value == b"4" else "out"), record.value)
        """,
        partitions=1,
    )
    world.create(world.topic("out"))
    world.send("in", *(b"%d" % number for number in range(7)))
    (place,) = world.places("in")
    world.commit({place: still_at(0, [(2, 3), (5, 6)])})  # as at-least-once leaves it

    run = start(target, until="once")
    with pytest.raises(Exception, match=r"away.* does not exist"):
        run.handle.await_termination(60)
    committed = world.committed("in")[place]
    assert (committed.offset, decode(committed)) == (4, [(5, 6)])

    world.create(world.topic("away"))
    start(target, until="once").handle.await_termination(60)
    assert world.lag("in") == 0
    assert decode(world.committed("in")[place]) == []
    assert [*world.values("out"), *world.values("away")] == [b"0", b"1", b"3", b"6", b"4"]
    assert not {"2", "5"} & {note["value"] for note in world.notes()}
