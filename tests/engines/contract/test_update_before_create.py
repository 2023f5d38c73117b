"""The update-before-create story, on every engine."""

from __future__ import annotations

import pytest

from redrive.envelope import parse

ITEMS = """
    app = App(NAME, retry=RetryPolicy({policy}, redeliver={redeliver!r}))

    def item(record):
        return Path(NOTES).with_name(f"item-{{record.value.decode()}}")

    @app.handler(topic("create"))
    def create(record, ctx):
        item(record).touch()
        ctx.send(topic("created"), record.value)

    @app.handler(topic("update"))
    def update(record, ctx):
        note(update=record.value.decode(), attempt=ctx.attempt)
        if not item(record).exists():
            raise Retry("the item does not exist yet")
        ctx.send(topic("updated"), record.value)
"""


def names(count):
    return [b"%d" % number for number in range(count)]


@pytest.mark.parametrize("redeliver", ["handler", "origin"])
def test_updates_before_their_creates_all_succeed(world, start, redeliver):
    target = world.app(ITEMS.format(policy="'500ms 1s', repeat=True, max_duration='1m'",
                                    redeliver=redeliver))  # fmt: skip
    for topic in ("created", "updated"):
        world.create(world.topic(topic))
    world.send("update", *names(10))
    run = start(target)
    world.wait(run, "all updates tried in vain", lambda: len(world.notes()) >= 10)
    assert world.values("updated") == []
    world.send("create", *names(10))
    world.wait(run, "all updates done", lambda: world.count("updated") >= 10)
    run.stop()
    assert sorted(world.values("updated")) == sorted(names(10))
    assert sorted(world.values("created")) == sorted(names(10))
    assert world.values("dead") == []
    assert all(note["attempt"] > 1 for note in world.notes()[-1:])


def test_an_update_whose_create_never_comes_is_buried_after_its_maximum_duration(world, start):
    target = world.app(ITEMS.format(policy="'500ms', repeat=True, max_duration='2s'",
                                    redeliver="handler"))  # fmt: skip
    world.create(world.topic("updated"))
    world.send("update", b"never")
    run = start(target)
    world.wait(run, "the burial", lambda: world.count("dead") == 1)
    run.stop()
    (letter,) = world.records("dead")
    envelope = parse(letter.headers)
    assert (letter.key, letter.value) == (b"never", b"never")
    assert envelope.dead_reason == "expired"
    assert envelope.error_message == "the item does not exist yet"
    # Buried when the next attempt would come too late; and what was tried was tried in time.
    assert envelope.attempt >= 2
    assert all(note["at"] <= envelope.first_received + 2000 + 500 for note in world.notes())


def test_every_healthy_record_is_done_before_the_first_parked_one_is_due(world, start):
    target = world.app("""
        app = App(NAME, retry=RetryPolicy("10s"))

        @app.handler(topic("in"))
        def handle(record, ctx):
            if record.value.startswith(b"bad"):
                raise Retry("not yet")
            note(done=record.value.decode())
            ctx.send(topic("out"), record.value)
    """)
    world.create(world.topic("out"))
    healthy = [b"good%d" % number for number in range(300)]
    mixed = [value for number, value in enumerate(healthy)
             for value in ([b"bad%d" % number, value] if number % 3 == 0 else [value])]  # fmt: skip
    world.send("in", *mixed)
    run = start(target)
    world.wait(run, "all healthy ones", lambda: world.count("out") >= 300)
    run.stop()
    dues = [parse(record.headers).due or 0 for record in world.records("retry.10s")]
    assert len(dues) == 100
    assert max(note["at"] for note in world.notes() if "done" in note) < min(dues)
    assert sorted(world.values("out")) == sorted(healthy)
