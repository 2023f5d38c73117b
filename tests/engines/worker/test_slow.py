"""Handlers that hang for a while: nobody waits for them who need not, and nothing is withheld."""

from __future__ import annotations

import threading

import pytest

from redrive.record import Write

APPS = {
    "quick": """
        app = App(NAME, ordering="key", concurrency=8)

        @app.handler(topic("in"))
        def handle(record, ctx):
            hang_maybe(record)
            ctx.send(topic("out"), record.value)
    """,
    "pool": """
        app = App(NAME, ordering="unordered", concurrency=8)

        @app.handler(topic("in"))
        def handle(record, ctx):
            hang_maybe(record)
            ctx.send(topic("out"), record.value)
    """,
    "lots": """
        app = App(NAME, ordering="unordered", concurrency=8)

        @app.handler(topic("in"), timeout="5m")
        def handle(record, ctx):
            hang_maybe(record)
            ctx.send(topic("out"), record.value)
    """,
    "async": """
        import asyncio

        app = App(NAME, ordering="unordered", concurrency=8)

        @app.handler(topic("in"))
        async def handle(record, ctx):
            await asyncio.sleep(0)
            while record.value == b"hangs" and not Path(NOTES).with_name("go").exists():
                await asyncio.sleep(0.01)
            ctx.send(topic("out"), record.value)
    """,
}
HANG = """
    def hang_maybe(record):
        while record.value == b"hangs" and not Path(NOTES).with_name("go").exists():
            time.sleep(0.01)  # this is the hanging itself: no test waits by it
"""
QUICK = 3_000


@pytest.mark.parametrize("form", list(APPS))
def test_while_some_hang_all_others_are_done_and_durable(world, start, form):
    target = world.app(HANG.lstrip("\n") + APPS[form].replace("\n    ", "\n"), partitions=1)
    topic = world.topic("in")
    world.create(world.topic("out"))
    quick = [Write(topic, b"%d" % (n % 50), b"%d" % n) for n in range(QUICK)]
    world.publisher.publish(quick)
    run = start(target)
    world.wait(run, "all, quickly", lambda: world.lag("in") == 0)
    world.publisher.publish(
        [Write(topic, b"before", b"before")]
        + [Write(topic, b"hangs %d" % n, b"hangs") for n in range(3)]
        + [Write(topic, b"after %d" % n, b"after") for n in range(200)]
    )
    world.wait(run, "those that do not hang", lambda: world.count("out") == QUICK + 201)
    (world.folder / "go").touch()
    world.wait(run, "the others", lambda: world.lag("in") == 0)
    run.stop()
    assert world.count("out") == QUICK + 204


COMES_BACK = """
    import threading

    app = App(NAME, concurrency=2)

    @app.handler(topic("in"), timeout="1s")
    def handle(record, ctx):
        note(value=record.value.decode(), thread=threading.get_ident())
        while record.value == b"0" and not Path(NOTES).with_name("go").exists():
            time.sleep(0.01)  # this is the hanging itself: no test waits by it
"""


def test_one_that_comes_back_after_its_time_out_runs_nothing_more(world, start):
    target = world.app(COMES_BACK, partitions=1)
    count = 20
    world.publisher.publish([Write(world.topic("in"), b"key", b"%d" % n) for n in range(count)])
    run = start(target)
    world.wait(run, "all", lambda: world.lag("in") == 0)
    (lost,) = [
        thread for thread in threading.enumerate() if thread.ident == world.notes()[0]["thread"]
    ]
    (world.folder / "go").touch()
    lost.join(60)
    assert not lost.is_alive()
    run.stop()
    assert [int(note["value"]) for note in world.notes()] == list(range(count))
    assert world.values("dead") == [b"0"]
