"""Task: runs its ranges with the same processor and delivery as any engine, then reports.

It reads its ranges itself and commits as it goes: Spark only says which ranges, where and when.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from time import monotonic
from typing import TYPE_CHECKING, Final, NamedTuple

from redrive.delivery.flush import FlushDelivery
from redrive.engines.spark import marks
from redrive.engines.spark.ranges import Range
from redrive.engines.spark.reports import SliceReport, blame, untouched
from redrive.engines.spark.runtime import Runtime, runtime
from redrive.engines.spark.slices import Slice, TransactionSlice
from redrive.engines.spark.spec import HORIZON, Spec
from redrive.engines.weights import MAX_BYTES_IN_FLIGHT
from redrive.errors import RedriveError
from redrive.kafka.transactions import TransactionalProducer
from redrive.ports import Position
from redrive.processing.causes import Seen
from redrive.processing.executors import InlineExecutor
from redrive.processing.long_running import LongRunning
from redrive.processing.notes import BEGUN, with_note
from redrive.processing.outcomes import Report
from redrive.processing.processor import PartitionProcessor

if TYPE_CHECKING:
    from redrive.record import Record, TopicPartition

log: Final = logging.getLogger("redrive.spark")

_IDLE_WAIT: Final = 0.02
_READ_WAIT: Final = 0.002
"""Seconds, while records are on their way from a broker."""
_OUT_OF_MEMORY: Final = 137
_PUMP_EVERY: Final = 0.2
"""Seconds that handlers run, at most, before outcomes are made durable and offsets committed."""


class WorkerKilledError(RedriveError):
    """A record whose Python worker died, twice, with nothing else to do."""


class TaskReport(NamedTuple):
    """What a task tells the driver."""

    slices: list[SliceReport]
    lateness: list[int]
    """How late parked records were, in milliseconds."""
    causes: list[Seen]
    """Why records failed."""


def run(spec: Spec, ranges: Sequence[Range], name: str = "") -> TaskReport:
    """Run the ranges of one task, and report.

    Troubles (of the broker, the database, or a resource that cannot be opened) are part of the
    report: they are no reason for Spark to try the task again, and never count against a record.
    """
    try:
        task = Task(spec, runtime(spec))
    except RedriveError as error:
        return TaskReport([untouched(each, error) for each in ranges], [], [])
    with LongRunning(task.runtime.dispatcher).watched():
        reports = task.run_all(ranges, name)
    scope = task.runtime.scope
    lateness = [scope.lateness.popleft() for _ in range(len(scope.lateness))]
    return TaskReport(reports, lateness, scope.causes.take())


class Task:
    """One task: the first attempt of it, since those after it run nothing."""

    def __init__(self, spec: Spec, runtime: Runtime) -> None:
        self.runtime = runtime
        self._spec = spec
        self._deadline = monotonic() + spec.batch_deadline / 1000
        self._delivery = FlushDelivery(runtime.publisher, runtime.clock)
        self._troubles = 0 if runtime.units is None else runtime.units.trouble.noted
        self._slices: list[Slice] = []
        self._by_processor: dict[PartitionProcessor, Slice] = {}
        self._most_bytes = MAX_BYTES_IN_FLIGHT

    def run_all(self, ranges: Sequence[Range], name: str = "") -> list[SliceReport]:
        """Run ranges side by side; or bury the record that is proven to kill its worker."""
        first = ranges[0]
        if first.search == "proven":
            return [self._bury_killer(first)]
        if first.is_one_alone:
            try:
                # Before it runs: if this worker dies, it is known that it had begun with it.
                self._write_down(first, name)
            except RedriveError as error:
                return [untouched(first, self._explained(error, [first]))]
        return self.run(ranges)

    def run(self, ranges: Sequence[Range]) -> list[SliceReport]:
        """Run ranges side by side, until they are complete or the deadline is over."""
        stopped: Exception | None = None
        self._most_bytes = MAX_BYTES_IN_FLIGHT // len(ranges)
        try:
            producers = self._fence_off(ranges)
            for each in ranges:
                self._open(each, producers.get(each.place))
            self._work()
            self._check_refused()
        except RedriveError as error:
            stopped = self._explained(error, ranges)
            log.debug("a task ends early: %s", stopped)  # the driver says it
        except MemoryError:
            # As the kernel would: then the record that needs so much is searched for.
            log.critical("out of memory: this Python worker ends")
            os._exit(_OUT_OF_MEMORY)
        except Exception as error:
            # A mistake of ours: it ends the run with its own words, not with Spark's.
            log.exception("a task failed")
            stopped = error
        except BaseException:
            self._close(None)
            raise
        reports = self._close(stopped)
        opened = {(report.topic, report.partition) for report in reports}
        return reports + [
            untouched(each, stopped)
            for each in ranges
            if (each.topic, each.partition) not in opened
        ]

    def _explained(self, error: Exception, ranges: Sequence[Range]) -> Exception | None:
        app, places = self.runtime.app.name, [each.place for each in ranges]
        return marks.explained(error, app, self._spec.run, places, self.runtime.marks)

    def _write_down(self, each: Range, name: str) -> None:
        """Commit who runs a record alone, as the record itself is committed."""
        rt, place = self.runtime, each.place
        position = with_note(Position(each.start, each.metadata), BEGUN, name)
        position = marks.labelled(position, topic_id=each.topic_id, run=self._spec.run)
        if rt.app.delivery != "transaction":
            rt.progress.commit({place: position})
            return
        producer = self._producer(place)
        # Fenced off by now: whoever had the partition before cannot move its progress any more.
        found = rt.progress.committed([place]).get(place, position)
        if found.offset != position.offset:
            raise RedriveError(f"{place} has moved on to offset {found.offset} meanwhile")
        producer.commit([], {place: position})

    # The loop

    def _work(self) -> None:
        dispatcher = self.runtime.dispatcher
        dispatcher.resume()
        while not all(each.finished for each in self._slices) and not self._must_end():
            moved = self._read()
            dispatcher.tick()
            moved = self._run_inline() or moved
            moved = self._settle() or moved
            self._check_trouble()
            self._check_deaths()
            if not moved:
                self._wait()
        self._wind_up()

    def _read(self) -> bool:
        moved = False
        for each in self._slices:
            if each.wants_records:
                read = each.read()
                records = self._run_at_once(each.processor, read)
                if records:
                    self.runtime.dispatcher.offer(each.processor, records)
                moved = moved or bool(read) or each.exhausted
        return moved

    def _run_at_once(
        self, processor: PartitionProcessor, records: Sequence[Record]
    ) -> Sequence[Record]:
        """Run records as they come, where nothing is against it; gives those that have to wait."""
        until = self._pump_at()
        turns = 1 if isinstance(self.runtime.executor, InlineExecutor) else 0
        while turns and records and monotonic() < until:
            turns = self.runtime.dispatcher.run_at_once(processor, records, until)
            records = records[turns:]
        return records

    def _pump_at(self) -> float:
        return min(self._deadline, monotonic() + _PUMP_EVERY)

    def _run_inline(self) -> bool:
        executor = self.runtime.executor
        if not isinstance(executor, InlineExecutor):
            return False
        return executor.run(self._pump_at()) > 0

    def _settle(self, *, last: bool = False, wait: float = 0) -> bool:
        complete = self._delivery.pump(wait)
        for processor, ended in complete:
            self._by_processor[processor].complete(ended)
        for each in self._slices:
            each.commit(every=self._spec.commit_every / 1000, last=last)
        return bool(complete)

    def _wait(self) -> None:
        """Until something may have changed: a result, a record that is due, the deadline."""
        dispatcher = self.runtime.dispatcher
        if self._delivery.outstanding:
            self._settle(wait=_IDLE_WAIT / 4)
            return
        upcoming = dispatcher.tick()
        reading = any(each.wants_records for each in self._slices)
        seconds = _READ_WAIT if reading else _IDLE_WAIT
        if upcoming is not None:
            seconds = min(seconds, max(0.0, (upcoming - self.runtime.clock.now()) / 1000))
        with dispatcher.changed:
            dispatcher.changed.wait(seconds)

    def _must_end(self) -> bool:
        if monotonic() >= self._deadline or self._spec.stop_file.exists():
            return True
        return self._only_later_work()

    def _only_later_work(self) -> bool:
        """Whether all that is left is due later than this batch should wait."""
        dispatcher = self.runtime.dispatcher
        if not all(each.exhausted for each in self._slices) or not dispatcher.idle:
            return False
        upcoming = dispatcher.tick()
        held = all(each.range.delay is not None for each in self._slices if not each.finished)
        late = upcoming is not None and upcoming - self.runtime.clock.now() > 2 * HORIZON
        return held and late and dispatcher.idle

    def _wind_up(self) -> None:
        """End what runs, park what waits in place, write and commit."""
        dispatcher = self.runtime.dispatcher
        for each in self._slices:
            each.stop_reading()
        dispatcher.pause()
        while dispatcher.running or self._waits_for_acks():
            self._check_deaths()
            dispatcher.tick()
            with dispatcher.changed:
                dispatcher.changed.wait(_IDLE_WAIT)
        dispatcher.stop_waiting()
        self._finish()

    def _finish(self) -> None:
        """Wait for what is on its way, and commit it."""
        while self._delivery.outstanding:
            self._settle(wait=_IDLE_WAIT)
        self._settle(last=True)

    def _check_trouble(self) -> None:
        """End while nothing can be committed: the run waits, and tells why."""
        units = self.runtime.units
        if units is not None and units.trouble.noted > self._troubles and units.trouble.text:
            raise RedriveError(units.trouble.text)

    def _check_deaths(self) -> None:
        """End when a thread that runs handlers has: by a mistake of ours, and nothing goes on."""
        for error in self.runtime.deaths:
            raise RuntimeError(f"a thread that runs handlers ended by {error!r}") from error

    def _check_refused(self) -> None:
        """Say so, and have the run wait a while: the next task would find the same."""
        if (error := self.runtime.publisher.not_allowed) is not None:
            raise error
        units = self.runtime.units
        refused = self._delivery.refused + (0 if units is None else units.stuck)
        if refused:
            raise RedriveError(
                f"{refused} record(s) stay where they are, because what was to be"
                " written for them was refused"
            )

    def _waits_for_acks(self) -> bool:
        """They are waited for until their handler's time-out; then the policy decides."""
        return any(each.processor.unacked for each in self._slices)

    # Beginning and end

    def _fence_off(self, ranges: Sequence[Range]) -> dict[TopicPartition, TransactionalProducer]:
        """Fence off whoever had the partitions before: side by side, as each takes its time."""
        if self.runtime.app.delivery != "transaction":
            return {}
        places = [each.place for each in ranges]
        with ThreadPoolExecutor(len(places)) as side_by_side:
            return dict(zip(places, side_by_side.map(self._producer, places), strict=True))

    def _open(self, each: Range, producer: TransactionalProducer | None) -> None:
        rt = self.runtime
        start = Position(each.start, each.metadata)
        if producer is not None:
            # Only now that the others are fenced off: how far did they come?
            start = max(start, rt.progress.committed([each.place]).get(each.place, start))
        rt.topic_ids[each.topic] = each.topic_id or rt.log.topic_id(each.topic)
        if producer is None:
            opened = Slice(rt, each, start, most_bytes=self._most_bytes)
        else:
            opened = TransactionSlice(rt, each, start, producer, most_bytes=self._most_bytes)
        self._slices.append(opened)
        self._by_processor[opened.processor] = opened
        rt.sinks[opened.processor] = self._sink
        rt.dispatcher.add(opened.processor)

    def _producer(self, place: TopicPartition) -> TransactionalProducer:
        app = self.runtime.app.name
        # A task that is left over from a run before must not fence off those of this one.
        marks.look(app, self._spec.run, place, self.runtime.marks)
        return TransactionalProducer(self._spec.settings, app, place)

    def _sink(self, processor: PartitionProcessor, report: Report) -> None:
        opened = self._by_processor[processor]
        opened.take(processor, report)
        if not isinstance(opened, TransactionSlice):
            self._delivery.take(processor, report)

    def _close(self, stopped: Exception | None) -> list[SliceReport]:
        rt = self.runtime
        rt.dispatcher.pause()
        reports: list[SliceReport] = []
        for each in self._slices:
            each.stop_reading()
            rt.dispatcher.remove(each.processor)
            rt.sinks.pop(each.processor, None)
            report = each.report()
            blame(report, stopped)
            reports.append(report)
            each.close()
        self._slices = []
        self._by_processor = {}
        return reports

    def _bury_killer(self, each: Range) -> SliceReport:
        error = WorkerKilledError(
            f"the Python worker died twice with {each.topic}[{each.partition}]@{each.start} and"
            " nothing else to do"
        )
        stopped: Exception | None = None
        try:
            self._open(each, self._fence_off([each]).get(each.place))
            opened = self._slices[0]
            for record in self._read_all(opened):
                self._sink(opened.processor, self._killed(opened, record, error))
            opened.stop_reading()
            opened.tracker.received_up_to(each.end)
            self._finish()
            self._check_refused()
        except RedriveError as raised:
            stopped = self._explained(raised, [each])
        reports = self._close(stopped)
        return reports[0] if reports else untouched(each, stopped)

    def _read_all(self, opened: Slice) -> list[Record]:
        """All records of a range that has one at most."""
        found: list[Record] = []
        while not opened.exhausted:
            found += opened.read()
            if not found and monotonic() >= self._deadline:
                opened.stop_reading()
                raise RedriveError(opened.trouble or f"{opened.range.place} cannot be read")
            with self.runtime.dispatcher.changed:
                self.runtime.dispatcher.changed.wait(_READ_WAIT)
        if opened.trouble:
            raise RedriveError(opened.trouble)
        return found

    def _killed(self, opened: Slice, record: Record, error: WorkerKilledError) -> Report:
        now = self.runtime.clock.now()
        return opened.processor.bury(record, "killed-worker", error, now)
