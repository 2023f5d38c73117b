"""Which received offsets are complete, and what may be committed."""

from __future__ import annotations

from bisect import bisect_right, insort
from collections import deque
from collections.abc import Iterable, Sequence
from threading import Lock

from redrive.ports import Position
from redrive.processing import done_beyond
from redrive.processing.done_beyond import METADATA_LIMIT, Range


class AckTracker:
    """The received offsets of one topic-partition, from assignment to assignment.

    Offsets have gaps (transaction markers, compaction), so that only what was received counts.
    May be used from many threads.
    """

    _order: deque[int]  # received, ascending, without the completed prefix
    _running: set[int]
    _done: set[int]  # complete, but behind one that is not
    _given_back: set[int]
    _restored: list[Range]  # complete before the assignment began
    _committable: int | None
    _last: int
    _end: int
    _completed: int

    def __init__(self) -> None:
        self._lock = Lock()
        self.epoch = 0
        """The assignment. Completions that were handed out in an earlier one do not count."""
        self._forget()

    def assign(self, position: Position | None = None) -> int:
        """Begin a new assignment at what was committed; gives its epoch."""
        with self._lock:
            self.epoch += 1
            self._forget()
            if position is not None:
                self._committable = position.offset
                self._restored = done_beyond.decode(position)
            return self.epoch

    def revoke(self) -> None:
        """End the assignment: whatever is still under way no longer counts."""
        with self._lock:
            self.epoch += 1
            self._forget()

    def receive(self, offsets: Sequence[int]) -> Sequence[int]:
        """Note that these were received, in ascending order; gives those that shall run.

        Left out are those that are complete, still under way, or were completed before a crash.
        """
        if not offsets:
            return offsets
        with self._lock:
            if offsets[0] > self._last and not self._restored:
                self._last = offsets[-1]
                self._order.extend(offsets)
                self._running.update(offsets)
                return offsets
            return [offset for offset in offsets if self._receive(offset)]

    def received_up_to(self, end: int) -> None:
        """Note that no record below `end` will come any more: what was a gap at the end counts."""
        with self._lock:
            self._completed += end > self._end
            self._end = max(self._end, end)
            self._advance()

    def complete(self, offsets: Iterable[int], epoch: int) -> None:
        """Note that these are complete: durably, whatever became of them."""
        with self._lock:
            if epoch != self.epoch:
                return
            completed = self._running.intersection(offsets)
            self._completed += len(completed)
            self._running -= completed
            self._done |= completed
            self._advance()

    def give_back(self, offsets: Iterable[int], epoch: int) -> None:
        """Note that these will be received again."""
        with self._lock:
            if epoch != self.epoch:
                return
            returned = self._running.intersection(offsets)
            self._running -= returned
            self._given_back |= returned

    @property
    def first_given_back(self) -> int | None:
        """Where reading has to go back to; None where nothing was given back."""
        with self._lock:
            return min(self._given_back, default=None)

    @property
    def in_flight(self) -> int:
        """How many received offsets are not complete."""
        return len(self._running)

    @property
    def prefix(self) -> int:
        """The end of the completed prefix; -1 where nothing is known yet."""
        with self._lock:
            if self._order:
                return self._order[0]
            return -1 if self._committable is None else self._committable

    @property
    def completed(self) -> int:
        """How many were completed in this assignment: grows whenever there is more to commit."""
        return self._completed

    def position(self, limit: int = METADATA_LIMIT) -> Position | None:
        """What may be committed: the end of the completed prefix, and what is done beyond it.

        None where nothing is known yet.
        """
        with self._lock:
            offset = self._order[0] if self._order else self._committable
            if offset is None:
                return None
            beyond = sorted(self._done)
            if not self._restored:
                return Position(offset, done_beyond.encode_offsets(offset, beyond, limit))
            ranges = done_beyond.merge(done_beyond.ranges(beyond), self._restored, offset)
            return Position(offset, done_beyond.encode(offset, ranges, limit))

    def _forget(self) -> None:
        self._order = deque()
        self._running = set()
        self._done = set()
        self._given_back = set()
        self._restored = []
        self._committable = None
        self._last = -1
        self._end = -1
        self._completed = 0

    def _receive(self, offset: int) -> bool:
        if self._committable is not None and offset < self._committable:
            return False
        if offset in self._running or offset in self._done:
            return False
        if offset in self._given_back:
            self._given_back.discard(offset)
            self._running.add(offset)
            return True
        self._insert(offset)
        if self._was_done(offset):
            self._done.add(offset)
            self._advance()
            return False
        self._running.add(offset)
        return True

    def _insert(self, offset: int) -> None:
        if offset > self._last:
            self._last = offset
            self._order.append(offset)
        else:  # a gap that was none after all: only after the consumer was sent back
            insort(self._order, offset)

    def _was_done(self, offset: int) -> bool:
        place = bisect_right(self._restored, offset, key=lambda done: done[0]) - 1
        return place >= 0 and offset < self._restored[place][1]

    def _advance(self) -> None:
        order, done = self._order, self._done
        reached = -1
        while order and order[0] in done:
            reached = order.popleft()
            done.discard(reached)
        if not order:
            reached = max(reached, self._end - 1)
        if reached >= 0:
            self._committable = max(self._committable or 0, reached + 1)
            self._drop_restored()

    def _drop_restored(self) -> None:
        while self._restored and self._restored[0][1] <= (self._committable or 0):
            self._restored.pop(0)
