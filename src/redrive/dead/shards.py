"""Shards: one operation, done by several processes at once, one for each partition.

Each shard has a transactional id of its own, and in each of its transactions copies, marks and how
far it has come. Whoever begins with one takes it over first, and looks how it stands second: so a
process that is started twice, or that comes to life again, does nothing twice. The operation itself
has one owner, as always, who waits for the shards, and ends those that are left.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from secrets import token_hex
from typing import TYPE_CHECKING

from redrive.dead import state_topic
from redrive.dead.desk import Desk, Means, TakenOverError, as_others_left_it
from redrive.kafka.transactional_producer import FencedError
from redrive.threads import begin
from redrive.tuning import DEAD_LOOK_EVERY

if TYPE_CHECKING:
    from redrive.dead.letters import DeadLetters
    from redrive.dead.operations import Operation
    from redrive.dead.state_topic import Known
    from redrive.ports import Owner
    from redrive.record import Write

RunShards = Callable[["Operation"], None]
"""Has all shards of an operation run somewhere; returns when they have ended."""


class ShardDesk(Desk):
    """One partition of the dead topic, owned by this process for one run of an operation."""

    def __init__(
        self, letters: DeadLetters, means: Means, name: str, run: str, partition: int
    ) -> None:
        self._partition = partition
        super().__init__(letters, means)
        self.shard = self._found(name, run)

    def _take_over(self) -> Owner:
        take_over = self.means.take_over_shard
        assert take_over is not None, "a shard, but no way to take it over"  # noqa: S101 -- see Means
        return take_over(self._partition)

    def _begin(self) -> None:
        """The others go on."""

    def _message(self, operation: Operation) -> Write:
        return state_topic.shard_write(self.topic, operation, self._partition)

    def _found(self, name: str, run: str) -> Operation:
        """How the shard stands; TakenOverError if it may not go on."""
        operation, place = self.known.operations.get(name), str(self._partition)
        if operation is None or not goes_on(self.known, name, run):
            raise TakenOverError(f"{name} goes on elsewhere, or has ended")
        found = self.known.shards.get((name, self._partition))
        if found is not None and found.run == run:
            return found
        ends, cursor = {place: operation.ends[place]}, {place: operation.cursor.get(place, 0)}
        return operation.change(ends=ends, cursor=cursor, counts={})


def goes_on(known: Known, name: str, run: str) -> bool:
    """Whether shards of that run may write."""
    operation = known.operations.get(name)
    return operation is not None and operation.run == run and not operation.closed


class RunningInShards:
    """One operation under way, in shards that run elsewhere."""

    def __init__(
        self,
        desk: Desk,
        operation: Operation,
        run_shards: RunShards,
        *,
        stopping: Callable[[], bool | str] = lambda: False,
    ) -> None:
        self._desk = desk
        self._run_shards = run_shards
        self._stopping = stopping
        self.operation = operation

    def run(self) -> Operation:
        """Wait until all shards have ended; what they have done is read from what they wrote."""
        desk = self._desk
        try:
            begun = self.operation.change(status="running", said="", run=token_hex(8), closed=False)
            self.operation = desk.commit([], begun)
            said = self._wait(begin(lambda: self._run_shards(begun), name="redrive-shards"))
            stands = desk.known.operations[begun.id]
            if stands.run:
                stands = desk.close(stands)
            status, why = ("paused", said or "not all shards came to their end: resume it")
            if not stands.left:
                status, why = "done", ""
            self.operation = desk.commit([], stands.change(status=status, said=why))
        except FencedError:
            return as_others_left_it(desk.letters, self.operation)
        return self.operation

    def _wait(self, shards: Future[None]) -> str:
        """Wait for their end, or end them by fencing; returns why they ended early, if they did."""
        said = ""
        while True:
            try:
                shards.result(DEAD_LOOK_EVERY)
            except TimeoutError:
                if shards.done():
                    return "a time-out"
            except Exception as error:  # noqa: BLE001 -- whatever it is, the operation says it
                return said or str(error)
            else:
                return said
            if not said and self._stopping():
                said = "by a signal"
                self._desk.close(self.operation)
