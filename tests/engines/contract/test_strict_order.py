"""Strict order: heads fail again and again, while followers arrive; on every engine."""

from __future__ import annotations

import psycopg
import pytest
from guarantees import EffectsInOrder, EveryRecordProcessed, everything

from redrive.guarantees import WITH_DATABASE
from redrive.ledger.migrating import migrate
from redrive.record import Write

STRICT = """
    app = App(NAME, ordering="strict", concurrency={concurrency}, retry=RetryPolicy("300ms 500ms"))

    @app.handler(topic("in"))
    def handle(record, ctx):
        number = int(record.value)
        if number % 11 == 0 and ctx.attempt <= 1 + number % 2:
            raise ConnectionError("not now")
        note(what="end", partition=record.partition, offset=record.offset, key=str(record.key))
"""
WITH_EFFECTS = """
    from redrive import header

    app = App(
        NAME,
        delivery={delivery!r},
        database={dsn!r},
        ordering="strict",
        concurrency=4,
        retry=RetryPolicy("300ms 500ms"),
    )

    @app.handler(topic("in"), id=header("id"))
    def handle(record, ctx):
        number = int(record.value)
        effect = [int(record.key), number]
        ctx.db.execute("insert into effect (key, number) values (%s, %s)", effect)
        if number % 11 == 0 and ctx.attempt <= 1 + number % 2:
            raise ConnectionError("not now")
"""
ROOMS = ("in", "retry.300ms", "retry.500ms", "retry.behind")


def send(world, numbers):
    topic = world.topic("in")
    world.publisher.publish([Write(topic, b"%d" % (n % 7), b"%d" % n) for n in numbers])


def effects(db):
    return db.execute("select count(distinct number) from effect").fetchone()[0]


@pytest.mark.parametrize("concurrency", [1, 8])
def test_a_parked_record_is_not_overtaken_by_its_key(world, start, concurrency):
    target = world.app(STRICT.format(concurrency=concurrency))
    run = start(target)
    for part in range(10):
        send(world, range(part * 50, part * 50 + 50))
        seen = max(0, part * 50 - 100)
        world.wait(run, "some effects", lambda seen=seen: len(world.notes()) >= seen, timeout=120)
    world.wait(run, "the end", lambda: not sum(map(world.lag, ROOMS)), timeout=120)
    run.stop()
    sent = everything(world, "in")
    for guarantee in (EveryRecordProcessed(), EffectsInOrder()):
        guarantee.check(sent, world.notes())
    assert world.count("retry.behind") > 0


@pytest.mark.parametrize("delivery", WITH_DATABASE)
def test_effects_in_a_database_are_in_order(world, start, redrive_database, delivery):
    with psycopg.connect(redrive_database, autocommit=True) as db:
        migrate(db)
        db.execute("create table effect (at bigserial, key int not null, number int not null)")
        target = world.app(WITH_EFFECTS.format(delivery=delivery, dsn=redrive_database))
        run = start(target)
        topic = world.topic("in")
        for part in range(4):
            numbers = range(part * 50, part * 50 + 50)
            world.publisher.publish(
                [Write(topic, b"%d" % (n % 7), b"%d" % n, (("id", b"%d" % n),)) for n in numbers]
            )
            before = max(0, part * 50 - 50)
            world.wait(run, "some effects", lambda before=before: effects(db) >= before)
        world.wait(run, "the end", lambda: not sum(map(world.lag, ROOMS)), timeout=120)
        run.stop()
        for key in range(7):
            found = db.execute("select number from effect where key = %s order by at", [key])
            assert [number for (number,) in found] == list(range(key, 200, 7))
    assert world.count("retry.behind") > 0
