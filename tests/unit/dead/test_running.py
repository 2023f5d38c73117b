"""An operation under way: what it counts, and what ends it."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
from operating import Counting

from redrive.dead import Filter
from redrive.dead.operator import Operator, ReplayOptions
from redrive.dead.watching import Fate, Watch
from redrive.kafka.errors import WriteNotAllowedError, publish_error
from redrive.record import TopicPartition
from redrive.tuning import RAMP_PATIENCE


def test_what_retention_deletes_while_a_job_is_paused_is_counted(world):
    operator = world.operator()
    steps = iter([False, False, False, True])
    paused = operator.replay(Filter(), ReplayOptions(rate=4), stopping=lambda: next(steps, True))
    assert (paused.status, paused.done) == ("paused", 4)
    world.broker.truncate(TopicPartition("shop.dead", 0), 7)
    assert operator.resume(paused.id).counts == {"sent": 17, "deleted": 3}


def test_a_job_that_is_killed_remembers_what_was_deleted_before(world):
    dead = TopicPartition("shop.dead", 0)
    operator = world.operator()
    paused = operator.replay(Filter(), ReplayOptions(rate=4), stopping=lambda: True)
    world.broker.truncate(dead, 5)

    class Killed(BaseException):
        pass

    def kill(operation, fate):
        if operation.done:  # and what was deleted is written down with it
            raise Killed

    with pytest.raises(Killed):
        operator.resume(paused.id, progress=kill)
    done = operator.resume(paused.id)
    assert (done.status, done.counts) == ("done", {"sent": 15, "deleted": 5})


@pytest.mark.parametrize(
    ("first", "counts"), [(8, {"sent": 12, "deleted": 8}), (20, {"deleted": 20})]
)
def test_letters_that_go_between_a_dry_run_and_its_job_are_counted(world, first, counts):
    operator = world.operator()
    plan = operator.plan(Filter())
    world.broker.truncate(TopicPartition("shop.dead", 0), first)
    done = operator.replay(Filter(), planned=plan.planned)
    assert (done.status, done.left, done.counts) == ("done", 0, counts)


def test_a_job_without_a_plan_knows_only_of_letters_that_go_after_its_start(world):
    operator = world.operator()
    world.broker.truncate(TopicPartition("shop.dead", 0), 8)
    assert operator.replay(Filter()).counts == {"sent": 12}


def test_a_letter_that_was_named_and_is_gone_is_counted(world):
    operator = world.operator()
    world.broker.truncate(TopicPartition("shop.dead", 0), 8)
    gone, there = Filter(places=("shop.dead[0]@3",)), Filter(places=("shop.dead[0]@8",))
    assert operator.replay(gone).counts == {"deleted": 1}
    assert operator.discard(gone, "no").counts == {"deleted": 1}
    assert operator.replay(there).counts == {"sent": 1}
    assert operator.replay(Filter(places=("shop.dead[0]@99",))).counts == {}
    assert operator.replay(Filter(places=("other[0]@3",))).counts == {}


def test_letters_that_are_discarded_or_left_out_take_room_as_well(world, monkeypatch):
    """They are read whole, though nothing of them is written."""
    monkeypatch.setattr("redrive.dead.running.DEAD_BYTES", 1)
    steps = []
    operator = world.operator()
    operator.discard(Filter(), "no", progress=lambda job, _fate: steps.append(job.done))
    assert max(b - a for a, b in pairwise(steps)) == 1


def test_a_missing_permission_ends_the_job_and_no_letter_is_left_out_for_it(world, monkeypatch):
    publish = world.broker.publish

    def refuse(writes):
        refused = [write for write in writes if write.topic == "shop.retry.5s"]
        if refused:
            error = publish_error("shop.retry.5s", 0, "TOPIC_AUTHORIZATION_FAILED")
            error.refused = refused
            raise error
        publish(writes)

    monkeypatch.setattr(world.broker, "publish", refuse)
    operator = world.operator()
    with pytest.raises(WriteNotAllowedError, match=r"grant WRITE on topic shop\.retry\.5s"):
        operator.replay(Filter())
    monkeypatch.undo()
    [job] = operator.operations()
    assert job.counts == {}
    assert operator.resume(job.id).counts == {"sent": 20}


def test_a_job_without_steps_says_at_its_end_that_too_many_failed_again(world):
    done = world.operator().replay(Filter(keys=("k0",)), ReplayOptions(stop_above=0.05))
    assert (done.status, done.done) == ("done", 7)
    assert done.said.startswith("7 of 7 failed again, more than 5%: look at them")
    assert done.too_many_failed
    world.repair()
    done = world.operator().replay(Filter(keys=("k1",)), ReplayOptions(stop_above=0.05))
    assert (done.status, done.said, done.too_many_failed) == ("done", "", False)


def test_a_job_waits_at_its_end_only_for_an_app_that_runs(world, monkeypatch):
    monkeypatch.setattr("redrive.dead.running.RAMP_PATIENCE", -100.0)
    operator = world.operator()
    paused = operator.replay(Filter(), ReplayOptions(stop_above=0.05))
    assert (paused.status, paused.done) == ("paused", 20)
    assert "20 copies were not handled in time: is the app running?" in paused.said
    world.repair()
    world.run()
    assert operator.resume(paused.id).counts == {"sent": 20}


class Slow:
    """A clock, and an app that handles one copy in a while, or none after some of them."""

    def __init__(self, world, monkeypatch, *, handles):
        self.now = 0.0
        self._looks = 0
        self._handles = handles
        monkeypatch.setattr("redrive.dead.running.monotonic", lambda: self.now)
        monkeypatch.setattr(Watch, "look", lambda _watch: self._look())
        monkeypatch.setattr(world, "wait", self._wait)

    def _look(self):
        self._looks += 1
        handled = min(self._looks // 4, self._handles)
        return Fate(dead=0, parked=0, waiting=20 - handled)

    def _wait(self, _seconds):
        self.now += RAMP_PATIENCE / 5


def test_a_job_waits_as_long_as_its_copies_become_fewer(world, monkeypatch):
    slow = Slow(world, monkeypatch, handles=20)
    done = world.operator().replay(Filter(), ReplayOptions(stop_above=0.05))
    assert (done.status, done.said) == ("done", "")
    assert slow.now > 10 * RAMP_PATIENCE


def test_a_job_waits_no_longer_when_they_do_not_become_fewer_any_more(world, monkeypatch):
    slow = Slow(world, monkeypatch, handles=3)
    paused = world.operator().replay(Filter(), ReplayOptions(stop_above=0.05))
    assert paused.status == "paused"
    assert paused.said == "17 copies were not handled in time: is the app running?"
    assert slow.now < 4 * RAMP_PATIENCE


def test_what_was_done_is_not_read_again_with_each_look(world):
    world.repair()
    world.operator().discard(Filter(keys=("k0",)), "no")
    letters = world.letters
    letters.log = Counting(world.broker)
    world.step = "1s"  # five of them until the copies are due

    def wait(seconds):
        reads.append(letters.log.read["shop.dead.state"])
        world.wait(seconds)

    reads = []
    operator = world.operator_of(letters, "alice")
    means = replace(operator.means, wait=wait)
    done = Operator(letters, means, "alice").replay(Filter(), ReplayOptions(ramp=(13,)))
    assert (done.status, done.done) == ("done", 13)
    assert len(reads) >= 4
    assert len({*reads[1:]}) == 1


def test_a_job_that_finds_nothing_yet_can_be_paused(world):
    """Among millions of letters of which it means none, it would else go on to the end."""
    letters = world.letters
    letters.log = Counting(world.broker)
    operator = world.operator_of(letters, "alice")
    paused = operator.replay(
        Filter(text="no such"), stopping=lambda: letters.log.read["shop.dead"] > 0
    )
    assert (paused.status, paused.said, paused.done) == ("paused", "by a signal", 0)
    assert operator.resume(paused.id).status == "done"
