"""The data source of one command about dead letters: each part of the topic is a task.

The class travels with all that is to be done, pickled, because options are shown in Spark's UI. A
task is given its own part and nothing of the others.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol
from uuid import uuid4

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from redrive.engines.spark.dead.parts import Part
from redrive.engines.spark.spark_session import keep_commands_unlogged

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType


class Work(Protocol):
    """What tasks do."""

    @property
    def what(self) -> str:
        """In one word: a name that Spark shows."""
        ...

    @property
    def schema(self) -> str:
        """What the rows are like that they give back."""
        ...

    def rows(self, part: Part) -> Iterator[tuple[Any, ...]]:
        """Do it, with one part; runs in a Python worker."""
        ...


class Reader(DataSourceReader):
    """Hands out parts, and has them read."""

    def __init__(self, work: Work, parts: Sequence[Part]) -> None:
        self._work = work
        self._parts = [*parts]

    def __getstate__(self) -> dict[str, Any]:
        """What tasks are given of it: not the parts of all of them."""
        return {**self.__dict__, "_parts": []}

    def partitions(self) -> Sequence[InputPartition]:
        """One for each part."""
        return [InputPartition(part) for part in self._parts]

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        """Run one task; this is called in a Python worker."""
        return self._work.rows(partition.value)


def source(work: Work, parts: Sequence[Part], reader: type[Reader] = Reader) -> type[DataSource]:
    """The data source of one command."""
    name = f"redrive-dead-{work.what}-{uuid4().hex[:8]}"
    waiting = [*parts]

    class DeadSource(DataSource):
        """Made here, so that it is pickled with what it knows instead of by its name."""

        @classmethod
        def name(cls) -> str:
            return name

        def schema(self) -> str:
            return work.schema

        def reader(self, schema: StructType) -> DataSourceReader:  # noqa: ARG002 -- Spark's way to call it
            # Spark pickles this class once more, for each task: the parts are no longer in it.
            mine = [*waiting]
            waiting.clear()
            return reader(work, mine)

    return DeadSource


def read(
    spark: SparkSession, work: Work, parts: Sequence[Part], reader: type[Reader] = Reader
) -> DataFrame:
    """The rows that tasks will give back."""
    keep_commands_unlogged()
    made = source(work, parts, reader)
    spark.dataSource.register(made)
    return spark.read.format(made.name()).load()
