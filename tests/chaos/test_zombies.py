"""A run that was stopped, replaced and continued, at full length."""

from __future__ import annotations

import pytest
from exactly_once import copying

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(900)]


@pytest.mark.parametrize("share", [0.1, 0.3, 0.6])
def test_nothing_of_a_zombie_gets_committed(world, share):
    with copying(world, 40_000, pause=0.01) as copy:
        first = copy.run()
        copy.wait_for_share(first, share)
        first.freeze()
        second = copy.run()
        assert second.wait(300) == 0, second.output()
        copy.check()
        first.go_on()
        assert first.wait(120) == 1, first.output()
        assert "another run of the app" in first.output()
        copy.check()


def test_a_zombie_that_is_continued_while_the_other_still_runs(world):
    with copying(world, 40_000, pause=0.01) as copy:
        first = copy.run()
        copy.wait_for_share(first, 0.2)
        first.freeze()
        second = copy.run()
        copy.wait_for_progress(second)
        first.go_on()
        assert first.wait(120) == 1, first.output()
        assert "another run of the app" in first.output()
        assert second.wait(300) == 0, second.output()
        copy.check()


def test_at_least_once_loses_nothing_to_a_zombie(world):
    with copying(world, 40_000, delivery="at-least-once", pause=0.01) as copy:
        first = copy.run()
        copy.wait_for_share(first, 0.2)
        first.freeze()
        second = copy.run()
        copy.wait_for_progress(second)
        first.go_on()
        assert first.wait(120) == 1, first.output()
        assert second.wait(300) == 0, second.output()
        third = copy.run()  # progress may have moved backwards: that repeats work, never skips it
        assert third.wait(300) == 0, third.output()
        assert not copy.lost()
        assert world.values("dead") == []
