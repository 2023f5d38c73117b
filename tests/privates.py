"""Private names of others that tests need, each with why there is no public one.

Of redrive itself tests use public names only.
"""

from __future__ import annotations

from typing import Any, Final

from confluent_kafka import KafkaError

# librdkafka's own errors, which are so named
AUTO_OFFSET_RESET: Final = KafkaError._AUTO_OFFSET_RESET  # noqa: SLF001 -- so named
DESTROY_BROKER: Final = KafkaError._DESTROY_BROKER  # noqa: SLF001 -- so named
FATAL: Final = KafkaError._FATAL  # noqa: SLF001 -- so named
MAX_POLL_EXCEEDED: Final = KafkaError._MAX_POLL_EXCEEDED  # noqa: SLF001 -- so named
PARTITION_EOF: Final = KafkaError._PARTITION_EOF  # noqa: SLF001 -- so named
TIMED_OUT: Final = KafkaError._TIMED_OUT  # noqa: SLF001 -- so named
TRANSPORT: Final = KafkaError._TRANSPORT  # noqa: SLF001 -- so named


def jvm(spark: Any) -> Any:
    """The classes of a session's Java process."""
    return spark._jvm  # noqa: SLF001 -- Spark has no other way to them


def gateway(spark: Any) -> Any:
    """What makes Java's arrays."""
    return spark.sparkContext._gateway  # noqa: SLF001 -- Spark has no other way to it


def java_context(spark: Any) -> Any:
    """Java's SparkContext."""
    return spark.sparkContext._jsc.sc()  # noqa: SLF001 -- Python's shows a part of it


def execution_of(frame: Any) -> Any:
    """How Spark runs a DataFrame: its plans."""
    return frame._jdf.queryExecution()  # noqa: SLF001 -- Spark shows its plans to Java only
