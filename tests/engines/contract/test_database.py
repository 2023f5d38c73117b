"""The deliveries with a database, on every engine: one effect, whatever happens in between."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest
from driver import Driver

from redrive.guarantees import GUARANTEES, WITH_DATABASE
from redrive.ledger.migrating import migrate
from redrive.record import Write

APP = """
    import signal
    from redrive import header
    from redrive.delivery.unit import Unit

    app = App(
        NAME,
        delivery={delivery!r},
        database={dsn!r},
        retry=RetryPolicy("1s 1s"),
        concurrency={concurrency},
    )

    @app.handler(topic("in"), id=header("id"))
    def handle(record, ctx):
        value = record.value.decode()
        note(value=value, attempt=ctx.attempt, pid=os.getpid())
        ctx.db.execute("insert into effect (value) values (%s)", [value])
        chosen = ctx.idempotency_key if {outbox} else None
        ctx.send(topic("out"), record.value, key=record.key, id=chosen)
        if value.startswith("late") and ctx.attempt == 1:
            raise Retry("not yet")
        {during}
"""
MORE = """
    app.handler(topic("more"), id=header("id"), id_scope=topic("in"))(handle)
"""
DEATH = """
    DIED = Path(NOTES).with_name("died")
    after_the_hop = Unit._send

    async def die(self, session):
        parks = any(outcome.kind == "park" for outcome in self.judged.report.outcomes)
        if parks and not DIED.exists():
            DIED.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        await after_the_hop(self, session)

    Unit._send = die
