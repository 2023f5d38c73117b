"""A broker that forgets offsets after a minute, instead of seven days."""

from __future__ import annotations

import time

import confluent_kafka
import pytest
from confluent_kafka import Consumer
from planner_worlds import OnKafka, app_maker, planned, planner

from redrive import App
from redrive.config import load_settings
from redrive.kafka.renewal import renew
from redrive.local import broker, stack
from redrive.local.waiting import wait_until
from redrive.ports import Position
from redrive.record import TopicPartition

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(400)]


@pytest.fixture(scope="module")
def forgetful():
    """Its address."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(broker.SETTINGS, "offsets.retention.minutes", "1")
        patch.setitem(broker.SETTINGS, "offsets.retention.check.interval.ms", "500")
        with stack(1, ephemeral=True) as running:
            yield running.bootstrap


class Run:
    """An app with a quiet partition, and a planner that plans as that of a live run does."""

    def __init__(self, bootstrap: str, name: str, delivery: str, *, keep_every: int) -> None:
        self.world = OnKafka(name, bootstrap)
        self.place = TopicPartition(f"{name}.in", 0)
        self.world.create(self.place.topic)
        self.app: App = app_maker(self.world)("in", delivery=delivery)
        self.world.send(self.place, 9)
        self._keep_every = keep_every

    def begin(self) -> None:
        self.world.progress(self.app).commit({self.place: Position(5)})
        self.planner = planner(self.world, self.app, keep_every=self._keep_every)

    def offset(self) -> int | None:
        found = self.world.progress(self.app).committed([self.place]).get(self.place)
        return None if found is None else found.offset


def was_a_workers(bootstrap: str, run: Run) -> None:
    """Let the group have a member, which commits and leaves."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": run.app.name})
    consumer.subscribe([run.place.topic])
    while not consumer.assignment():
        consumer.poll(0.1)
    # Without any offset, the broker would forget the group itself.
    offset = confluent_kafka.TopicPartition(*run.place, 5)
    consumer.commit(offsets=[offset], asynchronous=False)
    consumer.close()


def test_a_live_run_forgets_nothing_and_starts_from_where_it_was(forgetful):
    never = 10**9
    runs = {
        "plain": Run(forgetful, "plain", "at-least-once", keep_every=10_000),
        "fenced": Run(forgetful, "fenced", "transaction", keep_every=10_000),
        "not-kept": Run(forgetful, "not-kept", "at-least-once", keep_every=never),
        "was-a-workers": Run(forgetful, "was-a-workers", "at-least-once", keep_every=10_000),
        "renewed": Run(forgetful, "renewed", "at-least-once", keep_every=never),
    }
    for name in ("was-a-workers", "renewed"):
        was_a_workers(forgetful, runs[name])
    left = time.monotonic()
    for run in runs.values():
        run.begin()
    unattended = runs["renewed"]
    renewed = []

    def has_forgotten() -> bool:
        for name, run in runs.items():
            if run is not unattended:
                assert planned(run.planner) == [(0, 5, 9)], name
        if not renewed and time.monotonic() - left > 40:
            settings = load_settings({"bootstrap": forgetful}, environ={})
            renew(settings, unattended.app.name, unattended.place.topic)
            renewed.append(unattended)
        assert unattended.offset() == 5
        return bool(runs["not-kept"].planner.status.put_back)

    assert wait_until(has_forgotten, 300)
    assert renewed
    assert runs["plain"].planner.status.put_back == []
    assert runs["fenced"].planner.status.put_back == []
    # All of it at once, however often it was committed.
    assert runs["was-a-workers"].planner.status.put_back == ["was-a-workers.in[0]@5"]
    assert {run.offset() for run in runs.values()} == {5}
