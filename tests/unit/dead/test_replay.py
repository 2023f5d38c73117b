"""Replaying letters, and discarding them: once each, in order, by one operator at a time."""

from __future__ import annotations

import json
from dataclasses import replace

import letters
import pytest
from operating import World

from redrive import App, Bury, ConfigurationError
from redrive.dead import Filter
from redrive.dead.desk import Desk, Means, TakenOverError, UnderWayError
from redrive.dead.operator import Operator, ReplayOptions
from redrive.dead.pace import Pace, ramp_of, rate_of, share_of
from redrive.dead.state_topic import read_state
from redrive.envelope import parse
from redrive.errors import NotReadyError
from redrive.record import TopicPartition
from redrive.testing import Simulation

DEAD = TopicPartition("shop.dead", 0)
FIXED = {"missing": False}


@pytest.fixture
def world():
    return World(values=[f"v{number}" for number in range(20)])


def test_a_dry_run_counts_exactly_and_writes_nothing(world):
    ends = {topic: world.broker.bounds(TopicPartition(topic, 0)) for topic in world.broker.names()}
    plan = world.operator().plan(Filter(keys=("k0",)))
    assert (plan.letters, plan.targets, plan.left_out) == (7, {"shop.retry.5s": 7}, {})
    assert [group.count for group in plan.groups] == [7]
    assert plan.scanned.complete
    assert ends == {
        topic: world.broker.bounds(TopicPartition(topic, 0)) for topic in world.broker.names()
    }


def test_letters_are_handled_once_each_in_the_order_of_their_key(world):
    world.repair()
    done = world.operator().replay(Filter(), why="fixed")
    assert (done.status, done.done, done.left) == ("done", 20, 0)
    handled = world.run()
    assert sorted(handled) == sorted(f"v{number}" for number in range(20))
    for key in range(3):
        mine = [int(each[1:]) for each in handled if int(each[1:]) % 3 == key]
        assert mine == sorted(mine)
    assert set(world.states().values()) == {"replayed"}


def test_a_copy_begins_again_and_keeps_who_it_is(world):
    [before] = world.letters.some(Filter(places=("shop.dead[0]@0",)))[0]
    operation = world.operator().replay(Filter(places=("shop.dead[0]@0",)))
    copy = world.broker.records("shop.retry.5s")[-1]
    envelope = parse(copy.headers)
    old = parse(before.letter.record.headers)
    assert (envelope.id, envelope.origin_topic, envelope.origin_offset) == (
        old.id,
        "orders",
        old.origin_offset,
    )
    assert (envelope.attempt, envelope.dead_reason, envelope.error_type) == (1, None, None)
    assert (envelope.history, envelope.error_group) == (None, None)
    assert envelope.replay_of == "shop.dead[0]@0"
    assert (envelope.replay_count, envelope.operation) == (1, operation.id)
    assert (copy.key, copy.value) == (before.letter.record.key, before.letter.record.value)


def test_a_second_replay_of_a_letter_needs_to_be_asked_for(world):
    world.repair()
    world.operator().replay(Filter(keys=("k1",)))
    plan = world.operator().plan(Filter())
    assert (plan.letters, plan.left_out) == (13, {"replayed-before": 7})
    assert world.operator().plan(Filter(), ReplayOptions(again=True)).letters == 20
    again = world.operator().replay(Filter(keys=("k1",)), ReplayOptions(again=True))
    assert again.done == 7
    [mark] = {each.mark for each in world.letters.some(Filter(keys=("k1",)))[0]}
    assert len(mark.operations) == 2


def test_what_dies_again_is_another_letter_that_says_so(world):
    operation = world.operator().replay(Filter(keys=("k2",)))
    world.run()
    found, _ = world.letters.some(Filter(states=("failed-again",)), 100)
    assert len(found) == 6
    assert {each.letter.operation for each in found} == {operation.id}
    detail = world.letters.show(found[0].letter.place)
    assert [each.id for each in detail.operations] == [operation.id]
    world.repair()
    assert world.operator().plan(Filter()).letters == 14 + 6
    world.operator().replay(Filter(states=("failed-again",)))
    assert len(world.run()) == 6


def test_what_dies_again_meanwhile_is_not_replayed_by_the_same_job(world):
    world.operator().replay(Filter(), progress=lambda *_: world.sim.run_until_empty())
    world.run()
    assert len(world.broker.records("shop.dead")) == 40


