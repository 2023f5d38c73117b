"""Task: runs its ranges with the same processor and delivery as any engine, then reports.

It reads its ranges itself and commits as it goes: Spark only says which ranges, where and when.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from math import inf
from time import monotonic
from typing import TYPE_CHECKING, Final, get_args

from redrive.delivery.flush import FlushDelivery
from redrive.delivery.refusing_topics import RefusingTopics, Waiting
from redrive.engines.fencing import fence_off
from redrive.engines.figures import drained
from redrive.engines.spark import marks
from redrive.engines.spark.house_slices import HouseSlice, taken
from redrive.engines.spark.outages.task_guards import TaskGuards
from redrive.engines.spark.outages.told import Told
from redrive.engines.spark.ranges import House, Range
from redrive.engines.spark.runtime import Runtime, runtime
from redrive.engines.spark.slices import Slice, TransactionSlice
from redrive.engines.spark.spec import Spec
from redrive.engines.spark.task_report import SliceReport, TaskReport, blamed, refuse, untouched
from redrive.engines.words import LaneName
from redrive.errors import RedriveError, TooManyDeadError
from redrive.kafka.transactional_producer import TransactionalProducer
from redrive.numbers import counted
from redrive.ports import Position
from redrive.processing.execution.executors import InlineExecutor
from redrive.processing.execution.long_running import LongRunning
from redrive.processing.processor import PartitionProcessor
from redrive.processing.progress.notes import BEGUN, CLAIM, with_note
from redrive.tuning import (
    GUARD_BATCH_SECONDS,
    HOUSE_LOOK_EVERY,
    MAX_BYTES_IN_FLIGHT,
    RETRY_HORIZON,
    TASK_IDLE_WAIT,
    TASK_PUMP_EVERY,
    TASK_READ_WAIT,
)

if TYPE_CHECKING:
    from redrive.processing.dispatcher import Sink
    from redrive.processing.order.key_gate import KeyGate
    from redrive.record import Record, TopicPartition

log: Final = logging.getLogger("redrive.spark")

_OUT_OF_MEMORY: Final = 137


class WorkerKilledError(RedriveError):
    """A record whose Python worker died, twice, with nothing else to do."""


def run(spec: Spec, ranges: Sequence[Range], name: str = "") -> TaskReport:
    """Run the ranges of one task, and report.

    Troubles (of the broker, the database, or a resource that cannot be opened) are part of the
    report: they are no reason for Spark to try the task again, and never count against a record.
    """
    try:
        task = Task(spec, runtime(spec))
    except RedriveError as error:
        return TaskReport([untouched(each, error) for each in ranges], [], [], [])
    with LongRunning(task.runtime.dispatcher, task.runtime.scope.timer).watched():
        reports = task.run_all(ranges, name)
    scope = task.runtime.scope
    return TaskReport(reports, drained(scope.lateness), scope.causes.take(), task.told())


class Task:
    """One task: the first attempt of it, since those after it run nothing."""

    def __init__(self, spec: Spec, runtime: Runtime) -> None:
        self.runtime = runtime
        self._spec = spec
        self._deadline = monotonic() + spec.batch_deadline / 1000
        self._topics = RefusingTopics(
            runtime.writer.refusing,
            runtime.clock,
            known=runtime.known_topics,
            quiet=True,  # the driver says it, once for all tasks
        )
        sent_to = runtime.scope.sent_without_unit
        self._delivery = FlushDelivery(runtime.writer, runtime.clock, sent_to, self._topics)
        self._troubles = 0
        if runtime.units is not None:
            runtime.units.start_over()  # the planner has found that their topics take writes
            self._troubles = runtime.units.trouble.noted
        self._is_strict = runtime.app.ordering == "strict"
        self._look_at = 0.0
        self._slices: list[Slice] = []
        self._by_processor: dict[PartitionProcessor, Slice] = {}
        self._most_bytes = MAX_BYTES_IN_FLIGHT
        guards = runtime.scope.guards
        self._guards = guards if isinstance(guards, TaskGuards) else None
        self._outage_file = spec.outage_file("main")

    def told(self) -> list[Told]:
        """What its guards have seen."""
        return [] if self._guards is None else self._guards.told(self.runtime.clock.now())

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
        self._go_by_guards(ranges)
        try:
            producers = self._fence_off(ranges)
            self._open_all(ranges, producers)
            self._work()
            self._check_held_up()
        except RedriveError as error:
            stopped = self._explained(error, ranges)
            log.debug("a task ends early: %s", stopped)  # the driver says it
            # The next task may run the same records. What has no handler any more, as units of work
            # that cannot be ended while the database is away, is not waited for.
            self._wait_for_calls(self.runtime.dispatcher.oldest)
            self._see_off()
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

    def _go_by_guards(self, ranges: Sequence[Range]) -> None:
        """Have nothing begin of handlers that are in an outage, but for what was planned."""
        if self._guards is None:
            return
        rt = self.runtime
        self._guards.begin(ranges, rt.app.concurrency, rt.clock.now())
        rt.dispatcher.tick()  # it shuts their lanes before there are any
        if any(guarded.is_shut for each in ranges for guarded in each.guarded):
            self._deadline = min(self._deadline, monotonic() + GUARD_BATCH_SECONDS)
        lane: LaneName = "main" if ranges[0].delay is None else "retry"
        self._outage_file = self._spec.outage_file(lane)

    def _explained(self, error: Exception, ranges: Sequence[Range]) -> Exception | None:
        app, places = self.runtime.app.name, [each.place for each in ranges]
        return marks.explained(error, app, self._spec.run, places, self.runtime.marks)

    def _write_down(self, each: Range, name: str) -> None:
        """Commit who runs a record alone, as the record itself is committed."""
        rt, place = self.runtime, each.place
        position = with_note(Position(each.start, each.metadata), BEGUN, name)
        position = marks.labelled(position, topic_id=each.topic_id, run=self._spec.run)
        if each.house is not None:
            rt.houses.take([each.house])
            if place == each.house.source:
                position = with_note(position, CLAIM, each.house.claim)
        if not rt.app.guarantee.transactional:
            rt.progress.commit({place: position})
            return
        producer = self.producer(place)
        # Fenced off by now: whoever had the partition before cannot move its progress any more.
        found = marks.reached(place, each.topic_id, rt.progress) or position
        if found.offset != position.offset:
            raise RedriveError(f"{place} has moved on to offset {found.offset} meanwhile")
        producer.commit([], {place: position})

    # The loop

    def _work(self) -> None:
        dispatcher = self.runtime.dispatcher
        dispatcher.resume()
        wait = 0.0
        while not all(each.finished for each in self._slices) and not self._must_end():
            moved = self._read(wait)
            self._look_for_houses()
            dispatcher.tick()
            moved = self._run_inline() or moved
            moved = self._settle() or moved
            moved = self._go_back() or moved
            self._check_trouble()
            self._check_deaths()
            wait = 0.0 if moved else self._wait()
        self._wind_up()

    def _read(self, wait: float) -> bool:
        moved = False
        reading = self._reading()
        for each in reading:
            read = each.read(wait / len(reading))
            if read:
                self.runtime.dispatcher.offer(each.processor, read)
            moved = moved or bool(read) or each.exhausted
        return moved

    def _go_back(self) -> bool:
        moved = [each.go_back() for each in self._slices]
        return any(moved)

    def _reading(self) -> list[Slice]:
        wanting = [each for each in self._slices if each.wants_records]
        return [each for each in wanting if not self._waiting(each).records]

    def _pump_at(self) -> float:
        return min(self._deadline, monotonic() + TASK_PUMP_EVERY)

    def _run_inline(self) -> bool:
        executor = self.runtime.executor
        return isinstance(executor, InlineExecutor) and executor.run(self._pump_at()) > 0

    def _settle(self, *, last: bool = False, wait: float = 0) -> bool:
        complete = self._delivery.pump(wait)
        for processor, ended in complete:
            self._by_processor[processor].complete(ended)
        for each in self._slices:
            each.commit(every=self._spec.commit_every / 1000, last=last)
        return bool(complete)

    def _wait(self) -> float:
        """Until something may have changed: a result, a record that is due, the deadline.

        Returns how long to wait where records are read, if some are: they are taken as they come.
        """
        dispatcher = self.runtime.dispatcher
        upcoming = dispatcher.tick()
        later = inf if upcoming is None else (upcoming - self.runtime.clock.now()) / 1000
        if self._reading():
            return max(0.0, min(TASK_READ_WAIT, later))
        if self._delivery.outstanding:
            self._settle(wait=TASK_IDLE_WAIT / 4)
            return 0.0
        with dispatcher.changed:
            dispatcher.changed.wait(max(0.0, min(TASK_IDLE_WAIT, later)))
        return 0.0

    def _must_end(self) -> bool:
        if monotonic() >= self._deadline or self._spec.stop_file.exists():
            return True
        if self._guards is not None and self._is_over_by(self._guards):
            return True
        return self._only_refused() or self._only_later_work()

    def _is_over_by(self, guards: TaskGuards) -> bool:
        """Whether there is an outage; or all that is left waits until it is known, or over."""
        if guards.sees_outage:
            self._tell_others()
            return True
        if self._outage_file.exists():
            guards.others_see_outage(self.runtime.clock.now())
            return True
        if guards.all_closed or guards.decides or self._delivery.outstanding or self._reading():
            return False
        return self.runtime.dispatcher.only_held

    def _tell_others(self) -> None:
        """End the other tasks, if this is the driver's machine; else they find out themselves."""
        for lane in get_args(LaneName):
            with suppress(OSError):
                self._spec.outage_file(lane).touch()

    def _only_refused(self) -> bool:
        """Whether all that is left waits for topics that refuse what is to be written."""
        left = [each for each in self._slices if not each.finished]
        return (
            bool(left)
            and not self._delivery.outstanding
            and all(
                each.tracker.in_flight == self._waiting(each).with_those_behind > 0 for each in left
            )
        )

    def _waiting(self, each: Slice) -> Waiting:
        units = self.runtime.units
        found = self._delivery.refused_of(each.processor).plus(each.waiting)
        return found if units is None else found.plus(units.refused_of(each.processor))

    def _only_later_work(self) -> bool:
        """Whether all that is left is due later than this batch should wait."""
        dispatcher = self.runtime.dispatcher
        if not all(each.exhausted for each in self._slices) or not dispatcher.idle:
            return False
        upcoming = dispatcher.tick()
        if self._is_strict:
            return self._only_for_others(upcoming)
        held = all(each.range.delay is not None for each in self._slices if not each.finished)
        late = upcoming is not None and upcoming - self.runtime.clock.now() > 2 * RETRY_HORIZON
        return held and late and dispatcher.idle

    def _only_for_others(self, upcoming: int | None) -> bool:
        """The same in strict order: whether all waits for its time, or for others of its key.

        Those may only have to be committed, and are now.
        """
        if upcoming is not None and upcoming - self.runtime.clock.now() <= 2 * RETRY_HORIZON:
            return False
        for each in self._slices:
            with self.runtime.dispatcher.changed:
                waiting = each.waits_for_others
            waiting += self._waiting(each).with_those_behind
            if not each.finished and each.tracker.in_flight != waiting:
                return False
        before = [each.committed for each in self._slices]
        for each in self._slices:
            each.commit(every=0)
        return before == [each.committed for each in self._slices]

    def _look_for_houses(self) -> None:
        """See now and then that nobody else handles them.

        Before anything runs: this process may have been suspended for long.
        """
        if self._is_strict and monotonic() >= self._look_at:
            self._look_at = monotonic() + HOUSE_LOOK_EVERY
            self.runtime.houses.look()

    def _see_off(self) -> None:
        """In strict order, wait for what is on its way to be written, and write nothing more.

        It would come late for the next task, which has read by then what waits.
        """
        houses = self.runtime.houses
        houses.leave()
        while self._is_strict and (self._delivery.is_under_way or houses.writing):
            self._delivery.see_off(TASK_IDLE_WAIT)
            houses.wait_for_writes(0 if self._delivery.is_under_way else TASK_IDLE_WAIT)

    def _wind_up(self) -> None:
        """End what runs, park what waits in place, write and commit."""
        dispatcher = self.runtime.dispatcher
        for each in self._slices:
            each.stop_reading()
        self._wait_for_calls(lambda: dispatcher.running)
        self._check_deaths()
        dispatcher.stop_waiting()
        self._finish()

    def _wait_for_calls(self, under_way: Callable[[], object]) -> None:
        dispatcher = self.runtime.dispatcher
        dispatcher.pause()
        while (under_way() or self._waits_for_acks()) and not self.runtime.deaths:
            dispatcher.tick()
            with dispatcher.changed:
                dispatcher.changed.wait(TASK_IDLE_WAIT)

    def _finish(self) -> None:
        """Wait for what is on its way, and commit it."""
        while self._delivery.outstanding:
            self._settle(wait=TASK_IDLE_WAIT)
        self._settle(last=True)

    def _check_trouble(self) -> None:
        """End while nothing can be committed: the run waits, and tells why."""
        units = self.runtime.units
        if units is not None and units.trouble.not_allowed is not None:
            raise units.trouble.not_allowed
        if units is not None and units.trouble.noted > self._troubles and units.trouble.text:
            raise RedriveError(units.trouble.text)

    def _check_deaths(self) -> None:
        """End when `stop_on_dead=` says so; or when a thread that runs handlers has ended.

        That is by a mistake of ours, and nothing goes on.
        """
        for error in self.runtime.deaths:
            if isinstance(error, TooManyDeadError):
                raise error
            raise RuntimeError(f"a thread that runs handlers ended by {error!r}") from error

    def _check_held_up(self) -> None:
        """Say so, and have the run wait a while: the next task would find the same."""
        if (error := self.runtime.publisher.not_allowed) is not None:
            raise error
        units = self.runtime.units
        if units is not None and units.held_up:
            raise RedriveError(
                f"{counted(units.held_up, 'record stays', 'records stay')} behind, as committing"
                " fails even for a single record"
            )

    def _waits_for_acks(self) -> bool:
        """They are waited for until their handler's time-out; then the policy decides."""
        return any(each.processor.unacked for each in self._slices)

    # Beginning and end

    def _fence_off(self, ranges: Sequence[Range]) -> dict[TopicPartition, TransactionalProducer]:
        """Fence off whoever had the partitions before."""
        return fence_off(self.runtime.app, [each.place for each in ranges], self.producer)

    def _open_all(
        self,
        ranges: Sequence[Range],
        producers: Mapping[TopicPartition, TransactionalProducer],
    ) -> None:
        self.runtime.scope.parked_rules = ranges[0].rules  # the same for all of a task
        opened, starts, gates = taken(self.runtime, ranges)
        if gates:  # only now: reading what waits may have taken long
            self._deadline = monotonic() + self._spec.batch_deadline / 1000
        for each in opened:
            if each.house is None:
                self._open(each, producers.get(each.place))
            else:
                self._take_up(each, each.house, starts[each.place], gates[each.place])

    def _take_up(self, each: Range, house: House, start: Position, gate: KeyGate) -> None:
        rt = self.runtime
        rt.topic_ids[each.topic] = each.topic_id
        opened = HouseSlice(rt, each, start, house, gate, most_bytes=self._most_bytes)
        self._add(opened, self._delivery.add)

    def _add(self, opened: Slice, sink: Sink) -> None:
        self.runtime.sinks[opened.processor] = sink
        self._slices.append(opened)
        self._by_processor[opened.processor] = opened
        self.runtime.dispatcher.add(opened.processor)

    def _open(self, each: Range, producer: TransactionalProducer | None) -> None:
        rt = self.runtime
        start = Position(each.start, each.metadata)
        if producer is not None:
            # Only now that the others are fenced off: how far did they come?
            start = max(start, marks.reached(each.place, each.topic_id, rt.progress) or start)
        rt.topic_ids[each.topic] = each.topic_id or rt.kafka_log.topic_id(each.topic)
        if producer is None:
            self._add(Slice(rt, each, start, most_bytes=self._most_bytes), self._delivery.add)
        else:
            opened = TransactionSlice(
                rt, each, start, producer, most_bytes=self._most_bytes, topics=self._topics
            )
            self._add(opened, opened.add)

    def producer(self, place: TopicPartition) -> TransactionalProducer:
        """One that fences off whoever had the partition before."""
        return marks.producer(self._spec, self.runtime.app.name, place, self.runtime.marks)

    def _close(self, stopped: Exception | None) -> list[SliceReport]:
        rt = self.runtime
        rt.dispatcher.pause()
        reports: list[SliceReport] = []
        for each in self._slices:
            each.stop_reading()
            rt.dispatcher.remove(each.processor)
            rt.sinks.pop(each.processor, None)
            self._note_looked(each)
            report = each.report()
            refuse(report, self._waiting(each))
            reports.append(blamed(report, stopped))
            each.close()
        self._slices = []
        self._by_processor = {}
        rt.houses.leave()
        return reports

    def _note_looked(self, each: Slice) -> None:
        if self._guards is not None and each.looked_through:
            held = each.processor.held()
            if held.total() == each.tracker.in_flight:
                self._guards.looked_at(each.range.place, each.range.end, held)

    def _bury_killer(self, each: Range) -> SliceReport:
        error = WorkerKilledError(
            f"the Python worker died twice with {each.topic}[{each.partition}]@{each.start} and"
            " nothing else to do"
        )
        stopped: Exception | None = None
        try:
            self._open_all([each], self._fence_off([each]))
            opened = self._slices[0]
            sink = self.runtime.sinks[opened.processor]
            for record in self._read_all(opened):
                now, bury = self.runtime.clock.now(), opened.processor.bury
                sink(opened.processor, bury(record, "killed-worker", error, now))
            opened.stop_reading()
            opened.tracker.received_up_to(each.end)
            self._finish()
            self._check_held_up()
        except RedriveError as raised:
            stopped = self._explained(raised, [each])
        reports = self._close(stopped)
        return reports[0] if reports else untouched(each, stopped)

    def _read_all(self, opened: Slice) -> list[Record]:
        """All records of a range that has one at most."""
        found: list[Record] = []
        while not opened.exhausted:
            found += opened.read(TASK_READ_WAIT)
            if not found and monotonic() >= self._deadline:
                opened.stop_reading()
                raise RedriveError(opened.trouble or f"{opened.range.place} cannot be read")
        if opened.trouble:
            raise RedriveError(opened.trouble)
        return found
