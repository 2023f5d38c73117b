"""For how long things are kept: asked now and then, and never in the way of a page."""

from __future__ import annotations

from threading import Event, Thread
from types import SimpleNamespace

import pytest

from redrive.console import retention as module
from redrive.console.board import Board
from redrive.console.endpoints import Endpoints
from redrive.console.retention import Kept, Retention
from redrive.dead.showing import Seen
from redrive.errors import RedriveError

DAY = 86_400_000


class Cluster:
    """A cluster that says what it is told, or that it may not be asked."""

    def __init__(self, minutes="10080", **retention):
        self.minutes, self.retention, self.asked = minutes, retention, []

    def visible_settings(self, names):
        self.asked.append("topics")
        if self.retention is None:
            raise RedriveError("no broker answers")
        return {name: {"retention.ms": ms} for name, ms in self.retention.items() if name in names}

    def broker_settings(self):
        self.asked.append("broker")
        if self.minutes is None:
            raise RedriveError("DESCRIBE_CONFIGS is missing")
        return {"offsets.retention.minutes": self.minutes}


def test_records_and_offsets_are_kept_for_as_long_as_the_cluster_says():
    cluster = Cluster(orders="604800000", dead="-1")
    kept = Retention(cluster, cluster).look(["orders", "dead", "gone"])
    assert kept == Kept({"orders": 7 * DAY, "dead": None}, 7 * DAY)


def test_it_is_not_asked_with_every_look():
    cluster = Cluster(orders="1000")
    retention = Retention(cluster, cluster)
    assert retention.look(["orders"]) is retention.look(["orders"])
    assert cluster.asked == ["topics", "broker"]


def test_what_was_known_stands_while_nobody_answers(monkeypatch):
    monkeypatch.setattr(module, "CONSOLE_TOPICS_EVERY", 0.0)
    monkeypatch.setattr(module, "CONSOLE_BROKER_EVERY", 0.0)
    cluster = Cluster(orders="1000")
    retention = Retention(cluster, cluster)
    before = retention.look(["orders"])
    cluster.retention = cluster.minutes = None
    assert retention.look(["orders"]) == before


def test_whoever_may_not_see_a_brokers_settings_is_told_nothing_of_offsets():
    cluster = Cluster(minutes=None, orders="1000")
    assert Retention(cluster, cluster).look(["orders"]) == Kept({"orders": 1000}, None)


@pytest.mark.timeout(60)
def test_no_page_waits_for_a_broker_that_hangs():
    asked, answers = Event(), Event()

    def hang(*_names, **_how):
        asked.set()
        assert answers.wait(60)
        raise RedriveError("no broker answers")

    log = SimpleNamespace(appended_since=hang, names=hang, topics=hang, partitions=hang)
    admin = SimpleNamespace(ask=hang, has_members=hang, broker_settings=hang)
    watched = SimpleNamespace(
        name="shop",
        app=SimpleNamespace(name="shop"),
        log=log,
        letters=SimpleNamespace(log=log, topic="shop.dead", seen=Seen),
        has_code=True,
        watch=hang,
        admin=admin,
        settings=None,
        sources=(),
    )
    board = Board(watched, Endpoints([]))
    looking = Thread(target=board.sampler.look, daemon=True)
    looking.start()
    try:
        assert asked.wait(30)
        assert board.concerns() == []
    finally:
        answers.set()
        looking.join(30)
