"""Progress is begun once, kept alive, and never taken for that of another topic or run."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

import pytest
from planner_worlds import (
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
from redrive.engines.spark import marks
from redrive.engines.spark.news import News
from redrive.errors import DataLossError
from redrive.kafka.errors import BrokerError
from redrive.ports import Position
from redrive.processing.progress.done_beyond import still_at
from redrive.processing.progress.notes import MOVED, RUN, TOPIC, noted, with_note, without_notes
from redrive.record import TopicPartition

HOUR = 3_600_000
DELIVERIES = ["at-least-once", "transaction"]


@pytest.fixture(params=["memory", "kafka"])
def world(request: pytest.FixtureRequest, redrive_prefix: str) -> Iterator[World]:
    yield from world_for(request, redrive_prefix)


@pytest.fixture
def make_app(world: World) -> Callable[..., App]:
    return app_maker(world)


@pytest.fixture
def place(world: World) -> TopicPartition:
    return first_place(world)


class Commits:
    """The progress of an app, and what is committed by itself, not in a transaction."""

    def __init__(self, world: World, app: App) -> None:
        self._progress = world.progress(app)
        self.made: list[TopicPartition] = []

    def committed(self, places: Collection[TopicPartition]) -> dict[TopicPartition, Position]:
        return self._progress.committed(places)

    def commit(self, positions: Mapping[TopicPartition, Position]) -> None:
        self.made += positions
        self._progress.commit(positions)


class Between:
    """A log; something happens between the planner's look at the progress and what it does."""

    def __init__(self, world: World, happens: Callable[[], None]) -> None:
        self._log = world.log
        self._happens = happens

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)

    def all_bounds(self, places: Collection[TopicPartition], **how: bool) -> Any:
        self._happens()
        return self._log.all_bounds(places, **how)


# Begun


def test_a_first_commit_does_not_take_back_what_another_run_committed_in_a_transaction(
    world, make_app, place
):
    """Its outputs are there: run again from the beginning they would be there twice."""
    app = make_app("in", delivery="transaction")
    world.send(place, 10)

    def rival() -> None:
        world.fence(app, place).commit([], {place: Position(6)})

    one = planner(world, app, log=Between(world, rival))
    assert planned(one) == [(0, 6, 10)]
    assert world.progress(app).committed([place])[place].offset == 6


# Kept alive


@pytest.mark.parametrize("delivery", DELIVERIES)
def test_what_has_not_changed_is_committed_again_in_time(world, make_app, place, delivery):
    app = make_app("in", delivery=delivery)
    world.send(place, 3)
    world.progress(app).commit({place: Position(2, "r1:AAE=")})
    fenced: list[TopicPartition] = []
    fence = world.fence
    world.fence = lambda app, place: (fenced.append(place), fence(app, place))[1]
    commits = Commits(world, app)
    one = planner(world, app, progress=commits, keep_every=HOUR)

    def made() -> int:
        """How often since the last time; in a transaction, where the delivery is one."""
        found, others = (fenced, commits.made) if app.delivery == "transaction" else (
            commits.made, fenced
        )  # fmt: skip
        assert others == []
        number = len(found)
        found.clear()
        return number

    assert planned(one) == [(0, 2, 3)]
    assert made() == 1  # nobody knows how old it was
    one.plan()
    world.clock.advance(HOUR - 60_000)
    one.plan()
    assert made() == 0
    world.clock.advance(60_000)
    assert planned(one) == [(0, 2, 3)]
    assert made() == 1
    kept = world.progress(app).committed([place])[place]
    assert without_notes(kept) == Position(2, "r1:AAE=")


