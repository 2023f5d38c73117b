"""On a secured Kafka: what the docs list is enough, and what is missing is said at once."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from running import OnSpark, OnWorker, World

from redrive.config import SecurityArguments, load_settings
from redrive.engines.spark.frames.due import DueReader
from redrive.engines.spark.frames.due_options import DueOptions
from redrive.errors import NotReadyError, RedriveError
from redrive.kafka.publisher import KafkaPublisher
from redrive.kafka.topic_admin import KafkaTopics
from redrive.ledger.migrating import migrate
from redrive.ledger.relay import Relay
from redrive.permissions import Permission, permissions
from redrive.record import Write
from redrive.testing.fixtures import own_database

RECORDS = """
    app = App(
        NAME,
        delivery={delivery!r},
        retry=RetryPolicy("100ms", redeliver={redeliver!r}),
        database={database!r},
    )

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

    def app_with(
        self,
        delivery: str,
        *,
        certificate: bool = False,
        redeliver: str = "handler",
        database: str = "dbname=none",
    ) -> str:
        """An app, and its user, who is allowed what is listed and comes in as it was said."""
        source = FRAMES if self._kind == "frames" else RECORDS
        choices = {"delivery": delivery, "redeliver": redeliver, "database": database}
        target = self.app(source.format(**choices), partitions=1)
        self.needed = permissions(self.loaded(target))
        given = self.stack.add_user(self.prefix, self.needed, certificate=certificate)
        self.bootstrap = given["bootstrap"]
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

    def one(self, taken: str) -> Permission:
        """What is called so below."""
        (found,) = (
            one for one in self.each_operation() if f"{one.operations[0]} on {one.role}" == taken
        )
        return found


@pytest.fixture
def engine(kind: str, request: pytest.FixtureRequest) -> Any:
    return OnWorker() if kind == "worker" else OnSpark(request.getfixturevalue("spark_session"))


@pytest.fixture
def world(redrive_secure_stack, redrive_prefix, tmp_path, monkeypatch, kind) -> Iterator[Secured]:
    monkeypatch.syspath_prepend(str(tmp_path))
    made = Secured(redrive_secure_stack, tmp_path, redrive_prefix, kind)
    yield made
    made.close()


@pytest.mark.parametrize(
    ("kind", "delivery", "comes_in_by", "taken"),
    [
        ("worker", "at-least-once", "certificate", "READ on group"),
        ("worker", "transaction", "password", "WRITE on transactional ids"),
        ("spark", "at-least-once", "password", "READ on group"),
        ("spark", "transaction", "certificate", "READ on delay topics"),
        ("frames", "at-least-once", "certificate", "READ on delay topics"),
        ("frames", "transaction", "password", "WRITE on outbound topics"),
    ],
    ids=lambda value: f"on {value}" if value in ("worker", "spark", "frames") else None,
)
def test_what_is_listed_is_enough_and_what_is_missing_is_said(
    world, start, delivery, comes_in_by, taken
):
    target = world.app_with(delivery, certificate=comes_in_by == "certificate")
    world.send("in", b"bad", b"later", b"good")
    run = start(target, security=world.user)
    world.wait(run, "all is done", lambda: sorted(world.values("out")) == [b"good", b"later"])
    world.wait(run, "one is dead", lambda: world.values("dead") == [b"bad"])

    one = world.one(taken)
    world.take_away(one)
    world.send("in", b"bad", b"later", b"good")
    with pytest.raises(RedriveError) as raised:
        world.wait(run, "it ends", lambda: False)
    assert is_named(one, str(raised.value))
    world.give_back(one)

    for one in world.each_operation():
        world.take_away(one)
        said = rf"lacks permissions \({re.escape(str(one))}\): grant them;"
        with pytest.raises(NotReadyError, match=said):
            start(target, security=world.user)
        world.give_back(one)


