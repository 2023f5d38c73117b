"""Partitions of a worker that begin anew: the poll thread waits for nobody."""

from __future__ import annotations

import queue
import threading
from types import SimpleNamespace
from typing import Any

import confluent_kafka
import pytest

from redrive import App
from redrive.engines.worker import reopening
from redrive.engines.worker.reopening import Reopening
from redrive.engines.worker.rooms import Rooms
from redrive.errors import DataLossError
from redrive.kafka.errors import BrokerError
from redrive.ports import Position
from redrive.record import TopicPartition

PLACE = TopicPartition("t", 0)
PATIENCE = 30


class Consumer:
    """A consumer that has one partition, and takes note of what is asked of it."""

    def __init__(self) -> None:
        self.assigned = [confluent_kafka.TopicPartition(*PLACE)]
        self.asked: list[str] = []

    def assignment(self) -> list[confluent_kafka.TopicPartition]:
        return self.assigned

    def __getattr__(self, name: str) -> Any:
        return lambda partitions: self.asked.append(f"{name} {partitions[0].offset}")


class Bench:
    """A poll thread that is stepped by hand."""

    def __init__(self) -> None:
        self.commands: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.consumer = Consumer()
        self.partitions: dict[TopicPartition, Any] = {}
        self.answers: list[Any] = []
        self.may_fence = threading.Event()
        self.may_fence.set()
        self.troubles: queue.SimpleQueue[BaseException] = queue.SimpleQueue()
        self.over = False
        self.assignment = assignment = SimpleNamespace(
            partitions=self.partitions,
            open=lambda place, start, producer, _: self.partitions.update(
                {place: (start, producer)}
            ),
            rooms=Rooms(App("items"), None, None, 1),  # type: ignore[arg-type]  # -- not strict
            close=lambda partition: self.partitions.pop(partition.place),
        )
        start_offsets: Any = SimpleNamespace(
            fence_off=self.fence_off, find=self.find, note_topics=lambda _: None
        )
        self.reopening = Reopening(
            self.consumer,  # type: ignore[arg-type]  # -- as much of one as is needed
            SimpleNamespace(ask=self.commands.put),  # type: ignore[arg-type]  # -- likewise
            assignment,  # type: ignore[arg-type]  # -- likewise
            start_offsets,
            on_trouble=self.troubles.put,
            on_death=self.troubles.put,
            is_over=lambda: self.over,
        )

    def fence_off(self, places: list[TopicPartition]) -> dict[TopicPartition, str]:
        assert self.may_fence.wait(PATIENCE)
        return dict.fromkeys(places, "producer")

    def find(self, places: list[TopicPartition]) -> dict[TopicPartition, Position]:
        answer = self.answers.pop(0) if self.answers else Position(7)
        if isinstance(answer, Exception):
            raise answer
        return dict.fromkeys(places, answer)

    def step(self) -> None:
        self.commands.get(timeout=PATIENCE)()


@pytest.fixture
def bench(monkeypatch) -> Bench:
    monkeypatch.setattr(reopening, "REOPEN_WAIT", 0.0)
    return Bench()


def test_a_partition_that_is_set_aside_starts_again_at_what_was_committed(bench):
    partition = SimpleNamespace(place=PLACE)
    bench.partitions[PLACE] = partition
    bench.reopening.set_aside([partition])
    assert bench.partitions == {}
    bench.step()
    bench.step()
    assert bench.partitions == {PLACE: (Position(7), "producer")}
    assert bench.consumer.asked[0].startswith("pause")
    assert bench.consumer.asked[-2:] == ["incremental_assign 7", "resume -1001"]


def test_the_poll_thread_does_not_wait_for_the_end_of_a_transaction(bench):
    bench.may_fence.clear()
    bench.reopening.later([PLACE])
    bench.step()  # comes back, though nobody is fenced off yet
    assert bench.partitions == {}
    bench.may_fence.set()
    bench.step()
    assert PLACE in bench.partitions


def test_while_nobody_answers_it_is_tried_again(bench):
    bench.answers = [BrokerError("nobody answers")]
    bench.reopening.later([PLACE])
    for _ in range(3):
        bench.step()
    assert bench.partitions == {PLACE: (Position(7), "producer")}


def test_what_went_to_somebody_else_meanwhile_is_left_alone(bench):
    bench.may_fence.clear()
    bench.reopening.later([PLACE])
    bench.step()
    bench.consumer.assigned = []
    bench.may_fence.set()
    bench.step()
    assert bench.partitions == {}
    bench.reopening.later([PLACE])
    bench.step()
    assert bench.commands.empty()


def test_lost_records_end_the_run(bench):
    bench.answers = [DataLossError("records are gone")]
    bench.reopening.later([PLACE])
    bench.step()
    assert isinstance(bench.troubles.get(timeout=PATIENCE), DataLossError)
    assert bench.partitions == {}


def test_a_mistake_of_ours_is_reported(bench):
    bench.answers = [KeyError("a mistake of ours")]
    bench.reopening.later([PLACE])
    bench.step()
    assert isinstance(bench.troubles.get(timeout=PATIENCE), KeyError)


def test_partitions_of_a_topic_that_was_recreated_are_set_aside(bench):
    partition = SimpleNamespace(place=PLACE, topic_id="old")
    bench.partitions[PLACE] = partition
    bench.reopening.reopen_recreated({"t": "old"})
    bench.reopening.reopen_recreated({})  # it is deleted: nobody knows yet what comes
    assert bench.commands.empty()
    bench.reopening.reopen_recreated({"t": "new"})
    bench.step()
    assert bench.partitions == {}
    bench.step()
    bench.step()
    assert bench.partitions == {PLACE: (Position(7), "producer")}


class TakenUpTwice(Rooms):
    """Rooms of which one has come, and of which some are missing at first."""

    def __init__(self, missing: int) -> None:
        super().__init__(App("items"), None, None, 1)  # type: ignore[arg-type]  # -- not strict
        self.missing = missing

    def outgrown(self, places: Any) -> list[TopicPartition]:
        return list(places)

    def of(self, sources: Any) -> tuple[list[TopicPartition], list[TopicPartition]]:
        self.missing -= 1
        return ([], list(sources)) if self.missing >= 0 else (list(sources), [])


def with_rooms(bench: Bench, missing: int) -> list[Any]:
    finished: list[Any] = []
    bench.assignment.rooms = TakenUpTwice(missing)
    bench.assignment.revoke_wait = 0
    bench.assignment.finish = lambda partitions, seconds: finished.extend(partitions)
    return finished


def test_what_lacks_a_room_that_has_come_ends_what_runs_and_is_taken_up_again(bench):
    partition = SimpleNamespace(place=PLACE)
    bench.partitions[PLACE] = partition
    finished = with_rooms(bench, 0)
    bench.reopening.take_up_new_rooms()
    assert finished == [partition]
    assert bench.partitions == {}
    for _ in range(2):
        bench.step()
    assert bench.partitions == {PLACE: (Position(7), "producer")}


def test_one_whose_rooms_are_missing_is_looked_at_again(bench):
    with_rooms(bench, 1)
    bench.reopening.later([PLACE])
    for _ in range(4):
        bench.step()
    assert bench.partitions == {PLACE: (Position(7), "producer")}
