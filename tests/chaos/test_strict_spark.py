"""Strict order on Spark, under kills: whole runs, Python workers, runs that stand still."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from driver import Driver
from guarantees import EffectsInOrder, EveryRecordProcessed, everything
from running import World

from redrive.record import Write

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(1800)]

PARTITIONS = 4
KEYS = 50
STRICT = """
    policy = RetryPolicy("300ms 500ms 1s")
    app = App(NAME, ordering="strict", concurrency={concurrency}, retry=policy)

    @app.handler(topic("in"))
    def handle(record, ctx):
        number = int(record.value)
        if number % 23 == 0 and ctx.attempt <= 1 + number % 3:
            raise ConnectionError("not now")
        time.sleep(0.002)
        note(what="end", partition=record.partition, offset=record.offset, key=str(record.key))
"""
ROOMS = ("in", "retry.300ms", "retry.500ms", "retry.1s", "retry.behind")


class Strict:
    """The app, its input, and its runs."""

    def __init__(self, world: World, concurrency: int) -> None:
        self.world = world
        self.sent = 0
        self._target = world.app(STRICT.format(concurrency=concurrency), PARTITIONS)
        self._drivers: list[Driver] = []

    def run(self) -> Driver:
        made = Driver(
            self._target,
            self.world.folder,
            self.world.bootstrap,
            "--until-empty",
            "--engine",
            "spark",
        )
        self._drivers.append(made)
        return made

    def send(self, count: int) -> None:
        first, self.sent = self.sent, self.sent + count
        numbers = range(first, self.sent)
        topic = self.world.topic("in")
        self.world.publisher.publish(
            [
                Write(topic, b"%d" % (n % KEYS), b"%d" % n, (), n % KEYS % PARTITIONS)
                for n in numbers
            ]
        )

    def wait_for(self, more: int, run: Driver) -> None:
        """Until so many effects more are there."""
        count = len(self.world.notes()) + more
        self.world.wait(run, f"{count}", lambda: len(self.world.notes()) >= count, timeout=600)

    def check(self, *, to_the_end: bool = True) -> None:
        sent = everything(self.world, "in")
        assert len(sent) == self.sent
        assert not to_the_end or not sum(map(self.world.lag, ROOMS))
        assert self.world.values("dead") == []
        for guarantee in (EveryRecordProcessed(), EffectsInOrder()):
            guarantee.check(sent, self.world.notes())

    def kill_all(self) -> None:
        for each in self._drivers:
            each.kill()


@contextmanager
def strictly(world: World, concurrency: int) -> Iterator[Strict]:
    made = Strict(world, concurrency)
    try:
        yield made
    finally:
        made.kill_all()


@pytest.mark.parametrize("concurrency", [1, 8])
def test_a_run_that_is_killed_again_and_again_keeps_the_order(world, concurrency):
    with strictly(world, concurrency) as strict:
        for _ in range(5):
            strict.send(2_000)
            run = strict.run()
            strict.wait_for(1_000, run)
            run.kill()
        assert strict.run().wait(900) == 0
        strict.check()


def test_python_workers_that_are_killed_lose_nothing_and_bury_nobody(world):
    with strictly(world, 8) as strict:
        strict.send(4_000)
        run = strict.run()
        for _ in range(8):
            strict.wait_for(500, run)
            world.wait(run, "a Python worker", run.kill_worker)
            strict.send(1_000)
        assert run.wait(900) == 0, run.output()
        strict.check()


def test_a_run_that_stands_still_writes_nothing_when_it_goes_on(world):
    with strictly(world, 1) as strict:
        strict.send(6_000)
        first = strict.run()
        strict.wait_for(1_000, first)
        first.freeze()
        second = strict.run()
        strict.wait_for(1_000, second)
        strict.send(2_000)
        first.go_on()
        assert first.wait(600) == 1, first.output()
        assert "another run of the app" in first.output()
        assert second.wait(900) == 0, second.output()
        assert strict.run().wait(900) == 0
        strict.check()
