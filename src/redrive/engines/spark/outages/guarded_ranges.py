"""GuardedRanges: what a lane plans while the guard of a handler is open: probes only.

The records of such a handler are planned by ration, as the book of both lanes says. A delay topic
has records of several handlers: the others' are run, and it is planned again when more are due.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from redrive.engines.spark.outages.book import Book
from redrive.engines.spark.outages.shared_book import SharedBook
from redrive.engines.spark.ranges import Guarded, Range
from redrive.engines.words import LaneName
from redrive.record import TopicPartition
from redrive.tuning import GUARD_READ

if TYPE_CHECKING:
    from redrive.ports import Clock, Position

Rations = dict[str, dict[TopicPartition, int]]

_NO_RATIONS: Final[Mapping[TopicPartition, int]] = {}


class GuardedRanges:
    """Those of one lane; of an app without guards, nothing is changed."""

    def __init__(
        self,
        lane: LaneName,
        book: SharedBook | None,
        clock: Clock,
        begun: Callable[[], None] = lambda: None,
    ) -> None:
        """`begun` is called before anything is planned."""
        self._lane = lane
        self._book = book
        self._clock = clock
        self._begun = begun
        self._rations: Rations = {}

    def ends(
        self, starts: Mapping[TopicPartition, Position], ends: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int]:
        """How far to plan, of what could be planned."""
        if self._book is None:
            return dict(ends)
        self._begun()
        now = self._book.steady()
        with self._book.opened() as book:
            book.begin(self._lane, now)
            book.forget_before({place: start.offset for place, start in starts.items()})
            ahead = {
                place: end
                for place, end in ends.items()
                if place in starts and end > starts[place].offset
            }
            self._rations = {}
            for topic in book.shut:
                self._rations[topic] = self._ration(book, topic, ahead, now)
            ahead = {
                place: self._end(book, place, starts[place].offset, end)
                for place, end in ahead.items()
            }
        return {**ends, **ahead}

    def _ration(
        self, book: Book, topic: str, ahead: Mapping[TopicPartition, int], now: int
    ) -> dict[TopicPartition, int]:
        page = book.pages[topic]
        if self._lane == "main":
            places = [place for place in ahead if place.topic == topic]
        else:
            places = [place for place, end in ahead.items() if page.waits_in(place, end)]
        waits = page.waiting({place: ahead[place] for place in places})
        book.look(self._lane, topic, now, waits=waits)
        return book.ration(self._lane, topic, places, now)

    def _end(self, book: Book, place: TopicPartition, start: int, end: int) -> int:
        shut = book.shut
        rationed = sum(each.get(place, 0) for each in self._rations.values())
        if self._lane == "main":
            if place.topic not in shut:
                return end
            return min(end, start + max(GUARD_READ, rationed)) if rationed else start
        pages = [book.pages[topic] for topic in shut]
        waiting = [each.looked.get(place, (-1, 0)) for each in pages]
        settled = any(reached >= end and held for reached, held in waiting)
        return start if settled and not rationed else end

    def told(self, tasks: Sequence[Sequence[Range]]) -> list[list[Range]]:
        """The same tasks, each with what it has to know of guards."""
        if self._book is None:
            return [[*ranges] for ranges in tasks]
        book = self._book.seen()
        moved = self._clock.now() - self._book.steady()
        return [
            [each._replace(guarded=self._told(book, each, tasks, moved)) for each in ranges]
            for ranges in tasks
        ]

    def _told(
        self, book: Book, each: Range, tasks: Sequence[Sequence[Range]], moved: int
    ) -> tuple[Guarded, ...]:
        topics = [each.topic] if self._lane == "main" else [*book.pages]
        found = []
        for topic in topics:
            if topic not in book.pages:
                continue
            of = [any(self._may_have(one, topic) for one in ranges) for ranges in tasks]
            ration = self._rations.get(topic, _NO_RATIONS).get(each.place, 0)
            told = book.guarded(each.place, topic, ration, moved, alone=sum(of) < 2)
            found += [] if told is None else [told]
        return tuple(found)

    def _may_have(self, each: Range, topic: str) -> bool:
        return self._lane == "retry" or each.topic == topic
