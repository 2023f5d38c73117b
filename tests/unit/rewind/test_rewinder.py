"""Progress goes back: exactly the records in range are handled again, in somebody's name."""

from __future__ import annotations

import pytest
from rewinding import IDS, SOURCE, World, where

from redrive import ConfigurationError
from redrive.dead.desk import TakenOverError, UnderWayError
from redrive.dead.operator import Operator
from redrive.engines.spark import marks
from redrive.errors import NotReadyError
from redrive.ports import Position
from redrive.processing.progress.notes import RUN, TOPIC, noted, with_note
from redrive.record import TopicPartition, Write
from redrive.rewind import Where

VALUES = [f"v{number}" for number in range(10)]
INBOX = "idempotent"


@pytest.fixture
def world():
    return World(*VALUES)


def test_a_dry_run_counts_and_changes_nothing(world):
    before = world.committed
    plan = world.plan(4)
    assert (plan.records, plan.handled, plan.left_out, plan.parked) == (6, 6, {}, 0)
    assert [*plan.sentences()] == [
        "orders[0]: from offset 4 on; the app is at 10",
        "6 records",
    ]
    assert (world.committed, world.operations()) == (before, [])


def test_exactly_the_records_in_range_are_handled_again(world):
    world.send("new")
    done = world.rewind(4, why="wrong prices")
    assert (done.status, done.counts, done.left) == ("done", {"rewound": 6}, 0)
    assert (done.by, done.why, str(done.letters)) == ("alice", "wrong prices", "places orders[0]@4")
    assert world.run_again() == dict.fromkeys([*VALUES[4:], "new"], 1)
    assert [each.id for each in world.operations()] == [done.id]


def test_the_progress_names_its_topic(world):
    world.rewind(4)
    assert world.committed.offset == 4
    assert noted(world.committed, TOPIC) == world.broker.topic_id("orders")
    assert noted(world.committed, RUN) == ""


def test_an_app_that_runs_is_not_rewound(world):
    world.members.append("worker-1")
    assert world.plan(4).in_the_way == "somebody runs"
    with pytest.raises(NotReadyError, match="running as a worker"):
        world.rewind(4)
    assert (world.committed.offset, world.operations()) == (10, [])


def test_whoever_may_still_commit_is_fenced_off_first(world):
    world.rewind(4)
    assert world.fenced == [SOURCE]


def test_progress_that_moves_on_after_all_is_left_alone(world):
    world.on_fence = lambda: world.progress.commit({SOURCE: Position(11)})
    with pytest.raises(NotReadyError, match=r"orders\[0\] has moved on"):
        world.rewind(4)
    assert world.committed.offset == 11
    [operation] = world.operations()
    assert (operation.status, "moved on" in operation.said) == ("cancelled", True)


def test_ids_that_a_rewind_has_forgotten_before_it_was_given_up_are_in_the_audit():
    world = World("a", "b", "c", delivery=INBOX)
    forget_done = world.store.forget_done

    async def forget_and_move_on(*arguments, **options):
        gone = await forget_done(*arguments, **options)
        world.progress.commit({SOURCE: Position(3, "x")})
        return gone

    world.store.forget_done = forget_and_move_on
    with pytest.raises(NotReadyError):
        world.rewind(0, forget=True)
    [operation] = world.operations()
    assert (operation.status, operation.counts) == ("cancelled", {"forgotten": 3})
    assert operation.said.endswith("3 ids had been forgotten by then")


def test_what_a_worker_commits_when_it_is_stopped_counts(world):
    world.send("new")
    world.on_leave = lambda: world.progress.commit({SOURCE: Position(11)})
    assert world.rewind(4).done == 7


def test_a_rewind_that_is_cancelled_meanwhile_does_not_happen(world):
    def cancel():
        [operation] = world.operations()
        Operator(world.letters, world.means, "bob").cancel(operation.id)

    world.on_fence = cancel
    with pytest.raises(TakenOverError, match="its progress was not put back"):
        world.rewind(4)
    assert world.committed.offset == 10
    [operation] = world.operations()
    assert (operation.status, operation.said) == ("cancelled", "cancelled by bob")


def on_spark(world, run="1000-abc"):
    world.progress.commit({SOURCE: with_note(world.committed, RUN, run)})


def test_a_run_on_spark_that_commits_is_noticed(world):
    on_spark(world)
    world.on_wait = lambda: world.progress.commit({SOURCE: world.committed._replace(offset=11)})
    with pytest.raises(
        NotReadyError, match=r"is running on Spark \(run 1000-abc\).* stop it first"
    ):
        world.rewind(4)
    assert world.operations() == []


