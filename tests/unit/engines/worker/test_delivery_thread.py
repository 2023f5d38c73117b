"""What a worker writes becomes durable beside its poll thread, which can wait for it."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from time import monotonic

import pytest

from redrive import App
from redrive.engines.figures import Figures
from redrive.engines.worker.counting import Counting
from redrive.engines.worker.delivery_thread import FlushThread
from redrive.engines.worker.partition import Partition
from redrive.ports import Position
from redrive.processing.calls.scope import Scope
from redrive.processing.outcomes.report import Report
from redrive.record import Record, TopicPartition, Write
from redrive.testing.memory_broker import MemoryBroker, MemoryHandover
from redrive.testing.virtual_clock import VirtualClock


class SlowBroker(MemoryBroker):
    """Takes nothing before it may."""

    def __init__(self, clock: VirtualClock) -> None:
        super().__init__(clock)
        self.may_write = threading.Event()

    def hand_over(self, writes: Sequence[Write], *, alone: bool = False) -> MemoryHandover:
        assert self.may_write.wait(30)
        return super().hand_over(writes, alone=alone)


@pytest.fixture
def broker() -> Iterator[SlowBroker]:
    made = SlowBroker(VirtualClock())
    made.create("out")
    yield made
    made.may_write.set()


def test_whoever_waits_for_a_write_sees_to_other_things_meanwhile(broker: SlowBroker) -> None:
    app = App("shop")
    app.handler("in")(lambda record, ctx: None)
    partition = Partition(
        Scope(app, {"in": "an id"}), TopicPartition("in", 0), Position(0), delay=None
    )
    deaths: list[BaseException] = []
    counting = Counting(Figures())
    delivering = FlushThread(broker, VirtualClock(), counting, deaths.append, {"out"})
    partition.tracker.receive([0])
    report = Report()
    report.sent.append((0, [Write("out", None, b"v")], Record("in", 0, 0)))
    delivering.add(partition.processor, report)
    looks: list[bool] = []

    def meanwhile() -> None:
        looks.append(True)
        if len(looks) == 3:
            broker.may_write.set()

    delivering.finish([partition], monotonic() + 30, meanwhile)
    assert [record.value for record in broker.records("out")] == [b"v"]
    assert len(looks) >= 3
    assert delivering.close(30)
    assert deaths == []
