"""What must be so in Kafka before a run begins: each with the sentence that says what to do."""

from __future__ import annotations

import pytest
from running import World

from redrive.engines import preflight
from redrive.engines.preflight import NotReadyError

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


def test_a_delay_topic_without_append_time_is_refused(world: World) -> None:
    target = world.app(APP)
    delay = f"{world.prefix}.retry.1s"
    world.topics.configure(delay, {"message.timestamp.type": "CreateTime"})
    with pytest.raises(NotReadyError, match=r"is not LogAppendTime.* --apply"):
        preflight.check(world.loaded(target), world.settings, target, engine="spark")


def test_a_worker_of_the_same_app_is_a_rival(world: World) -> None:
    from confluent_kafka import Consumer

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
