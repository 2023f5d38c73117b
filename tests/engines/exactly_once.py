"""A copy from topic to topic, killed again and again; what must hold afterwards."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from driver import Driver, values_per_partition
from running import World

from redrive.record import Write

PARTITIONS = 4
COPY = """
    app = App(NAME, delivery={delivery!r}, ordering="partition")

    @app.handler(topic("in"))
    def copy(record, ctx):
        if record.offset % 10 == 0:
            time.sleep({pause})
        ctx.send(topic("out"), record.value, key=record.key, partition=record.partition)
"""


class Copy:
    """The app, its input, and its runs."""

    def __init__(
        self,
        world: World,
        count: int,
        *,
        delivery: str = "transaction",
        pause: float = 0.01,
        engine: str = "spark",
    ) -> None:
        self.world = world
        self.count = count
        self.target = world.app(COPY.format(delivery=delivery, pause=pause), PARTITIONS)
        world.create(world.topic("out"), PARTITIONS)
        self.inputs = [b"%d" % number for number in range(count)]
        world.publisher.publish(
            [
                Write(world.topic("in"), value, value, (), number % PARTITIONS)
                for number, value in enumerate(self.inputs)
            ]
        )
        self._drivers: list[Driver] = []
        self._engine = engine

    def run(self, *options: str, source: Path | None = None) -> Driver:
        """A run to the end."""
        made = Driver(
            self.target,
            self.world.folder,
            self.world.bootstrap,
            "--until-empty",
            "--engine",
            self._engine,
            *options,
            source=source,
        )
        self._drivers.append(made)
        return made

    def wait_for_share(self, run: Driver, share: float) -> None:
        """Until so much of the input is committed."""
        left = self.count * (1 - share)
        self.world.wait(run, f"{share:.0%}", lambda: self.world.lag("in") <= left, timeout=180)

    def wait_for_progress(self, run: Driver) -> None:
        """Until this run has committed something: it has taken over by then."""
        before = self.world.lag("in")
        self.world.wait(run, "progress", lambda: self.world.lag("in") < before, timeout=180)

    def kill_worker_at(self, run: Driver, share: float) -> None:
        self.wait_for_share(run, share)
        self.world.wait(run, "a Python worker", run.kill_worker)

    def kill_all(self) -> None:
        for each in self._drivers:
            each.kill()

    # What must hold

    def lost(self) -> set[bytes | None]:
        return {*self.inputs} - {*self.world.values("out")}

    def duplicates(self) -> dict[bytes | None, int]:
        return {
            value: times for value, times in Counter(self.world.values("out")).items() if times > 1
        }

    def check(self) -> None:
        assert not self.duplicates()
        assert not self.lost()
        assert self.world.values("dead") == []
        assert values_per_partition(self.world, "out") == {
            number: self.inputs[number::PARTITIONS] for number in range(PARTITIONS)
        }


@contextmanager
def copying(
    world: World,
    count: int,
    *,
    delivery: str = "transaction",
    pause: float = 0.01,
    engine: str = "spark",
) -> Iterator[Copy]:
    copy = Copy(world, count, delivery=delivery, pause=pause, engine=engine)
    try:
        yield copy
    finally:
        copy.kill_all()
