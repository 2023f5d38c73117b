"""What waits for the end of an outage can be deleted meanwhile: that is said in time."""

from __future__ import annotations

import pytest

from redrive.engines.worker.retention_watch import RetentionWatch
from redrive.processing.outcomes.guard_log import GuardSeen
from redrive.testing.virtual_clock import VirtualClock

HOUR = 3_600_000


class World:
    def __init__(self, kept, *, opened=1):
        self.clock = VirtualClock()
        self.began = self.clock.now()
        self.asked = []
        self.opened = opened
        self.watch = RetentionWatch(
            lambda: [GuardSeen("orders", "open", 1, self.opened, "1f", "away", {})],
            lambda _: self.began,
            lambda topics: self.asked.append([*topics]) or {"orders": kept},
            self.clock,
        )

    def look(self, after):
        self.clock.set(self.began + after)
        self.watch.look()


@pytest.mark.parametrize(
    ("kept", "after", "said"),
    [
        ({"retention.ms": f"{HOUR}"}, HOUR // 2, False),
        ({"retention.ms": f"{HOUR}"}, HOUR * 4 // 5, True),
        ({"retention.ms": "-1"}, HOUR * 1000, False),
        ({}, HOUR * 1000, False),
    ],
)
def test_it_is_said_before_records_are_deleted(kept, after, said, caplog):
    world = World(kept)
    world.look(after)
    assert ("the oldest record that waits is" in caplog.text) is said


def test_kafka_is_asked_once_a_minute_and_not_without_an_outage():
    world = World({})
    for after in range(0, 120_000, 1000):
        world.look(after)
    assert world.asked == [["orders"]] * 2
    world.opened = 0
    world.look(HOUR)
    assert len(world.asked) == 2
