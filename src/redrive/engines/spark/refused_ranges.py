"""RefusedRanges: partitions whose records wait for topics that refuse what is to be written.

What came of their handlers was lost with the task. So they are not planned before those topics take
writes: then their handlers are called once more, and not again and again meanwhile.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from redrive.delivery.refusing_topics import Ask, RefusingTopics
from redrive.engines.spark.news import News
from redrive.errors import PublishError
from redrive.record import TopicPartition
from redrive.tuning import REFUSED_RANGES_LONGEST

if TYPE_CHECKING:
    from redrive.ports import Clock, Position


class _Waiting(NamedTuple):
    records: int
    topics: tuple[str, ...]
    end: int
    """How far the partition was then."""


class RefusedRanges:
    """Those of one lane."""

    def __init__(self, ask: Ask, clock: Clock) -> None:
        # Longer each time, where only another call of the handler tells.
        self._topics = RefusingTopics(ask, clock, longest_blind=REFUSED_RANGES_LONGEST, quiet=True)
        self._waiting: dict[TopicPartition, _Waiting] = {}

    @property
    def records(self) -> int:
        """How many records wait."""
        return sum(each.records for each in self._waiting.values())

    @property
    def reason(self) -> str:
        """Why, in one sentence."""
        topics = (topic for each in self._waiting.values() for topic in each.topics)
        return next(map(str, self._topics.reasons(topics)), "")

    def note(self, news: News) -> None:
        """Note what became of the last batch."""
        for place, (records, refusals) in news.refused.items():
            for reason in map(_error, refusals):
                self._topics.note(reason, (reason.topic,))
            topics = tuple(each[0] for each in refusals)
            self._waiting[place] = _Waiting(records, topics, news.ends[place])

    def look(self, starts: Mapping[TopicPartition, Position]) -> None:
        """Forget those that are elsewhere by now: their writes were taken, or they are gone."""
        for place in starts.keys() & self._waiting.keys():
            if starts[place].offset != self._waiting[place].end:
                self._topics.taken(self._waiting.pop(place).topics)

    def forget(self, topic: str) -> None:
        """A topic is gone, or was recreated: nothing of it waits any more."""
        self._waiting = {at: each for at, each in self._waiting.items() if at.topic != topic}

    def now(self) -> set[TopicPartition]:
        """The partitions that are not worth a try."""
        return {
            place
            for place, each in self._waiting.items()
            if self._topics.until(each.topics) is not None
        }


def _error(refusal: Sequence[str]) -> PublishError:
    topic, kind, text = refusal
    error = PublishError(text)
    error.topic = topic
    error.kind = kind  # type: ignore[assignment]  # -- one of them, on its way as text
    return error
