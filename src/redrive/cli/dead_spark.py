"""Dead letters on the engine that was chosen: this process, or a Spark of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

from redrive.cli.dead_options import On, Whose
from redrive.cli.spark_process import beside, ended, require_spark, start_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from redrive.dead.letters import DeadLetters
    from redrive.dead.shards import RunShards
    from redrive.engines.spark.dead.letters import SparkLetters

_Answer = TypeVar("_Answer")


def asked(whose: Whose, on: On, ask: Callable[[DeadLetters | SparkLetters], _Answer]) -> _Answer:
    """What the letters answer; with Spark, by its tasks."""
    if on.engine == "local":
        return ask(whose.letters())
    return asked_on_spark(whose, on, ask)


def asked_on_spark(whose: Whose, on: On, ask: Callable[[SparkLetters], _Answer]) -> _Answer:
    """The same, where only Spark can answer."""
    with _spark(whose, on) as (spark, letters):
        from redrive.engines.spark.dead.letters import SparkLetters

        return beside(lambda: ask(SparkLetters(spark, letters, whose.settings)))


@contextmanager
def shards(whose: Whose, on: On) -> Iterator[RunShards | None]:
    """What runs the shards of a replay: the tasks of Spark; None: this process does it all."""
    if on.engine == "local":
        yield None
        return
    with _spark(whose, on) as (spark, letters):
        from redrive.engines.spark.dead.replay import SparkShards

        yield SparkShards(spark, letters, whose.settings, whose.target)


@contextmanager
def _spark(whose: Whose, on: On) -> Iterator[tuple[SparkSession, DeadLetters]]:
    require_spark()
    letters = whose.letters()
    letters.known()  # mistakes and outages are reported before Spark starts, which takes long
    spark = start_spark(f"dead {letters.topic}", whose.settings, on.master, on.log_level)
    with ended(spark):
        yield spark, letters