@pytest.mark.parametrize("die", range(1, 6))
def test_a_job_that_is_killed_goes_on_where_it_was(world, die):
    """At each of its commits, before or after: none left out, none twice."""
    world.repair()
    operator = world.operator()
    steps = iter(range(100))

    class Killed(BaseException):
        pass

    def commit(owner):
        def act(writes, positions):
            step = next(steps)
            if step == die and die % 2:
                raise Killed  # before it is durable
            owner_commit(writes, positions)
            if step == die:
                raise Killed  # after it is

        owner_commit = owner.commit
        owner.commit = act
        return owner

    means = operator.means
    dying = Operator(
        world.letters,
        Means(
            lambda: commit(means.take_over()),
            means.topics,
            means.clock,
            means.wait,
            means.progress,
        ),
        "alice",
    )
    with pytest.raises(Killed):
        # Also letters that were replayed before: their marks keep nobody from coming twice.
        dying.replay(Filter(), ReplayOptions(ramp=(1, 2, 3, 4), again=True))
    [job] = operator.operations()
    assert job.status == "running"
    hint = f"`redrive dead jobs {operator.letters.named} --resume {job.id}` continues it"
    with pytest.raises(UnderWayError, match=hint):
        operator.replay(Filter())
    done = operator.resume(job.id)
    assert (done.status, done.done) == ("done", 20)
    assert sorted(world.run()) == sorted(f"v{number}" for number in range(20))


def test_two_operators_cannot_do_it_twice(world):
    """The first is still at work when the second takes over: only one of them can write."""
    world.repair()
    alice, bob = world.operator("alice"), world.operator("bob")
    taken = []

    def progress(operation, fate):
        if not taken:
            taken.append(bob.resume(operation.id))

    found = alice.replay(Filter(), ReplayOptions(ramp=(3,)), progress=progress)
    assert (found.status, found.done) == ("done", 20)  # as bob has left it
    assert (len(taken), len(world.run())) == (1, 20)


def test_what_another_did_until_the_last_moment_is_not_done_twice(world):
    """Bob is through in the moment before alice takes over."""
    alice, bob = world.operator("alice"), world.operator("bob")
    late = replace(alice.means, take_over=lambda: bob.replay(Filter()) and world.take_over())
    found = Operator(world.letters, late, "alice").replay(Filter())
    assert found.counts == {"replayed-before": 20}
    assert len(world.broker.records("shop.retry.5s")) == 20 + 20  # of their first life, and one


def test_whoever_was_fenced_off_says_so(world):
    alice, bob = world.operator("alice"), world.operator("bob")

    def progress(operation, fate):
        Desk(world.letters, bob.means)  # and no more than that, as if bob was killed then

    with pytest.raises(
        TakenOverError, match=r"somebody else works on the letters of shop\.dead now"
    ):
        alice.replay(Filter(), ReplayOptions(ramp=(3,)), progress=progress)


def test_a_second_operator_is_told_who_is_at_work(world):
    alice, bob = world.operator("alice"), world.operator("bob")
    said = []

    def progress(operation, fate):
        with pytest.raises(UnderWayError) as caught:
            bob.replay(Filter(keys=("k0",)))
        said.append(str(caught.value))
        with pytest.raises(UnderWayError):
            bob.discard(Filter(), "no")

    assert alice.replay(Filter(), progress=progress).status == "done"
    assert "of alice is under way" in said[0]


def test_pause_resume_and_cancel(world):
    world.repair()
    alice, bob = world.operator("alice"), world.operator("bob")

    def pause(operation, fate):
        if operation.done == 5:
            bob.pause(operation.id)

    paused = alice.replay(Filter(), ReplayOptions(ramp=(5,)), progress=pause)
    assert (paused.status, paused.said, paused.done) == ("paused", "paused by bob", 5)
    with pytest.raises(UnderWayError, match="means the same letters"):
        alice.replay(Filter())
    cancelled = bob.cancel(paused.id)
    assert cancelled.status == "cancelled"
    with pytest.raises(UnderWayError, match="is cancelled: there is nothing left to do"):
        alice.resume(paused.id)
    with pytest.raises(UnderWayError, match="there is no operation x; unfinished ones: none"):
        alice.resume("x")
    assert alice.plan(Filter()).left_out == {"replayed-before": 5}
    assert alice.replay(Filter()).done == 15


def test_a_signal_pauses_in_an_orderly_way(world):
    steps = iter([False, False, False, True])
    paused = world.operator().replay(
        Filter(), ReplayOptions(rate=4), stopping=lambda: next(steps, True)
    )
    assert (paused.status, paused.said) == ("paused", "by a signal")
    assert 0 < paused.done < 20
    assert world.operator().resume(paused.id).done == 20


