"""What a worker commits, seeks and pauses, turn by turn, without a broker."""

from __future__ import annotations

import threading
from types import SimpleNamespace

import confluent_kafka
import privates
import pytest
from confluent_kafka import KafkaError
from worker_bench import Bench, Message, end_of_partition

from redrive import App, Backoff, GiveBack, Retry, RetryPolicy
from redrive.engines.figures import Figures
from redrive.engines.worker import commits
from redrive.engines.worker.counting import Counting
from redrive.engines.worker.loop import NameInUseError
from redrive.errors import DataLossError
from redrive.kafka.errors import BrokerError
from redrive.ports import Position
from redrive.processing.processor import PartitionProcessor
from redrive.processing.progress import done_beyond
from redrive.record import TopicPartition


class Shop:
    """A bench whose handler does with each offset what the test says."""

    def __init__(self, bench_of, *, ordering="unordered", first=None, **options):
        self.calls = []
        self.failing = set()
        app = App("shop", ordering=ordering, concurrency=4, retry=RetryPolicy(first=first))

        @app.handler("t", ack="manual" if options.pop("manual", False) else "auto")
        def handle(record, ctx):
            self.calls.append(record.offset)
            self.contexts[record.offset] = ctx
            if record.offset in self.failing:
                raise Retry("not yet")

        self.contexts = {}
        self.bench = bench_of(app, **options)


@pytest.fixture
def shop():
    opened = []

    def open_shop(**choices):
        return Shop(bench_of, **choices)

    def bench_of(app, **options):
        opened.append(Bench(app, **options))
        return opened[-1]

    yield open_shop
    for bench in opened:
        bench.close()


def messages(*offsets, value=b"v"):
    return [Message(offset, key=b"%d" % offset, value=value) for offset in offsets]


# Commits


def test_where_a_partition_begins_is_committed_at_once(shop):
    made = shop()
    made.bench.start = Position(7)
    made.bench.lose()
    made.bench.assign()
    made.bench.step()
    assert made.bench.consumer.commits[-1] == (7, "")


def test_nothing_is_committed_before_it_is_complete(shop):
    made = shop(manual=True)
    made.bench.step(*messages(0, 1, 2))
    assert made.bench.consumer.commits == [(0, "")]
    made.contexts[0].ack()
    made.bench.step()
    assert made.bench.consumer.commits[-1] == (1, "")


def test_only_the_completed_prefix_is_committed_and_what_is_beyond_it_in_the_metadata(shop):
    made = shop(manual=True)
    made.bench.step(*messages(0, 1, 4, 6))
    made.contexts[1].ack()
    made.contexts[6].ack()
    made.bench.step()
    offset, metadata = made.bench.consumer.commits[-1]
    assert offset == 0
    beyond = done_beyond.decode(Position(offset, metadata))
    assert [n for n in range(8) if any(a <= n < b for a, b in beyond)] == [1, 6]
    made.contexts[0].ack()
    made.contexts[4].ack()
    made.bench.step()
    assert made.bench.consumer.commits[-1] == (7, "")


def test_a_gap_at_the_end_is_passed_when_the_end_is_reached(shop):
    made = shop()
    made.bench.step(*messages(0, 2), end_of_partition(9))
    assert made.bench.consumer.commits[-1] == (9, "")


def test_what_is_complete_is_committed_before_a_partition_goes(shop):
    made = shop(manual=True)
    made.bench.step(*messages(0, 1))
    made.contexts[0].ack()
    made.bench.revoke()
    assert made.bench.consumer.commits[-1] == (1, "")


def test_a_lost_partition_is_not_committed_and_late_words_do_not_count(shop):
    made = shop(manual=True)
    made.bench.step(*messages(0, 1))
    made.contexts[0].ack()
    made.bench.lose()
    made.contexts[1].ack()
    made.bench.step()
    assert made.bench.consumer.commits == [(0, "")]


def test_late_words_do_not_count_for_the_same_partition_assigned_again(shop):
    made = shop(manual=True)
    made.bench.step(*messages(0, 1))
    late = dict(made.contexts)
    made.bench.revoke()
    made.bench.assign()
    made.bench.step(*messages(0, 1))
    late[0].ack()
    late[1].ack()
    made.bench.step()
    assert {offset for offset, _ in made.bench.consumer.commits} == {0}
    assert made.calls == [0, 1, 0, 1]
    made.contexts[0].ack()
    made.bench.step()
    assert made.bench.consumer.commits[-1] == (1, "")


