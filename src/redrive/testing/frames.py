"""Frame handlers in tests: input frames from records, and outcomes as rows. No Kafka is needed.

frame = frame_of(spark, app, [Record("orders", value=b"{}")])
(outcome,) = outcomes_of(handle(frame))
assert outcome.kind == "bury"
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from redrive import envelope as envelopes
from redrive import ids
from redrive.clock import WallClock
from redrive.engines.spark.frames import batch, intake
from redrive.engines.spark.frames.columns import KINDS
from redrive.engines.spark.frames.intake import Rules
from redrive.engines.spark.frames.row_audit import RowsError, no_outcome
from redrive.errors import ConfigurationError
from redrive.record import Headers, Record, TopicPartition, Write

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from redrive.app import App

_TOPIC_ID = "test"


class RowOutcome(NamedTuple):
    """The outcome that a frame handler gave one row."""

    partition: int
    offset: int
    kind: str
    """done, send, park or bury."""
    reason: str | None
    after: int | None
    """Milliseconds, if `park` was given a time."""
    sends: list[Write]


def frame_of(
    spark: SparkSession,
    app: App,
    records: Iterable[Record],
    *,
    attempt: int = 1,
    error: Exception | None = None,
    now: int | None = None,
) -> DataFrame:
    """The input frame of the app's frame handler, as Spark's Kafka source would return it.

    Records without offsets are numbered. With `attempt=2` they look as they do after they were
    parked once, for that `error`.
    """
    handler = app.frame_handler
    if handler is None:
        raise ConfigurationError(f'app "{app.name}" has no frame handler: use Simulation')
    now = WallClock().now() if now is None else now
    given = [
        _parked(record, app, attempt, error, now) if attempt > 1 else record
        for record in _numbered(records)
    ]
    rules = Rules(app=app.name, was=app.was, topic=handler.topic, topic_id=_TOPIC_ID, now=now)
    return intake.input_frame(kafka_frame(spark, given), rules)


def kafka_frame(spark: SparkSession, records: Iterable[Record]) -> DataFrame:
    """Records as Spark's Kafka source returns them, in one partition."""
    schema = intake.KAFKA_SCHEMA.replace("timestamp timestamp", "timestamp bigint")
    made = spark.createDataFrame(
        [intake.kafka_row(record, record.timestamp, 0) for record in records], schema
    ).coalesce(1)
    in_milliseconds = "timestamp_millis(timestamp) AS timestamp"
    return made.selectExpr(
        *(in_milliseconds if name == "timestamp" else name for name in made.columns)
    )


def outcomes_of(frame: DataFrame) -> list[RowOutcome]:
    """The outcome of each row, in order; each row must be there exactly once."""
    rows = batch.outcomes(frame, "of the test").collect()
    rows.sort(key=lambda row: row["number"])
    for number, row in enumerate(rows):
        if row["number"] != number:
            raise RowsError(f"rows are missing or duplicated before offset {row['offset']}")
        if row["kind"] not in KINDS:
            place = TopicPartition(row["topic"], row["partition"])
            raise no_outcome(place, row["offset"], row["kind"])
    return [_outcome(row) for row in rows]


def _outcome(row: Any) -> RowOutcome:
    (failed,) = row["failed"] or [None]
    return RowOutcome(
        row["partition"],
        row["offset"],
        row["kind"],
        None if failed is None else failed["reason"],
        None if failed is None else failed["after"],
        [_write(send) for send in row["sends"] or ()],
    )


def _numbered(records: Iterable[Record]) -> list[Record]:
    found = list(records)
    if len({(record.partition, record.offset) for record in found}) == len(found):
        return found
    return [Record(*record._replace(offset=number)) for number, record in enumerate(found)]


def _parked(record: Record, app: App, attempt: int, error: Exception | None, now: int) -> Record:
    message_id = ids.from_origin(_TOPIC_ID, record.partition, record.offset)
    made = envelopes.fresh(record, app=app.name, message_id=message_id, now=now)
    made = replace(made if error is None else made.failed(error, at=now), attempt=attempt)
    return Record(*record._replace(headers=made.headers(record.headers)))


def _write(send: Any) -> Write:
    key, value = _or_none(send["key"]), _or_none(send["value"])
    return Write(send["topic"], key, value, _headers(send["headers"]))


def _headers(given: Any) -> Headers:
    return tuple((one["key"], _or_none(one["value"])) for one in given or ())


def _or_none(given: bytearray | None) -> bytes | None:
    return None if given is None else bytes(given)
