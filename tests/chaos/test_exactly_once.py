"""Exactly once, at full length: 100,000 records, three trees and five Python workers killed."""

from __future__ import annotations

import pytest
from exactly_once import copying
from planted import PROGRESS_COMMITTED_FIRST_ON_SPARK

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(1200)]


def test_nothing_is_lost_or_doubled_by_many_kills(world):
    with copying(world, 100_000, pause=0.005) as copy:
        for number in range(3):
            run = copy.run()
            copy.kill_worker_at(run, 0.05 + number * 0.25)
            copy.kill_worker_at(run, 0.15 + number * 0.25) if number < 2 else None
            copy.wait_for_share(run, 0.22 + number * 0.25)
            run.kill()
        last = copy.run()
        assert last.wait(300) == 0, last.output()
        copy.check()


def test_progress_committed_before_the_work_is_noticed(world, tmp_path):
    """The same kills with a planted bug: a test that cannot fail proves nothing."""
    source = PROGRESS_COMMITTED_FIRST_ON_SPARK.planted(tmp_path)
    with copying(world, 20_000) as copy:
        first = copy.run(source=source)
        copy.wait_for_share(first, 0.5)
        first.kill()
        second = copy.run(source=source)
        assert second.wait(120) == 0, second.output()
        assert copy.lost()
        with pytest.raises(AssertionError):
            copy.check()
