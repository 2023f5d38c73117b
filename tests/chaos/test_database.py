"""Kills again and again, with a database: every record has one effect, on both engines."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import psycopg
import pytest
from driver import Driver

from redrive.guarantees import GUARANTEES
from redrive.ledger.migrating import migrate
from redrive.record import Write

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(1200)]

RECORDS = 6000
KILLS = 4
WORK = """
    from redrive import header

    app = App(
        NAME,
        delivery={delivery!r},
        database={dsn!r},
        concurrency=4,
        retry=RetryPolicy("1s 1s 1s"),
    )

    @app.handler(topic("in"), id=header("id"))
    def handle(record, ctx):
        value = record.value.decode()
        ctx.db.execute("insert into effect (value) values (%s)", [value])
        ctx.send(topic("out"), record.value, key=record.key)
        time.sleep(0.001)
        if ctx.attempt == 1 and int(value) % 10 == 0:
            raise Retry("once")
"""


@pytest.fixture
def db(redrive_database) -> Iterator[psycopg.Connection]:
    with psycopg.connect(redrive_database, autocommit=True) as connection:
        migrate(connection)
        connection.execute("create table effect (value text not null)")
        yield connection


def effects(db: psycopg.Connection) -> int:
    [(count,)] = db.execute("select count(*) from effect").fetchall()
    return int(count)


@pytest.mark.parametrize("engine", ["worker", "spark"])
@pytest.mark.parametrize("delivery", ["idempotent", "idempotent+outbox"])
def test_every_record_has_one_effect_however_often_its_process_is_killed(
    world, db, redrive_database, engine: str, delivery: str
) -> None:
    target = world.app(WORK.format(delivery=delivery, dsn=redrive_database), partitions=4)
    world.create(world.topic("out"), 4)
    values = [b"%d" % number for number in range(RECORDS)]
    # Every third twice: by a producer that was not sure.
    sent = values + values[::3]
    world.publisher.publish(
        [Write(world.topic("in"), value, value, (("id", value),)) for value in sent]
    )
    for kill in range(KILLS):
        run = Driver(target, world.folder, world.bootstrap, "--engine", engine)
        share = RECORDS * (kill + 1) // (KILLS + 2)
        world.wait(run, f"{share} effects", lambda share=share: effects(db) >= share, timeout=240)
        run.kill()
    run = Driver(target, world.folder, world.bootstrap, "--engine", engine, "--until-empty")
    try:
        assert run.wait(300) == 0, run.output()
    finally:
        run.kill()
    found = Counter(row[0] for row in db.execute("select value from effect"))
    assert found == Counter(value.decode() for value in values)
    assert world.values("dead") == []
    if GUARANTEES[delivery].outbox:
        rows = Counter(bytes(row[0]) for row in db.execute("select payload from redrive.outbox"))
        assert rows == Counter(values)
    else:  # produced before the commit: at least once
        assert {*world.values("out")} == {*values}
