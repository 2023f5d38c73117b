"""What a session needs before frames run in it: Spark's Kafka connector, and quick ways."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from redrive.errors import ConfigurationError
from redrive.tuning import ARROW_BATCH_BYTES, FRAME_FIRST_ROWS, FRAME_MOST_ROWS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_WARNS: Final = "org.apache.spark.sql.kafka010.KafkaSourceProvider"
_ROWS: Final = "spark.sql.execution.arrow.maxRecordsPerBatch"
_OURS: Final = "spark.redrive.set."
_SETTINGS: Final = {
    # Measured after every row, the size of a batch costs more than the rest of the way to Python.
    # Fewer rows bound the memory instead: `ArrowBatchSize` says how many, before each job.
    "spark.sql.execution.arrow.maxBytesPerBatch": "2147483647",
    _ROWS: "200",
    # Without "kafka" in it: the older way of reading, which a batch read takes by default, makes
    # every record an object for users, and rows of that again.
    "spark.sql.sources.useV1SourceList": "avro,csv,json,orc,parquet,text",
}


def prepare(spark: SparkSession) -> None:
    """See that frames can run, and set what the session leaves to Spark's defaults."""
    check(spark)
    _quieten(spark)
    defaults = spark.newSession().conf
    for name, value in _SETTINGS.items():
        # A new session has what the program was started with, or else Spark's default.
        given = spark.sparkContext.getConf().contains(name)
        if not given and spark.conf.get(name) == defaults.get(name):
            spark.conf.set(name, value)
            spark.conf.set(f"{_OURS}{name}", "true")


class ArrowBatchSize:
    """How many rows go to Python at once: few while they are heavy, or while nobody knows."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._rows = FRAME_FIRST_ROWS

    def set(self) -> None:
        """Say it to the session, before a job; not where its owner has."""
        if self._spark.conf.get(f"{_OURS}{_ROWS}", "") == "true":
            self._spark.conf.set(_ROWS, str(self._rows))

    def learn(self, row_bytes: int) -> None:
        """Note how heavy rows were in the last job; 0: there were none."""
        if row_bytes:
            self._rows = max(1, min(FRAME_MOST_ROWS, ARROW_BATCH_BYTES // row_bytes))


def _quieten(spark: SparkSession) -> None:
    """Have Spark not warn, at every batch, of the name by which consumers are kept.

    What it warns of is that queries of one name disturb each other: no other run has this one's.
    """
    log4j = spark.sparkContext._jvm.org.apache.logging.log4j  # type: ignore[union-attr]  # noqa: SLF001 -- Spark has no other way
    try:
        log4j.core.config.Configurator.setLevel(_WARNS, log4j.Level.ERROR)
    except TypeError:
        pass  # it logs by something else, whose owner knows how to quieten it


def check(spark: SparkSession) -> None:
    """Say what is missing."""
    if not _has_connector(spark):
        raise ConfigurationError(
            "frame handlers need Spark's Kafka connector, which is not in this session: `redrive"
            " run` adds it by itself; in a program of your own set spark.jars to"
            " redrive.spark.connector_jars(), or spark.jars.packages to"
            " org.apache.spark:spark-sql-kafka-0-10_2.13 of your Spark's version"
        )


def _has_connector(spark: SparkSession) -> bool:
    from pyspark.errors import AnalysisException

    options = {"kafka.bootstrap.servers": "nobody:1", "assign": '{"any": [0]}'}
    try:
        spark.read.format("kafka").options(**options).load()  # nobody is asked before it runs
    except AnalysisException:
        return False
    return True