def test_commits_do_not_wait_for_the_answer_to_the_last_but_only_a_few_are_on_their_way(shop):
    made = shop()
    answer, made.bench.consumer.on_commit = made.bench.consumer.on_commit, lambda *_: None
    for offset in range(20):
        made.bench.step(*messages(offset))
    assert [offset for offset, _ in made.bench.consumer.commits] == [0, 1]
    answer(None, [])
    made.bench.step()
    assert made.bench.consumer.commits[-1] == (20, "")


def test_a_commit_that_arrives_after_a_later_one_is_corrected(shop):
    made = shop()
    answer, made.bench.consumer.on_commit = made.bench.consumer.on_commit, lambda *_: None
    made.bench.step(*messages(0))
    made.bench.step()
    assert [offset for offset, _ in made.bench.consumer.commits] == [0, 1]
    for offset in (1, 0):  # librdkafka has tried the first again
        answer(None, [confluent_kafka.TopicPartition("t", 0, offset, "t1:id")])
    made.bench.step()
    assert [offset for offset, _ in made.bench.consumer.commits] == [0, 1, 1]
    answer(None, [confluent_kafka.TopicPartition("t", 0, 1, "t1:id")])
    made.bench.step()
    assert len(made.bench.consumer.commits) == 3


def test_a_commit_without_an_answer_is_said_again(shop, monkeypatch):
    made = shop()
    made.bench.consumer.on_commit = lambda *_: None
    made.bench.step(*messages(0))
    made.bench.step()
    assert made.bench.consumer.commits[-1] == (1, "")
    monkeypatch.setattr(commits, "COMMIT_LOST_AFTER", 0.0)
    said = len(made.bench.consumer.commits)
    made.bench.step()
    assert {*made.bench.consumer.commits[said:]} == {(1, "")}


def test_the_commit_of_a_quiet_partition_is_said_again_though_those_of_others_are_answered(
    shop, monkeypatch
):
    made, now, asked = shop(), 0.0, []
    consumer = made.bench.consumer
    answer, consumer.on_commit = consumer.on_commit, lambda *_: None
    made.bench.assignment.on_assign(consumer, [SimpleNamespace(topic="t", partition=1)])
    monkeypatch.setattr(consumer, "commit", lambda offsets, **_: asked.append(offsets))
    monkeypatch.setattr(commits, "monotonic", lambda: now)
    made.bench.step()  # where both begin is committed, and never answered
    assert {one.partition for one in asked[0]} == {0, 1}
    for offset in range(3):
        now += 20
        made.bench.step(*messages(offset))
        made.bench.step()
        answer(None, asked[-1])
    assert 1 in {one.partition for offsets in asked[1:] for one in offsets}


def test_a_failing_commit_is_tried_again(shop):
    made = shop()
    made.bench.consumer.failing = True
    made.bench.step(*messages(0, 1))
    made.bench.consumer.failing = False
    made.bench.step()
    assert made.bench.consumer.commits[-1] == (2, "")
    assert made.bench.counting.commit_failures >= 1


def test_a_failing_commit_does_not_keep_a_partition_from_going(shop):
    made = shop()
    made.bench.step(*messages(0), run=False)
    made.bench.executor.run()
    made.bench.consumer.failing = True
    made.bench.revoke()
    assert made.bench.assignment.partitions == {}
    assert made.bench.counting.commit_failures >= 1


def test_nobody_waits_longer_than_was_said_for_a_commit_that_is_not_answered(shop, monkeypatch):
    """librdkafka would wait for a coordinator as long as a session lasts, or a minute."""
    made = shop()
    made.bench.step(*messages(0), run=False)
    made.bench.executor.run()
    answered = threading.Event()
    monkeypatch.setattr(commits, "LAST_COMMIT_PATIENCE", 0.01)
    monkeypatch.setattr(made.bench.consumer, "commit", lambda **_: answered.wait(30))
    made.bench.loop.drain(0.01, lambda: None)
    assert made.bench.counting.commit_failures == 1
    answered.set()


def test_a_partition_that_goes_is_committed_before_it_has_gone(shop, monkeypatch):
    """A commit that is sent later puts back what its next owner has committed meanwhile."""
    made = shop()
    made.bench.step(*messages(0), run=False)
    made.bench.executor.run()
    looks = Looks(made.bench, 20)
    commit, happened = made.bench.consumer.commit, []

    def slow_commit(**given):
        # From another thread librdkafka would send it after the callback only.
        assert threading.current_thread() is threading.main_thread()
        looks.wait()
        happened.append("committed")
        return commit(**given)

    monkeypatch.setattr(made.bench.consumer, "commit", slow_commit)
    monkeypatch.setattr(
        made.bench.consumer, "incremental_unassign", lambda _: happened.append("gone")
    )
    made.bench.revoke()
    assert happened == ["committed", "gone"]