def test_a_run_on_spark_that_is_idle_stops_for_the_mark(world):
    on_spark(world)
    world.rewind(4)
    assert world.committed.offset == 4
    with pytest.raises(marks.RivalError, match="put back by `redrive rewind`"):
        marks.check("shop", "1000-abc", [world.committed])
    later = marks.new_run(1, [world.committed])
    marks.check("shop", later, [world.committed])


def test_a_run_on_spark_that_commits_over_it_is_said(world):
    on_spark(world)

    def late():
        if world.committed.offset == 4:
            world.progress.commit({SOURCE: Position(12, "s1:1000-abc")})

    world.on_wait = late
    with pytest.raises(NotReadyError, match=r"was running on Spark .* rewind it again"):
        world.rewind(4)


def test_a_task_that_began_between_the_fence_and_the_mark_is_fenced_off_as_well(world):
    on_spark(world)
    at = []
    world.on_fence = lambda: at.append(world.committed.offset)
    world.rewind(4)
    assert at == [10, 4]


def test_a_run_on_spark_that_has_marked_only_the_first_partition_so_far_finds_the_mark():
    world = World(*VALUES, keys=10, partitions=2)
    place, run = TopicPartition("orders", 1), "9999999999999-abc"
    world.progress.commit({SOURCE: with_note(world.committed, RUN, run)})
    world.rewinder().rewind(Where(offsets=("orders[1]@0",)))
    found = world.progress.committed([place])[place]
    assert found.offset == 0
    with pytest.raises(marks.RivalError, match="put back by `redrive rewind`"):
        marks.check("shop", run, [found])


def test_a_rewind_is_paused_before_anything_is_put_back(world):
    asked = []

    def stopping():
        asked.append(1)
        return len(asked) > 3

    paused = world.rewinder().rewind(where(4), stopping=stopping)
    assert (paused.status, paused.said) == ("paused", "by a signal")
    assert world.committed.offset == 10
    done = world.rewinder("bob").resume(paused.id)
    assert (done.status, done.counts, world.committed.offset) == ("done", {"rewound": 6}, 4)


def test_ids_that_were_forgotten_before_it_was_paused_are_counted_with_the_others():
    world = World("a", "b", "c", delivery=INBOX)
    forget_done, forgotten = world.store.forget_done, []

    async def forget(*arguments, **options):
        gone = await forget_done(*arguments, **options)
        forgotten.append(gone)
        return gone

    world.store.forget_done = forget
    paused = world.rewinder().rewind(where(0), forget=True, stopping=lambda: bool(forgotten))
    assert (paused.status, paused.counts) == ("paused", {"forgotten": 3})
    assert world.rewinder().resume(paused.id).counts["forgotten"] == 3


def test_it_is_shown_that_it_has_begun_before_anything_is_written_down(world):
    shown = []
    world.rewinder().rewind(where(4), progress=lambda *_: shown.append(len(world.operations())))
    assert shown == [0]


def test_records_of_other_apps_are_not_counted(world):
    headers = (("redrive-app", b"other"), ("redrive-origin-topic", b"orders"))
    world.broker.publish([Write("orders", b"k", b"theirs", headers)])
    world.sim.run()
    assert world.plan(4).records == 6


def test_records_that_are_parked_are_said():
    world = World("v0", "never 1", "v2")
    assert len(world.sim.parked) == 1
    plan = world.plan(0)
    assert (plan.records, plan.parked) == (3, 1)
    assert "1 wait for another attempt in delay topics" in [*plan.sentences()][-1]
    assert world.plan(2).parked == 0


# With an inbox


def test_what_the_inbox_knows_as_done_is_counted():
    world = World(*VALUES, delivery=INBOX)
    plan = world.plan(4)
    assert (plan.records, plan.handled, plan.left_out) == (6, 0, {"done": 6})
    assert [*plan.sentences()][-1] == (
        "6 records; 6 of them were handled and would be dropped as duplicates: --forget makes them"
        " be handled again"
    )
    assert world.rewind(4).counts == {"rewound": 0, "done": 6}
    assert world.run_again() == {}


def test_what_is_forgotten_is_handled_again_and_nothing_else():
    world = World(*VALUES, delivery=INBOX)
    kept = {name for name, row in world.store.rows.items() if place(row) < 4}
    plan = world.plan(4, forget=True)
    assert (plan.handled, plan.left_out) == (6, {})
    assert "6 of them were handled: the inbox would forget that first" in [*plan.sentences()][-1]
    assert len(world.store.rows) == 10
    done = world.rewind(4, forget=True)
    assert done.counts == {"rewound": 6, "forgotten": 6}
    assert {*world.store.rows} == kept
    assert world.run_again() == dict.fromkeys(VALUES[4:], 1)


