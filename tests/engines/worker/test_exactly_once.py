"""Exactly once on the worker: the suite of both engines, with what can be killed of a worker."""

from __future__ import annotations

import pytest
from exactly_once import copying


def test_nothing_is_lost_or_doubled_by_kills(world):
    with copying(world, 20_000, engine="worker") as copy:
        for share in (0.2, 0.5):
            run = copy.run()
            copy.wait_for_share(run, share)
            run.kill()
        last = copy.run()
        assert last.wait(120) == 0, last.output()
        copy.check()


@pytest.mark.parametrize(
    "delivery", ["transaction", pytest.param("at-least-once", marks=pytest.mark.chaos)]
)
def test_a_worker_that_was_stopped_and_continued(world, delivery, monkeypatch):
    """SIGSTOP for the first; the second takes over; the first goes on as a zombie."""
    (world.folder / "redrive.toml").write_text("[librdkafka]\n'session.timeout.ms' = 6000\n")
    with copying(world, 20_000, engine="worker", delivery=delivery) as copy:
        first = copy.run()
        copy.wait_for_share(first, 0.2)
        first.freeze()
        second = copy.run()
        assert second.wait(120) == 0, second.output()
        first.go_on()
        assert first.wait(60) == 0, first.output()
        if delivery == "transaction":
            copy.check()
        else:
            assert not copy.lost()
            assert world.values("dead") == []
        assert world.lag("in") == 0