def test_while_its_consumer_is_closed_handlers_are_waited_for_without_it(shop, monkeypatch):
    def closed(*_, **__):
        raise RuntimeError("Consumer closed")

    made = shop()
    made.bench.step(*messages(0), run=False)
    lot = made.bench.dispatcher.take()
    for name in ("poll", "consume", "pause", "resume", "seek", "commit"):
        monkeypatch.setattr(made.bench.consumer, name, closed)
    assert not made.bench.loop.drain(0.01, lambda: None, polls=False)
    assert made.bench.loop.drain(30, lambda: made.bench.dispatcher.report(lot), polls=False)


def test_whoever_closes_its_consumer_may_let_go_of_partitions_at_any_time(shop, monkeypatch):
    bench = shop().bench
    bench.assignment.on_assign(bench.consumer, [SimpleNamespace(topic="t", partition=1)])

    def unacked(processor):
        bench.lose()
        return 0

    monkeypatch.setattr(PartitionProcessor, "unacked", property(unacked))
    assert bench.loop.drain(30, lambda: None, polls=False)


# While the group's callbacks wait, the poll thread does what else it has to do


class Looks:
    """What is waited for comes after so many looks of the poll thread, and not before."""

    def __init__(self, bench, count):
        self._left = count
        self._enough = threading.Event()
        bench.meanwhile = self._look

    def wait(self):
        assert self._enough.wait(30)

    def _look(self):
        self._left -= 1
        if not self._left:
            self.come()
            self._enough.set()

    def come(self): ...


def test_while_the_handlers_of_a_partition_that_goes_are_waited_for(shop):
    made = shop()
    made.bench.step(*messages(0), run=False)
    lot = made.bench.dispatcher.take()
    looks = Looks(made.bench, 3)
    looks.come = lambda: made.bench.dispatcher.report(lot)
    made.bench.assignment.revoke_wait = 30
    made.bench.revoke()
    assert made.bench.dispatcher.running == 0


def test_while_what_they_have_written_is_waited_for(shop, monkeypatch):
    made = shop()
    looks = Looks(made.bench, 1)
    monkeypatch.setattr(made.bench.delivering, "finish", lambda _, __, meanwhile: meanwhile())
    made.bench.revoke()
    looks.wait()


@pytest.mark.parametrize("what", ["fence_off", "find"])
def test_while_it_is_asked_where_partitions_begin(shop, monkeypatch, what):
    made = shop()
    made.bench.lose()
    looks = Looks(made.bench, 3)
    start_offsets = made.bench.start_offsets
    answer = getattr(start_offsets, what)
    monkeypatch.setattr(start_offsets, what, lambda places: (looks.wait(), answer(places))[1])
    made.bench.assign()
    made.bench.step(*messages(0))
    assert made.calls == [0]


# Giving back


def test_a_record_that_is_given_back_is_sought(shop):
    made = shop(first=GiveBack(attempts=2, backoff=Backoff("1ms")))
    made.failing = {1}
    made.bench.step(*messages(0, 1, 2))
    assert made.bench.consumer.sought == [1]
    made.failing = set()
    made.bench.clock.advance("1s")
    made.bench.step(*messages(1, 2))
    assert made.calls == [0, 1, 2, 1]
    assert made.bench.consumer.commits[-1] == (3, "")


def test_the_end_of_a_partition_does_not_pass_over_what_is_still_to_be_read_again(shop):
    """Read while one is given back, and passed over; then the end; then the one alone is done."""
    made = shop(first=GiveBack(attempts=2, backoff=Backoff("1ms")))
    made.failing = {0}
    made.bench.step(*messages(0), run=False)
    made.bench.executor.run()
    made.bench.step(*messages(1, 2), end_of_partition(3), run=False)
    assert made.bench.consumer.sought == [0]
    made.failing = set()
    made.bench.clock.advance("1s")
    made.bench.step(*messages(0))
    assert made.bench.consumer.commits[-1] == (1, "")
    made.bench.step(*messages(1, 2), end_of_partition(3))
    assert made.calls == [0, 0, 1, 2]
    assert made.bench.consumer.commits[-1] == (3, "")


