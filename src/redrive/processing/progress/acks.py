"""Which received offsets are complete, and what may be committed."""

from __future__ import annotations

from bisect import insort
from collections import deque
from collections.abc import Iterable, Sequence
from threading import Lock

from redrive.ports import Position
from redrive.processing.progress import done_beyond
from redrive.processing.progress.done_beyond import METADATA_LIMIT, Range


class AckTracker:
    """The received offsets of one topic-partition, for one assignment.

    The next assignment gets a new tracker: what is still under way from the last one cannot count.
    Offsets have gaps (transaction markers, compaction), so that only what was received counts.
    May be used from many threads.
    """

    def __init__(self, start: Position | None = None) -> None:
        """It begins at what was committed, if anything was."""
        self._lock = Lock()
        self._order: deque[int] = deque()
        """Received, ascending, without the completed prefix."""
        self._running: set[int] = set()
        self._done: set[int] = set()
        """Complete, but behind one that is not."""
        self._given_back: set[int] = set()
        self._put_off: set[int] = set()
        """Received, and received again when somebody asks for them."""
        self._restored: list[Range] = [] if start is None else done_beyond.decode(start)
        """Complete before the assignment began."""
        self._committable = None if start is None else start.offset
        self._last = -1
        self._end = -1
        self._completed = 0

    def receive(self, offsets: Sequence[int]) -> Sequence[int]:
        """Note that these were received, in ascending order; returns those that must run.

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

    def complete(self, offsets: Iterable[int]) -> None:
        """Note that these are complete: durably, whatever became of them."""
        with self._lock:
            completed = self._running.intersection(offsets)
            self._completed += len(completed)
            self._running -= completed
            self._done |= completed
            self._advance()

    def give_back(self, offsets: Iterable[int]) -> None:
        """Note that these will be received again."""
        with self._lock:
            returned = self._running.intersection(offsets)
            self._running -= returned
            self._given_back |= returned

    def put_off(self, offset: int) -> None:
        """Note that it is received again only if it is asked for, or something before it is."""
        with self._lock:
            if offset in self._running:
                self._running.discard(offset)
                self._put_off.add(offset)

    def ask_for(self, offset: int) -> bool:
        """Note that one that was put off will be received again; False: it comes anyhow."""
        with self._lock:
            if offset not in self._put_off:
                return False
            self._put_off.discard(offset)
            self._given_back.add(offset)
            return True

    @property
    def first_given_back(self) -> int | None:
        """Where reading has to go back to; None where nothing was given back."""
        with self._lock:
            return min(self._given_back, default=None)

    @property
    def waits_to_read_again(self) -> bool:
        """Whether something was given back and has not come again."""
        return bool(self._given_back)

    @property
    def in_flight(self) -> int:
        """How many received offsets are not complete."""
        return len(self._running)

    def is_under_way(self, offset: int) -> bool:
        """Whether it was received, and is not complete."""
        return offset in self._running

    @property
    def beyond_prefix(self) -> int:
        """How many offsets were received from the end of the completed prefix on."""
        return len(self._order)

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

    def _receive(self, offset: int) -> bool:
        if self._committable is not None and offset < self._committable:
            return False
        if offset in self._running or offset in self._done:
            return False
        if offset in self._given_back or offset in self._put_off:
            self._given_back.discard(offset)
            self._put_off.discard(offset)
            self._running.add(offset)
            return True
        self._insert(offset)
        if done_beyond.includes(self._restored, offset):
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
