"""One of three brokers is away, and with it the only copy of a partition."""

from __future__ import annotations

import time
import uuid

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.cimpl import NewTopic
from running import World

from redrive.clock import WallClock
from redrive.engines.spark import runtime, task
from redrive.engines.spark.planner import Planner
from redrive.engines.spark.spec import Spec
from redrive.errors import RedriveError
from redrive.kafka.admin import Admin
from redrive.kafka.log import KafkaLog
from redrive.kafka.progress import KafkaProgress
from redrive.local import stack
from redrive.record import Write

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(400)]

COPY = """
    app = App(NAME)

    @app.handler(topic("in"))
    def copy(record, ctx):
        ctx.send(topic("out"), record.value)
"""


@pytest.fixture
def brokers():
    with stack(3, ephemeral=True) as running:
        yield running
    runtime.close_all()


class Spread(World):
    """Each partition of the source topic is on one of the brokers, and only there."""

    nodes: list[int]

    def create(self, topic: str, partitions: int = 1) -> None:
        if topic != self.topic("in"):
            super().create(topic, partitions)
            return
        new = NewTopic(topic, partitions, replica_assignment=[[node] for node in self.nodes])

        def make(client):
            try:
                client.create_topics([new])[topic].result(30)
            except KafkaException as raised:  # its first answer may have been lost
                if raised.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                    raise

        self.admin.ask(f"create {topic}", make)
        self.admin.wait_until("the topic", lambda: self.is_usable(topic, partitions))

    def is_usable(self, topic: str, partitions: int) -> bool:
        return self.log.partitions(topic) == partitions and not self.log.leaderless([topic])


@pytest.fixture
def world(brokers, redrive_prefix, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    made = Spread(brokers.bootstrap, tmp_path, redrive_prefix)
    made.nodes = [broker.node for broker in brokers.brokers]
    yield made
    made.close()


def numbers(count: int, begin: int = 0) -> list[bytes]:
    return [b"%d" % number for number in range(begin, begin + count)]


def test_a_partition_without_a_leader_waits_and_the_others_go_on(brokers, world):
    away = brokers.brokers[-1]
    target = world.app(COPY, 3)
    world.create(world.topic("out"))
    spec = Spec(
        target=target,
        folder=str(world.folder),
        settings=world.settings,
        run=uuid.uuid4().hex[:8],
        scratch=str(world.folder),
        slots=2,  # all partitions in one task
    )
    app, admin = world.loaded(target), Admin(spec.settings, patience=5)
    planner = Planner(
        app,
        spec,
        "main",
        log=KafkaLog(spec.settings, app.name, admin=admin),
        progress=KafkaProgress(spec.settings, app.name, admin=admin),
        has_members=lambda: False,
        clock=WallClock(),
    )

    def send(values: list[bytes]) -> None:
        world.publisher.publish(
            [Write(world.topic("in"), None, value, (), n % 3) for n, value in enumerate(values)]
        )

    def run() -> None:
        """As a lane does it: what cannot be asked of Kafka is asked again."""
        try:
            plan = planner.plan()
        except RedriveError:
            return
        for ranges in plan:
            task.run(spec, ranges)

    send(numbers(300))
    run()
    assert sorted(world.values("out")) == sorted(numbers(300))
    send(numbers(300, 300))
    waiting = {b"%d" % number for number in range(300, 600) if number % 3 == 2}
    plan = planner.plan()  # with a leader still
    away.kill()
    began = time.monotonic()
    for ranges in plan:
        task.run(spec, ranges)
    print(f"a task with a range that is silent took {time.monotonic() - began:.1f} s")
    others = {*numbers(600)} - waiting
    world.wait(None, "the others", lambda: run() or {*world.values("out")} == others, timeout=120)
    away_from = f"{world.topic('in')}[2]"
    world.wait(None, "who waits", lambda: run() or away_from in planner.waits_for, timeout=120)
    send_to_others = [b"later 0", b"later 1"]
    send(send_to_others)
    others |= {*send_to_others}
    world.wait(None, "the others", lambda: run() or {*world.values("out")} == others, timeout=120)
    assert away_from in planner.waits_for
    away.start()
    everything = {*numbers(600), *send_to_others}
    world.wait(None, "all", lambda: run() or {*world.values("out")} == everything, timeout=120)
    assert planner.waits_for == ""
