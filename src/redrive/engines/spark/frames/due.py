"""`redrive-due`: delay topics as a streaming source, with the schema of Spark's Kafka source.

For anybody's pipeline: records come when they are due, never before, and Spark's checkpoint holds
the progress as for any source. It needs no app and no consumer group.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from threading import Event
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

from redrive.clock import WallClock
from redrive.config import Settings, SettingsArguments, load_settings
from redrive.engines.spark import ranges
from redrive.engines.spark.frames import due_options
from redrive.engines.spark.frames.due_options import DueOptions
from redrive.engines.spark.frames.intake import KAFKA_SCHEMA, kafka_row
from redrive.engines.spark.ranges import Range
from redrive.errors import ConfigurationError
from redrive.kafka.errors import MissingTopicError
from redrive.kafka.log import KafkaLog
from redrive.kafka.topics import KafkaTopics
from redrive.ports import Position
from redrive.record import Record, TopicPartition

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

NAME: Final = "redrive-due"
Offsets = dict[str, dict[str, int]]
"""By topic and partition, as Spark's Kafka source writes them."""
_GROUP: Final = "redrive-due"
_APPEND_TIME: Final = 1
_LONGEST_HOLD: Final = 60.0


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
        self._log: KafkaLog | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Everything but the clients, which belong to a process."""
        return {**self.__dict__, "_log": None}

    def initialOffset(self) -> Offsets:  # noqa: N802 -- Spark's name
        """Where a query without a checkpoint begins."""
        self._check_topics()
        bounds = self._reading.all_bounds(self._places())
        late = self._options.from_latest
        return as_offsets({place: end if late else begin for place, (begin, end) in bounds.items()})

    def latestOffset(self, start: Offsets, limit: Any) -> Offsets:  # noqa: ARG002, N802 -- Spark's name and way to call it
        """The end of what is due now, within the bounds of a batch."""
        log, places = self._reading, self._places()
        bounds, begun = log.all_bounds(places), as_positions(start)
        # A partition that was added later holds only records that came later.
        begins = {place: Position(begun.get(place, bounds[place][0])) for place in places}
        now = WallClock().now()
        since = log.appended_since(
            {place: now - self._options.delays[place.topic] + 1 for place in places}
        )
        ends = {
            place: bounds[place][1] if (found := since[place]) is None else found[0]
            for place in places
        }
        planned = ranges.ahead(begins, ends, self._options.delays, self._options.most)
        reached = {place: begin.offset for place, begin in begins.items()}
        return as_offsets({**reached, **{each.place: each.end for each in planned}})

    def partitions(self, start: Offsets, end: Offsets) -> Sequence[InputPartition]:
        """The ranges of a batch."""
        begun = as_positions(start)
        found = [
            Range(*place, begun.get(place, 0), to, self._options.delays.get(place.topic))
            for place, to in as_positions(end).items()
            if to > begun.get(place, 0)
        ]
        return [InputPartition(each) for each in found]

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        """Read a range, committed records only; this is called in a Python worker."""
        each: Range = partition.value
        for lot in self._reading.lots(each.place, each.start, each.end):
            for record in lot:
                _hold(record)
                yield as_row(record)

    @property
    def _reading(self) -> KafkaLog:
        self._log = self._log or KafkaLog(self._settings, _GROUP)
        return self._log

    def _places(self) -> list[TopicPartition]:
        found = self._reading.topics(list(self._options.delays))
        for topic in self._options.delays:
            if topic not in found:
                raise MissingTopicError(topic)
        return [
            TopicPartition(topic, number)
            for topic, (_, count) in found.items()
            for number in range(count)
        ]

    def _check_topics(self) -> None:
        described = KafkaTopics(self._settings).describe(list(self._options.delays))
        untimed = [
            name
            for name, topic in described.items()
            if topic.config.get("message.timestamp.type") != "LogAppendTime"
        ]
        if untimed:
            raise ConfigurationError(
                f"redrive-due: {', '.join(untimed)}: message.timestamp.type is not LogAppendTime,"
                " so that nobody knows when records are due"
            )


def as_offsets(positions: Mapping[TopicPartition, int]) -> Offsets:
    """Offsets as Spark keeps them."""
    found: Offsets = {}
    for (topic, number), offset in positions.items():
        found.setdefault(topic, {})[str(number)] = offset
    return found


def as_positions(offsets: Offsets) -> dict[TopicPartition, int]:
    """And back."""
    return {
        TopicPartition(topic, int(number)): offset
        for topic, partitions in offsets.items()
        for number, offset in partitions.items()
    }


def as_row(record: Record) -> tuple[Any, ...]:
    """A record of a delay topic as a row of Spark's Kafka source."""
    return kafka_row(
        record, datetime.fromtimestamp((record.timestamp or 0) / 1000, UTC), _APPEND_TIME
    )


def _hold(record: Record) -> None:
    """Never early: where the writer's clock was ahead, its own word counts."""
    due = (record.header("redrive-due") or b"").decode(errors="replace")
    if due.isascii() and due.isdigit():
        seconds = (int(due) - WallClock().now()) / 1000
        if seconds > 0:
            Event().wait(min(seconds, _LONGEST_HOLD))
