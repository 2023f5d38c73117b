"""Desk: what operators do about the letters of one topic, for one of them at a time.

Whoever writes owns the desk: one transactional id per dead topic. Taking it over fences off whoever
had it; what they had not committed is gone, and what they had is read before anything is written.
So an operation cannot happen twice, and pausing somebody's job means taking over from them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from redrive.app import state_topic_of
from redrive.dead import state_topic
from redrive.dead.operations import Operation, Status
from redrive.errors import NotReadyError, RedriveError
from redrive.record import Write

if TYPE_CHECKING:
    from redrive.dead.letters import DeadLetters
    from redrive.dead.state_topic import Known
    from redrive.ports import Clock, Owner, Progress, Topics


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


class Desk:
    """The letters of one topic, owned by this process."""

    def __init__(self, letters: DeadLetters, means: Means) -> None:
        self.letters = letters
        self.means = means
        self.topic = letters.topic
        self._check_state_topic()
        self._owner = means.take_over()
        # Only now that nobody else can write: what have others done?
        self.known: Known = letters.known()
        self.topic_id = letters.log.topic_id(self.topic)

    def commit(self, writes: Sequence[Write], operation: Operation) -> Operation:
        """Write messages and how the operation stands, all or nothing."""
        now = operation.change(updated=self.means.clock.now())
        self._owner.commit([*writes, state_topic.operation_write(self.topic, now)], {})
        self.known.operations[now.id] = now
        return now

    def put(self, name: str, status: Status, by: str) -> Operation:
        """Pause or cancel an operation; whoever runs it finds that out."""
        operation = unfinished(self.known, name)
        return self.commit([], operation.change(status=status, said=f"{status} by {by}"))

    def _check_state_topic(self) -> None:
        """An app's state topic is created like its other topics, that of others here."""
        name, letters = state_topic_of(self.topic), self.letters
        if letters.log.partitions(name):
            return
        if letters.app is not None and self.topic == letters.app.dead_topic:
            raise NotReadyError(
                f"the topic {name} is missing, which keeps what was done about dead letters: run"
                " `redrive topics module:app --apply`"
            )
        self.means.topics.create(name, 1, {"cleanup.policy": "compact"})


def check_alone(known: Known, operation: Operation) -> None:
    """Raise UnderWayError if another operation is in the way of a new one."""
    for each in known.unfinished:
        if each.status == "running":
            raise UnderWayError(
                f"{each.kind} {each.id} of {each.by} is under way, or was killed: `redrive dead"
                f" jobs --resume {each.id}` continues it, `--cancel {each.id}` ends it"
            )
        if each.kind == operation.kind and each.filter == operation.filter:
            raise UnderWayError(
                f"{each.kind} {each.id} of {each.by} is {each.status} and means the same letters:"
                f" `redrive dead jobs --resume {each.id}` continues it, `--cancel {each.id}` ends"
                " it"
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