@pytest.mark.parametrize("kind", ["worker"], ids=["on worker"])
@pytest.mark.parametrize(
    ("delivery", "taken"),
    [
        ("at-least-once", "READ on source topics"),
        ("at-least-once", "WRITE on source topics"),
        ("at-least-once", "READ on delay topics"),
        ("at-least-once", "WRITE on dead topic"),
        ("at-least-once", "WRITE on outbound topics"),
        ("transaction", "WRITE on delay topics"),
        ("transaction", "WRITE on dead topic"),
        ("transaction", "WRITE on outbound topics"),
    ],
)
def test_nothing_that_is_listed_can_be_done_without(world, start, delivery, taken):
    """Nor is anything lost by it: the next run goes on where this one was refused."""
    redeliver = "origin" if taken == "WRITE on source topics" else "handler"
    target = world.app_with(delivery, redeliver=redeliver)
    world.send("in", b"first")
    run = start(target, security=world.user)
    world.wait(run, "it runs", lambda: world.values("out") == [b"first"])
    one = world.one(taken)
    world.take_away(one)
    world.send("in", b"bad", b"later", b"good")
    with pytest.raises(RedriveError) as raised:
        world.wait(run, "it ends", lambda: False)
    assert f"lacks permissions ({one}): grant them; `redrive topics {target}" in str(raised.value)
    world.give_back(one)
    run = start(target, security=world.user)
    world.wait(run, "it is done", lambda: {*world.values("out")} == {b"first", b"later", b"good"})
    world.wait(run, "one is dead", lambda: {*world.values("dead")} == {b"bad"})


@pytest.mark.parametrize("kind", ["worker"], ids=["on worker"])
def test_with_an_outbox_a_run_and_its_relay_need_what_is_listed_for_each(world, start):
    with own_database(world.stack) as database:
        with psycopg.connect(database) as connection:
            migrate(connection)
        target = world.app_with("idempotent+outbox", database=database)
        app, name = world.loaded(target), f"{world.prefix}-relay"
        needed = permissions(app, "relay")
        settings = load_settings(world.stack.add_user(name, needed), app.settings, environ={})

        def relayed() -> Relay:
            relay = Relay(app.name, settings, stopping=lambda: False)
            relay.run(until_empty=True)
            return relay

        world.send("in", b"bad", b"later", b"good")
        run = start(target, security=world.user)
        world.wait(run, "all is done", lambda: waiting(database) == 2)
        relayed()
        assert sorted(world.values("out")) == [b"good", b"later"]
        assert world.values("dead") == [b"bad"]

        world.stack.users.revoke(name, needed)
        world.send("in", b"more")
        world.wait(run, "one more is done", lambda: waiting(database) == 1)
        assert f"grant {needed[0]};" in str(relayed().held_back.reasons())
        world.stack.users.grant(name, needed)
        relayed()
        assert sorted(world.values("out")) == [b"good", b"later", b"more"]


def test_what_is_due_can_be_read_by_whoever_may_read_its_topic(
    redrive_secure_stack, redrive_prefix, caplog
):
    topic = f"{redrive_prefix}.retry.1ms"
    owner = load_settings(redrive_secure_stack.settings, environ={})
    KafkaTopics(owner).create(topic, 1, {"message.timestamp.type": "LogAppendTime"})
    publisher = KafkaPublisher(owner)
    publisher.publish([Write(topic, b"key", b"value")])
    publisher.close()
    reading = [Permission("delay topics", "topic", topic, ("READ",))]
    settings = load_settings(redrive_secure_stack.add_user(redrive_prefix, reading), environ={})
    due = DueReader(DueOptions({topic: 1}), settings)
    begin = due.initialOffset()
    tasks = due.partitions(begin, due.latestOffset(begin, None))
    assert [row[1] for task in tasks for row in due.read(task)] == [b"value"]
    assert "may not see them (DESCRIBE_CONFIGS)" in caplog.text


def is_named(one: Permission, said: str) -> bool:
    """By itself; or by the topic that the run was refused, which is the one that begins so."""
    topic = one._replace(name=f"{one.name}100ms", prefixed=False)
    return str(one) in said or (one.prefixed and str(topic) in said)


def waiting(database: str) -> int:
    with psycopg.connect(database) as connection:
        row = connection.execute("select count(*) from redrive.outbox").fetchone()
    assert row is not None
    return row[0]
