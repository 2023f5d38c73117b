"""What a worker reads is what it subscribes to, whatever its name was assigned before."""

from __future__ import annotations

import sys

import pytest

READS = """
    app = App(NAME)

    for each in {topics}:
        @app.handler(topic(each))
        def handle(record, ctx):
            note(value=record.value.decode())
"""


def handled(world):
    return sorted(note["value"] for note in world.notes())


def reading(world, *topics):
    """The app, as it is after a deployment."""
    for module in [name for name in sys.modules if name.startswith("app_")]:
        del sys.modules[module]
    return world.app(READS.format(topics=topics), partitions=4)


def counts(run, topic):
    return sum(place.topic == topic for place in run.worker._assignment.partitions)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_worker_that_comes_back_with_other_topics_reads_those_and_no_others(
    world, start, protocol
):
    target = reading(world, "in", "old")
    world.send("in", b"1")
    world.send("old", b"2")
    run = start(target, protocol=protocol)
    world.wait(run, "both", lambda: world.lag("in") == world.lag("old") == 0)
    run.stop()
    left = world.committed("old")
    reading(world, "in", "added")
    world.send("in", b"3")
    world.send("old", b"nobody's", b"any more")
    world.send("added", b"4")
    run = start(target, protocol=protocol)
    world.wait(run, "the new topic", lambda: world.lag("in") == world.lag("added") == 0)
    assert handled(world) == ["1", "2", "3", "4"]
    run.stop()
    assert world.committed("old") == left
    assert world.values("dead") == []


def test_a_topic_that_came_with_a_rolling_deployment_is_shared_out(world, start):
    target = reading(world, "in")
    runs = {name: start(target, instance=name) for name in "ab"}
    full = world.topic("in")
    for run in runs.values():
        world.wait(run, "its half", lambda run=run: counts(run, full) == 2)
    reading(world, "in", "added")
    for name in "ab":
        runs[name].stop()
        runs[name] = start(target, instance=name)
        world.wait(runs[name], "its place", lambda run=runs[name]: run.worker.ready)
    for run in runs.values():
        world.wait(run, "its share", lambda run=run: run.worker.assigned == 4)
        world.wait(run, "all assigned", lambda run=run: not run.worker.rejoining.unassigned)
    assert sum(counts(run, world.topic("added")) for run in runs.values()) == 4


def test_a_worker_that_comes_back_as_it_was_disturbs_nobody(world, start):
    target = reading(world, "in")
    runs = {name: start(target, instance=name) for name in "ab"}
    for run in runs.values():
        world.wait(run, "its half", lambda run=run: run.worker.assigned == 2)
    before = dict(runs["b"].worker.counting.rebalances)
    runs["a"].stop()
    again = start(target, instance="a")
    world.wait(again, "its half", lambda: again.worker.assigned == 2)
    world.wait(again, "a look at the group", lambda: again.worker.rejoining.confirmed)
    assert runs["b"].worker.counting.rebalances == before
    assert again.worker.counting.rebalances["assigned"] == 1


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_worker_without_a_name_leaves_the_group_when_it_stops(world, start, protocol):
    run = start(reading(world, "in"), dynamic=True, protocol=protocol)
    world.wait(run, "its partitions", lambda: run.worker.assigned == 4)
    assert world.admin.has_members(world.prefix)
    run.stop()
    assert not world.admin.has_members(world.prefix)
