"""kill -9 of a worker while it runs what operators have let go."""

from __future__ import annotations

from collections import Counter

from processing import processing
from steered import COUNT, SLOWLY, group_of, parked_by_cause, records, steering

from redrive.dead import Match


def test_a_kill_amid_a_run_now_loses_and_doubles_nothing(world):
    world.create(world.topic("out"))
    with processing(world, SLOWLY) as suite:
        records(world, 0, COUNT)
        first = suite.start()
        world.wait(first, "the parking", lambda: len(world.records("retry.10m")) == COUNT, 200)
        operator = steering(world, suite.target)
        rule = operator.run_now(Match(groups=(group_of(world, "10m", "Price"),)))
        some = COUNT // 10
        world.wait(first, "some of it", lambda: len(world.values("out")) >= some, timeout=200)
        first.kill()
        assert operator.under_way(rule)
        second = suite.start()
        world.wait(second, "the end of it", lambda: not operator.under_way(rule), timeout=200)
        second.stop()
    handled = Counter(world.values("out"))
    assert handled == {b"%d" % number: 1 for number in range(0, COUNT, 2)}
    assert parked_by_cause(operator) == {"Stock": COUNT // 2}
    assert world.count("dead") == 0
