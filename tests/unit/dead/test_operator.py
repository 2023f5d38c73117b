"""Operators: what they are told before anything is written, or anybody is fenced off."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial

import pytest
from operating import World

from redrive import ConfigurationError
from redrive.dead import DeadLetters, Filter
from redrive.dead.desk import UnderWayError
from redrive.dead.operator import Operator, ReplayOptions
from redrive.dead.scan import Planned
from redrive.dead.state_topic import operation_write
from redrive.kafka.errors import NotAllowedError


def test_no_share_at_all_may_fail_again(world):
    stopped = world.operator().replay(Filter(), ReplayOptions(ramp=(1,), stop_above=0.0))
    assert (stopped.status, stopped.done) == ("stopped", 1)
    assert ReplayOptions.of(stopped.options) == ReplayOptions(ramp=(1,), stop_above=0.0)


def test_a_paused_job_that_means_the_same_letters_is_in_the_way(world):
    wanted = Filter(keys=("k0", "k1"))
    world.operator().replay(wanted, stopping=lambda: True)
    with pytest.raises(UnderWayError, match="means the same letters"):
        world.operator("bob").replay(wanted)
    assert world.operator("bob").replay(Filter(keys=("k2",))).status == "done"


def test_a_fix_that_is_not_installed_here_fences_nobody_off(world):
    paused = world.operator().replay(
        Filter(), ReplayOptions(fix=f"{__name__}:shout"), stopping=lambda: True
    )
    alice = world.take_over()
    globals()["whisper"] = globals().pop("shout")
    try:
        with pytest.raises(ConfigurationError, match="has no shout"):
            world.operator("bob").resume(paused.id)
    finally:
        globals()["shout"] = globals().pop("whisper")
    alice.commit([], {})  # she still can
    assert world.operator("bob").resume(paused.id).done == 20


def shout(record):
    return record.value.upper()


def test_a_job_goes_on_only_for_those_for_whom_it_was_begun(world):
    """Read in another way, its letters would be left out one by one, and it would be done."""
    paused = world.operator().replay(Filter(), stopping=lambda: True)
    bob = world.operator("bob", topic="shop.dead")
    with pytest.raises(UnderWayError, match="was begun for the app shop, not without one"):
        bob.resume(paused.id)
    assert world.operator("bob").resume(paused.id).counts == {"sent": 20}


def test_a_job_goes_on_with_the_dialect_that_it_was_begun_with(world):
    spring = world.operator(topic="shop.dead", dialect="spring")
    paused = spring.replay(Filter(), ReplayOptions(to=("orders",)), stopping=lambda: True)
    with pytest.raises(UnderWayError, match="was begun with --dialect spring"):
        world.operator(topic="shop.dead").resume(paused.id)
    named = DeadLetters(world.broker, topic="shop.dead", dialect="spring").named
    assert named == "--topic shop.dead --dialect spring"
    assert spring.resume(paused.id).status == "done"


@pytest.mark.parametrize("act", [Operator.pause, Operator.cancel])
def test_a_job_that_runs_is_not_ended_by_what_is_done_about_another(world, act):
    paused = world.operator().replay(Filter(keys=("k0",)), stopping=lambda: True)
    said = []

    def meanwhile(operation, _fate):
        if operation.done and not said:
            with pytest.raises(
                UnderWayError, match="of alice is under way, or was killed"
            ) as caught:
                act(world.operator("bob"), paused.id)
            said.append(caught.value)

    done = world.operator().replay(Filter(keys=("k1",)), ReplayOptions(rate=4), progress=meanwhile)
    assert (done.status, len(said)) == ("done", 1)
    assert act(world.operator("bob"), paused.id).status in {"paused", "cancelled"}


def test_an_edited_value_is_for_one_letter_that_is_named(world):
    """Others may fit a filter by the time that the value has been edited."""
    for wanted in (Filter(), Filter(ids=("1",)), Filter(places=("shop.dead[0]",))):
        with pytest.raises(ConfigurationError, match="an edited value is for one letter"):
            world.operator().replay(wanted, ReplayOptions(edited=b"new"))
    world.repair()
    one = Filter(places=("shop.dead[0]@3",))
    assert world.operator().replay(one, ReplayOptions(edited=b"new")).counts == {"sent": 1}
    assert world.run() == ["new"]


@pytest.mark.parametrize("options", [ReplayOptions(ramp=(1,)), ReplayOptions(stop_above=0.0)])
def test_what_becomes_of_copies_for_others_cannot_be_seen(world, options):
    operator = world.operator(topic="shop.dead")
    with pytest.raises(ConfigurationError, match="needs an app: redrive cannot see"):
        operator.replay(Filter(), replace(options, to=("orders",)))


def recreated(world, letters=30):
    world.broker.delete("shop.dead")
    world.broker.create("shop.dead")
    for number in range(letters):
        world.sim.send("shop.dead", f"other {number}")


def test_a_dead_topic_that_is_recreated_just_before_a_job_begins(world):
    operator = world.operator()

    def take_over():
        recreated(world)
        return world.take_over()

    late = Operator(world.letters, replace(operator.means, take_over=take_over), "alice")
    with pytest.raises(UnderWayError, match=r"shop\.dead, which has been recreated"):
        late.replay(Filter())
    assert operator.operations() == []


@pytest.mark.parametrize("letters", [2, 30])
def test_a_dead_topic_that_is_recreated_in_the_middle_of_a_job(world, letters):
    """Also if the new one has letters at the same offsets: they are other letters."""
    world.repair()
    operator = world.operator()
    written = len(world.broker.records("shop.retry.5s"))
    with pytest.raises(UnderWayError, match="cancel it, and start again") as caught:
        operator.replay(
            Filter(),
            ReplayOptions(rate=4),
            progress=lambda job, _fate: recreated(world, letters) if job.done else None,
        )
    assert len(world.broker.records("shop.retry.5s")) == written + 4
    [job] = operator.operations()
    assert job.id in str(caught.value)
    operator.cancel(job.id)
    assert set(world.states().values()) == {"open"}


def test_a_topic_that_is_no_dead_topic_is_left_alone(world):
    """Without --to nothing is made, with it nothing is written: its records do not say why."""
    operator = world.operator(topic="orders")
    with pytest.raises(ConfigurationError, match="--to is missing: other consumers' letters"):
        operator.replay(Filter())
    assert not world.broker.partitions("orders.state")
    before = world.broker.records("orders")
    done = operator.replay(Filter(), ReplayOptions(to=("orders",)))
    assert (done.status, done.counts) == ("done", {"no-origin": 20})
    assert world.broker.records("orders") == before


def test_whoever_may_not_see_what_becomes_of_copies_hears_it_before_any_is_written(world):
    class Hidden:
        def committed(self, places):
            raise NotAllowedError("grant DESCRIBE on group shop")

    operator = world.operator()
    means = replace(operator.means, progress=Hidden())
    blind = Operator(world.letters, means, "alice")
    for options in (ReplayOptions(ramp=(1,)), ReplayOptions(stop_above=0.0)):
        with pytest.raises(NotAllowedError, match="grant DESCRIBE on group shop"):
            blind.replay(Filter(), options)
    assert operator.operations() == []
    assert blind.replay(Filter()).done == 20  # who does not want to see it needs no permission


@pytest.mark.parametrize("kind", ["replay", "discard"])
@pytest.mark.parametrize(
    ("planned", "meant"), [({0: (0, 7)}, 7), ({0: (3, 500)}, 20), ({}, 0), (None, 20)]
)
def test_a_job_with_a_plan_leaves_letters_alone_that_died_after_it(world, kind, planned, meant):
    operator = world.operator()
    seen = Planned(world.broker.topic_id("shop.dead"), planned)
    if kind == "replay":
        done = operator.replay(Filter(), planned=seen)
    else:
        done = operator.discard(Filter(), "test data", planned=seen)
    assert (done.status, done.done, done.left) == ("done", meant, 0)


@pytest.mark.parametrize("kind", ["replay", "discard"])
def test_letters_that_took_the_places_of_those_in_a_plan_are_left_alone(world, kind):
    operator, one = world.operator(), Filter(places=("shop.dead[0]@3",))
    if kind == "replay":
        plan, do = operator.plan(one), operator.replay
    else:
        plan, do = operator.plan_discard(one), partial(operator.discard, why="test data")
    assert plan.letters == 1
    recreated(world)
    with pytest.raises(UnderWayError, match=r"shop\.dead has been recreated since somebody looked"):
        do(one, planned=plan.planned)
    assert operator.operations() == []
    assert {*world.states().values()} == {"open"}


def test_a_job_of_a_newer_version_is_not_done_in_another_way(world):
    operator = world.operator()
    job = operator.replay(Filter(), stopping=lambda: True)
    newer = job.change(options={**job.options, "only": "adults"})
    world.broker.publish([operation_write("shop.dead", newer)])
    with pytest.raises(ConfigurationError, match="begun with only, which this version of redrive"):
        operator.resume(job.id)
    assert {*world.states().values()} == {"open"}


def test_what_a_command_named_of_masked_letters_is_not_told_to_others():
    world = World(values=["a", "b"])
    world.app.masked = ("card",)
    raw = Filter(keys=("k0",), text="'a'", ids=("secret-id",), headers=("card=4711",))
    begun = world.operator().replay(raw, stopping=lambda: True)
    [known] = world.operator().operations()
    assert known.letters == raw  # whoever resumes it means the same letters
    told = world.letters.told(known)
    assert str(told.letters) == "text ***; keys ***; ids ***; headers ***"
    assert "4711" not in json.dumps(told.as_data())
    seen = begun.change(filter=replace(raw, as_seen=True).as_data())
    assert world.letters.told(seen) == seen  # it names what may be seen
    rewound = begun.change(options={"keys": ["k0"], "rate": 5.0})
    assert world.letters.told(rewound).options == {"keys": ["***"], "rate": 5.0}
    world.app.masked = ()
    assert world.letters.told(known) == known