def test_the_end_of_a_bounded_run_does_not_pass_over_them_either(shop):
    made = shop(first=GiveBack(attempts=2, backoff=Backoff("1ms")))
    made.bench.partition.end = 3
    made.failing = {0}
    made.bench.step(*messages(0), run=False)
    made.bench.executor.run()
    made.bench.step(*messages(1, 2, 3), run=False)
    made.failing = set()
    made.bench.clock.advance("1s")
    made.bench.step(*messages(0))
    made.bench.step(*messages(1, 2, 3))
    assert made.calls == [0, 0, 1, 2]
    assert made.bench.consumer.commits[-1] == (3, "")


def test_what_was_read_before_its_end_moved_on_is_read_again(shop):
    """A run that ends reads parked records last: one may have come before it was held back."""
    made = shop()
    made.bench.partition.end = 0
    made.bench.step(*messages(0, 1))
    assert made.bench.partition.paused
    made.bench.partition.end = 2
    made.bench.step()
    assert made.bench.consumer.sought == [0]
    made.bench.step(*messages(0, 1))
    assert made.calls == [0, 1]
    assert made.bench.consumer.commits[-1] == (2, "")


def test_also_where_it_moved_on_before_it_was_held_back(shop, monkeypatch):
    made = shop()
    each = made.bench.partition
    each.end = 0
    note = each.note_received

    def note_and_move_on(taken, left):
        note(taken, left)
        each.end = 4

    monkeypatch.setattr(each, "note_received", note_and_move_on)
    made.bench.step(*messages(0, 1))
    assert made.bench.consumer.sought == [0]
    made.bench.step(*messages(0, 1, 2, 3))
    assert made.calls == [0, 1, 2, 3]
    assert made.bench.consumer.commits[-1] == (4, "")


def test_bytes_that_are_read_again_are_counted_once(shop):
    """Else a record that is given back often enough would hold up its own reading, for ever."""
    made = shop(
        ordering="partition",
        first=GiveBack(attempts=50, backoff=Backoff("1ms")),
        max_bytes_in_flight=2000,
    )
    made.failing = {0}
    for _ in range(40):
        made.bench.step(*messages(0, 1, value=b"x" * 100))
        made.bench.clock.advance("1m")
    assert made.calls == [0] * 40
    assert True not in made.bench.consumer.paused


def test_what_waits_for_its_transaction_does_not_keep_a_record_from_being_read_again(shop):
    """Else both would wait for each other, for ever: a transaction takes a prefix."""
    made = shop(first=GiveBack(attempts=2, backoff=Backoff("1ms")), max_in_flight=4)
    made.failing = {0}
    made.bench.partition.buffer = SimpleNamespace(records=3, bytes=0)
    made.bench.step(*messages(0))
    assert made.bench.consumer.paused == [True, False]
    made.failing = set()
    made.bench.clock.advance("1s")
    made.bench.step(*messages(0))
    assert made.calls == [0, 0]
    assert made.bench.consumer.paused[-1] is True


# Holding back


def test_a_partition_with_enough_in_flight_is_paused_and_resumed_at_half(shop):
    made = shop(manual=True, max_in_flight=4)
    made.bench.step(*messages(*range(4)))
    assert made.bench.consumer.paused == [True]
    made.contexts[0].ack()
    made.bench.step()
    assert made.bench.consumer.paused == [True]
    made.contexts[1].ack()
    made.contexts[2].ack()
    made.bench.step()
    assert made.bench.consumer.paused == [True, False]


def test_a_partition_with_enough_bytes_in_flight_is_paused(shop):
    made = shop(manual=True, max_bytes_in_flight=100)
    made.bench.step(*messages(0, value=b"x" * 200))
    assert made.bench.consumer.paused == [True]
    made.contexts[0].ack()
    made.bench.step()
    assert made.bench.consumer.paused == [True, False]


@pytest.mark.parametrize("headers", [None, [("trace", b"x" * 1000)]])
def test_also_records_without_key_and_value_have_a_weight(shop, headers):
    """Else what is complete behind one that is stuck would be remembered without a bound."""
    made = shop(manual=True, max_bytes_in_flight=4000)
    made.bench.step(*messages(0))
    offset = 0
    while not made.bench.consumer.paused and offset < 50:
        offset += 1
        made.bench.step(Message(offset, key=None, value=None, headers=headers))
        made.contexts[offset].ack()
    assert offset == (3 if headers else 9)
    made.contexts[0].ack()
    made.bench.step()
    assert made.bench.consumer.paused == [True, False]


