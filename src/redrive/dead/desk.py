"""Desk: what operators do about the letters of one topic, for one of them at a time.

Whoever writes owns the desk: one transactional id per dead topic. Taking it over fences off whoever
had it; what they had not committed is gone, and what they had is read before anything is written.
So an operation cannot happen twice, and pausing somebody's job means taking over from them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Final

from redrive.app import state_topic_of
from redrive.dead import state_topic
from redrive.dead.operations import Operation, Status
from redrive.dead.scan import bounds_of
from redrive.errors import NotReadyError, RedriveError
from redrive.record import Write
from redrive.tuning import DEAD_REMOVED_AT_ONCE

if TYPE_CHECKING:
    from redrive.dead.letters import DeadLetters
    from redrive.dead.state_topic import Known
    from redrive.delivery.store import KnownIds
    from redrive.ports import Clock, Log, Owner, Progress, Topics

log: Final = logging.getLogger("redrive.dead")


class UnderWayError(RedriveError):
    """Another operation on the same letters is under way."""


class TakenOverError(RedriveError):
    """Somebody else has taken over the letters; the operation stands as they left it."""


@dataclass(frozen=True)
class Means:
    """What is needed of Kafka in order to change anything."""

    take_over: Callable[[], Owner]
    """Fences off whoever owned the desk before."""
    topics: Topics
    clock: Clock
    wait: Callable[[float], None]
    progress: Progress | None = None
    """How far the app has come, if there is one."""
    ids: KnownIds | None = None
    """The app's inbox, if it has one that can be asked."""
    take_over_shard: Callable[[int], Owner] | None = None
    """The same for one partition of the dead topic; None: nobody works in shards."""
    settle: Callable[[], None] = lambda: None
    """Waits until all that was written to the state topic so far can be read."""


class Desk:
    """The letters of one topic, owned by this process."""

    def __init__(self, letters: DeadLetters, means: Means) -> None:
        self.letters = letters
        self.means = means
        self.topic = letters.topic
        self._check_state_topic()
        self._owner = self._take_over()
        # Only now that nobody else can write: what have others done?
        means.settle()
        self.known: Known = letters.known()
        self._gone: list[Write] = []
        """What removes marks of letters that are gone; written with the next step."""
        self._begin()

    @classmethod
    def begin(cls, letters: DeadLetters, means: Means, operation: Operation) -> Desk:
        """Take the desk over for a new operation; UnderWayError if another is in the way."""
        # Asked twice: first because taking over would fence off another one that runs.
        check_alone(letters.known(), operation, letters.named)
        desk = cls(letters, means)
        check_alone(desk.known, operation, letters.named)
        return desk

    def commit(self, writes: Sequence[Write], operation: Operation) -> Operation:
        """Write messages and how the operation stands, all or nothing.

        Whoever hears that it has ended must find it ended: a transaction is committed a little
        before its messages can be read.
        """
        now = operation.change(updated=self.means.clock.now())
        self._owner.commit([*writes, *self._gone, self._message(now)], {})
        self._gone = []
        self.known.operations[now.id] = now
        if now.status != "running":
            try:
                self.means.settle()
            except RedriveError as error:  # it is written: that others read it late is no failure
                log.info("%s is %s, but cannot be read yet: %s", now.id, now.status, error)
        return now

    def check_topic(self, operation: Operation) -> None:
        """Raise UnderWayError if the operation is about letters that are gone with their topic."""
        check_same(self.letters.log, self.topic, operation.topic_id, operation)

    def put(self, name: str, status: Status, by: str) -> Operation:
        """Pause or cancel an operation; whoever runs it finds that out."""
        operation = unfinished(self.known, name)
        return self.commit([], operation.change(status=status, said=f"{status} by {by}"))

    def _marks_of_letters_that_are_gone(self) -> list[Write]:
        """What removes them, or some of them: nobody asks for them any more."""
        bounds = bounds_of(self.letters.log, self.topic)
        firsts = {partition: first for partition, (first, _) in bounds.items()}
        topic_id = self.letters.log.topic_id(self.topic)
        found = state_topic.removals(self.topic, topic_id, self.known, firsts)
        return [*islice(found, DEAD_REMOVED_AT_ONCE)]

    def close(self, operation: Operation) -> Operation:
        """End the shards of an operation: none can write any more; returns how it stands.

        Whoever begins with a shard takes it over first, and looks second. So the word that no new
        one may begin has to be readable before they are fenced off for the last time. The first
        time is for transactions that are open: what comes after them cannot be read.
        """
        take_over = self.means.take_over_shard
        assert take_over is not None, "an operation in shards, but no way to take them over"  # noqa: S101 -- see Means
        self.commit([], operation.change(closed=True))
        for _ in range(2):
            for name in operation.ends:
                take_over(int(name))
            self.means.settle()
        self.known = self.letters.known()
        return self.commit([], self.known.standing(self.known.operations[operation.id]))

    def _begin(self) -> None:
        """Whoever has left shards behind, they are ended now."""
        for operation in [each for each in self.known.operations.values() if each.run]:
            self.close(operation)
        self._gone = self._marks_of_letters_that_are_gone()

    def _take_over(self) -> Owner:
        return self.means.take_over()

    def _message(self, operation: Operation) -> Write:
        return state_topic.operation_write(self.topic, operation)

    def _check_state_topic(self) -> None:
        """An app's state topic is created like its other topics, that of others here."""
        name, letters = state_topic_of(self.topic), self.letters
        if letters.log.partitions(name):
            return
        if letters.app is not None and self.topic == letters.app.dead_topic:
            raise NotReadyError(
                f"the topic {name} is missing, which keeps what was done about dead letters: run"
                f" `redrive topics {letters.named} --apply`"
            )
        self.means.topics.create(name, 1, {"cleanup.policy": "compact"})


