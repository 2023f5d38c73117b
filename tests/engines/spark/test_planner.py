"""What planners promise, in memory and on a real Kafka."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import Any

import pytest
from planner_worlds import (
    InMemory,
    World,
    app_maker,
    complete,
    first_place,
    planned,
    planner,
    recreate,
    world_for,
)

from redrive import App
from redrive.engines.spark.marks import OLD_MARK, RivalError, old_place
from redrive.engines.spark.news import News
from redrive.engines.spark.ranges import Range
from redrive.errors import DataLossError
from redrive.kafka.errors import BrokerError, MissingTopicError
from redrive.ports import Position
from redrive.processing.progress.notes import without_notes
from redrive.record import TopicPartition
from redrive.tuning import RETRY_HORIZON, TOPICS_EVERY


@pytest.fixture(params=["memory", "kafka"])
def world(request: pytest.FixtureRequest, redrive_prefix: str) -> Iterator[World]:
    yield from world_for(request, redrive_prefix)


@pytest.fixture
def make_app(world: World) -> Callable[..., App]:
    return app_maker(world)


@pytest.fixture
def place(world: World) -> TopicPartition:
    return first_place(world)


def bare(plan: list[list[Range]]) -> list[list[Range]]:
    """The ranges without the ids of their topics."""
    return [[each._replace(topic_id="") for each in task] for task in plan]


def committed(world: World, app: App, place: TopicPartition) -> Position | None:
    """What is committed, without who did it."""
    found = world.progress(app).committed([place]).get(place)
    return None if found is None else without_notes(found)


# Ends


def test_a_run_that_ends_waits_for_what_a_transaction_has_parked(world, make_app, place):
    """One that is committed ends a little later in each of its partitions."""
    app = make_app("in", delays="1h", delivery="transaction")
    parked = TopicPartition(f"{world.prefix}.retry.1h", 0)
    commit = world.open_transaction(parked, 1)
    until_empty, once, stopped = (
        planner(world, app, "retry", until=until) for until in ("empty", "once", "stopped")
    )
    for each in (until_empty, once, stopped):
        assert each.plan() == []
    assert (until_empty.status.empty, once.status.reached) == (False, False)
    assert stopped.status.empty  # nobody asks, and it would cost a request for each plan
    commit()
    for each in (until_empty, once):
        assert each.plan() == []
    assert not until_empty.status.empty  # but it waits
    assert once.status.reached


def test_what_waits_under_the_old_name_is_planned(world, make_app, place):
    old = TopicPartition(f"{world.prefix}-old.retry.5m", 0)
    world.create(old.topic, delay=True)
    world.send(old, 2)
    app = make_app("in", delays="1h", was=f"{world.prefix}-old")
    one = planner(world, app, "retry")
    assert one.plan() == []
    world.clock.advance(300_000)
    assert bare(one.plan()) == [[Range(*old, 0, 2, 300_000)]]


def test_a_marker_at_the_end_is_part_of_the_range(world, make_app, place):
    app = make_app("in")
    world.commit_transaction(place, 3)
    one = planner(world, app)
    plan = one.plan()
    assert bare(plan) == [[Range(*place, 0, 4)]]
    complete(world, app, plan)
    assert one.plan() == []


def test_aborted_records_only_are_a_range_as_any(world, make_app, place):
    app = make_app("in")
    world.abort_transaction(place, 5)
    one = planner(world, app)
    plan = one.plan()
    assert bare(plan) == [[Range(*place, 0, 6)]]
    complete(world, app, plan)
    assert one.plan() == []


def test_an_open_transaction_is_not_planned_past(world, make_app, place):
    app = make_app("in")
    world.send(place, 2)
    commit = world.open_transaction(place, 1)
    world.send(place, 4)
    one = planner(world, app)
    plan = one.plan()
    assert bare(plan) == [[Range(*place, 0, 2)]]
    complete(world, app, plan)
    assert one.plan() == []
    commit()
    assert planned(one) == [(0, 2, 8)]


def test_empty_partitions_are_no_task(world, make_app):
    app = make_app("in")
    world.create(f"{world.prefix}.in", 4)
    one = planner(world, app)
    assert one.plan() == []
    world.send(TopicPartition(f"{world.prefix}.in", 2), 1)
    assert planned(one) == [(2, 0, 1)]


def test_records_appended_while_it_plans_are_in_the_next_plan(world, make_app, place):
    app = make_app("in")
    world.send(place, 2)

    class Growing:
        """More comes in right after the bounds were asked for, each time."""

        def __getattr__(self, name: str) -> Any:
            return getattr(world.log, name)

        def all_bounds(self, places: Collection[TopicPartition], **how: bool) -> Any:
            found = world.log.all_bounds(places, **how)
            world.send(place, 3)
            return found

    one = planner(world, app, log=Growing())
    plan = one.plan()
    assert bare(plan) == [[Range(*place, 0, 2)]]
    complete(world, app, plan)
    assert planned(one) == [(0, 2, 5)]


def test_a_batch_has_its_limit_and_everybody_a_share(world, make_app):
    topic = f"{world.prefix}.in"
    app = make_app("in")
    world.create(topic, 3)
    for number, size in enumerate((10, 200, 300)):
        world.send(TopicPartition(topic, number), size)
    one = planner(world, app, max_records=110)
    assert planned(one) == [(0, 0, 10), (1, 0, 50), (2, 0, 50)]


# StartOffsets


def test_progress_is_the_only_memory(world, make_app, place):
    """A lost checkpoint folder, or another machine: the plan is the same."""
    app = make_app("in")
    world.send(place, 5)
    world.progress(app).commit({place: Position(3, "r1:AAE=")})
    for _ in range(2):
        assert bare(planner(world, app).plan()) == [[Range(*place, 3, 5, None, "r1:AAE=")]]


def test_where_a_first_start_begins_is_written_down_at_once(world, make_app, place):
    """Otherwise "latest" would pass what comes in while nothing runs."""
    app = make_app("in")
    world.send(place, 5)
    assert planner(world, app, start_from="latest").plan() == []
    assert committed(world, app, place) == Position(5)
    world.send(place, 2)
    assert planned(planner(world, app, start_from="latest")) == [(0, 5, 7)]


def test_an_added_partition_begins_at_its_beginning(world, make_app, place):
    app = make_app("in")
    world.send(place, 5)
    one = planner(world, app, start_from="latest")
    assert one.plan() == []
    world.grow(place.topic, 2)
    world.send(place._replace(partition=1), 3)
    assert one.plan() == []  # topics are looked at now and then only
    world.clock.advance(TOPICS_EVERY)
    assert planned(one) == [(1, 0, 3)]


def test_latest_is_one_time_though_only_some_partitions_could_be_committed(world, make_app, place):
    world.grow(place.topic, 2)
    other = place._replace(partition=1)
    world.send(place, 5)
    world.send(other, 4)
    app = make_app("in", delivery="transaction")
    away = {other}

    def fence(at):
        if at in away:
            raise BrokerError("nobody answers")
        return world.fence(app, at)

    one = planner(world, app, start_from="latest", fence=fence)
    with pytest.raises(BrokerError):
        one.plan()
    assert committed(world, app, place).offset == 5
    away.clear()
    world.send(other, 3)
    assert [each[:2] for each in planned(one)] == [(1, 4)]


def test_an_added_topic_begins_where_it_was_asked_for(world, make_app, place):
    world.send(place, 5)
    assert planned(planner(world, make_app("in"))) == [(0, 0, 5)]
    other = place._replace(topic=f"{world.prefix}.other")
    world.create(other.topic)
    world.send(other, 4)
    both = make_app("in", "other")
    assert bare(planner(world, both, start_from="latest").plan()) == [[Range(*place, 0, 5)]]
    assert committed(world, both, other) == Position(4)


def test_a_removed_topic_keeps_its_progress_and_is_left_alone(world, make_app, place):
    other = place._replace(topic=f"{world.prefix}.other")
    world.create(other.topic)
    both = make_app("in", "other")
    complete(world, both, planner(world, both).plan())
    world.send(place, 2)
    world.send(other, 2)
    assert bare(planner(world, make_app("in")).plan()) == [[Range(*place, 0, 2)]]
    again = [each for task in bare(planner(world, both).plan()) for each in task]
    assert sorted(again) == sorted([Range(*place, 0, 2), Range(*other, 0, 2)])


# What is gone


def test_deleted_unread_stops_the_run_and_says_how_many(world, make_app, place):
    app = make_app("in")
    world.send(place, 9)
    world.progress(app).commit({place: Position(2)})
    world.truncate(place, 6)
    with pytest.raises(DataLossError, match=r"up to 4 records were deleted unread"):
        planner(world, app).plan()
    assert committed(world, app, place) == Position(2)


def test_deleted_unread_is_passed_where_that_was_asked_for(world, make_app, place):
    app = make_app("in", on_data_loss="continue")
    world.send(place, 9)
    world.progress(app).commit({place: Position(2)})
    world.truncate(place, 6)
    one = planner(world, app)
    assert planned(one) == [(0, 6, 9)]
    assert [told for told in one.status.lost if "up to 4 records" in told]
    one.plan()
    assert len(one.status.lost) == 1


def test_progress_past_the_end_stops_the_run(world, make_app, place):
    app = make_app("in")
    world.send(place, 3)
    world.progress(app).commit({place: Position(7)})
    with pytest.raises(DataLossError, match="the log ends at 3: the topic was recreated"):
        planner(world, app).plan()


def test_a_topic_recreated_while_the_app_runs_stops_it(world, make_app, place):
    app = make_app("in")
    world.send(place, 3)
    one = planner(world, app)
    complete(world, app, one.plan())
    recreate(world, place, 5)
    with pytest.raises(DataLossError, match="was deleted and recreated while this app ran"):
        one.plan()


@pytest.mark.parametrize("start_from", ["earliest", "latest"])
def test_a_topic_recreated_is_read_from_its_beginning_where_that_was_asked_for(
    world, make_app, place, start_from
):
    app = make_app("in", on_data_loss="continue")
    world.send(place, 3)
    one = planner(world, app, start_from=start_from)
    complete(world, app, one.plan())
    recreate(world, place, 5)
    assert planned(one) == [(0, 0, 5)]
    assert any("recreated" in told for told in one.status.lost)


def test_a_missing_topic_says_how_to_make_it(world, make_app):
    with pytest.raises(MissingTopicError, match=r"in\" does not exist: create it"):
        planner(world, make_app("in")).plan()


# The retry lane


def test_what_is_not_due_is_not_planned(world, make_app, place):
    app = make_app("in", delays="1h")
    delayed = TopicPartition(app.delay_topic(3_600_000), 0)
    one = planner(world, app, "retry")
    world.send(delayed, 2)
    assert one.plan() == []
    ahead = one.status.ahead
    assert (ahead.lag, ahead.due, ahead.due_since) == ({delayed.topic: 2}, {delayed.topic: 0}, {})
    due = ahead.next_due[delayed.topic]
    assert abs(due - world.clock.now() - 3_600_000) < 60_000
    world.clock.advance(due - world.clock.now() - RETRY_HORIZON - 5000)
    assert one.plan() == []
    world.clock.advance(5000)
    assert bare(one.plan()) == [[Range(*delayed, 0, 2, 3_600_000)]]
    ahead = one.status.ahead
    assert (ahead.due, ahead.due_since) == ({delayed.topic: 2}, {delayed.topic: due})


def test_only_what_is_due_soon_is_planned_ahead(world, make_app, place):
    app = make_app("in", delays="1h")
    delayed = TopicPartition(app.delay_topic(3_600_000), 0)
    one = planner(world, app, "retry")
    world.send(delayed, 2)
    one.plan()
    first = one.status.ahead.next_due[delayed.topic]
    if isinstance(world, InMemory):
        world.clock.advance(RETRY_HORIZON + 1)
    else:  # the broker's clock is the machine's: wait for its next milliseconds
        while world.clock.now() <= first - 3_600_000 + RETRY_HORIZON + 1:
            pass
    world.send(delayed, 3)
    world.clock.advance(first - world.clock.now() - RETRY_HORIZON)
    assert bare(one.plan()) == [[Range(*delayed, 0, 2, 3_600_000)]]
    world.clock.advance(3_600_000)
    assert bare(one.plan()) == [[Range(*delayed, 0, 5, 3_600_000)]]


def test_records_wait_in_topics_that_no_policy_uses_any_more(world, make_app, place):
    before = make_app("in", delays="1h")
    delayed = TopicPartition(before.delay_topic(3_600_000), 0)
    world.send(delayed, 2)
    after = make_app("in", delays="5m")
    one = planner(world, after, "retry")
    assert one.plan() == []
    assert one.status.ahead.lag == {delayed.topic: 2, after.delay_topic(300_000): 0}
    world.clock.advance(3_600_000)
    assert bare(one.plan()) == [[Range(*delayed, 0, 2, 3_600_000)]]


# Rivals


@pytest.mark.parametrize("delivery", ["at-least-once", "transaction"])
def test_another_run_that_began_later_ends_this_one(world, make_app, place, delivery):
    app = make_app("in", delivery=delivery)
    world.send(place, 1)
    one, other = planner(world, app, run="1-mine"), planner(world, app, run="2-theirs")
    assert planned(one) == [(0, 0, 1)]
    assert planned(other) == [(0, 0, 1)]
    with pytest.raises(RivalError, match=r"another run of the app .* on Spark has begun"):
        one.plan()
    assert planned(other) == [(0, 0, 1)]


def test_a_run_of_an_older_version_that_began_later_ends_this_one(world, make_app, place):
    app = make_app("in")
    one = planner(world, app, run="1-mine", old_mark=OLD_MARK + "before")
    mark = old_place(app)
    for theirs in ("before", "1-mine"):
        world.progress(app).commit({mark: Position(0, OLD_MARK + theirs)})
        assert one.plan() == []
    world.progress(app).commit({mark: Position(0, OLD_MARK + "later")})
    with pytest.raises(RivalError, match=r"another run of the app .* on Spark has begun"):
        one.plan()


def test_a_worker_beside_it_is_refused(world, make_app, place):
    with pytest.raises(RivalError, match="running as a worker: its group has active members"):
        planner(world, make_app("in"), has_members=lambda: True).plan()


def test_a_delay_topic_that_no_policy_has_can_be_deleted(world, make_app, place):
    former = TopicPartition(f"{world.prefix}.retry.5m", 0)
    world.create(former.topic, delay=True)
    app = make_app("in", delays="1h")
    one = planner(world, app, "retry")
    one.plan()
    assert former.topic in one.status.ahead.lag
    world.delete(former.topic)
    world.clock.advance(TOPICS_EVERY)
    assert one.plan() == []
    assert former.topic not in one.status.ahead.lag
    world.delete(app.delay_topic(3_600_000))
    world.clock.advance(TOPICS_EVERY)
    with pytest.raises(MissingTopicError):
        one.plan()


def test_one_that_is_deleted_with_records_in_it_is_a_loss(world, make_app, place):
    former = TopicPartition(f"{world.prefix}.retry.5m", 0)
    world.create(former.topic, delay=True)
    world.send(former, 2)
    one = planner(world, make_app("in", delays="1h"), "retry")
    one.plan()
    world.delete(former.topic)
    world.clock.advance(TOPICS_EVERY)
    with pytest.raises(DataLossError, match="deleted, with up to 2 records unread"):
        one.plan()


# What became of tasks


class SilentOnce:
    """A log that does not answer the first time."""

    def __init__(self, log: Any) -> None:
        self._log = log
        self.silent = True

    def __getattr__(self, name: str) -> Any:
        if name == "all_bounds" and self.silent:
            self.silent = False
            raise BrokerError("nobody answers")
        return getattr(self._log, name)


def test_a_death_that_was_told_while_nobody_answered_is_not_forgotten(
    world, make_app, place, tmp_path
):
    app = make_app("in")
    world.send(place, 8)
    log = SilentOnce(world.log)
    one = planner(world, app, log=log, scratch=str(tmp_path))
    died = {"ranges": [[*place, 0, 8]], "begun": False}
    News.of([{"died": died}]).write(tmp_path / "batch-main.json")
    with pytest.raises(BrokerError, match="nobody answers"):
        one.plan()
    assert planned(one) == [(0, 0, 4)]
