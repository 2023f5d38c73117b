"""`redrive-due`: delay topics as a streaming source, with the schema of Spark's Kafka source.

For anybody's pipeline: records come when they are due, never before, and Spark's checkpoint holds
the progress as for any source. It needs no app and no consumer group.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from threading import Event
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

from redrive.clock import WallClock
from redrive.config import Settings, SettingsArguments, load_settings
from redrive.engines.spark import ranges
from redrive.engines.spark.frames import due_options
from redrive.engines.spark.frames.due_options import DueOptions
from redrive.engines.spark.frames.intake import EARLIEST, KAFKA_SCHEMA, LATEST, kafka_row
from redrive.engines.spark.ranges import Range
from redrive.errors import ConfigurationError, DataLossError
from redrive.kafka.errors import MissingTopicError
from redrive.kafka.log import KafkaLog
from redrive.kafka.topic_admin import KafkaTopics
from redrive.ports import Clock, Position
from redrive.record import Record, TopicPartition, partitions_of
from redrive.tuning import DUE_LONG_HOLD

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

log: Final = logging.getLogger("redrive.spark")
NAME: Final = "redrive-due"
Offsets = dict[str, dict[str, int | str]]
"""By topic and partition, as Spark's Kafka source writes them; with the topic's id beside them."""
_ID: Final = "id"
_GROUP: Final = "redrive-due"
_APPEND_TIME: Final = 1
_CLOCK: Final = WallClock()
_DIGITS: Final = 15
"""Of a time in milliseconds; what is longer is none."""


class _Topics(NamedTuple):
    """What there is to read: ids by topic, and the bounds of all partitions."""

    ids: dict[str, str]
    bounds: dict[TopicPartition, tuple[int, int]]


class DueSource(DataSource):
    """`spark.dataSource.register(redrive.spark.DueSource)`, then `readStream.format(...)`."""

    @classmethod
    def name(cls) -> str:
        """The word for `format`."""
        return NAME

    def schema(self) -> str:
        """That of Spark's Kafka source, with headers."""
        return KAFKA_SCHEMA

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: ARG002, N802 -- Spark's name and way to call it
        """The reader; its options are checked here."""
        options = due_options.read(dict(self.options))
        given: SettingsArguments = (
            {} if options.bootstrap is None else {"bootstrap": options.bootstrap}
        )
        return DueReader(options, load_settings(given))