def place(row):
    return int(row.found.source.partition("@")[2])


def test_a_record_that_waits_keeps_its_row_and_is_handled_once():
    world = World("v0", "later 1", "v2", delivery=INBOX)
    assert [row.found.state for row in world.store.rows.values()].count("parked") == 1
    plan = world.plan(0, forget=True)
    assert (plan.records, plan.handled, plan.left_out) == (3, 2, {"waiting": 1})
    world.rewind(0, forget=True)
    assert [row.found.state for row in world.store.rows.values()] == ["parked"]
    assert world.run_again() == {"v0": 1, "later 1": 1, "v2": 1}


def test_a_duplicate_of_a_record_before_the_range_stays_one():
    world = World(
        '{"id": 1}', '{"id": 2}', '{"id": 1}', '{"id": 3}', delivery=INBOX, **IDS
    )  # fmt: skip
    assert len(world.handled) == 3
    plan = world.plan(1, forget=True)
    assert (plan.records, plan.handled, plan.left_out) == (3, 2, {"duplicate": 1})
    world.rewind(1, forget=True)
    assert world.run_again() == {'{"id": 2}': 1, '{"id": 3}': 1}


def test_an_id_with_another_payload_is_nobodys_to_forget():
    world = World('{"id": 1, "a": 1}', '{"id": 1, "a": 2}', delivery=INBOX, **IDS)
    plan = world.plan(1, forget=True)
    assert (plan.records, plan.handled, plan.left_out) == (1, 0, {"conflict": 1})
    world.rewind(1, forget=True)
    assert len(world.store.rows) == 1


def test_only_an_inbox_can_forget(world):
    for how in (world.plan, world.rewind):
        with pytest.raises(ConfigurationError, match="has no inbox"):
            how(4, forget=True)


# Killed on the way


class Killed(BaseException):
    """As kill -9: nothing is tidied up."""


class Dying:
    """Progress whose process is killed before it has committed something, or right after."""

    def __init__(self, progress, at):
        self.committed, self._commit, self._at = progress.committed, progress.commit, at

    def commit(self, positions):
        if self._at == "after":
            self._commit(positions)
        raise Killed


def killed(world, at="before", **how):
    """Gives the name of a rewind that was killed when it committed."""
    world.held = Dying(world.progress, at)
    with pytest.raises(Killed):
        world.rewind(4, **how)
    world.held = world.progress
    [operation] = world.operations()
    assert operation.status == "running"
    return operation.id


@pytest.mark.parametrize("at", ["before", "after"])
def test_a_rewind_that_was_killed_is_continued_once(at):
    world = World(*VALUES, delivery=INBOX)
    name = killed(world, at, forget=True)
    with pytest.raises(UnderWayError, match=f"redrive rewind module:app --resume {name}"):
        world.rewind(2)
    done = world.rewinder("bob").resume(name)
    assert (done.id, done.status) == (name, "done")
    assert world.run_again() == dict.fromkeys(VALUES[4:], 1)


def test_a_rewind_is_continued_by_its_own_command(world):
    name = killed(world)
    with pytest.raises(UnderWayError, match=f"redrive rewind module:app --resume {name}"):
        Operator(world.letters, world.means, "bob").resume(name)
    cancelled = Operator(world.letters, world.means, "bob").cancel(name)
    assert cancelled.status == "cancelled"


def test_whoever_cannot_go_on_with_a_rewind_fences_nobody_off(world):
    paused = world.rewind(2, keys=("k1",), stopping=lambda: True)
    world.held = Dying(world.progress, "before")
    with pytest.raises(Killed):
        world.rewind(4)
    alice = world.means.take_over()
    with pytest.raises(UnderWayError, match="is under way, or was killed"):
        world.rewinder("bob").resume(paused.id)
    alice.commit([], {})  # she still can


def test_a_rewind_that_was_killed_is_not_continued_over_work_since():
    world = World(*VALUES)
    name = killed(world)
    world.send("new")
    world.run_again()
    with pytest.raises(NotReadyError, match="has moved on"):
        world.rewinder().resume(name)
    assert world.committed.offset == 11


def test_a_rewind_that_is_cancelled_too_late_says_that_it_has_happened(world):
    class Held:
        def __getattr__(self, name):
            return getattr(world.progress, name)

        def commit(self, positions):
            Operator(world.letters, world.means, "bob").cancel(world.operations()[-1].id)
            world.progress.commit(positions)

    world.held = Held()
    with pytest.raises(TakenOverError, match="the progress of shop is back"):
        world.rewind(3)
    assert world.committed.offset == 3
