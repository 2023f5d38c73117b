"""AckTracker against a naive model, and the cases that have bitten others."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from random import Random

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
)

from redrive.ports import Position
from redrive.processing.progress import done_beyond
from redrive.processing.progress.acks import AckTracker


def tracker_at(offset: int) -> AckTracker:
    return AckTracker(Position(offset))


def committable(tracker: AckTracker) -> int | None:
    position = tracker.position()
    return None if position is None else position.offset


# Single promises


def test_nothing_is_committable_before_anything_is_known() -> None:
    assert AckTracker().position() is None


def test_the_end_of_the_completed_prefix_is_committed_not_the_highest_offset() -> None:
    tracker = tracker_at(0)
    tracker.receive([0, 1, 2, 3])
    tracker.complete([3, 1])
    assert committable(tracker) == 0
    tracker.complete([0])
    assert committable(tracker) == 2


def test_offsets_with_gaps_are_followed_as_received() -> None:
    tracker = tracker_at(0)
    tracker.receive([5, 9, 30])
    tracker.complete([5])
    assert committable(tracker) == 9
    tracker.complete([9, 30])
    assert committable(tracker) == 31


def test_a_gap_at_the_end_of_a_range_is_passed_once_all_before_it_is_complete() -> None:
    tracker = tracker_at(0)
    tracker.receive([0, 1])
    tracker.received_up_to(7)
    assert committable(tracker) == 0
    tracker.complete([0, 1])
    assert committable(tracker) == 7


def test_a_range_without_any_record_is_passed() -> None:
    tracker = tracker_at(3)
    tracker.received_up_to(12)
    assert committable(tracker) == 12


def test_offsets_given_back_run_again_and_those_under_way_do_not() -> None:
    tracker = tracker_at(0)
    tracker.receive([0, 1, 2, 3])
    tracker.complete([3])
    tracker.give_back([1])
    assert tracker.in_flight == 2
    assert list(tracker.receive([1, 2, 3, 4])) == [1, 4]
    tracker.complete([0, 1, 2, 4])
    assert committable(tracker) == 5


def test_what_was_completed_before_the_read_position_went_back_is_not_run_again() -> None:
    tracker = tracker_at(0)
    tracker.receive([0, 1])
    tracker.complete([0, 1])
    assert list(tracker.receive([0, 1, 2])) == [2]


def test_offsets_done_beyond_the_gap_are_not_run_again_after_a_crash() -> None:
    tracker = tracker_at(0)
    tracker.receive(range(10))
    tracker.complete([0, 2, 3, 4, 9])
    after = AckTracker(tracker.position())
    assert list(after.receive(range(1, 12))) == [1, 5, 6, 7, 8, 10, 11]


def test_what_was_done_before_the_crash_is_still_known_after_the_next_one() -> None:
    first = tracker_at(0)
    first.receive(range(10))
    first.complete([5, 6, 8])
    second = AckTracker(first.position())
    second.receive([0, 1])  # it crashes before it has even read that far
    third = AckTracker(second.position())
    assert list(third.receive(range(10))) == [0, 1, 2, 3, 4, 7, 9]


def test_metadata_of_somebody_else_is_no_reason_to_skip_anything() -> None:
    for metadata in ("", "someone's note", "r1:", "r1:!!!", "r1:gA==", "r1:AAA=", "r1:AQ=="):
        tracker = AckTracker(Position(3, metadata))
        assert list(tracker.receive([3, 4, 5])) == [3, 4, 5], metadata


def test_completion_from_many_threads_in_any_order() -> None:
    tracker = tracker_at(0)
    offsets = list(range(0, 40_000, 2))
    tracker.receive(offsets)
    Random(1).shuffle(offsets)
    lots = [offsets[start : start + 7] for start in range(0, len(offsets), 7)]
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(tracker.complete, lots))
    assert committable(tracker) == 39_999
    assert tracker.in_flight == 0


# The text in the commit's metadata


@given(
    st.integers(0, 2**60),
    st.lists(st.tuples(st.integers(1, 10**6), st.integers(1, 10**6)), max_size=40),
)
def test_ranges_survive_the_way_through_metadata(base: int, runs: list[tuple[int, int]]) -> None:
    done, offset = [], base
    for gap, length in runs:
        done.append((offset + gap, offset + gap + length))
        offset += gap + length
    assert done_beyond.decode(Position(base, done_beyond.encode(base, done))) == done


@given(st.sets(st.integers(1, 60_000), max_size=3_000), st.integers(10, 4095))
def test_metadata_keeps_its_limit_and_leaves_out_the_far_end(offsets: set[int], limit: int) -> None:
    done = done_beyond.ranges(sorted(offsets))
    text = done_beyond.encode(0, done, limit)
    assert len(text.encode()) <= limit
    kept = done_beyond.decode(Position(0, text))
    assert kept == done[: len(kept)]


def test_metadata_uses_the_room_it_has() -> None:
    done = [(offset, offset + 1) for offset in range(1, 60_000, 2)]
    text = done_beyond.encode(0, done)
    assert 4080 <= len(text) <= done_beyond.METADATA_LIMIT


@given(
    st.integers(0, 5),
    st.one_of(
        st.sets(st.integers(5, 500), max_size=300),
        st.sets(st.integers(5, 1_000_000), max_size=50),
        st.builds(
            lambda seed, share: {n for n in range(5, 15_000) if Random(seed + n).random() < share},
            st.integers(0, 9),
            st.sampled_from([0.01, 0.5, 0.99]),
        ),
    ),
    st.sampled_from([10, 100, 4095]),
)
def test_offsets_become_the_same_text_as_their_ranges(base, offsets, limit):
    done = sorted(offsets)
    text = done_beyond.encode_offsets(base, done, limit)
    assert text == done_beyond.encode(base, done_beyond.ranges(done), limit)
    assert len(text) <= limit


@given(st.text(max_size=50))
def test_any_text_in_the_metadata_is_read_without_a_crash(text: str) -> None:
    for metadata in (text, "r1:" + text):
        for start, end in done_beyond.decode(Position(10, metadata)):
            assert 10 <= start < end


# The state machine


class TrackerMachine(RuleBasedStateMachine):
    """A partition with gaps, read, worked on, given back, revoked and taken up again."""

    def __init__(self) -> None:
        super().__init__()
        self.tracker = AckTracker()
        self.log: list[int] = []  # offsets that hold a record
        self.end = 0
        self.done: set[int] = set()  # durably complete, ever
        self.committed: Position | None = None

    @initialize()
    def begin(self) -> None:
        self.take_up()

    @rule(gaps=st.lists(st.integers(0, 3), min_size=1, max_size=8))
    def append(self, gaps: list[int]) -> None:
        for gap in gaps:
            self.end += gap
            self.log.append(self.end)
            self.end += 1

    @rule(count=st.integers(1, 8))
    def read(self, count: int) -> None:
        ahead = [offset for offset in self.log if offset >= self.position][:count]
        wanted = list(self.tracker.receive(ahead))
        expected = [
            offset
            for offset in ahead
            if offset not in self.running
            and offset not in self.completed
            and not self.known_done(offset)
        ]
        assert wanted == expected
        self.running |= set(wanted)
        self.completed |= {offset for offset in ahead if self.known_done(offset)}
        if ahead:
            self.position = ahead[-1] + 1
            self.received = max(self.received, self.position)

    @rule()
    def read_to_the_end(self) -> None:
        if all(offset < self.position for offset in self.log):
            self.position = max(self.position, self.end)
            self.tracker.received_up_to(self.end)
            self.reached_end = self.end

    @rule(data=st.data())
    def complete(self, data: st.DataObject) -> None:
        if self.running:
            some = data.draw(st.sets(st.sampled_from(sorted(self.running))))
            self.tracker.complete(some)
            self.running -= some
            self.completed |= some
            self.done |= some

    @rule(data=st.data())
    def give_back(self, data: st.DataObject) -> None:
        if self.running:
            some = data.draw(st.sets(st.sampled_from(sorted(self.running)), min_size=1))
            self.tracker.give_back(some)
            self.running -= some
            self.position = min(self.position, *some)

    @rule()
    def commit(self) -> None:
        position = self.tracker.position()
        if position is not None:
            self.committed = position

    @rule()
    def crash_and_take_up_again(self) -> None:
        self.take_up()

    def take_up(self) -> None:
        self.tracker = AckTracker(self.committed)
        self.position = self.received = 0 if self.committed is None else self.committed.offset
        self.reached_end = 0
        self.running: set[int] = set()
        self.completed: set[int] = set()
        self.restored = [] if self.committed is None else done_beyond.decode(self.committed)

    def known_done(self, offset: int) -> bool:
        return any(start <= offset < end for start, end in self.restored)

    @invariant()
    def the_position_is_the_naive_one(self) -> None:
        begun = 0 if self.committed is None else self.committed.offset
        position = self.tracker.position()
        unfinished = [
            offset
            for offset in self.log
            if begun <= offset < self.received and offset not in self.completed
        ]
        if position is None:
            assert self.committed is None
            assert not self.completed
            return
        if unfinished:
            assert position.offset == unfinished[0]
        else:
            assert position.offset <= max(self.received, self.reached_end)
        for first, end in done_beyond.decode(position):
            for offset in range(first, end):
                assert offset in self.done or offset not in self.log

    @invariant()
    def nothing_before_the_position_is_unfinished(self) -> None:
        position = self.tracker.position()
        if position is not None:
            missing = [o for o in self.log if o < position.offset and o not in self.done]
            assert not missing

    @invariant()
    def in_flight_is_what_runs(self) -> None:
        assert self.tracker.in_flight == len(self.running)


TestTrackerAgainstANaiveModel = TrackerMachine.TestCase


def test_what_is_put_off_comes_again_when_it_is_asked_for_or_passed_by() -> None:
    tracker = AckTracker()
    tracker.receive([0, 1, 2])
    tracker.put_off(0)
    tracker.put_off(1)
    assert not tracker.waits_to_read_again
    assert tracker.ask_for(1)
    assert not tracker.ask_for(1)
    assert tracker.first_given_back == 1
    assert tracker.receive([0, 1, 2]) == [0, 1]
    assert not tracker.waits_to_read_again
    assert tracker.in_flight == 3


def test_what_has_ended_is_not_put_off() -> None:
    tracker = AckTracker()
    tracker.receive([0])
    tracker.complete([0])
    tracker.put_off(0)
    assert not tracker.ask_for(0)
