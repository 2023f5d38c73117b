"""What a worker reads is what it subscribes to, whatever its name was assigned before."""

from __future__ import annotations

import sys

import pytest
from running import gauges

from redrive.engines.worker import lag
from redrive.record import Write

READS = """
    app = App(NAME)

    for each in {topics}:
        @app.handler(topic(each))
        def handle(record, ctx):
            note(value=record.value.decode())
"""


def handled(world):
    return sorted(note["value"] for note in world.notes())


def reading(world, *topics, source=READS):
    """The app, as it is after a deployment."""
    for module in [name for name in sys.modules if name.startswith("app_")]:
        del sys.modules[module]
    return world.app(source.format(topics=topics), partitions=4)


def counts(run, topic):
    return sum(place.topic == topic for place in run.worker.assignment.partitions)


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


PARKS = """
    app = App(NAME, retry=RetryPolicy("{delay}"))

    @app.handler(topic("in"))
    def handle(record, ctx):
        note(value=record.value.decode(), attempt=ctx.attempt)
        if ctx.attempt == 1:
            raise Retry("once more")
"""


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_worker_that_comes_back_with_another_delay_reads_its_topic(world, start, protocol):
    for delay, record in (("100ms", b"1"), ("300ms", b"2")):
        target = reading(world, source=PARKS.replace("{delay}", delay))
        world.send("in", record)
        run = start(target, protocol=protocol)
        world.wait(run, "parked and handled", lambda: world.lag("in") == 0)
        world.wait(run, "its topic", lambda delay=delay: world.lag(f"retry.{delay}") == 0)
        run.stop()
    assert [(note["value"], note["attempt"]) for note in world.notes()] == [
        ("1", 1), ("1", 2), ("2", 1), ("2", 2)
    ]  # fmt: skip


@pytest.mark.parametrize("options", [{}, {"dynamic": True}, {"protocol": "consumer"}])
def test_what_a_version_parked_that_was_taken_back_is_read_by_workers_that_ran_on(
    world, start, monkeypatch, options
):
    monkeypatch.setattr(lag, "NEW_TOPICS_EVERY", 0.2)
    target = world.app(PARKS.format(delay="100ms"), partitions=2)
    world.send("in", b"1")
    run = start(target, **options)
    world.wait(run, "it comes back", lambda: len(world.notes()) == 2)
    # The other version has another delay, and its topic is made before it begins.
    delayed = world.topic("retry.300ms")
    world.topics.create(delayed, 2, {"message.timestamp.type": "LogAppendTime"})
    (parked,) = world.records("retry.100ms")
    world.publisher.publish([Write(delayed, parked.key, parked.value, parked.headers)])
    world.wait(run, "it is handled here", lambda: len(world.notes()) == 3)
    world.wait(run, "it is counted", lambda: gauges(run, "parked_records").get(delayed) == 0)
    world.wait(run, "it is committed", lambda: world.lag("retry.300ms") == 0)
    run.stop()
    assert [(note["value"], note["attempt"]) for note in world.notes()] == [
        ("1", 1), ("1", 2), ("1", 2)
    ]  # fmt: skip


@pytest.mark.parametrize("options", [{}, {"dynamic": True}, {"protocol": "consumer"}])
def test_a_delay_topic_that_no_policy_has_can_be_deleted_while_it_is_read(
    world, start, monkeypatch, options
):
    monkeypatch.setattr(lag, "NEW_TOPICS_EVERY", 0.2)
    target = world.app(PARKS.format(delay="100ms"), partitions=2)
    settings = {"message.timestamp.type": "LogAppendTime"}
    left, new = world.topic("retry.300ms"), world.topic("retry.400ms")
    world.topics.create(left, 2, settings)
    world.send("in", b"1")
    run = start(target, **options)
    world.wait(run, "it comes back", lambda: len(world.notes()) == 2)
    world.topics.delete(left)
    # What the subscription comes to is looked at every few minutes, and when it grows.
    world.topics.create(new, 2, settings)
    (parked,) = world.records("retry.100ms")
    world.publisher.publish([Write(new, parked.key, parked.value, parked.headers)])
    world.wait(run, "the others are read", lambda: len(world.notes()) == 3)
    run.stop()


TWICE = """
    app = App(NAME, retry=RetryPolicy("100ms"))

    for each in {topics}:
        @app.handler(topic(each))
        def handle(record, ctx):
            if ctx.attempt == 1:
                raise Retry("once more")
            note(value=record.value.decode())
"""


def test_a_version_without_the_handler_buries_nothing_that_the_one_beside_it_parks(world, start):
    old = start(reading(world, "in", source=TWICE), dynamic=True)
    world.wait(old, "its partitions", lambda: old.worker.assigned == 8)
    target = reading(world, "in", "added", source=TWICE)
    new = start(target, dynamic=True)
    world.wait(new, "its share", lambda: new.worker.assigned == old.worker.assigned == 6)
    sent = [f"{number}" for number in range(20)]
    for value in sent:
        world.send("added", value.encode(), key=value.encode())
    world.wait(old, "some are read by the old one", lambda: world.count("retry.100ms") > len(sent))
    old.stop()
    world.wait(new, "all are handled", lambda: len(world.notes()) >= len(sent))
    world.wait(new, "all are committed", lambda: world.lag("retry.100ms") == 0)
    assert handled(world) == sorted(sent)
    assert world.values("dead") == []
