"""The handle to a running app: its two lanes as streaming queries, and how to stop them."""

from __future__ import annotations

import logging
import re
import shutil
import threading
import weakref
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from time import monotonic, time
from typing import TYPE_CHECKING, Any, Final

from redrive.clock import WallClock
from redrive.engines.ahead import Ahead
from redrive.engines.cause_log import CauseLog
from redrive.engines.figures import Figures
from redrive.engines.spark import lost_tasks, spark_session
from redrive.engines.spark.endings import ending
from redrive.engines.spark.frames import frame_session
from redrive.engines.spark.frames.frame_query import FrameQuery
from redrive.engines.spark.lost_tasks import asked_of
from redrive.engines.spark.news import News
from redrive.engines.spark.outages.run_guards import RunGuards
from redrive.engines.spark.outages.shared_book import book_of
from redrive.engines.spark.planner_ends import PlannerEnds
from redrive.engines.spark.slots import enough_slots, slots
from redrive.engines.spark.source import source, source_name
from redrive.engines.spark.spec import Spec
from redrive.engines.spark.statuses import Statuses, of_lane
from redrive.engines.spark.under_way import UnderWay
from redrive.engines.words import LaneName, Until, unfinished
from redrive.errors import RedriveError
from redrive.logs import Repeats
from redrive.processing.outcomes.causes import Seen
from redrive.processing.outcomes.guard_log import GuardSeen, words_of
from redrive.tuning import (
    FAILED_BATCH_WAIT,
    HANDLE_POLL,
    LAST_LOOK_WAIT,
    NOTHING_DONE_WAIT,
    OTHER_LANE_WAIT,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from redrive.app import App

log: Final = logging.getLogger("redrive.spark")

_LOST: Final = re.compile(
    r"Python worker exited unexpectedly|Python worker failed to connect back|ExecutorLostFailure"
    r"|worker crashed|executor.*lost"
)


class RunError(RedriveError):
    """A run ended with an error; the message is the sentence that says why."""


class Handle:
    """A running app: its queries and figures, and how to stop it."""

    def __init__(
        self,
        app: App,
        spec: Spec,
        spark: SparkSession,
        *,
        lanes: tuple[LaneName, ...],
        until: Until = "stopped",
        trigger: int | None = None,
    ) -> None:
        self.app = app
        self.figures = Figures()
        self.queries: dict[LaneName, StreamingQuery | FrameQuery] = {}
        self.lanes: tuple[LaneName, ...] = lanes
        self._spec = spec
        self._spark = spark
        self._trigger = trigger
        self._statuses = Statuses(spec)
        self._guards = RunGuards(book_of(app, spec), WallClock())
        self._causes = CauseLog(app.name)
        self._troubles = Repeats()
        self._how_it_ended = asked_of(spark)
        self._began: dict[LaneName, float] = {}
        self._under_way = UnderWay(spec.batch_deadline / 1000)
        self._fatal = ""
        self._planner_ends = PlannerEnds()
        self._nothing_done: dict[LaneName, int] = {}
        self._stopping = False
        self._lock = threading.RLock()
        self._pause = threading.Event()
        self._is_over = ending(until, self, WallClock())
        # Also at the end of the process, should nobody stop the run.
        self._forget = weakref.finalize(self, shutil.rmtree, spec.scratch, ignore_errors=True)

    # What users do

    def stop(self, timeout: float = 60.0) -> None:
        """Plan nothing new, let the tasks end at their next commit, then stop the queries."""
        self._request_stop()
        end = monotonic() + timeout
        while monotonic() < end and any(map(self._is_busy, list(self.queries))):
            self._pause.wait(HANDLE_POLL)
        self._look_again(min(end, monotonic() + LAST_LOOK_WAIT))
        for query in list(self.queries.values()):
            query.stop()  # without the lock: it waits for a batch, which may want to stop the run
        self._causes.sum_up()
        self._forget()

    def await_termination(self, timeout: float | None = None) -> bool:
        """Wait until the run has ended; an error of either lane is raised with its cause."""
        end = None if timeout is None else monotonic() + timeout
        while True:
            self.check()
            if self._has_ended():
                return True
            if end is not None and monotonic() >= end:
                return False
            self._pause.wait(HANDLE_POLL)

    def wait_until(self, condition: Callable[[], bool], timeout: float) -> None:
        """Wait until something holds; an error of either lane is raised meanwhile."""
        end = monotonic() + timeout
        while not condition():
            self.check()
            if monotonic() >= end:
                raise RunError(f"the run did not get that far within {timeout:.0f} s")
            self._pause.wait(HANDLE_POLL)

    def status(self, lane: LaneName) -> dict[str, Any]:
        """What the planner of a lane saw last; before it has planned, that nothing was seen."""
        if self.app.ordering == "strict" and (found := self._statuses.read("main")):
            return of_lane(found, lane, self.app.handlers)
        status = self._statuses.read(lane) or ({"unseen": True} if lane in self.lanes else {})
        if lane == "main" and (guard := words_of(self.guards())):
            status = {**status, "guard": guard}
        return status

    def guards(self) -> list[GuardSeen]:
        """The guards of its handlers, as they are now."""
        return self._guards.seen()

    def share(self, lane: LaneName) -> Ahead:
        """What is ahead in a lane: all of it is this run's."""
        return Ahead(**self.status(lane).get("ahead", {}))

    def heard(self, lane: LaneName) -> float:
        """When the planner of a lane last planned; before it has, when the lane began."""
        return self._statuses.heard(lane) or self._began.get(lane, time())

    def batch_seconds(self, lane: LaneName) -> float | None:
        """For how long a lane's batch has been under way; None: there is none."""
        return self._under_way.seconds(lane)

    @property
    def refused(self) -> int:
        """How many records stay where they are, because what was to be written was refused."""
        return sum(self.status(lane).get("refused", 0) for lane in self.lanes)

    @property
    def refusal(self) -> str:
        """Why, in one sentence."""
        return next(filter(None, (self.status(lane).get("refusal") for lane in self.lanes)), "")

    @property
    def stopping(self) -> bool:
        """Whether nothing new is planned any more."""
        return self._stopping

    @property
    def trigger(self) -> float:
        """Seconds between the starts of two batches, at least."""
        return (self._trigger or 0) / 1000

    def check(self) -> None:
        """Raise the error that ended the run, if one did; log what is news."""
        self._under_way.warn()
        self._causes.tick()
        self._guards.tell_news()
        for lane in self.lanes:
            self._statuses.tell_news(lane)
            self._fatal = self._fatal or self.status(lane).get("fatal", "")
        for lane, query in list(self.queries.items()):
            # Spark has the error of a query before the query is over, and its name free after that.
            if not self._fatal and not query.isActive:
                self._note_end(lane, query)
        if self._fatal:
            self.stop(OTHER_LANE_WAIT)
            raise RunError(self._fatal)

    def see_slots(self) -> None:
        """See that Spark has enough task slots, and how many."""
        self._spec = replace(self._spec, slots=enough_slots(self._spark))
        self._guards = RunGuards(book_of(self.app, self._spec), WallClock())

    # How it runs

    def start_lane(self, lane: LaneName) -> None:
        """Start the query of a lane, unless the run is being stopped."""
        from pyspark.errors import PySparkException

        with self._lock:
            if self._stopping:
                return
            self._began.setdefault(lane, time())
            is_frame = self.app.frame_handler is not None
            try:
                self.queries[lane] = self._frames(lane) if is_frame else self._query(lane)
            except PySparkException as error:
                self._fatal = f"the {lane} lane did not start: {spark_session.last_line(error)}"

    def end_lane(self, lane: LaneName) -> None:
        """Stop the query of a lane that has done its part; what it runs is cancelled."""
        self.queries.pop(lane).stop()

    def _query(self, lane: LaneName) -> StreamingQuery:
        self._spark.dataSource.register(source(self._spec, lane))
        rows = self._spark.readStream.format(source_name(self._spec, lane)).load()
        writer = (
            rows.writeStream.queryName(f"redrive {self.app.name} {lane} {self._spec.run}")
            .option("checkpointLocation", str(Path(self._spec.scratch) / lane))
            .foreachBatch(lambda batch, number: self._run_batch(lane, batch, number))
        )
        if self._trigger is not None:
            writer = writer.trigger(processingTime=f"{self._trigger} milliseconds")
        return writer.start()

    def _frames(self, lane: LaneName) -> FrameQuery:
        # Spark's rows cannot be held until they are due: what is planned is due.
        spec = replace(self._spec, horizon=0)
        frame_session.prepare(self._spark)

        def report(texts: list[str], number: int, seconds: float) -> None:
            found = self.figures.add(lane, texts, number=number, seconds=seconds)
            self._note_reports(lane, found)

        return FrameQuery(
            self._spark,
            self.app,
            spec,
            lane,
            report=report,
            under_way=self._under_way,
            trigger=self._trigger,
        )

    def _run_batch(self, lane: LaneName, batch: DataFrame, number: int) -> None:
        self._spark.sparkContext.setJobDescription(
            f"redrive {self.app.name}: {lane} lane, {number}"
        )
        began = monotonic()
        try:
            with self._under_way.batch(lane, number):
                rows = batch.collect()
        except Exception as error:
            if self._stopping:
                return
            if not _LOST.search(str(error)):
                raise
            # Tasks begin from what was committed: nothing is lost, and the planner goes on.
            trouble = (
                f"its tasks were lost, attempt after attempt: {spark_session.last_failure(error)}"
            )
            self.figures.failed(lane, trouble, number=number, seconds=monotonic() - began)
            log.warning("%s lane, batch %d: %s; tried again", lane, number, trouble)
            self._pause.wait(FAILED_BATCH_WAIT)
            return
        texts = lost_tasks.replaced([row[0] for row in rows], self._how_it_ended)
        reports = self.figures.add(lane, texts, number=number, seconds=monotonic() - began)
        self._note_reports(lane, reports)
        self._pause.wait(self._wait_after(lane, reports))

    def _wait_after(self, lane: LaneName, reports: list[dict[str, Any]]) -> float:
        """Seconds until the next batch: the last may only have found that nothing is due.

        The planner goes by the broker's time. Where the clock of whoever parked a record was ahead,
        its own word counts, and the same range would be planned again and again until then.
        """
        if any(
            report.get("counts") or "died" in report or report.get("end") != report.get("start")
            for report in reports
        ):
            self._nothing_done[lane] = 0
            return 0.0
        times = self._nothing_done[lane] = self._nothing_done.get(lane, 0) + 1
        return float(min(FAILED_BATCH_WAIT, NOTHING_DONE_WAIT * 2 ** min(times, 10)))

    def _note_reports(self, lane: LaneName, reports: list[dict[str, Any]]) -> None:
        if self._forget.alive:
            self._guards.note(lane, reports)
            News.of(reports, self._slots()).write(self._spec.batch_file(lane))
        for report in reports:
            seen = [Seen.of(each) for each in report.get("causes", ())]
            self.figures.count_dead(seen, self.app.handlers)
            self._causes.add(seen)
            if report["fatal"]:
                self._fatal = report["fatal"]
                self._request_stop()
        troubles = {report["trouble"] for report in reports if report["trouble"]}
        for trouble in filter(self._troubles.is_news, troubles):
            log.warning("%s lane: %s; tried again", lane, trouble)
        if any(report["trouble"] and "died" not in report for report in reports):
            self._pause.wait(FAILED_BATCH_WAIT)  # never hot: whatever it is, it is not over yet

    def _slots(self) -> int:
        try:
            return slots(self._spark)
        except Exception:  # noqa: BLE001 -- Spark's own: the last one known is used
            return 0

    def _note_end(self, lane: LaneName, query: StreamingQuery | FrameQuery) -> None:
        error = query.exception()
        if self._stopping and (error is None or not spark_session.cause(error)):
            return
        if error is None:
            self._fatal = (
                f"the {lane} lane ended: its query was stopped, and not by this run; nothing is"
                " lost: start it again, and stop it by its handle"
            )
            return
        log.debug("the %s lane ended", lane, exc_info=error)
        late = spark_session.never_came(error)
        if why := spark_session.cause(error) or self._why_over(lane, late=late):
            self._fatal = f"the {lane} lane ended: {why}"
            return
        if late:
            log.warning("%s lane: its planner did not start within Spark's ten seconds", lane)
        else:
            log.warning("%s lane: its planner died; started again", lane)
        query.stop()  # returns when Spark has forgotten it: the next one has its name
        self.start_lane(lane)

    def _why_over(self, lane: LaneName, *, late: bool) -> str:
        if late:
            return self._planner_ends.was_late(lane, time(), self.heard(lane))
        return self._planner_ends.died(lane, time())

    def _has_ended(self) -> bool:
        """Whether it was stopped, or has reached its end: queries that ended prove nothing."""
        if self._stopping:
            return not any(query.isActive for query in list(self.queries.values()))
        if self.lanes and not self._is_over():
            return False
        if self.refused:  # it was to end with all of it done
            self._fatal = unfinished(self.refused, self.refusal)
            self.check()
        self.stop()
        self.check()  # the last batches may have failed
        return True

    def _request_stop(self) -> None:
        with self._lock:
            self._stopping = True
            if self._forget.alive:
                self._spec.stop_file.touch()

    def _look_again(self, end: float) -> None:
        """What is parked can be reported afterwards, as it is after the last task of both lanes."""
        now = WallClock().now()
        while self._forget.alive and monotonic() < end:
            looking = [lane for lane, query in list(self.queries.items()) if query.isActive]
            if self._trigger or all(self.status(lane).get("at", 0) > now for lane in looking):
                break
            self._pause.wait(HANDLE_POLL)

    def _is_busy(self, lane: LaneName) -> bool:
        """Between two batches it is not: the next plan finds that the run is being stopped."""
        query = self.queries.get(lane)  # another thread may just have ended it
        if query is None or not query.isActive or self.status(lane).get("stopped"):
            return False
        return bool(query.status["isTriggerActive"])