def test_a_partition_goes_on_however_small_the_limit(shop):
    made = shop(manual=True, max_bytes_in_flight=1)
    made.bench.step(*messages(0))
    made.contexts[0].ack()
    made.bench.step()
    assert made.bench.consumer.paused == [True, False]


def test_a_partition_that_comes_again_is_not_paused(shop):
    made = shop(manual=True, max_in_flight=2)
    made.bench.step(*messages(0, 1))
    made.bench.revoke()
    made.bench.assign()
    made.bench.step()
    assert made.bench.partition.paused is False
    assert made.bench.consumer.paused == [True, False]
    made.bench.step(*messages(0, 1))
    assert made.bench.consumer.paused == [True, False, True]


# What is not subscribed


def test_a_partition_that_nobody_subscribed_to_is_neither_read_nor_committed(shop):
    made = shop()
    consumer = made.bench.consumer
    left = SimpleNamespace(topic="left", partition=0)
    made.bench.assignment.on_assign(consumer, [left])
    assert consumer.paused == [True]
    assert made.bench.assignment.foreign == {("left", 0)}
    made.bench.step(Message(0, topic="left"))
    assert (made.calls, consumer.commits) == ([], [(0, "")])
    made.bench.assignment.on_revoke(consumer, [left])
    assert not made.bench.assignment.foreign


# Errors


def test_partitions_that_come_while_kafka_does_not_answer_are_taken_up_later(shop):
    made = shop()
    made.bench.lose()
    made.bench.outage = BrokerError("nobody answers")
    made.bench.assign()
    assert [str(place) for place in made.bench.postponed] == ["t[0]"]
    assert made.bench.assignment.partitions == {}
    made.bench.step(*messages(0))
    assert (made.calls, made.bench.consumer.commits) == ([], [])


def test_other_mistakes_end_the_run(shop):
    made = shop()
    made.bench.lose()
    made.bench.outage = DataLossError("records are gone")
    with pytest.raises(DataLossError):
        made.bench.assign()


def test_records_that_are_gone_are_reported_with_their_partition(shop):
    made = shop()
    made.bench.step(Message(0, error=privates.AUTO_OFFSET_RESET))
    assert [str(place) for place in made.bench.gone] == ["t[0]"]


def test_a_topic_that_is_gone_ends_the_run_unless_no_policy_has_it(shop):
    made = shop()
    gone = KafkaError.UNKNOWN_TOPIC_OR_PART
    made.bench.step(Message(0, topic="shop.retry.7d", error=gone))
    with pytest.raises(BrokerError, match="UNKNOWN_TOPIC_OR_PART"):
        made.bench.step(Message(0, error=gone))


def test_of_a_commit_that_is_not_allowed_the_topic_is_named_that_it_was_refused_for():
    fine, shut = TopicPartition("fine", 0), TopicPartition("shut", 0)
    made = commits.Commits(None, "batch", Counting(Figures()))
    refused = KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)
    made.on_commit(
        None,
        [
            SimpleNamespace(topic="fine", partition=0, offset=3, error=None, metadata=None),
            SimpleNamespace(topic="shut", partition=0, offset=3, error=refused, metadata=None),
        ],
        {each: SimpleNamespace(place=each, committed=None) for each in (fine, shut)},
    )
    assert made.not_allowed == (refused, shut)


def test_a_name_that_is_still_in_use_is_told_apart_from_one_that_was_taken(shop):
    made = shop()
    with pytest.raises(NameInUseError, match="still in use"):
        made.bench.step(Message(0, error=KafkaError.UNRELEASED_INSTANCE_ID))
    with pytest.raises(BrokerError, match="--instance"):
        made.bench.step(Message(0, error=KafkaError.FENCED_INSTANCE_ID))


def test_a_worker_that_is_taken_for_a_stranger_after_an_outage_joins_again(shop):
    made = shop()
    made.bench.loop.note_out_of_reach()
    with pytest.raises(NameInUseError, match="rejoining"):
        made.bench.step(Message(0, error=KafkaError.FENCED_INSTANCE_ID))


def test_troubles_that_pass_are_librdkafkas_others_end_the_run(shop):
    made = shop()
    made.bench.step(Message(0, error=privates.TRANSPORT))
    made.bench.step(Message(0, error=privates.MAX_POLL_EXCEEDED))
    with pytest.raises(BrokerError, match="redrive doctor"):
        made.bench.step(Message(0, error=KafkaError.TOPIC_AUTHORIZATION_FAILED))
