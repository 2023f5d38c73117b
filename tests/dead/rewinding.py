"""An app in memory that has handled records, and whoever handles them again."""

from __future__ import annotations

import json
from collections import Counter

from redrive import App, RetryPolicy
from redrive.dead import DeadLetters
from redrive.dead.desk import Means
from redrive.errors import NotReadyError
from redrive.ids import field
from redrive.record import TopicPartition
from redrive.rewind import Rewinder, Where
from redrive.rewind.going_back import SoleAccess
from redrive.rewind.rewinder import Tools
from redrive.testing import Simulation

SOURCE = TopicPartition("orders", 0)


def shop(handled, name="shop", *, delivery="at-least-once", retry="5s", **handler):
    """An app that notes what it handles; a value that begins with `later` fails once."""
    app = App(name, delivery=delivery, retry=RetryPolicy(retry))
    failed = set()

    @app.handler("orders", **handler)
    def handle(record, ctx):
        value = record.value.decode()
        if value.startswith("later") and value not in failed:
            failed.add(value)
            raise KeyError(value)
        if value.startswith("never"):
            raise KeyError(value)
        handled.append(value)

    return app


class World:
    """An app, its simulation, and a rewinder."""

    def __init__(self, *values, keys=3, partitions=1, app=None, **options):
        self.handled = []
        self.app = app or shop(self.handled, **options)
        database = {"db": object()} if self.app.guarantee.database else {}
        self.sim = Simulation(self.app, partitions=partitions, **database)
        self.broker, self.clock = self.sim.broker, self.sim.clock
        self.broker.create(self.app.state_topic, 1, {"cleanup.policy": "compact"})
        self.members, self.fenced = [], []
        self.on_wait = self.on_fence = self.on_leave = lambda: None
        self.held = self.progress
        """The progress that a rewind has for itself."""
        self.send(*values, keys=keys)
        self.sim.run()

    def send(self, *values, keys=3):
        """Records, a minute apart."""
        for number, value in enumerate(values):
            self.sim.send("orders", value, key=f"k{number % keys}")
            self.clock.advance(60_000)

    @property
    def store(self):
        return self.sim.store

    @property
    def progress(self):
        return self.broker.progress(self.app.name)

    @property
    def committed(self):
        return self.progress.committed([SOURCE])[SOURCE]

    @property
    def letters(self):
        return DeadLetters(self.broker, app=self.app)

    @property
    def means(self):
        return Means(
            take_over=lambda: self.broker.take_over(self.letters.topic),
            topics=self.broker,
            clock=self.clock,
            wait=self._wait,
            progress=self.progress,
        )

    def rewinder(self, by="alice"):
        access = SoleAccess(
            progress=self.held,
            seen=self.progress,
            wait_for_workers=self._wait_for_workers,
            fence=self._fence,
            clock=self.clock,
            wait=self._wait,
        )
        tools = Tools(
            log=self.broker,
            means=self.means,
            access=access,
            in_the_way=lambda: "somebody runs" if self.members else "",
            ids=self.store if self.app.guarantee.inbox else None,
        )
        return Rewinder(self.letters, tools, by)

    def plan(self, *offsets, **how):
        return self.rewinder().plan(where(*offsets), **how)

    def rewind(self, *offsets, **how):
        return self.rewinder().rewind(where(*offsets), **how)

    def operations(self):
        return [*self.letters.known().operations.values()]

    def run_again(self):
        """What the app handles after a restart."""
        del self.handled[:]
        self.sim.crash()
        self.sim.run_until_empty()
        return Counter(self.handled)

    def _wait_for_workers(self):
        self.on_leave()
        if self.members:
            raise NotReadyError("the app shop is running as a worker")

    def _fence(self, places):
        self.fenced += places
        self.on_fence()

    def _wait(self, seconds):
        self.on_wait()


def where(*offsets, **given):
    return Where(offsets=tuple(f"orders[0]@{each}" for each in offsets), **given)


IDS = {"decode": json.loads, "id": field("id")}
"""What a handler has whose records have ids of their own."""
