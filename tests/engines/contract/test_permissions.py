"""On a secured Kafka: what the docs list is enough, and what is missing is said at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from running import OnSpark, OnWorker, Running, World

from redrive.config import SecurityArguments
from redrive.errors import RedriveError
from redrive.permissions import Permission, permissions

RECORDS = """
    app = App(NAME, delivery={delivery!r}, retry=RetryPolicy("100ms"))

    @app.handler(topic("in"), sends=topic("out"))
    def handle(record, ctx):
        if record.value == b"bad":
            raise Bury("never")
        if record.value == b"later" and ctx.attempt == 1:
            raise Retry("not yet")
        ctx.send(topic("out"), record.value)
"""
FRAMES = """
    from pyspark.sql import functions as f
    from redrive import spark as r

    app = App(NAME, delivery={delivery!r}, retry=RetryPolicy("100ms"))

    @app.frame(topic("in"), sends=topic("out"))
    def handle(rows):
        first = f.col("redrive.attempt") == 1
        return rows.withColumn(
            "outcome",
            f.when(f.col("value") == b"bad", r.bury("never"))
            .when((f.col("value") == b"later") & first, r.park("not yet"))
            .otherwise(r.send(topic("out"), "key", "value")),
        )
"""


class Secured(World):
    """The topics of an app on a secured Kafka, and the user that it runs as."""

    def __init__(self, stack: Any, folder: Any, prefix: str, kind: str) -> None:
        self.stack = stack
        settings = stack.settings
        super().__init__(settings["bootstrap"], folder, prefix, settings["security"])
        self._kind = kind

    def app_with(self, delivery: str) -> str:
        source = FRAMES if self._kind == "frames" else RECORDS
        target = self.app(source.format(delivery=delivery), partitions=1)
        self.needed = permissions(self.loaded(target))
        given = self.stack.add_user(self.prefix, self.needed)
        self.user: SecurityArguments = given["security"]
        return target

    def take_away(self, one: Permission) -> None:
        self.stack.users.revoke(self.prefix, [one])

    def give_back(self, one: Permission) -> None:
        self.stack.users.grant(self.prefix, [one])

    def each_operation(self) -> Iterator[Permission]:
        for one in self.needed:
            for operation in one.operations:
                yield one._replace(operations=(operation,))


@pytest.fixture(params=["on worker"])
def kind(request: pytest.FixtureRequest) -> str:
    return request.param.removeprefix("on ")


@pytest.fixture
def engine(kind: str, request: pytest.FixtureRequest) -> Any:
    return OnWorker() if kind == "worker" else OnSpark(request.getfixturevalue("spark_session"))


@pytest.fixture
def world(redrive_secure_stack, redrive_prefix, tmp_path, monkeypatch, kind) -> Iterator[Secured]:
    monkeypatch.syspath_prepend(str(tmp_path))
    made = Secured(redrive_secure_stack, tmp_path, redrive_prefix, kind)
    yield made
    made.close()


def said_at_the_end(start: Callable[..., Running], world: Secured, target: str) -> str:
    """What a run says that must not go on, at its start or soon after it."""
    try:
        run = start(target, security=world.user)
        world.wait(run, "the run ends", lambda: False)
    except RedriveError as error:
        return str(error)
    raise AssertionError("it neither runs nor ends")


@pytest.mark.parametrize("delivery", ["transaction"])
def test_what_is_listed_is_enough_and_what_is_missing_is_said(world, start, delivery):
    target = world.app_with(delivery)
    world.send("in", b"bad", b"later", b"good")
    run = start(target, security=world.user)
    world.wait(run, "all is done", lambda: sorted(world.values("out")) == [b"good", b"later"])
    world.wait(run, "one is dead", lambda: world.values("dead") == [b"bad"])
    run.stop()

    world.send("in", b"more")
    for one in world.each_operation():
        world.take_away(one)
        said = said_at_the_end(start, world, target)
        assert str(one) in said, said
        world.give_back(one)


TAKEN_AWAY = {
    "worker": [
        ("at-least-once", "source topics", "READ"),
        ("at-least-once", "delay topics", "READ"),
        ("at-least-once", "group", "READ"),
        ("at-least-once", "dead topic", "WRITE"),
        ("at-least-once", "outbound topics", "WRITE"),
        ("transaction", "delay topics", "WRITE"),
        ("transaction", "outbound topics", "WRITE"),
        ("transaction", "transactional ids", "WRITE"),
    ],
}


@pytest.mark.parametrize(
    ("kind", "delivery", "role", "operation"),
    [
        pytest.param(kind, *taken, id=f"on {kind}, {' '.join(taken)}")
        for kind, all_taken in TAKEN_AWAY.items()
        for taken in all_taken
    ],
)
def test_a_run_ends_when_a_permission_is_taken_away(world, start, delivery, role, operation):
    target = world.app_with(delivery)
    world.send("in", b"first")
    run = start(target, security=world.user)
    world.wait(run, "it runs", lambda: world.values("out") == [b"first"])
    (one,) = (
        each
        for each in world.each_operation()
        if (each.role, *each.operations) == (role, operation)
    )
    world.take_away(one)
    world.send("in", b"bad", b"later", b"good")
    with pytest.raises(RedriveError) as raised:
        world.wait(run, "it ends", lambda: False)
    assert str(one) in str(raised.value)
