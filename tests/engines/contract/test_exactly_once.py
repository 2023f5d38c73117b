"""Exactly once, topic to topic, whatever is killed; tests/chaos has the long ones, and zombies."""

from __future__ import annotations

from exactly_once import copying


def test_nothing_is_lost_or_doubled_by_kills(world):
    with copying(world, 20_000) as copy:
        first = copy.run()
        copy.kill_worker_at(first, 0.2)
        copy.wait_for_progress(first)
        first.kill()
        second = copy.run()
        assert second.wait(120) == 0, second.output()
        copy.check()
