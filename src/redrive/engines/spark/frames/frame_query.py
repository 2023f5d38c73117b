"""FrameQuery: plans and runs batches of frames in a thread of its own, until it is stopped.

It has the face of a streaming query. It is none, because Spark's offsets and checkpoints would only
repeat, with three files for each batch, what the group's committed offsets say.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from time import monotonic
from typing import TYPE_CHECKING

from redrive.engines.spark.frames.batch import Batches
from redrive.engines.spark.frames.frame_report import as_text
from redrive.engines.spark.ranges import Range
from redrive.engines.spark.source import Reader
from redrive.engines.spark.spec import Spec
from redrive.engines.spark.under_way import UnderWay
from redrive.engines.words import LaneName
from redrive.tuning import FRAME_NOTHING_DONE_WAIT, FRAME_STOP_SECONDS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from redrive.app import App

Report = Callable[[list[str], int, float], None]
"""Takes the reports of a batch, its number, and how long it took."""


class FrameQuery:
    """One lane of a frame handler."""

    def __init__(
        self,
        spark: SparkSession,
        app: App,
        spec: Spec,
        lane: LaneName,
        *,
        report: Report,
        under_way: UnderWay,
        trigger: int | None = None,
    ) -> None:
        self._spark = spark
        self._name = f"redrive {app.name} {lane} {spec.run}"
        self._lane: LaneName = lane
        self._under_way = under_way
        self._reader = Reader(spec, lane)
        self._batches = Batches(spark, app, spec, lane)
        self._report = report
        self._trigger = (trigger or 0) / 1000
        self._busy = False
        self._stopped = threading.Event()
        self._error: Exception | None = None
        from pyspark import inheritable_thread_target

        target = inheritable_thread_target(spark)(self._run)  # with job properties of its own
        self._thread = threading.Thread(target=target, name=self._name, daemon=True)
        self._thread.start()

    # The face of a streaming query

    @property
    def isActive(self) -> bool:  # noqa: N802 -- as Spark's queries
        """Whether it runs."""
        return self._thread.is_alive()

    @property
    def status(self) -> dict[str, bool]:
        """Whether a batch is under way."""
        return {"isTriggerActive": self._busy}

    def exception(self) -> Exception | None:
        """What ended it, if it did not end by being stopped."""
        return self._error

    def stop(self) -> None:
        """End it; the jobs under way are cancelled."""
        self._stopped.set()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._spark.sparkContext.cancelJobGroup(self._name)
            self._thread.join(FRAME_STOP_SECONDS)

    def _run(self) -> None:
        number = 0
        try:
            while not self._stopped.is_set():
                began = monotonic()
                self._busy = True
                ranges = [each for task in self._reader.plan() for each in task]
                if ranges and not self._stopped.is_set():
                    self._batch(ranges, number)
                    number += 1
                self._busy = False
                self._stopped.wait(max(0.0, self._trigger - (monotonic() - began)))
        except BaseException as error:  # noqa: BLE001 -- whoever started the run says it: an exit, too
            if not self._stopped.is_set():
                self._error = error if isinstance(error, Exception) else RuntimeError(repr(error))
        finally:
            self._busy = False

    def _batch(self, ranges: list[Range], number: int) -> None:
        began = monotonic()
        self._spark.sparkContext.setJobGroup(self._name, f"{self._name}, {number}")
        with self._under_way.batch(self._lane, number):
            reports = self._batches.run(ranges)
        if self._stopped.is_set():
            return
        self._report([as_text(report) for report in reports], number, monotonic() - began)
        if not any(report.end > report.start for report in reports):
            self._stopped.wait(
                FRAME_NOTHING_DONE_WAIT
            )  # what is planned is not due by its own headers