def test_whoever_pauses_and_resumes_a_job_is_named_with_it(world):
    steps = iter(["", "", "bob"])
    rate = ReplayOptions(rate=4)
    paused = world.operator().replay(Filter(), rate, stopping=lambda: next(steps, "bob"))
    assert (paused.status, paused.said) == ("paused", "by bob")
    seen = []
    done = world.operator("carol").resume(
        paused.id, progress=lambda operation, _fate: seen.append(operation.said)
    )
    assert {*seen} == {"resumed by carol"}
    assert (done.status, done.said) == ("done", "resumed by carol")


def test_a_ramp_waits_until_its_step_is_handled_and_stops_when_too_many_fail_again(world):
    stopped = world.operator().replay(Filter(), ReplayOptions(ramp=(1, 4), stop_above=0.05))
    assert (stopped.status, stopped.done) == ("stopped", 1)
    assert "1 of 1 failed again, more than 5%" in stopped.said
    world.repair()
    done = world.operator().resume(stopped.id)
    assert done.status == "stopped"  # the first one still counts: a fifth of five
    assert done.done == 5
    cancelled = world.operator().cancel(done.id)
    assert cancelled.status == "cancelled"
    assert (
        world.operator().replay(Filter(), ReplayOptions(ramp=(1, 10), stop_above=0.05)).done == 16
    )


def test_a_ramp_does_not_wait_for_ever_for_an_app_that_does_not_run(world, monkeypatch):
    from redrive.dead import running

    monkeypatch.setattr(running, "RAMP_PATIENCE", -100.0)
    paused = world.operator().replay(Filter(), ReplayOptions(ramp=(2,)))
    assert (paused.status, paused.done) == ("paused", 2)
    assert paused.said == "2 copies were not handled in time: is the app running?"


def test_a_fix_changes_the_value_and_the_letter_stays_as_it_was(world):
    world.repair()
    options = ReplayOptions(fix=f"{__name__}:better")
    plan = world.operator().plan(Filter(keys=("k0",)), options)
    assert (plan.letters, plan.changed) == (6, 6)
    assert plan.differences[0] == ("shop.dead[0]@0", ["@@ -1 +1 @@", "-v0", "+better v0"])
    world.operator().replay(Filter(keys=("k0",)), options)
    assert world.run()[0] == "better v0"
    assert world.broker.records("shop.dead")[0].value == b"v0"


def better(record):
    if record.value == b"v3":
        raise ValueError("not this one")
    return b"better " + record.value


def forgetful(record):
    record.value.upper()


not_a_function = 7


def test_letters_that_cannot_be_fixed_stay_as_they_are(world):
    world.repair()
    plan = world.operator().plan(Filter(), ReplayOptions(fix=f"{__name__}:better"))
    assert (plan.letters, plan.left_out) == (19, {"fix-failed": 1})
    assert "better failed for shop.dead[0]@" in plan.examples["fix-failed"]
    assert "(ValueError: not this one)" in plan.examples["fix-failed"]
    done = world.operator().replay(Filter(), ReplayOptions(fix=f"{__name__}:better"))
    assert (done.done, done.left_out) == (19, {"fix-failed": 1})
    assert world.states()["v3"] == "open"


def test_mistakes_with_fixes_are_sentences(world):
    operator = world.operator()
    plan = operator.plan(Filter(), ReplayOptions(fix=f"{__name__}:forgetful"))
    assert plan.left_out == {"fix-failed": 20}
    assert "it returned nothing: return the new value" in str(plan.examples)
    for fix, said in [
        ("nothing", "does not name a fix, which is a function of a record: write module"),
        (
            f"{__name__}:gone",
            "has no gone: .*:gone should be a fix, which is a function of a record;",
        ),
        (f"{__name__}:not_a_function", "is not a function of a record"),
        ("no_such_module:x", "there is no module no_such_module"),
    ]:
        with pytest.raises(ConfigurationError, match=said):
            operator.replay(Filter(), ReplayOptions(fix=fix))
    assert operator.operations() == []


def test_an_edited_value_survives_a_pause(world):
    world.repair()
    at = Filter(places=("shop.dead[0]@4",))
    paused = world.operator().replay(at, ReplayOptions(edited=b"\xffedited"), stopping=lambda: True)
    assert paused.done == 0
    world.operator().resume(paused.id)
    world.sim.run_until_empty()
    assert [each.value for each in world.sim.sent("done")] == [b"\xffedited"]


