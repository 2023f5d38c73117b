"""Reading: a batch read of exactly the planned ranges, by Spark's own Kafka source."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from redrive.config import Settings
from redrive.engines.spark.ranges import Range
from redrive.kafka.java import java_properties

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_POLL_MILLISECONDS: Final = 20_000
"""So long a task waits for a broker that says nothing; by default it would be two minutes."""


def read(spark: SparkSession, settings: Settings, ranges: Sequence[Range]) -> DataFrame:
    """The committed records of the ranges, one Spark partition for each."""
    return spark.read.format("kafka").options(**options(settings, ranges)).load()


def options(settings: Settings, ranges: Sequence[Range]) -> dict[str, str]:
    """The options of the read. They hold secrets: never print them."""
    partitions: dict[str, list[int]] = defaultdict(list)
    starts: dict[str, dict[str, int]] = defaultdict(dict)
    ends: dict[str, dict[str, int]] = defaultdict(dict)
    for each in ranges:
        partitions[each.topic].append(each.partition)
        starts[each.topic][str(each.partition)] = each.start
        ends[each.topic][str(each.partition)] = each.end
    return {
        **{f"kafka.{name}": value for name, value in java_properties(settings).items()},
        "kafka.isolation.level": "read_committed",
        "assign": json.dumps(partitions),
        "startingOffsets": json.dumps(starts),
        "endingOffsets": json.dumps(ends),
        "includeHeaders": "true",
        "failOnDataLoss": "true",
        "kafkaConsumer.pollTimeoutMs": str(_POLL_MILLISECONDS),
    }
