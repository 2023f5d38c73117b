"""Exactly once from topic to topic, whatever is killed; the long versions are in tests/chaos."""

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


def test_a_run_that_was_stopped_and_continued_commits_nothing(world):
    """SIGSTOP for the whole first run; a second one takes over; the first goes on as a zombie."""
    with copying(world, 20_000) as copy:
        first = copy.run()
        copy.wait_for_share(first, 0.2)
        first.freeze()
        second = copy.run()
        assert second.wait(120) == 0, second.output()
        copy.check()
        first.go_on()
        assert first.wait(60) == 1, first.output()
        assert "another run of the app" in first.output()
        copy.check()
