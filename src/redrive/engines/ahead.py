"""Ahead: the lag by topic; and for delay topics, how much of it is due.

Records of a delay topic become due in the order in which they were appended, so one request to
Kafka says where those that are due now end. Since when the first of them has been due cannot be
asked, as Kafka has no lookup from offset to time: it is remembered from look to look.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Self

from redrive.record import TopicPartition
from redrive.tuning import MOST_DUE_MARKS

AppendedSince = Callable[
    [Mapping[TopicPartition, int]], Mapping[TopicPartition, "tuple[int, int] | None"]
]
"""The first record of each partition that was appended at or after a time: its offset and time."""
_LONGEST: Final = 30 * 86_400_000
"""Milliseconds: longer than this is as good as forever."""


class Place(NamedTuple):
    """The lag of one partition. Offsets have gaps, so it is an upper bound."""

    lag: int
    due: int = 0
    due_since: int | None = None
    """When the first of these became due; None: none is."""
    next_due: int | None = None
    """When the first of the others will be due."""


@dataclass(frozen=True)
class Ahead:
    """The lag in some partitions, by topic; times in milliseconds since 1970."""

    lag: Mapping[str, int] = field(default_factory=dict)
    due: Mapping[str, int] = field(default_factory=dict)
    """For delay topics: how many records are due and not handled."""
    due_since: Mapping[str, int] = field(default_factory=dict)
    next_due: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        topics: Iterable[str],
        delays: Mapping[str, int],
        places: Mapping[TopicPartition, Place],
    ) -> Self:
        """The sums over partitions, with an entry for each topic; `delays` are of delay topics.

        Followers, in strict order, are never due: they have no delay, and wait for their key.
        With the `places` of one process among several, its share.
        """
        lag = dict.fromkeys(topics, 0)
        due = {topic: 0 for topic in lag if topic in delays}
        since: defaultdict[str, list[int]] = defaultdict(list)
        later: defaultdict[str, list[int]] = defaultdict(list)
        for (topic, _), each in places.items():
            lag[topic] += each.lag
            if not delays.get(topic):
                continue
            due[topic] += each.due
            if each.due_since is not None:
                since[topic].append(each.due_since)
            if each.next_due is not None:
                later[topic].append(each.next_due)
        return cls(lag, due, _first(since), _first(later))


class Dues:
    """What is due in the partitions of delay topics, from look to look."""

    def __init__(self, appended_since: AppendedSince) -> None:
        self._appended_since = appended_since
        self._marks: dict[TopicPartition, list[tuple[int, int]]] = {}
        """Offsets, and when the first record from there on is due; both only grow."""

    def look(
        self,
        by: int,
        bounds: Mapping[TopicPartition, tuple[int, int]],
        delays: Mapping[TopicPartition, int],
    ) -> dict[TopicPartition, Place]:
        """What is due by a time, between these offsets: the committed one and the end."""
        waiting = {place: span for place, span in bounds.items() if span[1] > span[0]}
        # A record appended at t is due at t + delay, and those behind it later.
        since = self._appended_since({place: by - delays[place] + 1 for place in waiting})
        found: dict[TopicPartition, Place] = {}
        for place, (position, end) in bounds.items():
            later = since.get(place)
            due_end = end if later is None else max(position, min(later[0], end))
            next_due = None if later is None or later[0] >= end else later[1] + delays[place]
            found[place] = Place(end - position, due_end - position, None, next_due)
            self._mark(place, position, due_end, by if next_due is None else next_due)
        self._find_out(by, bounds, found, delays)
        return {
            place: each._replace(due_since=self._since(place, bounds[place][0]))
            if each.due
            else each
            for place, each in found.items()
        }

    def _mark(self, place: TopicPartition, position: int, due_end: int, due: int) -> None:
        """Remember where the next due record is, and since when; forget what is done."""
        marks = self._marks.setdefault(place, [])
        if marks and (marks[-1][0] > due_end or marks[0][0] > position):
            marks.clear()  # a recreated topic, or progress that was reset
        if marks and marks[-1][0] == due_end:
            marks.pop()
        marks.append((due_end, due))
        done = bisect_right(marks, position, key=_offset) - 1
        del marks[: max(0, done)]
        if len(marks) > MOST_DUE_MARKS:  # it does not get on: the one that is missed least
            gaps = [after[1] - before[1] for before, after in zip(marks, marks[2:], strict=False)]
            del marks[gaps.index(min(gaps)) + 1]

    def _since(self, place: TopicPartition, position: int) -> int:
        marks = self._marks[place]
        return marks[max(0, bisect_right(marks, position, key=_offset) - 1)][1]

    def _find_out(
        self,
        by: int,
        bounds: Mapping[TopicPartition, tuple[int, int]],
        found: Mapping[TopicPartition, Place],
        delays: Mapping[TopicPartition, int],
    ) -> None:
        """For partitions with records that were due at the first look: roughly for how long."""
        unknown = {
            place: bounds[place][0]
            for place, each in found.items()
            if each.due and self._marks[place][0][0] > bounds[place][0]
        }
        late = 0
        while unknown:
            step = max(1000, late * 2)
            since = self._appended_since({place: by - step - delays[place] for place in unknown})
            for place, position in list(unknown.items()):
                first = since[place]
                if step > _LONGEST or (first is not None and first[0] <= position):
                    self._marks[place].insert(0, (unknown.pop(place), by - late))
            late = step


def _first(times: Mapping[str, list[int]]) -> dict[str, int]:
    return {topic: min(each) for topic, each in times.items()}


def _offset(mark: tuple[int, int]) -> int:
    return mark[0]
