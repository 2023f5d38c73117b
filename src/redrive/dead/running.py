"""Running an operation: replays letters or marks them, and survives whatever ends its process.

The copies of some letters, their marks, and how far the job has come are one Kafka transaction. So
whoever goes on after a crash goes on behind the last of them: none is left out, none comes twice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import islice
from time import monotonic
from typing import TYPE_CHECKING, Any, Protocol

from redrive.app import state_topic_of
from redrive.dead.copies import LeftOut
from redrive.dead.desk import Desk, as_others_left_it
from redrive.dead.operations import DONE, Operation
from redrive.dead.pace import Pace
from redrive.dead.scan import StoppedReadingError
from redrive.dead.selection import Chosen
from redrive.dead.state_topic import read_state
from redrive.dead.watching import Fate, Watch
from redrive.errors import PublishError
from redrive.kafka.errors import BrokerError, NotAllowedError
from redrive.kafka.transactional_producer import FencedError
from redrive.messages import weight
from redrive.numbers import counted
from redrive.record import Record, TopicPartition, Write
from redrive.tuning import DEAD_BYTES, DEAD_LOOK_EVERY, DEAD_STEP, RAMP_PATIENCE

if TYPE_CHECKING:
    from redrive.ports import Log


class Job(Protocol):
    """What an operation is about: which records, and what is written for each."""

    @property
    def deleted(self) -> int:
        """Offsets that retention has deleted before they were read."""
        ...

    @property
    def passed(self) -> Mapping[str, int]:
        """The ends of partitions that were looked at from end to end."""
        ...

    def rest(
        self, desk: Desk, operation: Operation, stopping: Callable[[], object]
    ) -> Iterator[Chosen]:
        """What becomes of each record that the operation has not dealt with yet.

        StoppedReadingError, if it is to stop meanwhile.
        """
        ...

    def check(self, desk: Desk, operation: Operation) -> None:
        """See that the topics are still those that the operation began with."""
        ...

    def partition_of(self, record: Record) -> str:
        """What a record's partition is called in the operation's progress."""
        ...

    def prepare(self, some: Sequence[Chosen]) -> int:
        """What has to be done before these are written; returns how many ids it has forgotten."""
        ...

    def marks(self, desk: Desk, chosen: Chosen, operation: Operation) -> list[Write]:
        """What says that a record was dealt with, beside the progress."""
        ...


OnProgress = Callable[[Operation, Fate | None], None]
"""Is shown how the job stands; with what became of its copies, where that was looked at."""


class Running:
    """One operation under way."""

    def __init__(
        self,
        desk: Desk,
        operation: Operation,
        job: Job,
        *,
        watch: Watch | None = None,
        progress: OnProgress = lambda _operation, _fate: None,
        stopping: Callable[[], bool | str] = lambda: False,
        said: str = "",
    ) -> None:
        """`stopping` may say who wants it; `said` is kept with the operation while it runs."""
        self._desk = desk
        self._means = desk.means
        self._job = job
        self._progress = progress
        self._stopping = stopping
        self._said = said
        options = operation.options
        self._pace = Pace(options.get("rate"), tuple(options.get("ramp") or ()))
        self._pace.sent = operation.done
        self._stop_above: float | None = options.get("stop_above")
        self._given_watch = watch
        self._looked = monotonic()
        self._state_end = -1
        """Up to where the state topic was read last."""
        self._deleted_before = operation.counts.get("deleted", 0)
        self.operation = operation

    @cached_property
    def _watch(self) -> Watch:
        given = self._given_watch
        return given or Watch(self._desk.letters, self.operation, self._means.progress)

    def run(self) -> Operation:
        """Replay letters until none is left, or something stops it."""
        try:
            self._run()
        except FencedError:
            self.operation = as_others_left_it(self._desk.letters, self.operation)
        return self.operation

    def _run(self) -> None:
        self._commit([], self.operation.change(status="running", said=self._said))
        self._progress(self.operation, None)
        chosen = self._job.rest(self._desk, self.operation, self._stopping)
        while not self._stopping():
            self._wait()
            if self._stopping():
                break
            try:
                some = self._read_some(chosen)
            except StoppedReadingError:
                break
            if not some:
                self._end()
                return
            self._send(some)
            self._progress(self.operation, None)
            if not self._goes_on():
                return
        self._commit([], self.operation.change(status="paused", said=self._stopped_by()))

    def _stopped_by(self) -> str:
        by = self._stopping()
        return f"by {by}" if isinstance(by, str) and by else "by a signal"

    def _read_some(self, chosen: Iterator[Chosen]) -> list[Chosen]:
        """The next ones, if they are still records of the topic that the job began with."""
        try:
            some = self._some(chosen)
        except BrokerError:
            self._job.check(self._desk, self.operation)  # which says it better
            raise
        # After reading, so that nothing was read of another topic of the same name.
        self._job.check(self._desk, self.operation)
        return some

    def _some(self, chosen: Iterator[Chosen]) -> list[Chosen]:
        """As many as one transaction takes; those that are left out come with them."""
        room, size, some = self._pace.room(), 0, []
        for each in islice(chosen, DEAD_STEP):
            some.append(each)
            room -= not isinstance(each.copy, LeftOut)
            size += _weight(each)
            if room <= 0 or size >= DEAD_BYTES:
                break
        return some

    def _send(self, some: list[Chosen]) -> None:
        """Write copies, marks and progress; those that are refused are left out."""
        began = monotonic()
        forgotten = self._job.prepare(some)
        while True:
            writes, operation = self._writes(some, forgotten)
            try:
                self._commit(writes, operation)
            except PublishError as error:
                some = _without_refused(some, error)
                continue
            break
        sent = sum(not isinstance(each.copy, LeftOut) for each in some)
        self._pace.took(sent, began)

    def _writes(self, some: list[Chosen], forgotten: int) -> tuple[list[Write], Operation]:
        operation, desk = self.operation, self._desk
        counts, cursor = Counter(operation.counts), dict(operation.cursor)
        counts["forgotten"] += forgotten
        writes: list[Write] = []
        for each in some:
            record, copy = each.record, each.copy
            cursor[self._job.partition_of(record)] = record.offset + 1
            if isinstance(copy, LeftOut):
                counts[copy.why] += 1
                continue
            counts[DONE[operation.kind]] += 1
            writes += () if copy is None else (copy,)
            writes += self._job.marks(desk, each, operation)
        cursor |= self._job.passed
        counts["deleted"] = self._deleted_before + self._job.deleted
        return writes, operation.change(counts=dict(+counts), cursor=cursor)

    def _commit(self, writes: list[Write], operation: Operation) -> None:
        self.operation = self._desk.commit(writes, operation)

    def _end(self) -> None:
        """All are written: whoever wants to know how many fail again waits for that as well."""
        too_many = None
        if self._stop_above is not None and self.operation.done:
            if not self._wait_until_handled():
                return
            too_many = self._too_many()
        _, done = self._writes([], 0)  # what was deleted at the very end counts as well
        said, is_too_many = too_many or self._said, too_many is not None
        self._commit([], done.change(status="done", said=said, too_many_failed=is_too_many))

    # Looking at what became of the copies

    def _goes_on(self) -> bool:
        """Whether to go on, by what became of the copies so far; False: the job has stopped."""
        if self._pace.looks:
            if not self._wait_until_handled():
                return False
        elif self._stop_above is None or monotonic() - self._looked < DEAD_LOOK_EVERY:
            return True
        return self._look()

    def _look(self) -> bool:
        said = self._too_many()
        if said is None:
            return True
        said += ", then resume or cancel"
        self._commit([], self.operation.change(status="stopped", said=said))
        return False

    def _too_many(self) -> str | None:
        """How many failed again, if that is too many."""
        self._looked = monotonic()
        fate = self._watch.look()
        self._progress(self.operation, fate)
        sent = self.operation.done
        if self._stop_above is None or not sent or fate.failed / sent <= self._stop_above:
            return None
        return (
            f"{fate.failed:,} of {sent:,} failed again, more than {self._stop_above:.0%}: look at"
            " them with --state failed-again"
        )

    def _wait_until_handled(self) -> bool:
        """Wait until the app has handled all copies once; False: it was paused meanwhile."""
        until, fewest = monotonic() + RAMP_PATIENCE + self._watch.delay / 1000, self.operation.done
        while (fate := self._watch.look()).waiting:
            self._progress(self.operation, fate)
            if fate.waiting < fewest:  # the app runs: there may only be much to do
                until, fewest = max(until, monotonic() + RAMP_PATIENCE), fate.waiting
            if self._stopping() or monotonic() >= until:
                copies = counted(fate.waiting, "copy was", "copies were")
                said = (
                    self._stopped_by()
                    if self._stopping()
                    else f"{copies} not handled in time: is the app running?"
                )
                self._commit([], self.operation.change(status="paused", said=said))
                return False
            self._means.wait(DEAD_LOOK_EVERY)
            self._check_still_mine()
        return True

    def _wait(self) -> None:
        while (seconds := self._pace.wait(monotonic())) > 0 and not self._stopping():
            self._means.wait(min(seconds, DEAD_LOOK_EVERY))

    def _check_still_mine(self) -> None:
        """Whoever takes the job over writes that down; where nobody writes, there is no news."""
        end = self._desk.letters.log.bounds(TopicPartition(state_topic_of(self._desk.topic), 0))[1]
        if end == self._state_end:
            return
        self._state_end = end
        now = self._read().operations.get(self.operation.id)
        if now is not None and now.status != "running":
            raise FencedError(now.said)

    def _read(self) -> Any:
        log: Log = self._desk.letters.log
        return read_state(log, self._desk.topic)


def _weight(chosen: Chosen) -> int:
    """Letters that are left out or discarded are in memory as well."""
    copy = chosen.copy
    if copy is None or isinstance(copy, LeftOut):
        return chosen.record.weight
    return weight([copy])


def _without_refused(some: list[Chosen], error: PublishError) -> list[Chosen]:
    """The same, with those left out whose copies are refused; raises if they are not to blame."""
    if error.kind not in ("message", "topic") or isinstance(error, NotAllowedError):
        raise error
    refused = {id(write) for write in error.refused}
    found = [
        each._replace(copy=LeftOut("refused", str(error))) if id(each.copy) in refused else each
        for each in some
    ]
    if found == some:
        raise error
    return found
