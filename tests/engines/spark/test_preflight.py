"""What must be so in Kafka before a run begins: each with the sentence that says what to do."""

from __future__ import annotations

import uuid

import psycopg
import pytest
from running import OnWorker, World

from redrive.config import load_settings
from redrive.engines import preflight
from redrive.errors import ConfigurationError, NotReadyError
from redrive.ledger.migrating import migrate

APP = """
    app = App(NAME, retry=RetryPolicy("1s"))

    @app.handler(topic("in"))
    def handle(record, ctx):
        pass
"""


def test_all_is_well(world: World) -> None:
    target = world.app(APP)
    preflight.check(world.loaded(target), world.settings, target, engine="spark")


def test_a_missing_topic_says_what_to_run(world: World) -> None:
    target = world.app(APP)
    world.topics.delete(world.topic("in"))
    with pytest.raises(NotReadyError, match=r"does not exist: run `redrive topics .* --apply"):
        preflight.check(world.loaded(target), world.settings, target, engine="spark")


def test_a_missing_outbound_topic_that_was_declared_says_what_to_run(world: World) -> None:
    target = world.app(APP.replace('topic("in")', 'topic("in"), sends=topic("out")'))
    preflight.check(world.loaded(target), world.settings, target, engine="worker")
    world.topics.delete(world.topic("out"))
    with pytest.raises(NotReadyError, match=r'\.out" does not exist: run `redrive topics .*apply`'):
        preflight.check(world.loaded(target), world.settings, target, engine="worker")


def test_a_delay_topic_without_append_time_is_refused(world: World) -> None:
    target = world.app(APP)
    delay = f"{world.prefix}.retry.1s"
    world.topics.configure(delay, {"message.timestamp.type": "CreateTime"})
    with pytest.raises(NotReadyError, match=r"is not LogAppendTime.* --apply"):
        preflight.check(world.loaded(target), world.settings, target, engine="spark")


def test_a_worker_that_was_stopped_is_waited_out(world: World, caplog) -> None:
    settings = {"session.timeout.ms": 6000}
    target = world.app(APP.replace("App(NAME", f"App(NAME, librdkafka={settings}"))
    worker = OnWorker().start(target, world.bootstrap)
    world.wait(worker, "its partitions", lambda: worker.worker.ready)
    worker.stop()
    assert world.admin.has_members(world.prefix)  # it may come back
    preflight.check(world.loaded(target), world.settings, target, engine="spark")
    assert not world.admin.has_members(world.prefix)
    assert "until its session times out" in caplog.text


def test_a_worker_that_has_ended_by_itself_is_not_waited_for(world: World, caplog) -> None:
    target = world.app(APP)
    worker = OnWorker().start(target, world.bootstrap, until="empty")
    assert worker.worker.await_termination(60)
    preflight.check(world.loaded(target), world.settings, target, engine="spark")
    assert not caplog.text


def test_a_worker_of_the_same_app_is_a_rival(world: World, monkeypatch) -> None:
    from confluent_kafka import Consumer

    monkeypatch.setattr(preflight, "MEMBERS_GONE_WITHIN", 0.0)
    target = world.app(APP)
    consumer = Consumer({"bootstrap.servers": world.bootstrap, "group.id": world.prefix})
    consumer.subscribe([world.topic("in")])

    def joined() -> bool:
        consumer.poll(0.1)
        return bool(consumer.assignment())

    world.wait(None, "the group has a member", joined)
    try:
        with pytest.raises(NotReadyError, match=r"running as a worker.*stop the worker first"):
            preflight.check(world.loaded(target), world.settings, target, engine="spark")
    finally:
        consumer.close()


# Deliveries with a database


def checked(world: World, *, ttl: int | None = None, **settings: str) -> preflight.Ready:
    target = world.app(APP.replace("App(NAME", 'App(NAME, delivery="idempotent"'))
    app = world.loaded(target)
    app.inbox_ttl = ttl
    given = load_settings({"bootstrap": world.bootstrap, **settings}, environ={})  # type: ignore[typeddict-item]  # -- names of settings
    return preflight.check(app, given, target, engine="spark")


def test_a_delivery_with_a_database_needs_its_address(world: World) -> None:
    with pytest.raises(ConfigurationError, match="no database: set REDRIVE_DATABASE"):
        checked(world)


def test_a_database_that_does_not_answer_is_named_without_its_password(world: World) -> None:
    with pytest.raises(NotReadyError, match="cannot be used") as raised:
        checked(world, database="postgresql://me:hunter2@127.0.0.1:9/shop")
    assert "hunter2" not in str(raised.value)


def test_a_database_without_the_ledger_says_what_to_run(world: World, redrive_database) -> None:
    with pytest.raises(NotReadyError, match=r"run `redrive ledger migrate app_.*:app`"):
        checked(world, database=redrive_database)


def test_ids_are_remembered_longer_than_records_can_come_back(
    world: World, redrive_database
) -> None:
    with psycopg.connect(redrive_database) as connection:
        migrate(connection)
    world.create(world.topic("in"))
    day = 24 * 3600 * 1000
    world.topics.configure(world.topic("in"), {"retention.ms": str(2 * day)})
    ready = checked(world, database=redrive_database)
    assert ready.inbox_ttl == 3 * day + 1000
    with pytest.raises(ConfigurationError, match=r"inbox_ttl is 2d, .* come back for 2d1s"):
        checked(world, ttl=2 * day, database=redrive_database)
    assert checked(world, ttl=5 * day, database=redrive_database).inbox_ttl == 5 * day
    world.topics.configure(world.topic("in"), {"retention.ms": "-1"})
    assert checked(world, database=redrive_database).inbox_ttl is None


def test_a_missing_privilege_is_said_with_its_grant(world: World, redrive_database) -> None:
    role = f"app_{uuid.uuid4().hex[:8]}"
    with psycopg.connect(redrive_database, autocommit=True) as admin:
        migrate(admin)
        admin.execute(f"create role {role}")
        try:
            with pytest.raises(NotReadyError, match=f"run `grant usage on .* to {role};`") as said:
                checked(world, database=f"{redrive_database}&options=-crole%3D{role}")
            admin.execute(str(said.value).split("`")[1])
            checked(world, database=f"{redrive_database}&options=-crole%3D{role}")
        finally:
            admin.execute(f"drop owned by {role}")
            admin.execute(f"drop role {role}")
