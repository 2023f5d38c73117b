"""Running an operation: drives letters again or marks them, and survives whatever ends its process.

The copies of some letters, their marks, and how far the job has come are one Kafka transaction. So
whoever goes on after a crash goes on behind the last of them: none is left out, none comes twice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from itertools import islice
from time import monotonic
from typing import TYPE_CHECKING, Any

from redrive.dead.copies import LeftOut
from redrive.dead.desk import Desk, TakenOverError
from redrive.dead.operations import DONE, Operation
from redrive.dead.pace import Pace
from redrive.dead.selection import Chosen, Selection
from redrive.dead.state_topic import mark_write, marked, read_state
from redrive.dead.watching import Fate, Watch
from redrive.errors import PublishError
from redrive.kafka.transactional_producer import FencedError
from redrive.messages import weight
from redrive.record import Write
from redrive.tuning import DEAD_BYTES, DEAD_LOOK_EVERY, DEAD_STEP, RAMP_PATIENCE

if TYPE_CHECKING:
    from redrive.ports import Log

Progress = Callable[[Operation, Fate | None], None]
"""Is shown how the job stands; with what became of its copies, where that was looked at."""


class Running:
    """One operation under way."""

    def __init__(
        self,
        desk: Desk,
        operation: Operation,
        selection: Selection,
        *,
        progress: Progress = lambda _operation, _fate: None,
        stopping: Callable[[], bool] = lambda: False,
    ) -> None:
        self._desk = desk
        self._means = desk.means
        self._selection = selection
        self._progress = progress
        self._stopping = stopping
        options = operation.options
        self._pace = Pace(options.get("rate"), tuple(options.get("ramp") or ()))
        self._pace.sent = operation.done
        self._stop_above: float | None = options.get("stop_above")
        self._watch = Watch(desk.letters, operation, desk.means.progress)
        self._looked = monotonic()
        self.operation = operation

    def run(self) -> Operation:
        """Drive letters again until none is left, or something stops it."""
        try:
            self._run()
        except FencedError:
            return self._as_others_left_it()
        return self.operation

    def _run(self) -> None:
        self._commit([], self.operation.change(status="running", said=""))
        chosen = self._letters()
        while not self._stopping():
            self._wait()
            if self._stopping():
                break
            some = self._some(chosen)
            if not some:
                self._finish()
                return
            self._send(some)
            self._progress(self.operation, None)
            if not self._goes_on():
                return
        self._commit([], self.operation.change(status="paused", said="by a signal"))

    def _letters(self) -> Iterator[Chosen]:
        """What becomes of each letter from the cursor on, partition by partition."""
        selection, operation = self._selection, self.operation
        scan = self._desk.letters.scan(selection.wanted, known=self._desk.known, bounds={})
        self._scanned = scan.result
        for name, end in operation.ends.items():
            start = operation.cursor.get(name, 0)
            yield from selection.chosen(scan.partition(int(name), start, end))

    def _some(self, chosen: Iterator[Chosen]) -> list[Chosen]:
        """As many as one transaction takes; those that are left out come with them."""
        room, size, some = self._pace.room(), 0, []
        for each in islice(chosen, DEAD_STEP):
            some.append(each)
            if isinstance(each.copy, LeftOut):
                continue
            room -= 1
            size += 0 if each.copy is None else weight([each.copy])
            if room <= 0 or size >= DEAD_BYTES:
                break
        return some

    def _send(self, some: list[Chosen]) -> None:
        """Write copies, marks and progress; those that are refused are left out."""
        began = monotonic()
        while True:
            writes, operation = self._writes(some)
            try:
                self._commit(writes, operation)
            except PublishError as error:
                some = _without_refused(some, error)
                continue
            break
        sent = sum(not isinstance(each.copy, LeftOut) for each in some)
        self._pace.took(sent, began)

    def _writes(self, some: list[Chosen]) -> tuple[list[Write], Operation]:
        operation, desk = self.operation, self._desk
        counts, cursor = Counter(operation.counts), dict(operation.cursor)
        writes: list[Write] = []
        for (letter, _, mark), copy in some:
            record = letter.record
            cursor[str(record.partition)] = record.offset + 1
            if isinstance(copy, LeftOut):
                counts[copy.why] += 1
                continue
            counts[DONE[operation.kind]] += 1
            state = "discarded" if copy is None else "replayed"
            now = marked(mark, state, operation.id)
            writes += () if copy is None else (copy,)
            writes.append(mark_write(desk.topic, desk.topic_id, record, now, operation))
        return writes, operation.change(counts=dict(counts), cursor=cursor)

    def _commit(self, writes: list[Write], operation: Operation) -> None:
        self.operation = self._desk.commit(writes, operation)

    def _finish(self) -> None:
        counts = Counter(self.operation.counts)
        counts["deleted"] += self._scanned.deleted
        cursor = dict(self.operation.ends)
        done = self.operation.change(status="done", cursor=cursor, counts=dict(+counts))
        self._commit([], done)

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
        self._looked = monotonic()
        fate = self._watch.look()
        self._progress(self.operation, fate)
        sent = self.operation.done
        if self._stop_above is None or not sent or fate.failed / sent <= self._stop_above:
            return True
        said = (
            f"{fate.failed:,} of {sent:,} failed again, more than {self._stop_above:.0%}: look at"
            f" them with --state failed-again, then resume or cancel"
        )
        self._commit([], self.operation.change(status="stopped", said=said))
        return False

    def _wait_until_handled(self) -> bool:
        """Wait until the app has handled all copies once; False: it was paused meanwhile."""
        until = monotonic() + RAMP_PATIENCE + self._watch.delay / 1000
        while (fate := self._watch.look()).waiting:
            self._progress(self.operation, fate)
            if self._stopping() or monotonic() >= until:
                said = (
                    "by a signal"
                    if self._stopping()
                    else f"{fate.waiting:,} copies were not handled in time: is the app running?"
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
        now = self._read().operations.get(self.operation.id)
        if now is not None and now.status != "running":
            raise FencedError(now.said)

    def _read(self) -> Any:
        log: Log = self._desk.letters.log
        return read_state(log, self._desk.topic)

    def _as_others_left_it(self) -> Operation:
        """How the operation stands now that somebody has taken over."""
        operation: Operation | None = self._read().operations.get(self.operation.id)
        if operation is None or operation.status == "running":
            raise TakenOverError(
                f"somebody else works on the letters of {self._desk.topic} now: nothing of what"
                f" {self.operation.id} had begun is written; `redrive dead jobs` shows how it"
                " stands"
            )
        self.operation = operation
        return operation


def _without_refused(some: list[Chosen], error: PublishError) -> list[Chosen]:
    """The same, with those left out whose copies are refused; raises if they are not to blame."""
    if error.kind not in ("message", "topic"):
        raise error
    refused = {id(write) for write in error.refused}
    found = [
        each._replace(copy=LeftOut("refused", str(error))) if id(each.copy) in refused else each
        for each in some
    ]
    if found == some:
        raise error
    return found
