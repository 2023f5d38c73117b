"""PartitionProcessor and tracker against a naive model: any results, in any order, at any time.

What must hold whatever happens: order where it was asked for, every record ends exactly once,
nothing is committed before it has ended, and only the awaited call decides about its record.
"""

from __future__ import annotations

from math import inf

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from redrive import App, Backoff, GiveBack, InPlace, Retry, RetryPolicy
from redrive.choices import Ordering
from redrive.ports import Position
from redrive.processing import work as works
from redrive.processing.calls.context import Context
from redrive.processing.calls.lots import Lot
from redrive.processing.calls.scope import Scope
from redrive.processing.calls.turns import Turn
from redrive.processing.outcomes.report import Outcome, Report
from redrive.processing.processor import PartitionProcessor
from redrive.processing.progress.acks import AckTracker
from redrive.processing.work import PENDING, Result, Work
from redrive.record import Record, TopicPartition

KEYS = [b"a", b"b", b"c", None]
FIRST = {
    "nothing": None,
    "in place": InPlace(3, Backoff("5s", jitter=0)),
    "given back": GiveBack(3, Backoff("5s", jitter=0)),
}
HANDLERS: dict[str, dict[str, object]] = {
    "plain": {},
    "by lanes": {"decode": bytes, "timeout": "30s"},
    "acknowledged": {"ack": "manual", "timeout": "30s"},
}
ERRORS = [Retry("not yet"), ValueError("no")]


