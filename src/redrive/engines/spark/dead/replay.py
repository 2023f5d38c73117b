"""A replay on Spark: each partition of the dead topic is a shard, and each shard a task.

A task does what it can find left to do of its shard, whichever attempt of Spark's it is; whether a
shard has come to its end is read from what it wrote, and not from what Spark says.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from redrive.config import Settings
from redrive.dead import open_letters, open_operator
from redrive.dead.states import Marks
from redrive.engines.spark.dead.parts import Part
from redrive.engines.spark.dead.sight import Shipped
from redrive.engines.spark.dead.source import read
from redrive.engines.spark.frames.faults import as_sparks, said
from redrive.engines.spark.runtime import reach
from redrive.engines.spark.spark_session import folder_of
from redrive.errors import RedriveError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from redrive.dead.letters import DeadLetters
    from redrive.dead.operations import Operation


@dataclass(frozen=True)
class ShardWork:
    """What all shards of one run have to know; it travels pickled: there are passwords in it."""

    settings: Settings
    topic: str
    dialect: str
    operation: str
    run: str
    by: str
    folders: tuple[str, ...]
    """Where a fix was imported from, in case executors can see this folder too."""
    shipped: Shipped | None
    """The app, if there is one."""

    what: Final = "replay"
    schema: Final = "partition int"

    def rows(self, part: Part) -> Iterator[tuple[Any, ...]]:
        """Run one shard; runs in a Python worker."""
        for folder in self.folders:
            reach(folder)
        app = None if self.shipped is None else self.shipped.load(self.settings, self.run)
        letters = open_letters(app, self.settings, topic=self.topic, dialect=self.dialect)
        operator = open_operator(letters, self.settings, self.by)
        operator.run_shard(self.operation, self.run, part.partition)
        yield (part.partition,)


class SparkShards:
    """Has the shards of operations run by the tasks of Spark."""

    def __init__(
        self, spark: SparkSession, letters: DeadLetters, settings: Settings, target: str | None
    ) -> None:
        self._spark = spark
        self._letters = letters
        self._settings = settings
        self._target = target

    def __call__(self, operation: Operation) -> None:
        """Returns when all of them have ended; RedriveError if one could not."""
        work = self._work(operation)
        parts = [
            Part(number, int(name), operation.cursor.get(name, 0), end, Marks())
            for number, (name, end) in enumerate(operation.ends.items())
        ]
        try:
            read(self._spark, work, parts).collect()
        except Exception as error:
            raise RedriveError(f"a task of Spark failed: {said(as_sparks(error))}") from error

    def _work(self, operation: Operation) -> ShardWork:
        letters, target, fix = self._letters, self._target, operation.options.get("fix")
        return ShardWork(
            self._settings,
            letters.topic,
            letters.dialect_name,
            operation.id,
            operation.run,
            operation.by,
            () if fix is None else tuple(filter(None, (folder_of(fix),))),
            None if target is None else Shipped.of(target),
        )