def test_discarding_is_a_mark_with_a_reason(world):
    operator = world.operator()
    with pytest.raises(ConfigurationError, match="--reason is empty"):
        operator.discard(Filter(), " ")
    done = operator.discard(Filter(keys=("k0",)), "test data")
    assert (done.status, done.done) == ("done", 7)
    assert world.letters.stats()[0].states == {"discarded": 7, "open": 13}
    assert len(world.broker.records("shop.dead")) == 20
    plan = operator.plan(Filter())
    assert (plan.letters, plan.left_out) == (13, {"discarded-before": 7})
    assert operator.plan(Filter(states=("discarded",))).letters == 7
    assert operator.plan_discard(Filter()).letters == 13
    detail = world.letters.show("shop.dead[0]@0")
    assert [(each.kind, each.why, each.by) for each in detail.operations] == [
        ("discard", "test data", "alice")
    ]


def test_an_app_without_delays_gets_its_copies_at_the_origin():
    world = World(app=origin_app(), values=["a", "b"])
    world.app.fixed = True
    done = world.operator().replay(Filter())
    assert done.done == 2
    copies = world.broker.records("orders")[2:]
    assert [dict(copy.headers)["redrive-app"] for copy in copies] == [b"shop"] * 2
    assert world.run() == ["a", "b"]


def origin_app(**options):
    app = App("shop", **options)
    app.fixed = False

    @app.handler("orders")
    def handle(record, ctx):
        if not app.fixed:
            raise Bury("no")
        ctx.send("done", record.value)

    return app


def test_other_apps_on_the_same_topic_do_not_see_it():
    world = World(app=origin_app(), values=["a"])
    seen = []
    other = App("other")
    other.handler("orders")(lambda record, ctx: seen.append(record.value))
    beside = Simulation(other, broker=world.broker, clock=world.sim.clock)
    beside.run()
    world.operator().replay(Filter())
    beside.run()
    assert seen == [b"a"]


def test_records_that_expire_are_tried_again_from_now_on():
    world = World(values=["old"], max_duration="1m", redeliver="origin")
    world.sim.advance("1h")
    world.repair()
    world.operator().replay(Filter())
    assert world.run() == ["old"]


def test_a_copy_that_fails_once_is_tried_again_however_old_its_record_is():
    world = World(values=["old"], max_duration="1m")
    world.sim.advance("1h")
    world.operator().replay(Filter())
    world.sim.advance("5s")
    assert [kept.envelope.attempt for kept in world.sim.parked] == [2]
    world.repair()
    assert world.run() == ["old"]


def test_letters_without_a_handler_or_a_topic_are_left_out():
    world = World(values=["a", "b"])
    app = App("shop")
    app.handler("returns")(lambda record, ctx: None)
    world.broker.create("returns")
    plan = world.operator(app=app).plan(Filter())
    assert (plan.left_out, plan.examples) == ({"no-handler": 2}, {"no-handler": "orders"})
    gone = World(app=origin_app(), values=["a"])
    gone.broker.delete("orders")
    plan = gone.operator().plan(Filter())
    assert (plan.left_out, plan.examples) == ({"no-topic": 1}, {"no-topic": "orders"})


def test_letters_of_others_go_to_their_origin_if_that_is_allowed(world):
    world.broker.create("orders.DLT")
    world.broker.create("movies", 3)
    for headers in (letters.SPRING, letters.SMALLRYE, ()):
        world.sim.send("orders.DLT", "v", key="k", headers=headers)
    operator = world.operator(topic="orders.DLT")
    plan = operator.plan(Filter())
    assert plan.left_out == {"not-allowed": 2, "no-origin": 1}
    assert plan.examples["not-allowed"] == "orders 1, movies 1"  # each that --to would have to name
    done = operator.replay(Filter(), ReplayOptions(to=("orders", "movies", "gone")))
    assert done.counts == {"sent": 2, "no-origin": 1}
    [copy] = world.broker.records("movies")
    assert (copy.partition, copy.key, copy.value) == (2, b"k", b"v")
    assert dict(copy.headers)["redrive-replay-of"].startswith(b"orders.DLT[0]@")
    assert not [name for name, _ in copy.headers if name.startswith("dead-letter")]
    assert world.broker.partitions("orders.DLT.state") == 1
    with pytest.raises(ConfigurationError, match="--ramp needs an app"):
        operator.replay(Filter(), ReplayOptions(ramp=(1,)))


def test_what_retention_deletes_before_it_is_replayed_is_counted(world):
    world.repair()
    paused = world.operator().replay(Filter(), stopping=lambda: True)
    world.broker.truncate(DEAD, 8)
    done = world.operator().resume(paused.id)
    assert (done.done, done.counts["deleted"]) == (12, 8)


