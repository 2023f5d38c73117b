"""What a session needs before frames run in it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from redrive.errors import ConfigurationError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


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
