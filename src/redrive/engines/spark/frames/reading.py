"""Reading: a batch read of exactly the planned ranges, by Spark's own Kafka source."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from redrive.config import Settings
from redrive.engines.spark.ranges import Range
from redrive.kafka.java_config import java_properties
from redrive.tuning import FRAME_READ_TIMEOUT

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


_QUICK: Final = {
    # What is fetched while rows are computed: little of it, and both wait for each other.
    "kafka.max.partition.fetch.bytes": str(8 << 20),
    "kafka.receive.buffer.bytes": "-1",
    "kafka.max.poll.records": "2000",
}


def read(spark: SparkSession, settings: Settings, ranges: Sequence[Range], group: str) -> DataFrame:
    """The committed records of the ranges, one Spark partition for each.

    Consumers are kept from batch to batch by the name of a group, which they are never members of.
    """
    return spark.read.format("kafka").options(**options(settings, ranges, group)).load()


def options(settings: Settings, ranges: Sequence[Range], group: str) -> dict[str, str]:
    """The options of the read. They hold secrets: never print them."""
    partitions: dict[str, list[int]] = defaultdict(list)
    starts: dict[str, dict[str, int]] = defaultdict(dict)
    ends: dict[str, dict[str, int]] = defaultdict(dict)
    for each in ranges:
        partitions[each.topic].append(each.partition)
        starts[each.topic][str(each.partition)] = each.start
        ends[each.topic][str(each.partition)] = each.end
    return {
        **_QUICK,
        **{f"kafka.{name}": value for name, value in java_properties(settings).items()},
        "kafka.isolation.level": "read_committed",
        "kafka.group.id": group,
        "assign": json.dumps(partitions),
        "startingOffsets": json.dumps(starts),
        "endingOffsets": json.dumps(ends),
        "includeHeaders": "true",
        "failOnDataLoss": "true",
        "kafkaConsumer.pollTimeoutMs": str(FRAME_READ_TIMEOUT),
    }