class DueReader(DataSourceStreamReader):
    """Plans what is due, and reads it."""

    def __init__(self, options: DueOptions, settings: Settings) -> None:
        self._options = options
        self._settings = settings  # pickled with the reader: options would be shown in Spark's UI
        self._kafka_log: KafkaLog | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Everything but the clients, which belong to a process."""
        return {**self.__dict__, "_kafka_log": None}

    def initialOffset(self) -> Offsets:  # noqa: N802 -- Spark's name
        """Where a query without a checkpoint begins."""
        self._check_topics()
        ids, bounds = self._look()
        late = self._options.from_latest
        begins = {place: end if late else begin for place, (begin, end) in bounds.items()}
        return as_offsets(begins, ids)

    def latestOffset(self, start: Offsets, limit: Any) -> Offsets:  # noqa: ARG002, N802 -- Spark's name and way to call it
        """The end of what is due now, within the bounds of a batch."""
        found = self._look()
        begins = self._begins(start, found)
        now = WallClock().now()
        since = self._reading.appended_since(
            {place: now - self._options.delays[place.topic] + 1 for place in begins}
        )
        ends = {
            place: found.bounds[place][1] if (due := since[place]) is None else due[0]
            for place in begins
        }
        positions = {place: Position(begin) for place, begin in begins.items()}
        planned = ranges.ahead(positions, ends, self._options.delays, self._options.most)
        return as_offsets({**begins, **{each.place: each.end for each in planned}}, found.ids)

    def partitions(self, start: Offsets, end: Offsets) -> Sequence[InputPartition]:
        """The ranges of a batch; of one that is run again after a restart, what is left of it."""
        found = self._look()
        begins, planned = self._begins(start, found), as_ids(end)
        made: list[Range] = []
        for place, to in as_positions(end).items():
            topic_id = found.ids.get(place.topic)
            if planned.get(place.topic, topic_id) != topic_id:
                continue  # it was planned for a topic that is gone: the next batch begins the new
            last = found.bounds.get(place, (0, to))[1]
            if to > last:
                self._lost(f"{place}: {last} to {to - 1}, with which a broker lost its end,")
            if min(to, last) > begins.get(place, to):
                delay = self._options.delays.get(place.topic)
                made.append(Range(*place, begins[place], min(to, last), delay))
        return [InputPartition(each) for each in made]

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        """Read a range, committed records only; this is called in a Python worker."""
        each: Range = partition.value
        for batch in self._reading.batches(each.place, each.start, each.end):
            for record in batch:
                hold(record)
                yield as_row(record)

    @property
    def _reading(self) -> KafkaLog:
        self._kafka_log = self._kafka_log or KafkaLog(self._settings, _GROUP)
        return self._kafka_log

    def _look(self) -> _Topics:
        found = self._reading.topics(list(self._options.delays))
        for topic in self._options.delays:
            if topic not in found:
                raise MissingTopicError(topic)
        places = partitions_of({topic: count for topic, (_, count) in found.items()})
        ids = {topic: topic_id for topic, (topic_id, _) in found.items()}
        return _Topics(ids, self._reading.all_bounds(places))

    def _begins(self, start: Offsets, found: _Topics) -> dict[TopicPartition, int]:
        """Where to read on; at the beginning of what is new, and of what was recreated."""
        begun, seen = as_positions(start), as_ids(start)
        for topic, topic_id in found.ids.items():
            if seen.get(topic, topic_id) != topic_id:
                self._lost(f"{topic} was deleted and recreated: what waited in the old one")
                begun = {place: offset for place, offset in begun.items() if place.topic != topic}
        begins: dict[TopicPartition, int] = {}
        for place, (first, last) in found.bounds.items():
            begin = begun.get(place, first)
            if begin < first:
                self._lost(f"{place}: {begin} to {first - 1}, which the broker has deleted,")
            elif begin > last:
                self._lost(
                    f"{place}: it ends at {last}, though {begin} was reached; what was there"
                )
            begins[place] = begin if first <= begin <= last else first
        return begins

    def _lost(self, what: str) -> None:
        sentence = f"redrive-due: {what} can no longer be read"
        if self._options.fail_on_data_loss:
            raise DataLossError(
                f"{sentence}. To go on with what is there, set failOnDataLoss to false."
            )
        log.warning("%s; the query continues, because failOnDataLoss is false", sentence)

    def _check_topics(self) -> None:
        described = KafkaTopics(self._settings).describe(list(self._options.delays))
        hidden = [name for name, topic in described.items() if not topic.config]
        if hidden:
            log.warning(
                "redrive-due: the settings of %s are not checked: this user may not see them"
                " (DESCRIBE_CONFIGS)",
                ", ".join(hidden),
            )
        untimed = [
            name
            for name, topic in described.items()
            if topic.config and topic.config.get("message.timestamp.type") != "LogAppendTime"
        ]
        if untimed:
            raise ConfigurationError(
                f"redrive-due: {', '.join(untimed)}: message.timestamp.type is not LogAppendTime,"
                " so it is unknown when records are due"
            )


Wait = Callable[[float], object]


def _wait(seconds: float) -> None:
    Event().wait(seconds)


def as_offsets(positions: Mapping[TopicPartition, int], ids: Mapping[str, str]) -> Offsets:
    """Offsets as Spark keeps them."""
    found: Offsets = {topic: {_ID: topic_id} for topic, topic_id in ids.items()}
    for (topic, number), offset in positions.items():
        found.setdefault(topic, {})[str(number)] = offset
    return found


def as_positions(offsets: Offsets) -> dict[TopicPartition, int]:
    """And back."""
    return {
        TopicPartition(topic, int(number)): int(offset)
        for topic, partitions in offsets.items()
        for number, offset in partitions.items()
        if number != _ID
    }


def as_ids(offsets: Offsets) -> dict[str, str]:
    """Which topics the offsets are of; checkpoints of earlier versions do not say."""
    return {topic: str(known[_ID]) for topic, known in offsets.items() if _ID in known}


def as_row(record: Record) -> tuple[Any, ...]:
    """A record of a delay topic as a row of Spark's Kafka source."""
    # Kafka takes any number for a time, Python and Spark only those of the years 1 to 9999.
    written = min(max(record.timestamp or 0, EARLIEST), LATEST)
    return kafka_row(record, datetime.fromtimestamp(written / 1000, UTC), _APPEND_TIME)


def hold(record: Record, clock: Clock = _CLOCK, wait: Wait = _wait) -> None:
    """Never early: where the writer's clock was ahead, its own word counts."""
    due = (record.header("redrive-due") or b"").decode(errors="replace")
    if not (due.isascii() and due.isdigit() and len(due) <= _DIGITS):
        return
    if (left := int(due) - clock.now()) > DUE_LONG_HOLD * 1000:
        log.warning(
            "%s: redrive-due is %d s in the future though its delay is over; it waits, and so does"
            " everything behind it. Was the writer's clock ahead?",
            record.place,
            left // 1000,
        )
    while (left := int(due) - clock.now()) > 0:
        wait(min(left / 1000, DUE_LONG_HOLD))  # no longer at once: a clock may be set
