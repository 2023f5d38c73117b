"""A topic that is deleted and recreated is another topic, whatever its name."""

from __future__ import annotations

import pytest

from redrive.envelope import Envelope
from redrive.errors import DataLossError
from redrive.ports import Position
from redrive.processing.progress.notes import TOPIC, noted, with_note
from redrive.record import Write

NOTES = """
    app = App(NAME, {choices})

    @app.handler(topic("in"))
    def handle(record, ctx):
        note(value=record.value.decode(), id=ctx.envelope.id)
"""
OLD = [b"old %d" % number for number in range(5)]
NEW = [b"new %d" % number for number in range(8)]


def make_again(world):
    full = world.topic("in")
    world.topics.delete(full)
    world.create(full, 1)
    world.send("in", *NEW)


def handled(world):
    return {note["value"].encode(): note["id"] for note in world.notes()}


@pytest.mark.parametrize("delivery", ["at-least-once", "transaction"])
def test_the_new_topic_is_read_from_its_beginning_with_ids_of_its_own(world, start, delivery):
    choices = f'delivery={delivery!r}, on_data_loss="continue"'
    target = world.app(NOTES.format(choices=choices), partitions=1)
    world.send("in", *OLD)
    run = start(target, start_from="latest" if delivery == "transaction" else "earliest")
    world.wait(run, "its place", lambda: run.worker.assigned == 1)
    world.send("in", *OLD)
    world.wait(run, "what was there", lambda: {*OLD} == handled(world).keys())
    before = world.log.topic_id(world.topic("in"))
    make_again(world)
    world.wait(run, "what came later", lambda: {*OLD, *NEW} == handled(world).keys())
    world.wait(run, "progress in it", lambda: world.lag("in") == 0)
    after = world.log.topic_id(world.topic("in"))
    run.stop()
    (committed,) = world.committed("in").values()
    assert noted(committed, TOPIC) == after
    assert "recreated" in run.worker.status("main")["lost"][0]
    ids = handled(world)
    assert all(ids[value].startswith(before) for value in OLD)
    # Up to a second passes until it is known: those that come meanwhile run twice.
    assert all(ids[value].startswith(after) for value in NEW)


def test_on_data_loss_stop_means_this_loss_too(world, start):
    target = world.app(NOTES.format(choices=""), partitions=1)
    world.send("in", *OLD)
    run = start(target)
    world.wait(run, "what was there", lambda: world.lag("in") == 0)
    make_again(world)
    with pytest.raises(DataLossError, match=r'in" was deleted and recreated'):
        run.worker.await_termination(60)


@pytest.mark.parametrize("choice", ["stop", "continue"])
def test_progress_that_was_committed_for_the_topic_before_is_not_that_of_the_new_one(
    world, start, choice
):
    """As of a worker that committed once more and died before it could know."""
    target = world.app(NOTES.format(choices=f"on_data_loss={choice!r}"), partitions=1)
    world.send("in", *NEW)
    (place,) = world.places("in")
    world.commit({place: with_note(Position(5), TOPIC, "another")})
    run = start(target, start_from="latest", until="empty")
    if choice == "stop":
        with pytest.raises(DataLossError, match="recreated"):
            run.worker.await_termination(60)
        assert world.notes() == []
    else:
        assert run.worker.await_termination(60)
        assert handled(world).keys() == {*NEW}


RETRIES = """
    app = App(NAME, retry=RetryPolicy("1s"), librdkafka={"topic.metadata.refresh.interval.ms": 300})

    @app.handler(topic("in"))
    def handle(record, ctx):
        note(value=record.value.decode())
"""


@pytest.mark.parametrize("waiting", [0, 2])
def test_a_delay_topic_that_no_policy_has_may_be_deleted_when_nothing_waits_in_it(
    world, start, waiting
):
    target = world.app(RETRIES, partitions=1)
    former = world.topic("retry.7d")
    world.topics.create(former, 1, {"message.timestamp.type": "LogAppendTime"})
    envelope = Envelope(
        app=world.prefix,
        id="7",
        origin_topic=world.topic("in"),
        origin_partition=0,
        origin_offset=0,
        first_received=1,
        attempt=2,
    )
    world.publisher.publish([Write(former, None, b"parked", envelope.headers(()))] * waiting)
    run = start(target)
    world.wait(run, "its places", lambda: run.worker.assigned == 3)

    def lag():
        return run.worker.status("retry").get("ahead", {}).get("lag", {})

    world.wait(run, "a look", lambda: lag().get(former) == waiting)
    world.topics.delete(former)
    if waiting:
        with pytest.raises(DataLossError, match="with up to 2 records unread"):
            run.worker.await_termination(60)
        return
    world.wait(run, "its end", lambda: former not in lag())
    world.wait(run, "its loss", lambda: run.worker.assigned == 2)
    world.send("in", b"goes on")
    world.wait(run, "what comes later", lambda: len(world.notes()) == 1)
    run.stop()
