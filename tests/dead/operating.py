"""World: an app in memory whose handler can be repaired, its letters, and operators."""

from __future__ import annotations

from collections import Counter

from redrive import App, RetryPolicy
from redrive.dead import DeadLetters
from redrive.dead.desk import Means
from redrive.dead.operator import Operator
from redrive.testing import Simulation


class World:
    """An app whose handler can be repaired, its letters, and operators."""

    def __init__(self, app=None, partitions=1, values=(), **options):
        self.broken = True
        self.app = app or self._app(**options)
        self.sim = Simulation(self.app, partitions=partitions)
        self.broker = self.sim.broker
        if not self.broker.partitions(self.app.state_topic):
            self.broker.create(self.app.state_topic, 1, {"cleanup.policy": "compact"})
        self.waits = []
        self.step = "10s"
        self.on_wait = lambda: None
        for number, value in enumerate(values):
            self.sim.send("orders", value, key=f"k{number % 3}")
        self.sim.run_until_empty()

    def _app(self, delivery="at-least-once", **options):
        app = App("shop", delivery=delivery, retry=RetryPolicy("5s", **options))

        @app.handler("orders")
        def handle(record, ctx):
            if self.broken:
                raise KeyError(record.value.decode())
            ctx.send("done", record.value, key=record.key)

        return app

    @property
    def letters(self):
        return DeadLetters(self.broker, app=self.app)

    def operator(self, by="alice", **letters):
        found = DeadLetters(self.broker, **letters) if letters else self.letters
        return self.operator_of(found, by)

    def operator_of(self, found, by):
        means = Means(
            take_over=lambda: self.broker.take_over(found.topic),
            topics=self.broker,
            clock=self.sim.clock,
            wait=self.wait,
            progress=self.broker.progress(self.app.name),
        )
        return Operator(found, means, by)

    def take_over(self):
        return self.broker.take_over(self.letters.topic)

    def wait(self, seconds):
        self.waits.append(seconds)
        self.sim.advance(self.step)
        self.on_wait()

    def repair(self):
        self.broken = False

    def run(self):
        self.sim.run_until_empty()
        return [record.value.decode() for record in self.sim.sent("done")]

    def states(self):
        found, _ = self.letters.some(limit=1000)
        return {each.letter.record.value.decode(): each.state for each in found}


class Counting:
    """A log that counts what is read of it, by topic."""

    def __init__(self, log):
        self._log = log
        self.read = Counter()

    def __getattr__(self, name):
        return getattr(self._log, name)

    def batches(self, place, *arguments):
        for batch in self._log.batches(place, *arguments):
            self.read[place.topic] += len(batch)
            yield batch


class _Value(bytes):
    """A value that says when it is made and when nobody has it any more."""

    held: Held

    def __del__(self):
        self.held.now -= 1


class Held:
    """A log that knows how many of the values that were read of a topic are held at once."""

    def __init__(self, log, topic):
        self._log = log
        self._topic = topic
        self.now = 0
        self.most = 0

    def __getattr__(self, name):
        return getattr(self._log, name)

    def batches(self, place, *arguments):
        for batch in self._log.batches(place, *arguments):
            if place.topic != self._topic:
                yield batch
                continue
            for record in batch:
                yield [record._replace(value=self._value(record.value))]

    def _value(self, value):
        found = _Value(value)
        found.held = self
        self.now += 1
        self.most = max(self.most, self.now)
        return found
