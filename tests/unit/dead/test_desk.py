"""Marks of letters that are gone are removed by the next owner; the end of work can be read."""

from __future__ import annotations

import letters
import pytest

from redrive.dead import DeadLetters, Filter, desk
from redrive.dead.desk import Means
from redrive.dead.operator import Operator
from redrive.dead.states import Mark, Marks
from redrive.errors import RedriveError
from redrive.record import TopicPartition

DEAD = TopicPartition("shop.dead", 0)
STATE = "shop.dead.state"


class Office:
    """Twenty letters, all discarded, and an operator."""

    def __init__(self):
        self.app = letters.shop()
        self.sim = letters.buried(self.app, *(f"bad {number}" for number in range(20)))
        self.broker = self.sim.broker
        self.broker.create(STATE, 1, {"cleanup.policy": "compact"})
        self.operator.discard(Filter(), "test data")

    @property
    def letters(self):
        return DeadLetters(self.broker, app=self.app)

    @property
    def operator(self):
        broker = self.broker
        means = Means(
            take_over=lambda: broker.take_over("shop.dead"),
            topics=broker,
            clock=self.sim.clock,
            wait=lambda _: None,
        )
        return Operator(self.letters, means, "alice")

    def anything(self):
        """An operation about nothing; gives the keys that it has removed."""
        before = len(self.broker.records(STATE))
        self.operator.discard(Filter(ids=("nobody",)), "nothing")
        added = self.broker.records(STATE)[before:]
        return [record.key.decode() for record in added if record.value is None]


@pytest.fixture
def office():
    return Office()


def test_marks_of_letters_that_retention_has_deleted_are_removed(office):
    office.broker.truncate(DEAD, 8)
    topic_id = office.broker.topic_id("shop.dead")
    assert office.anything() == [f"letter/{topic_id}/0/{offset}" for offset in range(8)]
    assert office.anything() == []


def test_marks_of_letters_that_are_there_stay(office):
    office.broker.truncate(DEAD, 8)
    office.anything()
    known = office.letters.known()
    assert len(known.marks) == 12
    found, _ = office.letters.some(limit=100)
    assert {each.state for each in found} == {"discarded"}
    assert office.anything() == []


def test_operations_stay_when_their_letters_are_gone(office):
    office.broker.truncate(DEAD, 20)
    office.anything()
    known = office.letters.known()
    assert len(known.marks) == 0
    assert [each.why for each in known.operations.values()] == ["test data", "nothing"]


def test_one_operation_removes_only_so_many(office, monkeypatch):
    monkeypatch.setattr(desk, "DEAD_REMOVED_AT_ONCE", 5)
    office.broker.truncate(DEAD, 8)
    assert [len(office.anything()) for _ in range(3)] == [5, 3, 0]


def test_marks_of_a_topic_that_was_recreated_are_removed(office):
    before = office.broker.topic_id("shop.dead")
    office.broker.delete("shop.dead")
    office.broker.create("shop.dead", 1)
    office.sim.send("orders", "bad news")
    office.sim.run_until_empty()
    office.operator.discard(Filter(), "test data")
    removed = {record.key.decode() for record in office.broker.records(STATE) if not record.value}
    assert removed == {f"letter/{before}/0/{offset}" for offset in range(20)}
    known = office.letters.known()
    assert len(known.marks) == 1
    assert sum(len(marks) for marks in known.before.values()) == 0
    assert office.anything() == []


def test_whoever_takes_over_only_to_pause_tidies_up_too(office):
    office.broker.truncate(DEAD, 3)
    owner = desk.Desk(office.letters, office.operator.means)
    [operation] = owner.known.operations.values()
    owner.commit([], operation)
    assert len(office.letters.known().marks) == 17


def test_a_mark_that_was_removed_and_made_again_counts():
    marks, mark = Marks(), Mark("replayed", ("a",))
    for offset in (3, 1, 2):
        marks.add(0, offset, mark)
    marks.add(0, 2, None)
    marks.add(0, 3, None)
    marks.add(0, 3, Mark("discarded", ("b",)))
    assert [marks.get(0, offset) for offset in (1, 2, 3)] == [mark, None, ("discarded", ("b",))]
    assert (len(marks), [*marks.before(0)], [*marks.before(0, 3)]) == (2, [1, 3], [1])


class LateLog:
    """As Kafka: what the last transaction has written can be read some time after its commit."""

    def __init__(self, broker):
        self._broker = broker
        self.settle()

    def __getattr__(self, name):
        return getattr(self._broker, name)

    def settle(self):
        self._read_to = self._broker.bounds(TopicPartition(STATE, 0))[1]

    def bounds(self, place):
        first, end = self._broker.bounds(place)
        return (first, min(end, self._read_to)) if place.topic == STATE else (first, end)

    def take_over(self):
        owner, log = self._broker.take_over("shop.dead"), self

        class Late:
            def commit(self, *arguments):
                log.settle()
                owner.commit(*arguments)

        return Late()


def late(office, settle):
    log = LateLog(office.broker)
    means = Means(
        take_over=log.take_over,
        topics=office.broker,
        clock=office.sim.clock,
        wait=lambda _: None,
        settle=lambda: settle(log),
    )
    return Operator(DeadLetters(log, app=office.app), means, "alice")


def test_who_hears_that_it_is_done_finds_it_done(office):
    operator = late(office, LateLog.settle)
    operator.discard(Filter(ids=("nobody",)), "first")
    assert {each.status for each in operator.operations()} == {"done"}
    assert operator.discard(Filter(ids=("nobody else",)), "second").status == "done"


def test_what_cannot_be_read_yet_is_done_all_the_same(office):
    asked = []

    def settle(log):
        asked.append(log)
        if len(asked) > 1:  # the first time is before anything is written
            raise RedriveError("the broker is away")
        log.settle()

    assert late(office, settle).discard(Filter(ids=("nobody",)), "first").status == "done"
    assert len(asked) == 2
