"""Houses: in strict order a source partition and its rooms are planned as one, for one task.

What a task finds out about a key holds as long as nobody else handles the key. So one lane plans
houses, whole; and a house that would only be found as it was left is not planned again at once.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from redrive.engines.spark.ranges import House, Range
from redrive.engines.waiting_rooms import rooms_of
from redrive.kafka.errors import BrokerError
from redrive.record import TopicPartition, partitions_of
from redrive.tuning import FAILED_BATCH_WAIT, NOTHING_DONE_WAIT

if TYPE_CHECKING:
    from redrive.app import App


class _Planned(NamedTuple):
    """How a house was when it was planned last."""

    ranges: tuple[Range, ...]
    ends: tuple[int, ...]
    times: int = 0
    """How often it has been found as it was."""
    not_before: int = 0


class Houses:
    """The houses of an app, and which of them are worth a task."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._planned: dict[TopicPartition, _Planned] = {}
        self.not_ready: list[str] = []
        """Why houses cannot be planned that are not whole."""

    def planned(
        self,
        now: int,
        found: Sequence[Range],
        topics: Mapping[str, tuple[str, int]],
        ends: Mapping[TopicPartition, int],
    ) -> list[Range]:
        """Of ranges that could run, those of houses that are whole, and not as they were left.

        `topics` have ids and numbers of partitions, `ends` those of all partitions that are known.
        """
        rooms = self._rooms(topics, ends)
        by_source: dict[TopicPartition, list[Range]] = {source: [] for source in rooms}
        sources = {place: source for source, places in rooms.items() for place in places}
        for each in found:
            if each.place in sources:
                by_source[sources[each.place]].append(each)
        claim = uuid.uuid4().hex[:12]
        chosen: list[Range] = []
        for source, mine in by_source.items():
            places = rooms[source]
            if mine and self._is_news(source, now, mine, [ends[place] for place in places]):
                ids = tuple((place, topics[place.topic][0]) for place in places)
                chosen += [each._replace(house=House(claim, ids)) for each in mine]
        return chosen

    def _rooms(
        self, topics: Mapping[str, tuple[str, int]], known: Collection[TopicPartition]
    ) -> dict[TopicPartition, list[TopicPartition]]:
        """All of each house that is whole, its source first."""
        counts = {topic: count for topic, (_, count) in topics.items()}
        whole: dict[TopicPartition, list[TopicPartition]] = {}
        self.not_ready = []
        for source in partitions_of({topic: counts.get(topic, 0) for topic in self._app.handlers}):
            try:
                places = [source, *rooms_of(self._app, source, counts)]
            except BrokerError as error:
                self.not_ready.append(str(error))
                continue
            if all(place in known for place in places):
                whole[source] = places
        return whole

    def _is_news(
        self, source: TopicPartition, now: int, ranges: Sequence[Range], ends: Sequence[int]
    ) -> bool:
        """Whether a task may find more than the last one did, or it is time to look again.

        A record may have come, become due, or been completed by the last task. If none has, what
        was left waits for others of its key; or the last task was lost.
        """
        last = self._planned.get(source)
        here = _Planned(tuple(ranges), tuple(ends))
        if last is None or (last.ranges, last.ends) != (here.ranges, here.ends):
            self._planned[source] = here
            return True
        if not last.not_before:
            wait = min(FAILED_BATCH_WAIT, NOTHING_DONE_WAIT * 2 ** min(last.times, 10))
            self._planned[source] = last._replace(not_before=now + int(1000 * wait))
            return False
        if 0 < last.not_before - now <= 1000 * FAILED_BATCH_WAIT:  # else the clock was set
            return False
        self._planned[source] = last._replace(times=last.times + 1, not_before=0)
        return True


def claims(plan: Sequence[Sequence[Range]]) -> dict[TopicPartition, str]:
    """Which houses are handled by a plan, and with which claim."""
    houses = (each.house for ranges in plan for each in ranges)
    return {house.source: house.claim for house in houses if house is not None}