"""


class Database:
    """What is in the database."""

    def __init__(self, dsn: str) -> None:
        self.dsn = dsn
        self.connect()
        migrate(self._connection)
        self._connection.execute("create table effect (value text not null)")

    def connect(self) -> None:
        self._connection = psycopg.connect(self.dsn, autocommit=True)

    def effects(self) -> list[str]:
        return [row[0] for row in self._connection.execute("select value from effect order by 1")]

    def outbox(self) -> list[str]:
        query = "select convert_from(payload, 'UTF8') from redrive.outbox order by 1"
        return [row[0] for row in self._connection.execute(query)]

    def states(self) -> dict[str, int]:
        query = "select state, count(*) from redrive.inbox group by state"
        return dict(self._connection.execute(query).fetchall())

    def close(self) -> None:
        self._connection.close()


@pytest.fixture
def db(redrive_database) -> Iterator[Database]:
    made = Database(redrive_database)
    yield made
    made.close()


class Apps:
    """Makes the app, and kills it."""

    def __init__(self, world: Any, db: Database, engine: Any) -> None:
        self._world = world
        self._db = db
        self._engine = engine

    def __call__(
        self, delivery: str, extra: str = "", *, during: str = "", concurrency: int = 1
    ) -> Any:
        self._world.create(self._world.topic("out"))
        source = APP.format(
            delivery=delivery,
            dsn=self._db.dsn,
            outbox=GUARANTEES[delivery].outbox,
            during=during,
            concurrency=concurrency,
        )
        return self._world.app(source + extra)

    def die(self, target: str) -> None:
        """Run it until it dies; on Spark only a Python worker does, within a run that goes on."""
        if self._engine.name == "worker":
            run = Driver(target, self._world.folder, self._world.bootstrap, "--engine", "worker")
            assert run.wait(60) == -signal.SIGKILL, run.output()

    def beside(self, target: str) -> Driver:
        """Another worker."""
        return Driver(target, self._world.folder, self._world.bootstrap, "--engine", "worker")

    def places_of_two(self, run: Any) -> list[tuple[str, int]]:
        """A partition that this worker has, and one that the other has."""
        every = {(topic, number) for topic in ("in", "more") for number in (0, 1)}
        mine: set[tuple[str, int]] = set()

        def shared() -> bool:
            nonlocal mine
            assigned = list(run.handle.assignment.partitions)
            mine = {each for each in every if (self._world.topic(each[0]), each[1]) in assigned}
            return set() < mine < every

        self._world.wait(run, "two owners", shared)
        return [min(mine), min(every - mine)]


@pytest.fixture
def app(world, db, engine) -> Apps:
    return Apps(world, db, engine)


def send(
    world: Any,
    *values: str,
    name: str | None = None,
    topic: str = "in",
    partition: int | None = None,
) -> None:
    world.publisher.publish(
        [
            Write(
                world.topic(topic),
                value.encode(),
                value.encode(),
                (("id", (name or value).encode()),),
                partition,
            )
            for value in values
        ]
    )


def sent(world: Any, db: Database) -> list[str]:
    """What was sent on: published, or in the outbox."""
    return sorted([*(value.decode() for value in world.values("out")), *db.outbox()])


def wait_until_idle(world: Any, run: Any, effects: Callable[[], bool]) -> None:
    world.wait(run, "the effects", effects, timeout=90)
    world.wait(run, "the end of the topic", lambda: world.lag("in") == 0, timeout=90)
    world.wait(run, "the end of the delay topic", lambda: world.lag("retry.1s") == 0, timeout=90)


VALUES = ["late 1", "late 2", "one", "two"]


@pytest.mark.parametrize("delivery", WITH_DATABASE)
def test_a_record_that_fails_is_parked_and_succeeds_has_one_effect(world, start, app, db, delivery):
    target = app(delivery)
    send(world, *VALUES)
    run = start(target)
    wait_until_idle(world, run, lambda: db.effects() == VALUES)
    run.stop()
    assert db.effects() == VALUES
    assert sent(world, db) == VALUES
    assert world.values("dead") == []
    assert db.states() == ({"done": 4} if GUARANTEES[delivery].inbox else {})


@pytest.mark.parametrize("delivery", WITH_DATABASE)
def test_a_kill_after_the_hop_and_before_the_commit_has_one_effect(world, start, app, db, delivery):
    target = app(delivery, DEATH)
    send(world, *VALUES)
    app.die(target)
    run = start(target)
    wait_until_idle(world, run, lambda: db.effects() == VALUES)
    run.stop()
    assert (world.folder / "died").exists()
    # Twice for the one that died, unless its first hop was done before the record ran again.
    assert world.count("retry.1s") >= 2
    assert db.effects() == VALUES
    assert sent(world, db) == VALUES
    assert world.values("dead") == []


def test_the_same_id_three_times_in_two_partitions(world, start, app, db):
    target = app("idempotent", concurrency=4)
    for partition in (0, 1, 1):
        send(world, "one", name="7", partition=partition)
    run = start(target)
    wait_until_idle(world, run, lambda: db.effects() == ["one"])
    run.stop()
    assert db.effects() == sent(world, db) == ["one"]
    assert run.handle.figures.total("duplicate") == 2


def test_the_same_ids_in_opposite_order_at_two_processes_at_once(world, start, app, db, engine):
    values = [f"{number:03}" for number in range(200)]
    target = app("idempotent", MORE, during="time.sleep(0.002)")
    run = start(target)
    # On Spark each partition has a process by itself; of workers there have to be two.
    beside = app.beside(target) if engine.name == "worker" else None
    try:
        one, other = app.places_of_two(run) if beside else (("in", 0), ("more", 0))
        send(world, *values, topic=one[0], partition=one[1])
        send(world, *reversed(values), topic=other[0], partition=other[1])
        wait_until_idle(world, run, lambda: db.effects() == values)
        run.stop()
    finally:
        if beside is not None:
            beside.stop()
    assert db.effects() == sent(world, db) == values
    assert db.states() == {"done": len(values)}
    assert world.values("dead") == []


def test_a_database_that_is_away_for_a_while_buries_nobody(world, start, app, db, redrive_stack):
    values = [f"{number:03}" for number in range(300)]
    target = app("idempotent", during="time.sleep(0.005)")
    send(world, *values)
    run = start(target)
    world.wait(run, "some effects", lambda: len(db.effects()) > 20)
    db.close()
    redrive_stack.postgres.kill()
    try:
        world.wait(run, "the trouble", lambda: _in_trouble(run))
        assert world.lag("in") > 0
    finally:
        redrive_stack.postgres.start()
    world.wait(run, "the rest", lambda: world.lag("in") == 0, timeout=120)
    run.stop()
    db.connect()
    assert db.effects() == values
    assert world.values("dead") == []
    assert world.count("retry.1s") == 0
    assert {*world.values("out")} == {value.encode() for value in values}


def _in_trouble(run: Any) -> bool:
    lanes = run.handle.figures.lanes
    told = [lanes[lane].last_trouble or run.handle.status(lane).get("trouble") for lane in lanes]
    return any("PostgreSQL" in (trouble or "") for trouble in told)