class ProcessorMachine(RuleBasedStateMachine):
    """One partition of a source topic, and an engine that does everything at odd moments."""

    @initialize(
        ordering=st.sampled_from(["partition", "key", "unordered"]),
        first=st.sampled_from(sorted(FIRST)),
        handler=st.sampled_from(sorted(HANDLERS)),
        recovers=st.booleans(),
        many_threads=st.booleans(),
    )
    def begin(
        self, ordering: Ordering, first: str, handler: str, recovers: bool, many_threads: bool
    ) -> None:
        self.app = App("model", ordering=ordering, concurrency=2)
        policy = RetryPolicy("10s", first=FIRST[first])
        self.app.handler("t", retry=policy, **HANDLERS[handler])(  # type: ignore[arg-type]  # -- as above
            lambda record, ctx: self.called(record)
        )
        if recovers:
            self.app.recover(lambda record, error, ctx: None)
        self.many_threads = many_threads
        self.data: st.DataObject | None = None
        self.now = 1000
        self.log: list[Record] = []
        self.committed: Position | None = None
        self.ended: dict[int, str] = {}  # durable outcomes
        self.take_up()

    def take_up(self) -> None:
        self.tracker = AckTracker(self.committed)
        self.scope = Scope(self.app, {})
        self.scope.threads = 8 if self.many_threads else 0
        self.processor = PartitionProcessor(self.scope, TopicPartition("t", 0), self.tracker)
        self.read_position = 0 if self.committed is None else self.committed.offset
        self.out: list[Lot] = []
        self.under_way: dict[int, Record] = {}
        self.unacked: dict[Work, Context] = {}  # those whose word is yet to come
        self.spoken: list[tuple[Work, Context]] = []  # calls that were heard, or are too late
        self.unsettled: list[Outcome] = []
        self.finished: set[int] = set()  # outcome known, in this assignment
        self.succeeded: set[int] = set()  # called with success, in this assignment

    def ahead(self) -> list[Record]:
        return [record for record in self.log if record.offset >= self.read_position]

    # What can happen

    @rule(keys=st.lists(st.sampled_from(KEYS), min_size=1, max_size=6), gap=st.integers(0, 2))
    def produce(self, keys: list[bytes | None], gap: int) -> None:
        offset = self.log[-1].offset + 1 + gap if self.log else gap
        self.log += [Record("t", 0, offset + n, key, b"v") for n, key in enumerate(keys)]

    @precondition(lambda self: self.processor.goes_back)
    @rule()
    def go_back(self) -> None:
        seek = self.processor.take_seek()
        if seek is not None:
            self.read_position = seek

    @precondition(lambda self: self.ahead())
    @rule(count=st.integers(1, 10))
    def read(self, count: int) -> None:
        ahead = self.ahead()[:count]
        if ahead:
            self.read_position = ahead[-1].offset + 1
            report = self.processor.offer(ahead, self.now)
            if report is not None:  # else they are read again
                self.note(report)

    @rule(seconds=st.sampled_from([0, 1, 5, 60]))
    def time_passes(self, seconds: int) -> None:
        self.now += seconds * 1000
        self.note(self.processor.due(self.now))
        for work, context in [*self.unacked.items()]:
            if work.awaited is not context:  # it has timed out
                self.spoken.append((work, self.unacked.pop(work)))
                self.under_way.pop(work.offset)

    @rule(takes_long=st.booleans())
    def look(self, takes_long: bool) -> None:
        """As the poll thread does, all the time."""
        self.note(self.processor.collect(self.now))
        works.SLOW_RECORD = -1.0 if takes_long else inf  # type: ignore[misc]  # -- as long as this takes
        try:
            self.note(self.processor.look_for_slow(self.now) or Report())
        finally:
            works.SLOW_RECORD = inf  # type: ignore[misc]  # -- whatever this machine is busy with

    @precondition(lambda self: self.processor.ready)
    @rule()
    def take(self) -> None:
        while lot := self.processor.next():
            self.out.append(lot)
            if isinstance(lot, Turn):
                return

    @precondition(lambda self: self.out)
    @rule(data=st.data())
    def run_record(self, data: st.DataObject) -> None:
        """The next record of a lot begins and ends; between, whatever else happens."""
        lot = self.out[data.draw(st.integers(0, len(self.out) - 1))]
        if isinstance(lot, Turn):
            self.run_turn(lot, data)
        elif not (lot.results and isinstance(lot.results[-1], BaseException)):
            for work in lot.begin(1):
                lot.results.append(self.run_work(work, lot, data))

    def run_turn(self, lot: Turn, data: st.DataObject) -> None:
        """It calls the handler by itself."""
        self.out.remove(lot)
        self.data = data
        lot.run(inf)
        self.data = None
        self.note(self.processor.end(lot, self.now))

    def run_work(self, work: Work, lot: Lot, data: st.DataObject) -> Result:
        self.begins(work.record)
        manual = work.handler.ack == "manual" and not lot.recovering
        error = data.draw(st.sampled_from([None, *ERRORS]))
        if not manual:
            self.ends(work.record, error)
            return error
        work.awaited = self.unacked[work] = Context(work, self.scope)
        if data.draw(st.booleans()):
            self.speak(work, data)
        elif error is not None:
            self.spoken.append((work, self.unacked.pop(work)))
            self.ends(work.record, error)
        return error or PENDING

    def called(self, record: Record) -> None:
        """A handler that runs in a turn."""
        self.begins(record)
        error = None
        if self.data is not None:
            if self.data.draw(st.booleans()):
                self.look(takes_long=self.data.draw(st.booleans()))
                self.take()
            error = self.data.draw(st.sampled_from([None, None, *ERRORS]))
        self.ends(record, error)
        if error is not None:
            raise error

    @precondition(lambda self: self.out)
    @rule(data=st.data(), pace=st.sampled_from([None, 0.000_001, 1.0]))
    def end_lot(self, data: st.DataObject, pace: float | None) -> None:
        lot = self.out[data.draw(st.integers(0, len(self.out) - 1))]
        if not isinstance(lot, Turn):
            self.out.remove(lot)
            if pace is not None:
                lot.seconds, lot.calls = pace * len(lot.results), len(lot.results)
            self.note(self.processor.end(lot, self.now))

    @precondition(lambda self: self.unacked)
    @rule(data=st.data())
    def acknowledge(self, data: st.DataObject) -> None:
        self.speak(data.draw(st.sampled_from([*self.unacked])), data)

    def speak(self, work: Work, data: st.DataObject) -> None:
        context = self.unacked.pop(work)
        self.spoken.append((work, context))
        word = data.draw(st.sampled_from([None, *ERRORS]))
        self.ends(work.record, word)
        self.note(self.processor.acknowledge(work, context, word, self.now))

    @precondition(lambda self: self.spoken)
    @rule(data=st.data())
    def speak_too_late(self, data: st.DataObject) -> None:
        work, context = data.draw(st.sampled_from(self.spoken))
        word = data.draw(st.sampled_from([None, ValueError("no")]))
        assert not self.processor.acknowledge(work, context, word, self.now)

    @precondition(lambda self: self.unsettled)
    @rule(data=st.data())
    def settle(self, data: st.DataObject) -> None:
        outcome = self.unsettled.pop(data.draw(st.integers(0, len(self.unsettled) - 1)))
        self.processor.settle([outcome.offset])
        self.ended[outcome.offset] = outcome.kind

    @rule()
    def commit(self) -> None:
        position = self.tracker.position()
        if position is not None:
            self.committed = position

    @rule()
    def crash(self) -> None:
        late = self.processor
        late.close()
        for lot in self.out:
            assert lot.cancelled
            lot.results.extend([None] * (len(lot.works) - len(lot.results)))
            assert not late.collect(self.now)
            assert not late.end(lot, self.now)
        late_outcomes = [outcome.offset for outcome in self.unsettled]
        self.take_up()
        late.settle(late_outcomes)  # that counts for nobody
        assert self.tracker.position() == self.committed

    def teardown(self) -> None:
        """Let everything succeed: then every record must have ended, whatever happened before."""
        for _ in range(200):
            self.time_passes(60)
            self.go_back()
            self.read(100)
            self.take()
            for lot in self.out:
                self.let_succeed(lot)
                self.note(self.processor.end(lot, self.now))
            self.out.clear()
            for work, context in self.unacked.items():
                self.ends(work.record, None)
                self.note(self.processor.acknowledge(work, context, None, self.now))
            self.unacked.clear()
            for outcome in self.unsettled:
                self.processor.settle([outcome.offset])
                self.ended[outcome.offset] = outcome.kind
            self.unsettled.clear()
            if self.is_drained():
                break
        assert self.is_drained()

    def let_succeed(self, lot: Lot) -> None:
        if isinstance(lot, Turn):
            lot.run(inf)
        elif not (lot.results and isinstance(lot.results[-1], BaseException)):
            for work in lot.begin():
                self.begins(work.record)
                self.ends(work.record, None)
                lot.results.append(None)

    def is_drained(self) -> bool:
        position = self.tracker.position()
        reached = -1 if position is None else position.offset
        return not self.log or (
            reached == self.log[-1].offset + 1
            and all(record.offset in self.ended for record in self.log)
        )

    # What must hold

    def begins(self, record: Record) -> None:
        offset, lane = record.offset, self.lane(record)
        assert offset not in self.under_way, f"{offset} runs twice at once"
        assert offset not in self.finished, f"{offset} runs after its end"
        if lane is not None:
            together = [each for each in self.under_way.values() if self.lane(each) == lane]
            assert not together, f"{offset} began while {together[0].offset} was under way"
            self.check_predecessors(record)
        self.under_way[offset] = record

    def ends(self, record: Record, error: Exception | None) -> None:
        del self.under_way[record.offset]
        if error is None:
            self.succeeded.add(record.offset)

    def check_predecessors(self, record: Record) -> None:
        begun = 0 if self.committed is None else self.committed.offset
        for before in self.log:
            if begun <= before.offset < record.offset and self.lane(before) == self.lane(record):
                assert before.offset in self.finished | self.succeeded | self.ended.keys(), (
                    f"{record.offset} ran before {before.offset} had ended"
                )

    def lane(self, record: Record) -> object:
        if self.app.ordering == "partition":
            return "the partition"
        return record.key if self.app.ordering == "key" else None

    def note(self, report: Report) -> None:
        assert not report.sent
        for offset in report.done:
            self.once(offset)
            self.processor.settle([offset])
            self.ended[offset] = "done"
        for outcome in report.outcomes:
            self.once(outcome.offset)
            self.unsettled.append(outcome)

    def once(self, offset: int) -> None:
        assert offset not in self.finished, f"{offset} ended twice in one assignment"
        self.finished.add(offset)

    @invariant()
    def nothing_is_committed_before_it_has_ended(self) -> None:
        position = self.tracker.position() if hasattr(self, "tracker") else None
        if position is not None:
            ahead = [r.offset for r in self.log if r.offset < position.offset]
            assert all(offset in self.ended for offset in ahead)


ProcessorMachine.TestCase.settings = settings(
    max_examples=300, stateful_step_count=40, deadline=None
)
TestProcessorAgainstANaiveModel = ProcessorMachine.TestCase
