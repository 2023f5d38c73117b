"""FlushDelivery: nothing counts before it is durable, and what is refused waits alone."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import pytest

from redrive.delivery.flush import Complete, FlushDelivery
from redrive.delivery.refusing_topics import RefusingTopics
from redrive.errors import LedgerError, PublishError
from redrive.kafka.errors import BrokerError, publish_error, refusal
from redrive.processing.outcomes.report import Outcome, Report, Sent
from redrive.record import Record, Write
from redrive.testing.memory_broker import MemoryBroker, MemoryHandover
from redrive.testing.virtual_clock import VirtualClock
from redrive.tuning import REFUSED_LONGEST, REFUSED_WAIT


class Partition:
    """Stands for a processor: it notes what was settled."""

    def __init__(self) -> None:
        self.settled: list[int] = []
        self.forgotten: list[int] = []
        self.database_is_down = False
        self.closed = False

    def settle(self, offsets: Sequence[int]) -> None:
        self.settled += offsets

    def refused(self, sent: Sent, error: PublishError, now: int) -> Outcome:
        offset, _, record = sent
        assert isinstance(record, Record)
        return Outcome("bury", offset, record, (write("dead", offset),), str(error))

    def forget(self, buried: Sequence[Outcome]) -> bool:
        if self.database_is_down:
            raise LedgerError("the database is down")
        self.forgotten += [outcome.offset for outcome in buried]
        return True


class Setup:
    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.broker = MemoryBroker(self.clock)
        for topic in ("out", "dead"):
            self.broker.create(topic)
        self.publishes: list[list[Write]] = []
        self.alone: list[bool] = []
        self.partition = Partition()
        self.settled_at_publish: list[list[int]] = []
        self.delivery = FlushDelivery(self, self.clock)

    def refusing(self, topics: Collection[str]) -> dict[str, PublishError]:
        return self.broker.refusing(topics)

    def hand_over(self, writes: Sequence[Write], *, alone: bool = False) -> MemoryHandover:
        self.alone.append(alone)
        self.publishes.append(list(writes))
        self.settled_at_publish.append(list(self.partition.settled))
        return self.broker.hand_over(writes, alone=alone)

    def take(self, report: Report, partition: Partition | None = None) -> None:
        self.delivery.add(partition or self.partition, report)  # type: ignore[arg-type]  # -- stands for a processor

    def values(self, topic: str) -> list[bytes | None]:
        return [record.value for record in self.broker.records(topic)]


@pytest.fixture
def setup() -> Setup:
    return Setup()


def report(done: Sequence[int] = (), sent: Sequence[int] = (), dead: Sequence[int] = ()) -> Report:
    made = Report()
    made.done = list(done)
    made.sent = [(offset, [write("out", offset)], Record("in", 0, offset)) for offset in sent]
    made.outcomes = [
        Outcome("bury", offset, Record("in", 0, offset), (write("dead", offset),))
        for offset in dead
    ]
    return made


def write(topic: str, offset: int) -> Write:
    return Write(topic, None, b"%d" % offset)


def ended(complete: list[Complete]) -> tuple[list[int], int]:
    """The offsets of outcomes, and how many records are done."""
    outcomes = [each.offset for _, each in complete if not isinstance(each, int)]
    return outcomes, sum(each for _, each in complete if isinstance(each, int))


def test_what_was_noted_is_written_in_its_order_and_then_settled(setup):
    setup.take(report(done=[0], sent=[1, 2]))
    setup.take(report(sent=[4], dead=[3]))
    assert ended(setup.delivery.pump()) == ([3], 4)
    assert setup.values("out") == [b"1", b"2", b"4"]
    assert setup.values("dead") == [b"3"]
    assert sorted(setup.partition.settled) == [0, 1, 2, 3, 4]


def test_nothing_is_settled_before_it_is_durable(setup):
    setup.take(report(sent=[1, 2], dead=[3]))
    assert setup.partition.settled == []
    setup.delivery.pump()
    assert setup.settled_at_publish == [[]]


def test_nothing_to_write_is_no_publish(setup):
    setup.take(report(done=[0, 1]))
    assert ended(setup.delivery.pump()) == ([], 2)
    assert setup.partition.settled == [0, 1]
    assert setup.publishes == []
    setup.delivery.pump()
    assert setup.partition.settled == [0, 1]


def test_only_the_refused_waits(setup):
    setup.broker.refuse("dead")
    setup.take(report(done=[0], sent=[1, 2], dead=[3]))
    assert ended(setup.delivery.pump()) == ([], 3)
    assert sorted(setup.partition.settled) == [0, 1, 2]
    assert setup.delivery.refused == 1
    setup.take(report(sent=[4]))
    setup.delivery.pump()
    assert sorted(setup.partition.settled) == [0, 1, 2, 4]


def test_nothing_is_forgotten_because_a_publisher_broke(setup, monkeypatch):
    def pump_in_vain() -> None:
        with monkeypatch.context() as patch:
            patch.setattr(setup, "hand_over", lambda _, alone=False: {}["no such thing"])
            setup.delivery.pump()

    setup.take(report(sent=[1], dead=[2]))
    setup.take(report(sent=[3]))
    with pytest.raises(KeyError):
        pump_in_vain()
    assert setup.delivery.outstanding
    setup.broker.refuse("dead", times=1)
    setup.delivery.pump()
    assert setup.partition.settled == [1, 3]
    setup.clock.advance("1m")
    with pytest.raises(KeyError):
        pump_in_vain()
    setup.delivery.pump()
    assert setup.partition.settled == [1, 3, 2]
    assert setup.values("out") == [b"1", b"3"]


def test_it_is_tried_again_later_and_then_complete(setup):
    setup.broker.refuse("dead", times=1)
    setup.take(report(dead=[3]))
    setup.delivery.pump()
    setup.delivery.pump()
    assert len(setup.publishes) == 1
    assert setup.delivery.next_due() == setup.clock.now() + REFUSED_WAIT
    setup.clock.advance(REFUSED_WAIT)
    assert ended(setup.delivery.pump()) == ([3], 0)
    assert setup.partition.settled == [3]
    assert setup.values("dead") == [b"3"]
    assert setup.delivery.next_due() is None


def test_it_waits_longer_and_longer_up_to_a_limit(setup):
    setup.broker.refuse("dead")
    setup.take(report(dead=[3]))
    waits = []
    for _ in range(8):
        setup.delivery.pump()
        waits.append(setup.delivery.next_due() - setup.clock.now())
        setup.clock.set(setup.delivery.next_due())
    assert waits == [1000, 2000, 4000, 8000, 16_000, 30_000, 30_000, REFUSED_LONGEST]


def test_it_is_never_hot_however_often_it_is_pumped(setup):
    setup.broker.refuse("dead")
    setup.take(report(dead=[3]))
    for _ in range(100):
        setup.delivery.pump()
        setup.clock.advance(10)
    assert len(setup.publishes) == 1


def test_what_was_refused_is_let_go_of_when_its_partition_goes(setup):
    setup.broker.refuse("dead", times=1)
    setup.take(report(dead=[3]))
    setup.delivery.pump()
    setup.partition.closed = True
    setup.clock.advance(REFUSED_WAIT)
    assert setup.delivery.pump() == []
    assert (setup.delivery.refused, setup.values("dead")) == (0, [])


def test_those_refused_later_do_not_keep_the_first_waiting(setup):
    setup.broker.refuse("dead", error="_MSG_TIMED_OUT")
    for offset in range(11):
        setup.take(report(dead=[offset]))
        setup.delivery.pump()
        if offset == 5:
            setup.broker.accept("dead")
        setup.clock.advance(100)
    setup.delivery.pump()
    assert sorted(setup.partition.settled) == list(range(11))


def test_who_is_refused_again_while_others_are_taken_is_tried_again_later(setup):
    """Of one topic, a partition may take writes while another does not."""
    setup.broker.refuse("out", error="NOT_ENOUGH_REPLICAS", times=3)
    setup.take(report(sent=[0, 1]))
    setup.delivery.pump()
    setup.clock.advance(REFUSED_WAIT)
    setup.delivery.pump()
    assert setup.partition.settled == [1]
    assert setup.delivery.refused == 1
    due = setup.delivery.next_due()
    assert due is not None
    assert due > setup.clock.now()
    setup.clock.advance(REFUSED_LONGEST)
    setup.delivery.pump()
    assert setup.partition.settled == [1, 0]
    assert setup.delivery.refusal == ""


def test_a_write_that_was_durable_is_not_written_twice(setup):
    setup.broker.refuse("dead", times=1)
    both = Report()
    both.outcomes = [Outcome("bury", 7, Record("in", 0, 7), (write("out", 7), write("dead", 7)))]
    setup.take(both)
    setup.delivery.pump()
    assert setup.partition.settled == []
    setup.clock.advance(REFUSED_WAIT)
    setup.delivery.pump()
    assert setup.partition.settled == [7]
    assert setup.values("out") == [b"7"]
    assert setup.values("dead") == [b"7"]


def test_partitions_do_not_mix(setup):
    other = Partition()
    setup.broker.refuse("dead")
    setup.take(report(dead=[1], sent=[2]))
    setup.take(report(sent=[1], dead=[2]), other)
    setup.delivery.pump()
    assert setup.partition.settled == [2]
    assert other.settled == [1]


def test_a_refusal_that_names_nobody_is_everybodys(setup):
    def refuse(writes: Sequence[Write]) -> None:
        raise PublishError("all of it")

    setup.broker.publish = refuse
    setup.take(report(done=[0], sent=[1], dead=[2]))
    setup.delivery.pump()
    assert setup.partition.settled == [0]
    assert setup.delivery.refused == 2


def test_dead_letters_are_forgotten_before_they_are_written_so_that_a_replay_is_handled(setup):
    setup.partition.database_is_down = True
    setup.take(report(done=[0], dead=[1]))
    assert ended(setup.delivery.pump()) == ([], 1)
    assert (setup.partition.settled, setup.partition.forgotten) == ([0], [])
    assert setup.values("dead") == []
    setup.clock.advance(REFUSED_WAIT)
    assert ended(setup.delivery.pump()) == ([], 0)
    assert setup.delivery.refused == 1
    setup.partition.database_is_down = False
    setup.clock.advance(2 * REFUSED_WAIT)
    assert ended(setup.delivery.pump()) == ([1], 0)
    assert (setup.partition.settled, setup.partition.forgotten) == ([0, 1], [1])
    assert setup.values("dead") == [b"1"]


# What a refusal means


def large(offset: int) -> Write:
    return Write("out", None, b"x" * 2_000_000 + b"%d" % offset)


def test_records_are_done_when_what_they_sent_is_durable_and_not_before(setup):
    setup.broker.refuse("out", times=1)
    setup.take(report(sent=[1]))
    assert ended(setup.delivery.pump()) == ([], 0)
    setup.clock.advance(REFUSED_WAIT)
    assert ended(setup.delivery.pump()) == ([], 1)


def test_a_topic_that_takes_nothing_is_not_tried_again_and_told_once(setup, caplog):
    setup.broker.delete("out")
    for offset in range(100):
        setup.take(report(sent=[offset]))
        setup.delivery.pump()
        setup.clock.advance(REFUSED_WAIT)
        assert setup.delivery.refused == offset + 1  # steady: never fewer in between
    assert len(setup.publishes) == 1
    (told,) = caplog.messages
    assert "a write to out was refused (UNKNOWN_TOPIC_OR_PART): the topic does not exist" in told
    assert setup.delivery.refusal in told


def test_a_topic_is_asked_about_before_the_first_write_to_it(setup):
    sent_to: set[str] = set()
    known: set[str] = set()
    topics = RefusingTopics(setup.refusing, setup.clock, known=known)
    setup.delivery = FlushDelivery(setup, setup.clock, sent_to, topics)  # type: ignore[arg-type]  # -- a publisher
    setup.broker.delete("out")
    for offset in range(3):
        setup.take(report(sent=[offset]))
        sent_to.add("out")
        setup.delivery.pump()
    assert (setup.publishes, setup.delivery.refused) == ([], 3)
    setup.broker.create("out")
    setup.clock.advance(REFUSED_WAIT)
    while setup.delivery.outstanding or setup.delivery.refused:
        setup.delivery.pump()
    assert setup.values("out") == [b"0", b"1", b"2"]
    assert known == set()
    sent_to.add("dead")
    setup.take(report(dead=[3]))
    assert ended(setup.delivery.pump()) == ([3], 0)
    assert known == {"dead"}


def test_its_records_are_written_in_their_order_once_it_takes_writes(setup, caplog):
    setup.broker.delete("out")
    for offset in range(5):
        setup.take(report(sent=[offset], dead=[offset + 100]))
        setup.delivery.pump()
    assert sorted(setup.partition.settled) == [100, 101, 102, 103, 104]  # others go on
    setup.broker.create("out")
    setup.clock.advance(REFUSED_LONGEST)
    setup.take(report(sent=[5]))
    while setup.delivery.outstanding or setup.delivery.refused:
        setup.delivery.pump()
    assert setup.values("out") == [b"%d" % offset for offset in range(6)]
    assert caplog.messages[-1] == "writes to out are accepted again"
    assert setup.delivery.refusal == ""
    # What is written once more is counted by the thread that writes, and by no other.
    assert setup.delivery.added == setup.delivery.settled == 6


def test_who_waits_behind_a_partition_that_went_is_tried(setup):
    gone = Partition()
    setup.broker.delete("out")
    setup.take(report(sent=[1]), gone)
    setup.delivery.pump()
    setup.take(report(sent=[2]))
    setup.delivery.pump()
    gone.closed = True
    setup.broker.create("out")
    setup.clock.advance(REFUSED_LONGEST)
    setup.delivery.pump()
    assert (setup.values("out"), setup.partition.settled) == ([b"2"], [2])


def test_so_is_who_waits_behind_one_that_goes_as_it_is_tried(setup, monkeypatch):
    gone = Partition()

    def taken_away_meanwhile(topics: Collection[str]) -> dict[str, PublishError]:
        gone.closed = True
        return {}

    setup.broker.delete("out")
    setup.take(report(sent=[1]), gone)
    setup.delivery.pump()
    setup.take(report(sent=[2]))
    setup.delivery.pump()
    setup.broker.create("out")
    setup.clock.advance(REFUSED_LONGEST)
    monkeypatch.setattr(setup.broker, "refusing", taken_away_meanwhile)
    for _ in range(3):
        setup.delivery.pump()
    assert (setup.values("out"), setup.partition.settled) == ([b"2"], [2])
    assert (setup.delivery.refused, setup.delivery.next_due()) == (0, None)


def test_one_topic_that_takes_nothing_does_not_keep_another_waiting_that_does_again(setup):
    for topic in ("out", "dead"):
        setup.broker.delete(topic)
    setup.take(report(sent=[1], dead=[2]))
    setup.delivery.pump()
    setup.broker.create("dead")
    setup.broker.refuse("out", error="TOPIC_AUTHORIZATION_FAILED")
    setup.broker.create("out")
    setup.clock.advance(REFUSED_WAIT)
    assert ended(setup.delivery.pump()) == ([2], 0)
    assert setup.delivery.refused == 1
    setup.take(report(dead=[3]))
    assert ended(setup.delivery.pump()) == ([3], 0)


def test_a_broker_that_does_not_answer_is_asked_again(setup):
    def nobody(topics: Collection[str]) -> dict[str, PublishError]:
        raise BrokerError("nobody answers")

    setup.broker.delete("out")
    setup.take(report(sent=[1]))
    setup.delivery.pump()
    setup.broker.create("out")
    setup.broker.refusing = nobody
    setup.clock.advance(REFUSED_WAIT)
    assert ended(setup.delivery.pump()) == ([], 0)
    del setup.broker.refusing
    setup.clock.advance(REFUSED_LONGEST)
    assert ended(setup.delivery.pump()) == ([], 1)


def test_a_record_whose_message_its_topic_does_not_take_is_buried(setup):
    mixed = report(sent=[1, 3])
    mixed.sent.insert(1, (2, [write("out", 2), large(2)], Record("in", 0, 2)))
    setup.take(mixed)
    seen = [ended(setup.delivery.pump()) for _ in range(3)]
    assert seen == [([], 2), ([], 0), ([2], 0)]
    assert setup.values("dead") == [b"2"]
    assert sorted(setup.partition.settled) == [1, 2, 3]
    assert (setup.delivery.refused, setup.delivery.outstanding) == (0, False)


def test_who_was_only_in_bad_company_is_written_by_itself(setup):
    class Batches(MemoryBroker):
        """Refuses a batch for one message that is in it, as brokers do."""

        def hand_over(self, writes: Sequence[Write], *, alone: bool = False) -> MemoryHandover:
            if alone:
                return super().hand_over(writes)
            reasons = [publish_error("out", 0, "MSG_SIZE_TOO_LARGE") for _ in writes]
            return MemoryHandover(refusal(writes, reasons, len(writes)))

    setup.broker = Batches(setup.clock)
    setup.broker.create("out")
    company = report(sent=[1, 3])
    company.sent.insert(1, (2, [large(2)], Record("in", 0, 2)))
    setup.take(company)
    setup.delivery.pump()
    assert ended(setup.delivery.pump()) == ([], 2)
    assert setup.alone == [False, True]
    assert setup.values("out") == [b"1", b"3"]


def of_key(key: bytes | None, offset: int, *topics: str) -> Report:
    made = Report()
    writes = [Write(topic, key, b"%d" % offset) for topic in topics or ("out",)]
    made.sent = [(offset, writes, Record("in", 0, offset))]
    return made


def pump_until_nothing_waits(setup: Setup) -> None:
    while setup.delivery.outstanding or setup.delivery.refused:
        setup.clock.advance(REFUSED_LONGEST)
        setup.delivery.pump()


def test_nobody_overtakes_a_message_of_its_key_that_waits_for_brokers(setup):
    setup.broker.refuse("out", error="_MSG_TIMED_OUT", times=1)
    setup.take(of_key(b"a", 0))
    setup.delivery.pump()
    for offset, key in enumerate([b"a", b"b", b"a"], 1):
        setup.take(of_key(key, offset))
        setup.delivery.pump()
    assert setup.values("out") == [b"2"]  # others go on
    assert setup.delivery.refused == 3
    pump_until_nothing_waits(setup)
    assert setup.values("out") == [b"2", b"0", b"1", b"3"]
    assert setup.partition.settled == [2, 0, 1, 3]


def test_nor_one_that_was_only_in_bad_company(setup, monkeypatch):
    whole = setup.broker.hand_over

    def once(writes: Sequence[Write], *, alone: bool = False) -> MemoryHandover:
        monkeypatch.setattr(setup.broker, "hand_over", whole)
        setup.take(of_key(b"a", 1))
        reasons = [publish_error("out", 0, "MSG_SIZE_TOO_LARGE") for _ in writes]
        return MemoryHandover(refusal(writes, reasons, len(writes)))

    monkeypatch.setattr(setup.broker, "hand_over", once)
    setup.take(of_key(b"a", 0))
    pump_until_nothing_waits(setup)
    assert setup.values("out") == [b"0", b"1"]


def test_nor_one_that_waits_for_another_topic_too(setup):
    setup.broker.create("more")
    setup.broker.refuse("more")
    setup.broker.refuse("out", error="_MSG_TIMED_OUT", times=3)
    setup.take(of_key(b"a", 0, "out", "more"))
    setup.take(of_key(b"a", 1))
    setup.take(of_key(b"b", 2))
    setup.delivery.pump()
    for _ in range(5):
        setup.clock.advance(REFUSED_LONGEST)
        setup.delivery.pump()
    assert setup.values("out") == [b"2"]
    setup.broker.accept("more")
    pump_until_nothing_waits(setup)
    assert setup.values("out") == [b"2", b"0", b"1"]


def test_nor_does_one_that_was_refused_again_come_after_those_it_came_before(setup):
    setup.broker.create("more")
    setup.broker.refuse("more")
    setup.broker.refuse("out", error="_MSG_TIMED_OUT", times=3)  # both, and the first once more
    setup.take(of_key(b"a", 0))
    setup.take(of_key(b"a", 1, "out", "more"))
    setup.delivery.pump()
    setup.clock.advance(REFUSED_WAIT)
    setup.delivery.pump()
    setup.broker.accept("more")
    pump_until_nothing_waits(setup)
    assert setup.values("out") == [b"0", b"1"]


def test_nor_does_one_that_is_too_large_overtake_one_that_waits_for_brokers(setup, monkeypatch):
    whole = setup.broker.hand_over

    def once(writes: Sequence[Write], *, alone: bool = False) -> MemoryHandover:
        monkeypatch.setattr(setup.broker, "hand_over", whole)
        reasons = [publish_error("out", 0, why) for why in ("_MSG_TIMED_OUT", "MSG_SIZE_TOO_LARGE")]
        return MemoryHandover(refusal(writes, reasons, len(writes)))

    monkeypatch.setattr(setup.broker, "hand_over", once)
    setup.take(of_key(b"a", 0))
    setup.take(of_key(b"a", 1))
    pump_until_nothing_waits(setup)
    assert setup.values("out") == [b"0", b"1"]


def test_a_topic_that_takes_writes_again_is_written_to_whatever_else_its_first_record_waits_for(
    setup,
):
    setup.broker.create("more")
    setup.broker.refuse("more")
    setup.broker.refuse("out")
    setup.take(of_key(b"a", 0, "out", "more"))
    setup.delivery.pump()
    setup.take(of_key(b"b", 1))
    setup.delivery.pump()
    setup.broker.accept("out")
    for _ in range(3):
        setup.clock.advance(REFUSED_LONGEST)
        setup.delivery.pump()
    setup.take(of_key(None, 2))
    setup.delivery.pump()
    assert setup.values("out") == [b"1", b"2"]
    setup.broker.accept("more")
    pump_until_nothing_waits(setup)
    assert setup.values("out") == [b"1", b"2", b"0"]


def test_so_it_is_when_that_record_has_gone_with_its_partition(setup):
    gone = Partition()
    setup.broker.refuse("dead")
    setup.broker.refuse("out")
    setup.take(report(dead=[9]))
    setup.take(of_key(b"a", 0), gone)
    setup.delivery.pump()
    setup.take(of_key(b"b", 1))
    setup.delivery.pump()
    gone.closed = True
    setup.clock.advance(REFUSED_LONGEST)
    setup.delivery.pump()
    setup.broker.accept("out")
    for _ in range(3):
        setup.clock.advance(REFUSED_LONGEST)
        setup.delivery.pump()
    assert setup.values("out") == [b"1"]


def test_the_key_of_a_record_that_has_gone_with_its_partition_keeps_nobody_waiting(setup):
    gone = Partition()
    setup.broker.refuse("dead")
    setup.take(report(dead=[9]))
    setup.broker.refuse("out", error="_MSG_TIMED_OUT", times=1)
    setup.take(of_key(b"a", 0), gone)
    setup.delivery.pump()
    gone.closed = True
    setup.clock.advance(REFUSED_LONGEST)
    setup.delivery.pump()
    setup.take(of_key(b"a", 1))
    setup.delivery.pump()
    assert setup.values("out") == [b"1"]


def test_who_waits_behind_one_whose_partition_went_does_not_wait_for_another_topic(setup):
    gone = Partition()
    setup.broker.delete("dead")
    setup.take(report(dead=[9]))
    setup.broker.refuse("out", error="_MSG_TIMED_OUT", times=1)
    setup.take(of_key(b"a", 0), gone)
    setup.delivery.pump()
    setup.take(of_key(b"a", 1))
    setup.delivery.pump()
    gone.closed = True
    setup.clock.advance(REFUSED_LONGEST)
    for _ in range(3):
        setup.delivery.pump()
    assert setup.values("out") == [b"1"]
    assert setup.delivery.refused == 1


def test_a_dead_letter_that_is_too_large_waits_until_somebody_makes_room(setup):
    setup.broker.configure("dead", {"max.message.bytes": "70"})
    setup.take(report(dead=[1]))
    for _ in range(5):
        setup.delivery.pump()
        setup.clock.advance(REFUSED_LONGEST)
    assert (setup.delivery.refused, setup.partition.settled) == (1, [])
    setup.broker.configure("dead", {"max.message.bytes": "1000"})
    setup.delivery.pump()
    assert setup.partition.settled == [1]


def test_a_record_ends_also_without_what_its_recovery_cannot_send(setup, caplog):
    sends = (large(1),)
    letter = write("dead", 1)
    ending = Report()
    record = Record("in", 0, 1)
    ending.outcomes = [Outcome("bury", 1, record, (*sends, letter), sends=sends)]
    setup.take(ending)
    while setup.delivery.outstanding:
        setup.delivery.pump()
    assert (setup.values("dead"), setup.partition.settled) == ([b"1"], [1])
    assert "its record is buried without what its recovery sent" in caplog.text