def test_a_copy_that_its_topic_refuses_is_left_out_and_the_others_go(world):
    world.repair()
    world.broker.configure("shop.retry.5s", {"max.message.bytes": "700"})
    options = ReplayOptions(fix=f"{__name__}:huge_for_v2")
    done = world.operator().replay(Filter(), options)
    assert (done.done, done.left_out) == (19, {"refused": 1})
    assert world.states()["v2"] == "open"
    assert len(world.run()) == 19


def huge_for_v2(record):
    return b"x" * 2000 if record.value == b"v2" else record.value


def test_a_dead_topic_that_was_created_again_has_other_letters(world):
    paused = world.operator().replay(Filter(), stopping=lambda: True)
    world.operator().discard(Filter(keys=("k0",)), "no")
    world.broker.delete("shop.dead")
    world.broker.create("shop.dead")
    world.sim.send("shop.dead", "x")
    assert world.letters.stats()[0].states == {"open": 1}
    with pytest.raises(UnderWayError, match="has been recreated since"):
        world.operator().resume(paused.id)


def test_without_its_state_topic_nothing_is_changed(world):
    world.broker.delete("shop.dead.state")
    with pytest.raises(NotReadyError, match="run `redrive topics module:app --apply`"):
        world.operator().replay(Filter())
    assert world.letters.groups()[1].complete


def test_what_others_write_to_the_state_topic_does_no_harm(world):
    world.operator().discard(Filter(keys=("k0",)), "no")
    for key, value in [
        (b"letter/x/0/1", b"{}"),
        (b"operation/1", b'{"id": 1}'),
        (b"\xff", b"\xff"),
        (None, None),
        (f"letter/{world.broker.topic_id('shop.dead')}/0/1".encode(), b"[]"),
    ]:
        world.broker.configure("shop.dead.state", {"cleanup.policy": "delete"})
        world.sim.send("shop.dead.state", value, key=key)
    known = read_state(world.broker, "shop.dead")
    assert len(known.marks) == 7
    assert len(known.operations) == 1


def test_state_is_text_that_any_tool_shows(world):
    world.operator().discard(Filter(places=("shop.dead[0]@0",)), "no")
    records = world.broker.records("shop.dead.state")
    keys = [record.key.decode() for record in records]
    assert any(key.startswith("letter/") for key in keys)
    [letter] = [json.loads(r.value) for r in records if r.key.startswith(b"letter/")]
    assert letter == {
        "state": "discarded",
        "operations": [world.operator().operations()[0].id],
        "by": "alice",
        "at": letter["at"],
        "why": "no",
    }


def test_rates_ramps_and_shares_are_read_as_they_are_written():
    assert [rate_of(each) for each in ("200/s", "30/m", "7", None)] == [200, 0.5, 7, None]
    assert [ramp_of(each) for each in ("1,10,100", "5", None)] == [(1, 10, 100), (5,), ()]
    assert [share_of(each) for each in ("5%", "0%", None)] == [0.05, 0, None]
    for wrong in ("x", "0/s", "5/d"):
        with pytest.raises(ConfigurationError, match="--rate"):
            rate_of(wrong)
    for wrong in ("x", "0", "1,,2"):
        with pytest.raises(ConfigurationError, match="--ramp"):
            ramp_of(wrong)
    for wrong in ("x", "100%", "-1%"):
        with pytest.raises(ConfigurationError, match="--stop-above"):
            share_of(wrong)


def test_a_pace_keeps_its_rate_and_its_steps():
    pace = Pace(rate=2, ramp=(1, 2))
    assert pace.room() == 1
    pace.took(1, began=10)
    assert (pace.looks, pace.wait(10), pace.room()) == (True, 0.5, 2)
    pace.took(2, began=10.5)
    assert (pace.looks, pace.wait(11), pace.room()) == (True, 0.5, 2)
    pace.took(2, began=20)
    assert (pace.looks, pace.wait(20)) == (False, 1.0)
    assert Pace().room() == 500


def test_letters_are_found_by_the_operation_that_did_something_about_them():
    world = World(values=["a", "b", "c"])
    job = world.operator().replay(Filter(keys=("k1",)))
    other = world.operator().discard(Filter(keys=("k2",)), "test data")
    for operation, key in ((job, b"k1"), (other, b"k2")):
        found = world.letters.scan(Filter(operations=(operation.id,)))
        assert [each.letter.record.key for each in found] == [key]
    assert list(world.letters.scan(Filter(operations=("replay-unknown",)))) == []
