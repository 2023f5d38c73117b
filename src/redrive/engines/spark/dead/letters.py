"""SparkLetters: the dead letters of one topic, read by the tasks of Spark.

The answers are those of `DeadLetters`: filters, dialects, states and counting are the same code.
What tasks have counted comes back as their rows, so that a task that was run twice counts once.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from redrive.dead import group_of
from redrive.dead.filters import Filter
from redrive.dead.groups import Group, Groups
from redrive.dead.scan import Scanned, bounds_of
from redrive.dead.stats import Stats
from redrive.engines.spark.dead.counting import Counting, Form, What
from redrive.engines.spark.dead.parts import Part, cut
from redrive.engines.spark.dead.sight import Sight
from redrive.engines.spark.dead.source import Reader, read
from redrive.engines.spark.frames.faults import as_sparks, said
from redrive.errors import ConfigurationError, RedriveError
from redrive.tuning import DEAD_RANGE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from redrive.config import Settings
    from redrive.dead.letters import DeadLetters


class SparkLetters:
    """The dead letters of one topic, for millions of them."""

    def __init__(
        self,
        spark: SparkSession,
        letters: DeadLetters,
        settings: Settings,
        *,
        size: int = DEAD_RANGE,
        reader: type[Reader] = Reader,
    ) -> None:
        """`size`: how many offsets one task reads."""
        self._spark = spark
        self._letters = letters
        self._settings = settings
        self._size = size
        self._reader = reader

    def groups(self, wanted: Filter | None = None) -> tuple[list[Group], Scanned]:
        """Letters by cause, the largest group first."""
        groups = Groups(self._letters.seen)
        counted, scanned = self._counted("groups", wanted)
        for each in counted:
            groups.merge(map(Group.of, each))
        return groups.largest_first(), scanned

    def stats(self, wanted: Filter | None = None) -> tuple[Stats, Scanned]:
        """Letters by what an operator asks first."""
        stats = Stats()
        counted, scanned = self._counted("stats", wanted)
        stats.merge(map(Stats.of, counted))
        return stats, scanned

    def export(self, folder: str, form: Form, wanted: Filter | None = None) -> Scanned:
        """Write letters to files in a folder, one for each task; with _SUCCESS, if all are there.

        The folder is Spark's: one of any file system that it can write to.
        """
        from pyspark.errors import AnalysisException
        from pyspark.sql import Observation, functions

        parts, seen = self.plan(wanted), Observation()
        rows = self.rows(form, parts, wanted)
        observed = rows.observe(seen, functions.collect_list("scan").alias("scans"))
        letters = observed.where("scan is null").drop("scan")
        try:
            writer = letters.write.mode("error")
            writer.text(folder) if form == "json" else writer.parquet(folder)
        except AnalysisException as error:
            if error.getCondition() == "PATH_ALREADY_EXISTS":
                raise ConfigurationError(
                    f"--to {folder}: it exists already; name a folder that is to be made"
                ) from None
            raise self._failed(error) from error
        except Exception as error:
            raise self._failed(error) from error
        return self._scanned(parts, seen.get["scans"], wanted)

    def plan(self, wanted: Filter | None = None) -> list[Part]:
        """What there is to read now, and what was done about it."""
        letters = self._letters
        marks = letters.known().marks
        bounds = bounds_of(letters.log, letters.topic)
        return cut(letters.topic, bounds, wanted or Filter(), marks, self._size)

    def _counted(self, what: What, wanted: Filter | None) -> tuple[list[Any], Scanned]:
        """What tasks have counted, in the order of their parts."""
        parts = self.plan(wanted)
        try:
            rows = self.rows(what, parts, wanted).collect()
        except Exception as error:
            raise self._failed(error) from error
        # In order: of what is bounded, and of examples, the last one counts.
        found = sorted((row.number, row.counted) for row in rows if row.scan is None)
        scans = [row.scan for row in rows if row.scan is not None]
        return [json.loads(counted) for _, counted in found], self._scanned(parts, scans, wanted)

    def rows(self, what: What, parts: Sequence[Part], wanted: Filter | None) -> DataFrame:
        """What the tasks for these parts tell: nothing is read before somebody wants the rows."""
        letters = self._letters
        work = Counting(
            what,
            self._settings,
            group_of(letters.app, letters.topic),
            letters.topic,
            letters.dialect_name,
            wanted or Filter(),
            Sight.of(letters),
        )
        return read(self._spark, work, parts, self._reader)

    def _scanned(
        self, parts: Sequence[Part], scans: Sequence[str], wanted: Filter | None
    ) -> Scanned:
        places = () if wanted is None else wanted.places
        topic, complete = self._letters.topic, len(scans) == len(parts)
        result = Scanned(topic, complete=complete, places=places)
        for each in scans:
            result.add(json.loads(each))
        return result

    def _failed(self, error: Exception) -> RedriveError:
        return RedriveError(
            f"Spark could not read {self._letters.topic}: {said(as_sparks(error))}; nothing was"
            " changed: run it again, with --spark-log-level error to see more"
        )
