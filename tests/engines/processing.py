"""The processing suite: an app in several processes, restarted one after the other while it works.

Guarantees are plugged in; the suite knows none of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from confluent_kafka import ConsumerGroupState
from confluent_kafka.admin import AdminClient
from driver import Driver
from guarantees import Guarantee, everything
from running import World

from redrive.record import Write

PROCESSES = 3
PARTITIONS = 8
KEYS = 100
HANDLER = """
    app = App(NAME, ordering={ordering!r}, concurrency=16)

    @app.handler(topic("in"))
    def handle(record, ctx):
        told = {{"partition": record.partition, "offset": record.offset, "key": str(record.key)}}
        note(what="start", pid=os.getpid(), **told)
        time.sleep({pause})
        note(what="end", pid=os.getpid(), **told)
"""
MANUAL = """
    from concurrent.futures import ThreadPoolExecutor

    app = App(NAME, ordering={ordering!r}, concurrency=16)
    others = ThreadPoolExecutor(8)

    @app.handler(topic("in"), ack="manual")
    def handle(record, ctx):
        told = {{"partition": record.partition, "offset": record.offset, "key": str(record.key)}}
        note(what="start", pid=os.getpid(), **told)
        others.submit(later, told, ctx)

    def later(told, ctx):
        time.sleep({pause})
        note(what="end", pid=os.getpid(), **told)
        ctx.ack()
"""


class Processing:
    """The app, its processes and its input."""

    def __init__(self, world: World, source: str, *options: str) -> None:
        self.world = world
        self.target = world.app(source, PARTITIONS)
        self.runs: list[Driver] = []
        self.sent = 0
        self._options = options

    def start(self) -> Driver:
        run = Driver(
            self.target, self.world.folder, self.world.bootstrap, "--engine", "worker",
            *self._options,
        )  # fmt: skip
        self.runs.append(run)
        return run

    def send(self, count: int) -> None:
        first, self.sent = self.sent, self.sent + count
        self.world.publisher.publish(
            [
                Write(self.world.topic("in"), b"%d" % (number % KEYS), b"%d" % number)
                for number in range(first, self.sent)
            ]
        )

    def wait_for(self, count: int, run: Driver | None = None) -> None:
        """Until so many were begun."""
        self.world.wait(run, f"{count} begun", lambda: self.begun() >= count, timeout=120)

    def wait_for_all(self) -> None:
        self.world.wait(self.runs[-1], "all", lambda: self.world.lag("in") == 0, timeout=240)

    def wait_for_shares(self, members: int) -> None:
        """Until the group has so many members, each with its share: nothing moves any more."""

        def stable(client: AdminClient) -> bool:
            (asked,) = client.describe_consumer_groups([self.world.prefix]).values()
            group = asked.result(30)
            shares = [len(each.assignment.topic_partitions) for each in group.members]
            return (
                group.state == ConsumerGroupState.STABLE
                and len(shares) == members
                and all(shares)
                and sum(shares) == PARTITIONS
            )

        self.world.wait(
            self.runs[-1], "all shares", lambda: self.world.admin.ask("see the group", stable)
        )

    def begun(self) -> int:
        return len(
            {(n["partition"], n["offset"]) for n in self.world.notes() if n["what"] == "start"}
        )

    def check(self, *guarantees: Guarantee) -> None:
        sent = everything(self.world, "in")
        assert len(sent) == self.sent
        notes = self.world.notes()
        for guarantee in guarantees:
            guarantee.check(sent, notes)


def rolling_restart(suite: Processing, count: int) -> None:
    """Each process is stopped and started again while the next part of the work has just begun."""
    part = count // (PROCESSES + 1)
    running = [suite.start() for _ in range(PROCESSES)]
    suite.wait_for_shares(PROCESSES)
    suite.send(count - PROCESSES * part)
    for process in running:
        before = suite.sent
        suite.send(part)
        suite.wait_for(before + part // 10)
        process.stop()
        assert process.wait(1) == 0, process.output()
        suite.start()
    suite.wait_for_all()
    for process in suite.runs[PROCESSES:]:
        # A process that is still starting has nothing to stop in order.
        suite.world.wait(process, "its partitions", lambda run=process: "assigned:" in run.output())
        process.stop()
        assert process.wait(1) == 0, process.output()


@contextmanager
def processing(world: World, source: str, *options: str) -> Iterator[Processing]:
    suite = Processing(world, source, *options)
    try:
        yield suite
    finally:
        for run in suite.runs:
            run.kill()
