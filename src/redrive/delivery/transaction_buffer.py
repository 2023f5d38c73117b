"""TransactionBuffer: records of a partition that have ended, until a transaction takes them.

A transaction takes a contiguous prefix and nothing else: all that has ended below an offset, as
far as there is room for it. If writes of it are refused, all of it comes back, and from the first
record on that has to wait for their topics nothing is taken. Where a record is buried instead, the
next ones are smaller (`prefix_size.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain
from operator import attrgetter, itemgetter
from threading import Lock
from typing import TYPE_CHECKING, Final, NamedTuple

from redrive.delivery.items import Hold, Item, taken_back
from redrive.delivery.prefix_size import PrefixSize
from redrive.delivery.refusing_topics import RefusingTopics
from redrive.messages import weight
from redrive.processing.outcomes.report import Outcome, Report

if TYPE_CHECKING:
    from redrive.errors import PublishError
    from redrive.kafka.room import Room
    from redrive.ports import Clock
    from redrive.processing.processor import PartitionProcessor
    from redrive.processing.work import Work
    from redrive.record import Record, Write

Ended = tuple[int, "Sequence[Write]", "Work | Record | Outcome | None"]
"""An offset, what is to be written for it, and what became of the record if it is not done.

A plain tuple, as reports have them: there is one for nearly every record.
"""
_offset: Final = itemgetter(0)
_writes: Final = itemgetter(1)
_topic: Final = attrgetter("topic")


class Prefix(NamedTuple):
    """What one transaction takes: records that are complete once it is committed."""

    end: int
    """The offset up to which it goes."""
    done: list[int]
    """Offsets of records that are done and have nothing to write."""
    ended: list[Ended]
    """The others, by offset."""
    bytes: int
    """Of their messages."""

    @property
    def records(self) -> int:
        """How many there are."""
        return len(self.done) + len(self.ended)

    @property
    def writes(self) -> list[Write]:
        """Their messages."""
        return _all_writes(self.ended)

    @property
    def topics(self) -> set[str]:
        """Where to."""
        return set(map(_topic, self.writes))

    @property
    def outcomes(self) -> list[Outcome]:
        """What became of those that are not simply done."""
        return [of for _, _, of in self.ended if isinstance(of, Outcome)]


_NOTHING: Final = Prefix(0, [], [], 0)


class TransactionBuffer:
    """Those of one partition, with those of the transaction under way. Safe for many threads."""

    def __init__(
        self, processor: PartitionProcessor, room: Room, topics: RefusingTopics, clock: Clock
    ) -> None:
        """`room` is how much one transaction takes, `topics` are those that refuse writes."""
        self.records = 0
        """How many there are."""
        self.bytes = 0
        """Of their messages."""
        self.hold: Hold | None = None
        """Where it waits because writes were refused, until they are taken."""
        self.waits = True
        """Whether it does so now: else they are tried again."""
        self._processor = processor
        self._room = room
        self._topics = topics
        self._clock = clock
        self._done: list[int] = []
        self._ended: list[Ended] = []
        self._under_way = _NOTHING
        self._size = PrefixSize()
        self._lock = Lock()

    def add(self, report: Report) -> int:
        """Keep what has ended; returns the bytes of its messages."""
        news: list[Ended] = [*report.sent]
        news += [(each.offset, each.writes, each) for each in report.outcomes]
        size = weight(_all_writes(news))
        with self._lock:
            self._done += report.done
            self._ended += news
            self.records += len(report.done) + len(news)
            self.bytes += size
        return size

    def reachable(self, prefix: int) -> int:
        """How far a transaction could go: not past a record that waits."""
        hold = self.hold
        return min(prefix, hold.offset) if self.waits and hold is not None else prefix

    def cut(self, end: int) -> Prefix:
        """Take out what goes into one transaction, up to there at most. None is under way."""
        with self._lock:
            # By offset: each lane's order, and the same at every attempt.
            below = sorted((each for each in self._ended if each[0] < end), key=_offset)
            fits = self._room.fitting([*map(_writes, below)], self.bytes)
            if self._size.limited:
                fits = min(fits, int(self._size.most))
            ended, rest = below[:fits], below[fits:]
            end = _offset(rest[0]) if rest else end
            if len(ended) == len(self._ended):  # as nearly always
                self._ended, size = [], self.bytes
            else:
                self._ended = [each for each in self._ended if each[0] >= end]
                size = weight(_all_writes(ended))
            self._under_way = Prefix(end, self._cut_done(end), ended, size)
        return self._under_way

    def _cut_done(self, end: int) -> list[int]:
        done = [offset for offset in self._done if offset < end]
        if len(done) == len(self._done):
            self._done = []
        else:
            self._done = [offset for offset in self._done if offset >= end]
        return done

    def let_go(self) -> None:
        """The transaction under way was committed."""
        with self._lock:
            prefix, self._under_way = self._under_way, _NOTHING
            self.records -= prefix.records
            self.bytes -= prefix.bytes
            self._size.committed()
        if self.hold is not None and prefix.end > self.hold.offset:
            self.hold = None

    @property
    def in_small_parts(self) -> bool:
        """Whether transactions are small, and should follow each other quickly."""
        return self._size.limited

    def put_back(self, error: PublishError) -> None:
        """It was taken back, because of refused writes: the next one does without them."""
        items = [self._item(each) for each in self._under_way.ended]
        again, hold = taken_back(items, error, self._topics, self._clock.now())
        self.hold = hold or self.hold
        ended = [*map(_ended, again)]
        buried = [n for n, each in enumerate(again) if each is not items[n]]
        with self._lock:
            if buried:
                self._size.buried(buried[-1] + 1)
            prefix, self._under_way = self._under_way, _NOTHING
            self._done += prefix.done
            self._ended += ended
            self.bytes += weight(_all_writes(ended)) - prefix.bytes

    @property
    def refused(self) -> int:
        """How many wait because writes were refused: for the topics themselves."""
        hold = self.hold
        if hold is None:
            return 0
        with self._lock:
            behind = [*self._under_way.ended, *self._ended]
        return len(hold.of(map(self._item, behind)))

    @property
    def waiting(self) -> int:
        """The same with those that wait for them: all from the first on."""
        hold = self.hold
        if hold is None:
            return 0
        with self._lock:
            done = (*self._under_way.done, *self._done)
            ended = (*self._under_way.ended, *self._ended)
        return sum(offset >= hold.offset for offset in (*done, *map(_offset, ended)))

    def _item(self, ended: Ended) -> Item:
        offset, writes, of = ended
        if isinstance(of, Outcome):
            return Item(self._processor, offset, writes, of)
        return Item(self._processor, offset, writes, None, of)


def _ended(item: Item) -> Ended:
    return item.offset, item.writes, item.outcome or item.subject


def _all_writes(ended: Iterable[Ended]) -> list[Write]:
    return list(chain.from_iterable(map(_writes, ended)))
