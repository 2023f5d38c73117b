"""Where a worker begins to read, in topics that may not be those they were."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from redrive import App, RetryPolicy
from redrive.engines.offset_reset import recreated
from redrive.engines.worker.start_offsets import StartOffsets
from redrive.errors import DataLossError
from redrive.kafka.errors import BrokerError, MissingTopicError
from redrive.ports import Position
from redrive.processing.progress.notes import TOPIC, with_note
from redrive.record import TopicPartition

PLACES = [TopicPartition("in", 0), TopicPartition("in", 1)]


def of(topic_id: str, offset: int) -> Position:
    return with_note(Position(offset), TOPIC, topic_id)


@pytest.mark.parametrize(
    ("position", "known", "again"),
    [
        (None, {}, False),
        (None, {"in": "new"}, False),
        (None, {"in": "old"}, True),
        (Position(5), {"in": "old"}, False),  # by somebody who says nothing: he knows, perhaps
        (of("new", 5), {"in": "old"}, False),  # another worker has begun with it
        (of("old", 5), {}, True),
        (of("old", 5), {"in": "new"}, True),
    ],
)
def test_what_tells_that_a_topic_was_recreated(position, known, again):
    found = recreated({PLACES[0]: position}, {"in": "new"}, known)
    assert found == ({"in"} if again else set())


class Bench:
    """A topic of two partitions, offsets 10 to 20, and progress as the test says."""

    def __init__(self, **choices: Any) -> None:
        app = App("shop", retry=RetryPolicy("1s"), **choices)
        app.handler("in")(lambda record, ctx: None)
        self.committed: dict[TopicPartition, Position] = {}
        self.topics = {"in": ("new", 2)}
        self.ids: dict[str, str] = {}
        self.bounds = 10, 20
        self.lost: list[str] = []
        self.has_members = False
        self.start_offsets = StartOffsets(
            app,
            None,  # type: ignore[arg-type]  # -- nobody is fenced off
            SimpleNamespace(  # type: ignore[arg-type]  # -- as much of it as is used
                topics=lambda names: {n: t for n, t in self.topics.items() if n in names},
                all_bounds=lambda places: dict.fromkeys(places, self.bounds),
            ),
            SimpleNamespace(  # type: ignore[arg-type]  # -- likewise
                committed=lambda _: self.committed, commit=self.commit
            ),
            start_from="latest",
            topic_ids=self.ids,
            on_loss=self.lost.extend,
        )

    def commit(self, positions: Mapping[TopicPartition, Position]) -> None:
        if self.has_members:
            raise BrokerError("the group has active members")
        self.committed |= positions

    def find(self) -> list[int]:
        found = self.start_offsets.find(PLACES)
        return [found[place].offset for place in PLACES]


def test_progress_of_the_topic_before_is_dropped_and_said():
    bench = Bench(on_data_loss="continue")
    bench.committed = {PLACES[0]: of("old", 15), PLACES[1]: of("new", 16)}
    assert bench.find() == [10, 16]
    assert bench.lost == ['topic "in" was deleted and recreated']
    assert bench.ids == {"in": "new"}


def test_a_topic_that_was_seen_before_and_has_lost_its_progress_begins_at_its_beginning():
    bench = Bench(on_data_loss="continue")
    bench.start_offsets.note_topics({"in": "old"})
    bench.start_offsets.note_topics({"in": "new"})  # noticed, but nothing was said yet
    assert bench.find() == [10, 10]
    assert len(bench.lost) == 1
    assert bench.find() == [10, 10]  # what came since then is not passed over
    assert len(bench.lost) == 1


def test_latest_does_not_mean_a_later_time_when_nothing_is_committed_yet():
    bench = Bench()
    assert bench.find() == [20, 20]
    bench.bounds = (10, 30)
    assert bench.find() == [20, 20]


def test_latest_is_one_time_for_all_partitions_though_one_is_committed_before_another_is_found():
    one, other = Bench(), Bench()
    other.committed = one.committed
    for bench in (one, other):
        bench.start_offsets.settle_latest()  # before either joins
        bench.has_members = True
    one.committed[PLACES[0]] = of("new", 23)  # its worker has begun, the other one comes later
    one.bounds = other.bounds = (10, 30)
    assert one.find() == other.find() == [23, 20]


def test_where_somebody_has_begun_or_is_in_the_group_latest_is_left_to_the_assignment():
    bench = Bench()
    bench.committed = {PLACES[0]: of("new", 15)}
    bench.start_offsets.settle_latest()
    assert bench.committed == {PLACES[0]: of("new", 15)}
    bench.committed, bench.has_members = {}, True
    bench.start_offsets.settle_latest()
    assert bench.committed == {}
    assert bench.find() == [20, 20]


def test_what_others_have_committed_counts_and_not_where_this_process_began():
    bench = Bench(on_data_loss="continue")
    assert bench.find() == [20, 20]
    bench.bounds, bench.committed = (10, 30), {place: of("new", 25) for place in PLACES}
    assert bench.find() == [25, 25]
    bench.committed = {}  # forgotten: how far others were is not known any more
    assert bench.find() == [30, 30]


def test_what_was_deleted_before_anything_was_committed_is_said():
    bench = Bench(on_data_loss="continue")
    assert bench.find() == [20, 20]
    bench.bounds = (25, 30)
    assert bench.find() == [25, 25]
    assert ["5 records were deleted unread" in each for each in bench.lost] == [True, True]
    assert bench.find() == [25, 25]
    assert len(bench.lost) == 2  # and not once more


def test_on_data_loss_stop_ends_the_run_again_and_again():
    bench = Bench()
    bench.committed = {PLACES[0]: of("old", 15)}
    for _ in range(2):
        with pytest.raises(DataLossError, match="recreated"):
            bench.find()


def test_a_topic_that_is_missing_is_waited_for():
    bench = Bench()
    bench.topics = {}
    with pytest.raises(MissingTopicError):
        bench.find()