def as_others_left_it(letters: DeadLetters, operation: Operation) -> Operation:
    """How an operation stands now that somebody has taken over."""
    found = letters.known().operations.get(operation.id)
    if found is None or found.status == "running":
        raise TakenOverError(
            f"somebody else works on the letters of {letters.topic} now: nothing of what"
            f" {operation.id} had begun is written; `redrive dead jobs {letters.named}` shows how"
            " it stands"
        )
    return found


def check_alone(known: Known, operation: Operation, named: str) -> None:
    """Raise UnderWayError if another operation is in the way of this one."""
    for each in known.unfinished:
        if each.id == operation.id:
            continue
        if each.status == "running":
            raise UnderWayError(
                f"{each.kind} {each.id} of {each.by} is under way, or was killed:"
                f" {_how(each, named)}"
            )
        if each.kind == operation.kind and each.letters == operation.letters:
            raise UnderWayError(
                f"{each.kind} {each.id} of {each.by} is {each.status} and means the same"
                f" {each.about}: {_how(each, named)}"
            )


def resumable(known: Known, name: str, named: str) -> Operation:
    """The operation of that id, which can go on; UnderWayError if another is in its way."""
    operation = unfinished(known, name)
    others = [each for each in known.unfinished if each.status == "running"]
    if others and others != [operation]:
        check_alone(known, operation, named)
    return operation


def check_same(log: Log, topic: str, topic_id: str, operation: Operation) -> None:
    """Raise UnderWayError if a topic is not the one that the operation began with."""
    if log.topic_id(topic) != topic_id:
        raise UnderWayError(
            f"{operation.id} is about {operation.about} of {topic}, which has been recreated since:"
            " cancel it, and start again"
        )


def _how(each: Operation, named: str) -> str:
    return (
        f"`{each.resumed_by(named)}` continues it, `redrive dead jobs {named} --cancel {each.id}`"
        " ends it"
    )


def unfinished(known: Known, name: str) -> Operation:
    """The operation of that id, which has not ended."""
    operation = known.operations.get(name)
    if operation is None:
        there = ", ".join(each.id for each in known.unfinished) or "none"
        raise UnderWayError(f"there is no operation {name}; unfinished ones: {there}")
    if not operation.unfinished:
        raise UnderWayError(f"{name} is {operation.status}: there is nothing left to do")
    return operation
