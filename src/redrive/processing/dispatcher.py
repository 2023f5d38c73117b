"""Dispatcher: all partitions of one process, and whose turn it is."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Sequence
from threading import Condition, RLock
from typing import TYPE_CHECKING, Final

from redrive.processing.calls.lots import Lot
from redrive.processing.gates import Gates
from redrive.processing.outcomes.judged import Judged
from redrive.processing.outcomes.report import Report
from redrive.processing.processor import PartitionProcessor
from redrive.processing.work import Assigned, Result, Work
from redrive.record import Record
from redrive.tuning import QUICK_LOTS

if TYPE_CHECKING:
    from redrive.ports import Clock, Position
    from redrive.processing.order.key_gate import KeyGate
    from redrive.processing.outcomes.guards import Guards

Sink = Callable[[PartitionProcessor, Report], None]
"""Where outcomes go, to be made durable and settled. Called in the order of each lane, one at a
time: it takes note and comes back, it does not wait."""

Listener = Callable[[], None]

log: Final = logging.getLogger("redrive.processing")


class Dispatcher:
    """Hands out lots of all partitions, and takes their results. May be used from many threads.

    Fresh work and work that was parked take turns while both are there, and parked work leaves a
    quarter of the concurrency alone: records that fail for ever cannot starve those that do not.
    """

    def __init__(
        self, clock: Clock, concurrency: int, sink: Sink, guards: Guards | None = None
    ) -> None:
        lock = RLock()
        self.changed = Condition(lock)
        """Notified whenever something has changed: for whoever follows the work."""
        self._available = Condition(lock)
        self._asleep = 0
        self._listener: Listener | None = None
        self._clock = clock
        self._sink = sink
        self._limit = concurrency
        self._parked_limit = max(1, concurrency - concurrency // 4)
        self._fresh: deque[PartitionProcessor] = deque()
        self._parked: deque[PartitionProcessor] = deque()
        self._leaving: list[PartitionProcessor] = []
        """Those that were withdrawn or let go of while lots of theirs still run."""
        self._processors: dict[Assigned, PartitionProcessor] = {}
        """All of them, until they are let go of and nothing of theirs runs."""
        self._running = 0
        self._parked_running = 0
        self._parked_turn = False
        self._paused = False
        self._gates = None if guards is None else Gates(guards)

    def add(self, processor: PartitionProcessor) -> None:
        """Take up a partition; calls that it has left behind, if it was here before, end first."""
        with self.changed:
            self._queue_of(processor).append(processor)
            self._processors[processor.assigned] = processor
            if self._gates is not None:
                self._tell(processor, self._gates.add(processor, self._clock.now()))
            if self._is_held_up(processor):
                log.warning(
                    "%s was assigned again while earlier handlers are still running: waiting for"
                    " them",
                    processor.partition,
                )

    def withdraw(self, processor: PartitionProcessor) -> None:
        """Hand out nothing more of a partition; results of what runs still count."""
        with self.changed:
            processor.cut_lots()
            self._forget(processor)
            self._leave(processor)

    def remove(self, processor: PartitionProcessor) -> None:
        """Let go of a partition: its lots end early, and their results no longer count."""
        with self.changed:
            processor.close()
            self._forget(processor)
            self._leave(processor)
            self._news()

    def offer(self, processor: PartitionProcessor, records: Sequence[Record]) -> bool:
        """Take in records that were read; False: not now, reading has to go back first."""
        with self.changed:
            report = processor.offer(records, self._clock.now())
            if report is None:
                return False
            self._tell(processor, report)
            self._news()
            return True

    def reached(self, processor: PartitionProcessor, end: int) -> None:
        """Note that no record of a source partition below `end` will come any more."""
        if processor.gate is not None and processor.delay is None:
            with self.changed:
                processor.gate.read_to(end)
                self._open(processor.gate)
                self._news()

    def committed(self, processor: PartitionProcessor, position: Position) -> None:
        """Note what is committed: keys of which nothing is left may run as they are read."""
        if processor.gate is not None:
            with self.changed:
                processor.gate.committed(processor.partition, position)
                self._open(processor.gate)
                self._news()

    def blocked(self) -> tuple[int, int]:
        """In strict order: how many keys are blocked, and the most records that wait of one."""
        with self.changed:
            gates = {each.gate for each in self._processors.values() if each.gate is not None}
            most = [found[1] for gate in gates if (found := gate.keys.most_behind()) is not None]
            return sum(len(gate.keys) for gate in gates), max(most, default=0)

    def take_seek(self, processor: PartitionProcessor) -> int | None:
        """Where reading has to go back to; asked once, then done."""
        with self.changed:
            return processor.take_seek()

    def tick(self) -> int | None:
        """Let time pass; returns the time of the next thing that happens by itself."""
        upcoming: list[int] = []
        with self.changed:
            self._collect()
            now = self._clock.now()
            for processor in (*self._fresh, *self._parked):
                spread = processor.look_for_slow(now)
                if spread is not None:
                    self._tell(processor, spread)
                    self._news()
                time = processor.next_due()
                if time is not None and time <= now:
                    self._tell(processor, processor.due(now))
                    time = processor.next_due()
                    self._news()
                if time is not None:
                    upcoming.append(time)
            if self._gates is not None and not self._gates.idle:
                self._act(self._gates, now)
                self._news()
                if (look := self._gates.next_look(now)) is not None:
                    upcoming.append(look + self._clock.was_set())
        return min(upcoming, default=None)

    def look_again(self) -> None:
        """Decide again about parked records that wait: rules about them have changed."""
        with self.changed:
            for processor in self._parked:
                self._tell(processor, processor.look_again(self._clock.now()))
            self._news()

    def take(self) -> Lot | None:
        """The next lot; None if nothing may run now. Every lot must be reported as finished."""
        with self.changed:
            return self._take()

    def wait_and_take(self, closed: Callable[[], bool]) -> Lot | None:
        """The next lot, as soon as there is one; None once it is closed (then call `wake_all`)."""
        with self.changed:
            while not closed():
                lot = self._take()
                if lot is not None:
                    return lot
                self._asleep += 1
                self._available.wait()
            return None

    def wake_all(self) -> None:
        """Let everybody who waits for work look again."""
        with self.changed:
            self._asleep = 0
            self._available.notify_all()
            self.changed.notify_all()
            if self._listener is not None:
                self._listener()

    def listen(self, listener: Listener) -> None:
        """Call the listener, within the lock, whenever there may be something to take."""
        self._listener = listener

    def report(self, lot: Lot) -> None:
        """Take what came of a lot, as far as it was not collected on the way."""
        with self.changed:
            if not lot.abandoned:  # else it has ended, and nothing that comes late counts
                self._end(lot)
            self._news()

    def report_and_take(self, lot: Lot) -> Lot | None:
        """Take what came of a lot, and hand out the next."""
        with self.changed:
            if not lot.abandoned:
                self._end(lot)
            taken = self._take()
            self._news()
            return taken

    def has_others(self, lot: Lot) -> bool:
        """Whether something else than what a turn takes by itself waits for a thread.

        Without the lock: whoever comes meanwhile is seen at the next look.
        """
        mine = lot.assigned
        return any(
            each.ready_in_lanes if each.assigned is mine else each.ready
            for each in (*self._fresh, *self._parked)
        )

    def settle(self, lot: Lot, report: Report) -> None:
        """Pass on outcomes that a unit of work has made durable."""
        with self.changed:
            self._tell(self._processors[lot.assigned], report)

    def finish(self, lot: Lot, judged: Judged) -> None:
        """End a lot that ran as units of work: only now may the next records of its lanes run."""
        with self.changed:
            self._end(lot, judged)
            self._news()

    def give_up(self, lot: Lot, works: Sequence[Work], error: BaseException) -> None:
        """End a lot whose call was given up: its record has failed, those behind go on.

        Of several records nobody knows which one hangs: none has failed, each is called alone next.
        """
        with self.changed:
            if len(works) > 1:
                self._processors[lot.assigned].call_alone(works)
            else:
                lot.results.append(error)
            self._end(lot)
            self._news()

    def call_alone(self, lot: Lot, works: Sequence[Work]) -> None:
        """Have each of these records of a lot called without others next time."""
        with self.changed:
            self._processors[lot.assigned].call_alone(works)

    def acknowledge(self, work: Work, context: object, result: Result) -> None:
        """Take a manual acknowledgement."""
        with self.changed:
            processor = self._processors.get(work.assigned)
            if processor is not None:  # else its partition was taken away long ago
                self._tell(
                    processor, processor.acknowledge(work, context, result, self._clock.now())
                )
                if self._gates is not None and not self._gates.idle:
                    self._act(self._gates, self._clock.now())
                self._news()

    def pause(self) -> None:
        """Hand out nothing more; lots under way end after the record that runs now."""
        with self.changed:
            self._paused = True
            for processor in (*self._fresh, *self._parked):
                processor.cut_lots()

    def resume(self) -> None:
        """Hand out again."""
        with self.changed:
            self._paused = False
            self._news()

    def oldest_waiting(self, topic: str) -> int | None:
        """The timestamp of the oldest record of a source topic that waits here."""
        with self.changed:
            times = [each.oldest_waiting() for each in self._fresh if each.partition.topic == topic]
        return min((time for time in times if time is not None), default=None)

    def stop_waiting(self) -> None:
        """Park what waits in place, where its policy has a delay topic for it."""
        with self.changed:
            for processor in (*self._fresh, *self._parked):
                self._tell(processor, processor.stop_waiting(self._clock.now()))

    @property
    def running(self) -> int:
        """How many lots are under way."""
        return self._running

    def under_way(self) -> list[Lot]:
        """The lots that run, but for those that were given up."""
        with self.changed:
            lots = [lot for each in self._processors.values() for lot in each.lots]
        return [lot for lot in lots if not lot.abandoned]

    def oldest(self) -> Lot | None:
        """The lot whose record has been with its handler for longest; None: no handler runs."""
        with self.changed:
            lots = [lot for each in (*self._fresh, *self._parked) for lot in each.lots]
        begun = [lot for lot in lots if lot.current is not None and not lot.abandoned]
        return min(begun, key=lambda lot: lot.since, default=None)

    @property
    def idle(self) -> bool:
        """Whether nothing runs and nothing may run now."""
        with self.changed:
            self._collect()
            return not self._running and not any(
                processor.ready for processor in (*self._fresh, *self._parked)
            )

    @property
    def only_held(self) -> bool:
        """Whether nothing runs or may run, but for what waits because of an outage, or a doubt."""
        with self.changed:
            self._collect()
            return not self._running and all(
                processor.only_held for processor in (*self._fresh, *self._parked)
            )

    def _take_from(self, queue: deque[PartitionProcessor]) -> Lot | None:
        parked = queue is self._parked
        if parked and self._parked_running >= self._parked_limit:
            return None
        for _ in range(len(queue)):
            processor = queue[0]
            queue.rotate(-1)
            few = processor.quick and len(processor.lots) >= QUICK_LOTS
            if few and processor.brisk >= QUICK_LOTS:
                continue
            if self._leaving and self._is_held_up(processor):
                continue
            lot = processor.next() if processor.ready else None
            if lot is not None:
                if self._gates is not None and not self._gates.idle:
                    self._gates.begun(lot, self._clock.now())
                self._running += 1
                self._parked_running += parked
                return lot
        return None

    def _take(self) -> Lot | None:
        if self._paused or self._running >= self._limit:
            return None
        self._parked_turn = not self._parked_turn
        turns = (self._parked, self._fresh) if self._parked_turn else (self._fresh, self._parked)
        for queue in turns:
            lot = self._take_from(queue)
            if lot is not None:
                return lot
        return None

    def _collect(self) -> None:
        """Take what is done of all that runs: whoever hangs withholds nobody else's.

        Threads do not say that a record is done: if a hundred of them waited for each other to say
        so, little else would get done.
        """
        for processor in (*self._fresh, *self._parked, *self._leaving):
            if processor.lots:
                self._tell(processor, processor.collect(self._clock.now()))

    def _act(self, gates: Gates, now: int) -> None:
        """Do what follows from an outage, or from its end."""
        for processor, report in gates.act((*self._fresh, *self._parked), now):
            self._tell(processor, report)

    def _end(self, lot: Lot, judged: Judged | None = None) -> None:
        processor = self._processors[lot.assigned]
        if judged is None:
            # Within the lock: outcomes of the next record of a lane must not come before these.
            self._tell(processor, processor.end(lot, self._clock.now()))
        else:
            processor.finish(lot, judged)
        if processor.gate is not None:
            self._open(processor.gate)
        self._running -= 1
        self._parked_running -= processor.delay is not None
        if self._gates is not None and not self._gates.idle:
            now = self._clock.now()
            processor.nothing_runs(lot, now)
            self._act(self._gates, now)
        if self._leaving and not processor.lots:
            self._leaving = [each for each in self._leaving if each is not processor]
            if processor.closed:
                del self._processors[processor.assigned]

    def _news(self) -> None:
        """Wake who follows the work, and as many of those who wait for work as there is work for.

        Waking all of a hundred threads for one lot would cost more than the lot.
        """
        self.changed.notify_all()
        if self._paused:
            return
        if self._asleep:
            ready = sum(
                each.ready if not each.quick else max(0, QUICK_LOTS - each.brisk)
                for each in (*self._fresh, *self._parked)
                if each.ready
            )
            wake = min(self._asleep, self._limit - self._running, ready)
            if wake > 0:
                self._asleep -= wake
                self._available.notify(wake)
        if self._listener is not None and self._running < self._limit:
            self._listener()

    def _leave(self, processor: PartitionProcessor) -> None:
        if processor.lots and processor not in self._leaving:
            self._leaving.append(processor)
        elif processor.closed and not processor.lots:
            self._processors.pop(processor.assigned, None)

    def _is_held_up(self, processor: PartitionProcessor) -> bool:
        """Whether the same keys may still be under way, from before its partition was let go of."""
        return any(each.partition == processor.partition for each in self._leaving)

    def _forget(self, processor: PartitionProcessor) -> None:
        queue = self._queue_of(processor)
        if processor in queue:
            queue.remove(processor)

    def _queue_of(self, processor: PartitionProcessor) -> deque[PartitionProcessor]:
        return self._fresh if processor.delay is None else self._parked

    def _tell(self, processor: PartitionProcessor, report: Report) -> None:
        something = report.done or report.sent or report.outcomes
        if processor.gate is not None and not processor.assigned.closed:
            processor.note(report)
        if something and not processor.assigned.closed:
            self._sink(processor, report)
        if processor.gate is not None:
            self._open(processor.gate)

    def _open(self, gate: KeyGate) -> None:
        """Let records of blocked keys pass that may; what becomes of others is passed on."""
        while gate.keys.changed:
            for place, report in gate.step(self._clock.now()).items():
                if not report:
                    continue
                mine = (each for each in self._processors.values() if each.gate is gate)
                processor = next((each for each in mine if each.partition == place), None)
                if processor is not None and not processor.assigned.closed:
                    processor.note(report)
                    self._sink(processor, report)
