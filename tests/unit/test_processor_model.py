"""PartitionProcessor and tracker against a naive model: any results, in any order, at any time.

What must hold whatever happens: order where it was asked for, every record ends exactly once,
nothing is committed before it has ended, and only the awaited call decides about its record.
"""

from __future__ import annotations

from collections import defaultdict

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from redrive import App, Backoff, GiveBack, InPlace, Retry, RetryPolicy
from redrive.choices import Ordering
from redrive.ports import Position
from redrive.processing.acks import AckTracker
from redrive.processing.context import Context
from redrive.processing.outcomes import Outcome, Report
from redrive.processing.processor import PartitionProcessor
from redrive.processing.scope import Scope
from redrive.processing.work import PENDING, Lot, Work
from redrive.record import Record, TopicPartition

KEYS = [b"a", b"b", b"c", None]
FIRST = {
    "nothing": None,
    "in place": InPlace(3, Backoff("5s", jitter=0)),
    "given back": GiveBack(3, Backoff("5s", jitter=0)),
}


class ProcessorMachine(RuleBasedStateMachine):
    """One partition of a source topic, and an engine that does everything at odd moments."""

    @initialize(
        ordering=st.sampled_from(["partition", "key", "unordered"]),
        first=st.sampled_from(sorted(FIRST)),
        recovers=st.booleans(),
        manual=st.booleans(),
    )
    def begin(self, ordering: Ordering, first: str, recovers: bool, manual: bool) -> None:
        self.app = App("model", ordering=ordering, concurrency=2)
        self.app.handler(
            "t",
            retry=RetryPolicy("10s", first=FIRST[first]),
            ack="manual" if manual else "auto",
            timeout="30s" if manual else None,
        )(lambda record, ctx: None)
        if recovers:
            self.app.recover(lambda record, error, ctx: None)
        self.now = 1000
        self.log: list[Record] = []
        self.committed: Position | None = None
        self.ended: dict[int, str] = {}  # durable outcomes
        self.tracker = AckTracker()
        self.take_up()

    def take_up(self) -> None:
        self.tracker.assign(self.committed)
        self.scope = Scope(self.app, {})
        self.processor = PartitionProcessor(self.scope, TopicPartition("t", 0), self.tracker)
        self.read_position = 0 if self.committed is None else self.committed.offset
        self.out: list[Lot] = []
        self.unacked: dict[Work, Context] = {}  # those whose call has returned, or is about to
        self.spoken: list[tuple[Work, Context]] = []  # calls that were heard, or are too late
        self.unsettled: list[Outcome] = []
        self.finished: set[int] = set()  # outcome known, in this assignment
        self.calls: dict[int, int] = defaultdict(int)

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
            self.note(self.processor.offer(ahead, self.now))

    @rule(seconds=st.sampled_from([0, 1, 5, 60]))
    def time_passes(self, seconds: int) -> None:
        self.now += seconds * 1000
        self.note(self.processor.due(self.now))
        for work, context in [*self.unacked.items()]:
            if work.awaited is not context:  # it has timed out
                self.spoken.append((work, self.unacked.pop(work)))

    @precondition(lambda self: self.processor.ready)
    @rule()
    def take(self) -> None:
        while lot := self.processor.next():
            self.check_order(lot)
            self.out.append(lot)
            for work in lot.works:
                if work.handler.ack == "manual" and not lot.recovering:
                    work.awaited = self.unacked[work] = Context(work, self.scope)

    @precondition(lambda self: self.out)
    @rule(data=st.data(), fails=st.booleans(), told_before=st.booleans())
    def complete(self, data: st.DataObject, fails: bool, told_before: bool) -> None:
        lot = self.out.pop(data.draw(st.integers(0, len(self.out) - 1)))
        if lot.works[0] in self.unacked:
            self.return_unacked(lot, fails, told_before, data)
            return
        left = len(lot.works) - lot.reported
        good = data.draw(st.integers(0, left - fails)) if left else 0
        results: list[Exception | None] = [None] * good
        if fails and left:
            results.append(data.draw(st.sampled_from([Retry("not yet"), ValueError("no")])))
        if told_before and good:
            report = self.processor.complete(lot, [None], self.now, finished=False)
            self.note(report)
            results = results[1:]
        self.note(self.processor.complete(lot, results, self.now))

    def return_unacked(self, lot: Lot, fails: bool, told_before: bool, data: st.DataObject) -> None:
        """The call of a manual-ack handler returns or raises; its word may come at any moment."""
        [work] = lot.works
        result = ValueError("no") if fails else PENDING
        if data.draw(st.booleans()):
            self.speak(work, data)
        if fails and work in self.unacked:
            self.spoken.append((work, self.unacked.pop(work)))
        if told_before and not fails:
            self.note(self.processor.complete(lot, [PENDING], self.now, finished=False))
            if data.draw(st.booleans()) and work in self.unacked:
                self.speak(work, data)
            self.note(self.processor.complete(lot, [], self.now))
        else:
            self.note(self.processor.complete(lot, [result], self.now))

    @precondition(lambda self: self.unacked)
    @rule(data=st.data())
    def acknowledge(self, data: st.DataObject) -> None:
        self.speak(data.draw(st.sampled_from([*self.unacked])), data)

    def speak(self, work: Work, data: st.DataObject) -> None:
        context = self.unacked.pop(work)
        self.spoken.append((work, context))
        word = data.draw(st.sampled_from([None, Retry("not yet"), ValueError("no")]))
        self.note(self.processor.acknowledge(work, context, word, self.now))

    @precondition(lambda self: self.spoken)
    @rule(data=st.data())
    def speak_too_late(self, data: st.DataObject) -> None:
        work, context = data.draw(st.sampled_from(self.spoken))
        word = data.draw(st.sampled_from([None, ValueError("no")]))
        assert not self.processor.acknowledge(work, context, word, self.now)

    @precondition(lambda self: self.out and not self.unacked)
    @rule(data=st.data())
    def fail_all(self, data: st.DataObject) -> None:
        """One by one; reading may go back for each."""
        for lot in data.draw(st.permutations(self.out)):
            self.out.remove(lot)
            self.note(self.processor.complete(lot, [Retry("not yet")], self.now))
            if data.draw(st.booleans()):
                self.go_back()

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
        self.tracker.revoke()
        late.close()
        for lot in self.out:
            assert lot.cancelled
            assert not late.complete(lot, [None] * (len(lot.works) - lot.reported), self.now)
        for outcome in self.unsettled:
            late.settle([outcome.offset])
        self.take_up()

    def teardown(self) -> None:
        """Let everything succeed: then every record must have ended, whatever happened before."""
        for _ in range(200):
            self.time_passes(60)
            self.go_back()
            self.read(100)
            self.take()
            for lot in self.out:
                for work in lot.works:
                    self.unacked.pop(work, None)
                rest = [None] * (len(lot.works) - lot.reported)
                self.note(self.processor.complete(lot, rest, self.now))
            self.out.clear()
            for work, context in self.unacked.items():
                self.note(self.processor.acknowledge(work, context, None, self.now))
            self.unacked.clear()
            for outcome in self.unsettled:
                self.processor.settle([outcome.offset])
                self.ended[outcome.offset] = outcome.kind
            self.unsettled.clear()
            if self.is_drained():
                break
        assert self.is_drained()

    def is_drained(self) -> bool:
        position = self.tracker.position()
        reached = -1 if position is None else position.offset
        return not self.log or (
            reached == self.log[-1].offset + 1
            and all(record.offset in self.ended for record in self.log)
        )

    # What must hold

    def note(self, report: Report) -> None:
        for offset in report.done:
            self.once(offset)
            self.processor.settle([offset])
            self.ended[offset] = "done"
        for outcome in report.outcomes:
            self.once(outcome.offset)
            self.unsettled.append(outcome)

    def once(self, offset: int) -> None:
        assert offset not in self.finished, "a record ended twice in one assignment"
        self.finished.add(offset)

    def check_order(self, lot: Lot) -> None:
        running = [work for other in self.out for work in other.works[other.reported :]]
        running += self.unacked
        for work in lot.works:
            self.calls[work.offset] += 1
            if self.lane_of(work) is not None:
                assert not any(self.lane_of(work) == self.lane_of(other) for other in running)
                self.check_predecessors(work, lot)
        if lot.lanes:
            offsets = [work.offset for work in lot.works]
            assert offsets == sorted(offsets)

    def check_predecessors(self, work: Work, lot: Lot) -> None:
        together = {each.offset for each in lot.works}
        begun = 0 if self.committed is None else self.committed.offset
        for record in self.log:
            if begun <= record.offset < work.offset and self.lane(record) == self.lane_of(work):
                assert (
                    record.offset in self.finished
                    or record.offset in together
                    or record.offset in self.ended
                ), f"{work.offset} ran before {record.offset} had ended"

    def lane_of(self, work: Work) -> object:
        return self.lane(work.record)

    def lane(self, record: Record) -> object:
        if self.app.ordering == "partition":
            return "the partition"
        return record.key if self.app.ordering == "key" else None

    @invariant()
    def nothing_is_committed_before_it_has_ended(self) -> None:
        position = self.tracker.position() if hasattr(self, "tracker") else None
        if position is not None:
            ahead = [r.offset for r in self.log if r.offset < position.offset]
            assert all(offset in self.ended for offset in ahead)


ProcessorMachine.TestCase.settings = settings(
    max_examples=200, stateful_step_count=40, deadline=None
)
TestProcessorAgainstANaiveModel = ProcessorMachine.TestCase