def test_what_changes_is_not_committed_again(world, make_app, place):
    app = make_app("in")
    world.send(place, 9)
    commits = Commits(world, app)
    one = planner(world, app, progress=commits, keep_every=HOUR)
    (task,) = one.plan()
    for end in range(1, 9):
        position = marks.labelled(Position(end), topic_id=task[0].topic_id, run="run")
        world.progress(app).commit({place: position})
        commits.made.clear()
        world.clock.advance(HOUR // 2)
        assert planned(one) == [(0, end, 9)]
        assert commits.made == []


def test_in_transactions_a_few_at_a_time_and_the_first_of_each_topic_first(world, make_app):
    app = make_app("in", delivery="transaction")
    topic = f"{world.prefix}.in"
    world.create(topic, 12)
    places = [TopicPartition(topic, number) for number in range(12)]
    world.progress(app).commit({place: Position(0) for place in places})

    def marked() -> list[int]:
        found = world.progress(app).committed(places).items()
        return sorted(place.partition for place, at in found if noted(at, RUN))

    one = planner(world, app)
    one.plan()
    assert 0 in marked()
    assert len(marked()) < 12
    one.plan()
    assert marked() == list(range(12))


@pytest.mark.parametrize("delivery", DELIVERIES)
@pytest.mark.parametrize("start_from", ["earliest", "latest"])
def test_progress_that_the_broker_forgot_is_put_back(world, make_app, place, delivery, start_from):
    """Neither run again from the beginning, nor passed over."""
    app = make_app("in", delivery=delivery)
    world.send(place, 9)
    world.progress(app).commit({place: Position(2)})
    one = planner(world, app, start_from=start_from)
    assert planned(one) == [(0, 2, 9)]
    world.forget_progress(app)
    assert planned(one) == [(0, 2, 9)]
    assert one.status.put_back == [f"{place}@2"]


@pytest.mark.parametrize("delivery", DELIVERIES)
def test_it_is_put_back_as_far_as_the_tasks_of_the_last_batch_had_come(
    world, make_app, place, delivery, tmp_path
):
    app = make_app("in", delivery=delivery)
    world.send(place, 9)
    one = planner(world, app, scratch=str(tmp_path))
    assert planned(one) == [(0, 0, 9)]
    news = {"topic": place.topic, "partition": 0, "end": 7}
    News.of([news]).write(tmp_path / "batch-main.json")
    world.forget_progress(app)
    assert planned(one) == [(0, 7, 9)]
    assert world.progress(app).committed([place])[place].offset == 7


@pytest.mark.parametrize("delivery", DELIVERIES)
def test_it_is_put_back_with_what_was_complete_beyond_it(
    world, make_app, place, delivery, tmp_path
):
    app = make_app("in", delivery=delivery)
    world.send(place, 9)
    world.progress(app).commit({place: still_at(0, [(1, 3), (5, 7)])})
    one = planner(world, app, scratch=str(tmp_path))
    assert planned(one) == [(0, 0, 9)]
    news = {"topic": place.topic, "partition": 0, "end": 4}
    News.of([news]).write(tmp_path / "batch-main.json")
    world.forget_progress(app)
    [[found]] = one.plan()
    assert (found.start, found.end, found.done) == (4, 9, [(5, 7)])


# Whose it is


def test_every_commit_of_a_planner_says_of_which_run_and_topic_it_is(world, make_app, place):
    app = make_app("in")
    planner(world, app, run="7-mine").plan()
    found = world.progress(app).committed([place])[place]
    assert noted(found, RUN) == "7-mine"
    assert noted(found, TOPIC) == world.log.topics([place.topic])[place.topic][0]


@pytest.mark.parametrize("delivery", DELIVERIES)
def test_a_run_ends_when_its_app_goes_on_under_another_name(world, make_app, place, delivery):
    app = make_app("in", delivery=delivery)
    world.send(place, 1)
    one = planner(world, app)
    one.plan()
    found = world.progress(app).committed([place])
    world.progress(app).commit({place: with_note(found[place], MOVED, "other")})
    with pytest.raises(marks.RivalError, match='goes on as "other"'):
        one.plan()
    assert planned(planner(world, app)) == [(0, 0, 1)], "one that was begun after that is wanted"


def late(world: World, app: App, place: TopicPartition, topic_id: str, offset: int) -> None:
    """What a task commits that does not know yet that its topic is another."""
    position = marks.labelled(Position(offset), topic_id=topic_id, run="run")
    world.progress(app).commit({place: position})


@pytest.mark.parametrize("restarted", [False, True])
def test_a_late_commit_for_a_topic_that_was_recreated_is_no_progress(
    world, make_app, place, restarted
):
    app = make_app("in")
    world.send(place, 3)
    one = planner(world, app)
    ((only,),) = one.plan()
    recreate(world, place, 5)
    late(world, app, place, only.topic_id, 3)
    one = planner(world, app) if restarted else one
    for _ in range(2):
        with pytest.raises(DataLossError, match="was deleted and recreated"):
            one.plan()


@pytest.mark.parametrize("delivery", DELIVERIES)
@pytest.mark.parametrize("start_from", ["earliest", "latest"])
def test_after_a_late_commit_a_topic_is_read_from_its_beginning_where_that_was_asked_for(
    world, make_app, place, delivery, start_from
):
    app = make_app("in", delivery=delivery, on_data_loss="continue")
    world.send(place, 3)
    one = planner(world, app)
    ((only,),) = one.plan()
    recreate(world, place, 5)
    late(world, app, place, only.topic_id, 3)
    again = planner(world, app, start_from=start_from)
    assert planned(again) == [(0, 0, 5)]
    assert planned(again) == [(0, 0, 5)]
    assert len(again.status.lost) == 1


def test_a_late_commit_just_before_a_first_one_is_no_progress_either(world, make_app, place):
    """A task of the topic before is fenced off by the first commit, but may come before it."""
    app = make_app("in", delivery="transaction", on_data_loss="continue")
    world.send(place, 3)
    one = planner(world, app)
    ((only,),) = one.plan()
    recreate(world, place, 5)

    def happens() -> None:
        position = marks.labelled(Position(3), topic_id=only.topic_id, run="run")
        world.fence(app, place).commit([], {place: position})

    again = planner(world, app, log=Between(world, happens))
    assert planned(again) == [(0, 0, 5)]


def test_progress_that_is_gone_with_its_topic_is_not_put_back(world, make_app, place):
    app = make_app("in", on_data_loss="continue")
    world.send(place, 3)
    one = planner(world, app)
    complete(world, app, one.plan())
    one.plan()
    world.delete(place.topic)
    world.create(place.topic)
    world.send(place, 5)  # and it is not yet time to look at the topics again
    assert planned(one) == [(0, 0, 5)]
    assert one.status.put_back == []


# The mark of older versions


class Refusing(Commits):
    def commit(self, positions: Mapping[TopicPartition, Position]) -> None:
        raise BrokerError("TOPIC_AUTHORIZATION_FAILED")


def test_the_mark_of_an_older_version_is_replaced_and_none_is_left_where_there_was_none(
    world, make_app
):
    app = make_app("in")
    progress, mark = world.progress(app), marks.old_place(app)
    assert marks.replace_old_mark(app, "2-new", progress) == ""
    assert progress.committed([mark]) == {}
    progress.commit({mark: Position(0, marks.OLD_MARK + "old")})
    assert marks.replace_old_mark(app, "2-new", Refusing(world, app)) == marks.OLD_MARK + "old"
    assert marks.replace_old_mark(app, "2-new", progress) == ""
    assert progress.committed([mark])[mark].metadata == marks.OLD_MARK + "2-new"
