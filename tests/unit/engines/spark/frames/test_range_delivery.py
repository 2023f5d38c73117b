"""Rows of one range become durable, on a broker in memory and without Spark."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from memory_engine import MemoryTransactions

from redrive import App, RetryPolicy
from redrive.config import load_settings
from redrive.delivery.refusing_topics import RefusingTopics
from redrive.engines.spark import marks
from redrive.engines.spark.frames.chunks import Chunk
from redrive.engines.spark.frames.frame_session import ArrowBatchSize
from redrive.engines.spark.frames.range_delivery import RangeDelivery
from redrive.engines.spark.frames.refused_rows import RefusedRows
from redrive.engines.spark.frames.row_audit import RowsError
from redrive.engines.spark.frames.writers import FlushWriter, TransactionWriter
from redrive.engines.spark.ranges import Range
from redrive.engines.spark.spec import Spec
from redrive.envelope import Envelope, parse
from redrive.kafka.errors import NotAllowedError
from redrive.kafka.room import Room
from redrive.messages import Messages
from redrive.ports import Position
from redrive.processing.outcomes.causes import Seen, Tally
from redrive.processing.progress.done_beyond import still_at
from redrive.processing.progress.notes import without_notes
from redrive.record import Record, TopicPartition, Write
from redrive.testing import MemoryBroker, VirtualClock
from redrive.tuning import TRANSACTION_BYTES

PLACE = TopicPartition("orders", 0)
HEAVY = 20_000_000
"""Two chunks of it are more than may wait."""
_HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
_SEND = pa.struct(
    [("topic", pa.string()), ("key", pa.binary()), ("value", pa.binary()), ("headers", _HEADERS)]
)
_READ = pa.struct(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.int64()),
        ("due", pa.int64()),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("headers", _HEADERS),
    ]
)
_FAILED = pa.struct([("reason", pa.string()), ("after", pa.int64()), ("read", _READ)])
SCHEMA = pa.schema(
    [
        ("number", pa.int64()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("due", pa.int64()),
        ("kind", pa.string()),
        ("sends", pa.list_(_SEND)),
        ("failed", pa.list_(_FAILED)),
    ]
)


def nothing_refused() -> dict[str, Any]:
    """What writers are given, where all that they write is taken."""
    topics = RefusingTopics(lambda _: {}, VirtualClock())
    never: Any = None
    app = App("shop")
    app.frame("orders")(lambda frame: frame)
    return {"refused_rows": RefusedRows(topics, never), "tally": Tally(app)}


class Kafka(MemoryBroker):
    """A broker in memory that is read in batches, as Kafka is."""

    reads = 0

    def batches(self, place: TopicPartition, start: int, end: int) -> Iterator[list[Record]]:
        self.reads += 1
        yield self.read(place, start, end)


class World:
    """One range of one batch."""

    def __init__(self, folder: Path) -> None:
        self.clock = VirtualClock()
        self.kafka = Kafka(self.clock)
        for topic in ("orders", "out", "shop.dead"):
            self.kafka.create(topic, 1, {})
        self.kafka.create("shop.retry.1s", 1, {"message.timestamp.type": "LogAppendTime"})
        self.app = App("shop", retry=RetryPolicy("1s"))
        self.app.frame("orders")(lambda frame: frame)
        self.progress = self.kafka.progress("shop")
        self.spec = Spec(
            target="shop:app",
            folder="",
            settings=load_settings({"bootstrap": "none:1"}, environ={}),
            run="run",
            scratch=str(folder),
            slots=2,
            batch_deadline=3_600_000,  # however busy the machine is
            commit_every=3_600_000,
        )

    def send(self, *values: bytes) -> None:
        self.kafka.publish([Write("orders", b"k", value) for value in values])

    def delivery(
        self, end: int, *, place=PLACE, start: int = 0, delay=None, again=False, noted: str = ""
    ):
        process: Any = SimpleNamespace(
            app=self.app,
            kafka_log=self.kafka,
            progress=self.progress,
            publisher=self.kafka,
            clock=self.clock,
            known_topics=set(),
            marks=None,
        )
        return RangeDelivery(
            self.spec,
            process,
            Range(*place, start, end, delay, noted, topic_id="ID"),
            topic_id="ID",
            now=self.clock.now(),
            again=again,
        )

    def write_by(self, producer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        """Have deliveries write in transactions of that producer."""
        monkeypatch.setattr("redrive.engines.spark.marks.producer", lambda *_: producer)
        self.app = App("shop", retry=RetryPolicy("1s"), delivery="transaction")
        self.app.frame("orders")(lambda frame: frame)

    def committed(self, place: TopicPartition = PLACE) -> int | None:
        found = self.progress.committed([place]).get(place)
        return None if found is None else found.offset

    def values(self, topic: str) -> list[bytes | None]:
        return [record.value for record in self.kafka.records(topic)]


@pytest.fixture
def world(tmp_path):
    return World(tmp_path)


def row(number: int, offset: int, kind: str | None = "send", **more: Any) -> dict[str, Any]:
    made = {"number": number, "topic": "orders", "partition": 0, "offset": offset, "kind": kind}
    if kind == "send":
        value = b"out %d" % offset
        made["sends"] = [{"topic": "out", "key": b"k", "value": value, "headers": None}]
    if kind in {"park", "bury"}:
        read = {
            "topic": "orders",
            "partition": 0,
            "offset": offset,
            "timestamp": 5,
            "key": b"k",
            "value": b"in %d" % offset,
            "headers": [{"key": "user", "value": b"kept"}],
        }
        made["failed"] = [{"reason": "because", "after": more.pop("after", None), "read": read}]
    return {**made, **more}


def rows(*found: dict[str, Any]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(list(found), SCHEMA)


def test_rows_are_written_and_the_end_of_the_range_is_committed_over_its_gaps(world):
    world.send(b"a", b"b")
    world.kafka.gap(PLACE, 3)
    world.send(b"c")
    world.kafka.gap(PLACE, 2)
    delivery = world.delivery(8)
    delivery.add(rows(row(0, 0), row(1, 1), row(2, 5)))
    delivery.finish()
    assert world.values("out") == [b"out 0", b"out 1", b"out 5"]
    assert world.committed() == 8
    assert delivery.report().counts == {"done": 3}


def test_each_kind_of_outcome_goes_where_it_says(world):
    world.send(b"a", b"b", b"c", b"d")
    delivery = world.delivery(4)
    found = (row(0, 0, "done"), row(1, 1, "park"), row(2, 2, "bury"), row(3, 3))
    delivery.add(rows(*found))
    delivery.finish()
    assert world.values("out") == [b"out 3"]
    (waiting,) = world.kafka.records("shop.retry.1s")
    (letter,) = world.kafka.records("shop.dead")
    assert (waiting.value, letter.value) == (b"in 1", b"in 2")
    assert parse(waiting.headers).error_message == "because"
    assert parse(letter.headers).dead_reason == "rejected"
    assert ("user", b"kept") in waiting.headers
    assert delivery.report().counts == {"done": 2, "park": 1, "bury": 1}
    parked, buried = map(Seen.of, delivery.report().causes)
    assert (parked.cause.kind, parked.message, parked.place) == ("park", "because", "orders[0]@1")
    assert (buried.cause.kind, buried.cause.fingerprint.reason) == ("bury", "rejected")


def test_causes_are_reported_once_what_is_written_for_them_is_durable(world):
    world.send(b"a", b"b", b"c")
    delivery = world.delivery(3)
    delivery.add(rows(row(0, 0, "park"), row(1, 1, "park")))
    assert delivery.report().causes == []
    delivery.add(rows(row(2, 2, "park")))
    delivery.finish()
    (parked,) = delivery.report().causes
    assert parked["count"] == 3, "each cause once, however many chunks it came in"


def test_headers_of_a_message_are_the_users_never_redrives(world):
    world.send(b"a")
    headers = [{"key": "user", "value": None}, {"key": "redrive-app", "value": b"other"}]
    sends = [{"topic": "out", "key": None, "value": b"v", "headers": headers}] * 2
    delivery = world.delivery(1)
    delivery.add(rows(row(0, 0, sends=sends)))
    delivery.finish()
    assert [record.headers for record in world.kafka.records("out")] == [(("user", None),)] * 2


@pytest.mark.parametrize(("sends", "refused"), [("out", False), (["other"], True), ((), True)])
def test_a_frame_sends_where_it_has_declared_to_or_its_run_ends(world, sends, refused):
    world.app = App("shop", retry=RetryPolicy("1s"))
    world.app.frame("orders", sends=sends)(lambda frame: frame)
    world.send(b"a")
    delivery = world.delivery(1)
    if refused:
        with pytest.raises(RowsError, match=r"send\(\) to 'out': sends= does not declare it"):
            delivery.add(rows(row(0, 0)))
    else:
        delivery.add(rows(row(0, 0)))
        delivery.finish()
    assert world.values("out") == ([] if refused else [b"out 0"])


@pytest.mark.parametrize(
    ("found", "offset"),
    [
        ([row(0, 0), row(2, 2)], 1),
        ([row(1, 1), row(2, 2)], 0),
        ([row(0, 0), row(1, 1)], 2),
    ],
)
def test_a_row_that_did_not_come_out_is_named_and_nothing_behind_it_is_committed(
    world, found, offset
):
    world.send(b"a", b"b", b"c")
    delivery = world.delivery(3)
    with pytest.raises(RowsError, match=rf"did not return orders\[0\]@{offset}:"):
        (delivery.add(rows(*found)), delivery.finish())
    # What came out before it may be: that is a matter of time.
    assert (world.committed() or 0) <= offset


@pytest.mark.parametrize(
    "found",
    [
        [row(0, 0), row(1, 1, partition=1)],
        [row(0, 0), row(1, 1, topic="others")],
        [row(0, 1, topic="others")],
    ],
)
def test_a_row_of_another_partition_is_named_and_nothing_is_committed(world, found):
    world.send(b"a", b"b")
    delivery = world.delivery(2)
    with pytest.raises(RowsError, match=r"(orders\[1\]|others\[0\])@1 .* rows of orders\[0\]"):
        delivery.add(rows(*found))
    assert world.committed() is None


def test_a_row_without_an_outcome_is_named(world):
    world.send(b"a", b"b")
    with pytest.raises(RowsError, match=r"orders\[0\]@1 .* no outcome"):
        world.delivery(2).add(rows(row(0, 0), row(1, 1, None)))


def test_an_outcome_that_says_two_things_is_named(world):
    world.send(b"a", b"b")
    with pytest.raises(RowsError, match=r"orders\[0\]@1 .* not all send"):
        world.delivery(2).add(rows(row(0, 0), row(1, 1, "mixed")))


def test_records_that_are_for_another_app_are_passed_in_one_read(world):
    envelope = Envelope(
        app="other",
        id="x",
        origin_topic="orders",
        origin_partition=0,
        origin_offset=0,
        first_received=1,
    )
    for _ in range(5):
        world.send(b"ours")
        world.kafka.publish([Write("orders", b"k", b"theirs", envelope.headers(()))])
    world.send(b"ours")
    delivery = world.delivery(11)
    delivery.add(rows(*(row(number, number) for number in range(0, 11, 2))))
    delivery.finish()
    assert world.committed() == 11
    assert delivery.report().counts == {"done": 6, "skip": 5}
    assert world.kafka.reads == 1


def test_at_the_deadline_the_rest_is_left_for_the_next_batch(world):
    world.spec = replace(world.spec, batch_deadline=0)
    world.send(b"a", b"b", b"c")
    delivery = world.delivery(3)
    delivery.add(rows(row(0, 0), row(1, 1)))
    assert delivery.cut
    delivery.finish()
    assert world.committed() == 2
    assert not world.kafka.reads


def test_when_the_run_is_being_stopped_the_rest_is_left(world):
    world.send(b"a", b"b")
    delivery = world.delivery(2)
    world.spec.stop_file.touch()
    delivery.add(rows(row(0, 0)))
    delivery.finish()
    assert (delivery.cut, world.committed()) == (True, 1)


def test_how_late_parked_rows_came_out_is_reported(world):
    place = TopicPartition("shop.retry.1s", 0)
    world.kafka.publish([Write(place.topic, b"k", b"v")] * 3)
    world.progress.commit({place: Position(1)})
    delivery = world.delivery(3, place=place, delay=1000, again=True)
    due = world.clock.now()
    world.clock.advance("2s")
    late = (row(number, number, topic=place.topic, due=due - number) for number in range(3))
    delivery.add(rows(*late))
    delivery.finish()
    assert delivery.report().lateness == [2001, 2002]


def test_a_record_that_is_not_due_by_its_own_word_ends_the_range_before_it(world):
    place = TopicPartition("shop.retry.1s", 0)
    for due in (0, 3_600_000, 0):
        envelope = Envelope(
            app="shop",
            id="x",
            origin_topic="orders",
            origin_partition=0,
            origin_offset=4,
            first_received=1,
            attempt=2,
            due=world.clock.now() + due,
        )
        world.kafka.publish([Write(place.topic, b"k", b"v", envelope.headers(()))])
    world.clock.advance("2s")
    delivery = world.delivery(3, place=place, delay=1000)
    delivery.add(rows(row(0, 0, topic=place.topic), row(2, 2, topic=place.topic)))
    delivery.finish()
    assert world.values("out") == [b"out 0"]
    assert world.committed(place) == 1


def test_what_an_attempt_before_has_committed_is_not_written_again(world):
    world.send(b"a", b"b", b"c")
    world.progress.commit({PLACE: Position(2)})
    delivery = world.delivery(3, again=True)
    delivery.add(rows(row(0, 0), row(1, 1)))
    delivery.add(rows(row(2, 2)))
    delivery.finish()
    assert world.values("out") == [b"out 2"]
    assert world.committed() == 3


def test_what_was_committed_for_a_topic_that_was_recreated_is_no_attempt_before(world):
    world.send(b"a", b"b", b"c")
    late = marks.labelled(Position(2), topic_id="the one before", run="run")
    world.progress.commit({PLACE: late})
    delivery = world.delivery(3, again=True)
    delivery.add(rows(row(0, 0), row(1, 1), row(2, 2)))
    delivery.finish()
    assert world.values("out") == [b"out 0", b"out 1", b"out 2"]


def sends(topic: str, value: bytes = b"v") -> list[dict[str, Any]]:
    return [{"topic": topic, "key": None, "value": value, "headers": None}]


@pytest.fixture(params=["at-least-once", "transaction"])
def either(request, world, monkeypatch) -> World:
    """Whatever makes rows durable."""
    if request.param == "transaction":
        world.write_by(MemoryTransactions(world.kafka, world.app), monkeypatch)
    return world


def test_a_refused_write_holds_its_row_and_those_behind_it(either):
    either.send(b"a", b"b", b"c", b"d")
    delivery = either.delivery(4)
    gone = sends("nowhere")
    delivery.add(rows(row(0, 0), row(1, 1, "park"), row(2, 2, sends=gone), row(3, 3, sends=gone)))
    delivery.finish()
    report = delivery.report()
    assert either.values("out") == [b"out 0"]
    assert (either.committed(), report.end, report.counts) == (2, 2, {"done": 1, "park": 1})
    assert len(report.causes) == 1
    assert (report.refused, report.trouble) == (2, "")
    ((topic, kind, why),) = report.refusals
    assert (topic, kind) == ("nowhere", "topic")
    assert "the topic does not exist" in why


def test_what_a_run_before_has_noted_as_done_needs_no_row_and_stays_noted(either):
    either.send(b"a", b"b", b"c", b"d", b"e", b"f")
    noted = still_at(0, [(1, 2), (4, 5)])
    either.progress.commit({PLACE: noted})
    delivery = either.delivery(6, noted=noted.metadata)
    delivery.add(rows(row(0, 0), row(2, 2), row(3, 3, sends=sends("away"))))
    delivery.finish()
    delivery.close()
    assert without_notes(either.progress.committed([PLACE])[PLACE]) == still_at(3, [(4, 5)])
    either.kafka.create("away", 1, {})
    delivery = either.delivery(6, start=3, noted=still_at(3, [(4, 5)]).metadata)
    delivery.add(rows(row(0, 3, sends=sends("away")), row(2, 5)))
    delivery.finish()
    delivery.close()
    assert without_notes(either.progress.committed([PLACE])[PLACE]) == Position(6)
    assert either.values("out") == [b"out 0", b"out 2", b"out 5"]


def test_a_range_ends_at_a_row_that_waits(either):
    either.send(b"a", b"b")
    delivery = either.delivery(2)
    delivery.add(rows(row(0, 0, sends=sends("nowhere"))))
    assert delivery.cut
    delivery.add(rows(row(1, 1)))  # however much more comes
    delivery.finish()
    assert delivery.report().refused == 1
    assert (either.values("out"), either.committed()) == ([], None)


def test_a_message_that_its_topic_does_not_take_has_its_row_buried(either):
    either.kafka.configure("out", {"max.message.bytes": "200"})
    either.send(b"a", b"b", b"c")
    delivery = either.delivery(3)
    large = sends("out", b"x" * 500)
    delivery.add(rows(row(0, 0), row(1, 1, sends=large * 2), row(2, 2)))
    delivery.finish()
    assert either.values("out") == [b"out 0", b"out 2"]
    (letter,) = either.kafka.records("shop.dead")
    envelope = parse(letter.headers)
    assert (letter.value, envelope.dead_reason) == (b"b", "refused-write")
    assert "larger than the topic allows" in (envelope.error_message or "")
    report = delivery.report()
    assert (either.committed(), report.counts) == (3, {"done": 2, "bury": 1})
    assert (report.refused, [each["count"] for each in report.causes]) == (0, [1])


def test_a_dead_topic_that_does_not_take_it_holds_its_row(either):
    either.kafka.configure("out", {"max.message.bytes": "200"})
    either.kafka.configure("shop.dead", {"max.message.bytes": "10"})
    either.send(b"a", b"b", b"c")
    delivery = either.delivery(3)
    delivery.add(rows(row(0, 0), row(1, 1, sends=sends("out", b"x" * 500)), row(2, 2)))
    delivery.finish()
    report = delivery.report()
    assert (either.committed(), report.refused, report.counts) == (1, 1, {"done": 1})
    assert [each[0] for each in report.refusals] == ["shop.dead"]
    assert either.values("shop.dead") == []


def test_a_write_that_is_not_allowed_ends_the_run(either):
    either.kafka.refuse("out", error="TOPIC_AUTHORIZATION_FAILED")
    either.send(b"a")
    delivery = either.delivery(1)
    with pytest.raises(NotAllowedError, match="grant WRITE on topic out"):
        (delivery.add(rows(row(0, 0))), delivery.finish())
    assert either.committed() is None


def with_bytes(batch: pa.RecordBatch, text: str, found: bytes) -> pa.RecordBatch:
    """The same with another text of as many bytes, as Spark makes them of any."""
    whole = batch.serialize().to_pybytes()
    assert len(text) == len(found)
    assert text.encode() in whole
    return pa.ipc.read_record_batch(pa.py_buffer(whole.replace(text.encode(), found)), SCHEMA)


def test_texts_that_are_not_utf8_do_not_end_the_run(world):
    world.send(b"a", b"b")
    headers = [{"key": "name", "value": b"kept"}]
    sends = [{"topic": "out", "key": None, "value": b"v", "headers": headers}]
    delivery = world.delivery(2)
    batch = with_bytes(rows(row(0, 0, sends=sends), row(1, 1, "bury")), "name", b"na\xffe")
    delivery.add(with_bytes(batch, "because", b"bec\xffuse"))
    delivery.finish()
    (sent,) = world.kafka.records("out")
    (letter,) = world.kafka.records("shop.dead")
    assert sent.headers == (("na\\xffe", b"kept"),)
    assert parse(letter.headers).error_message == "bec\\xffuse"


def test_a_record_at_fault_is_buried_and_passed(world):
    world.send(b"a", b"b")
    delivery = world.delivery(2, start=1)
    delivery.bury("failed-expression", ValueError("[CAST]"))
    (letter,) = world.kafka.records("shop.dead")
    assert letter.value == b"b"
    assert parse(letter.headers).dead_reason == "failed-expression"
    assert world.committed() == 2


class Producer:
    """Notes what each transaction holds."""

    def __init__(self) -> None:
        self.room = Room()
        self.commits: list[tuple[int, int]] = []

    def commit(self, writes: list[Write], positions: dict[TopicPartition, Position]) -> None:
        (position,) = positions.values()
        self.commits.append((len(writes), position.offset))


def test_transactions_take_writes_and_progress_of_whole_chunks_together(monkeypatch):
    monkeypatch.setattr("redrive.kafka.room.TRANSACTION_WRITES", 4)
    producer: Any = Producer()
    writer = TransactionWriter(producer, PLACE, start=0, **nothing_refused())
    for end in (2, 4, 6):
        writer.put(Chunk(end, Messages([Write("out", None, b"v")] * 2)))
    writer.finish()
    writer.close()
    assert producer.commits == [(4, 4), (2, 6)]
    assert writer.committed == 6


class Busy:
    """A publisher whose producer is never idle unless it is waited for: as Kafka's it knows how
    many messages are under way, and not whose they are."""

    def __init__(self) -> None:
        self.under_way = 0

    def hand_over(self, writes: list[Write]) -> Busy:
        self.under_way += len(writes)
        return self

    @property
    def outstanding(self) -> int:
        return self.under_way

    def poll(self, seconds: float) -> None:
        if seconds:
            self.under_way = 0

    def error(self) -> None:
        return None


def test_progress_is_committed_while_there_is_more_to_do(world):
    busy: Any = Busy()
    writer = FlushWriter(busy, world.progress, PLACE, start=0, every=0, **nothing_refused())
    for end in (1, 2, 3):
        writer.put(Chunk(end, Messages([Write("out", None, b"v")])))
        assert (busy.under_way, world.committed()) == (0, end)


def test_it_is_not_waited_for_more_often_than_progress_is_to_be_committed(world):
    busy: Any = Busy()
    writer = FlushWriter(busy, world.progress, PLACE, start=0, every=3600, **nothing_refused())
    for end in (1, 2, 3):
        writer.put(Chunk(end, Messages([Write("out", None, b"v")])))
    assert busy.under_way == 3
    assert world.committed() is None


def test_what_is_written_and_not_durable_is_bounded_by_its_weight(world):
    writer = FlushWriter(
        world.kafka, world.progress, PLACE, start=0, every=3600, **nothing_refused()
    )
    seen = []
    for number in range(1, 5):
        writer.put(Chunk(number, Messages([Write("out", None, b"v")]), [0], weight=HEAVY))
        seen.append(world.committed())
    assert seen == [None, 2, 2, 4]


def test_a_transaction_is_bounded_by_its_weight():
    producer: Any = Producer()
    writer = TransactionWriter(producer, PLACE, start=0, **nothing_refused())
    for number in range(1, 5):
        writer.put(Chunk(number, weight=TRANSACTION_BYTES // 2))
    writer.finish()
    writer.close()
    assert producer.commits == [(0, 2), (0, 4)]


def transacting(world: World, monkeypatch: pytest.MonkeyPatch, end: int, **more: Any) -> Any:
    """A delivery whose writes go into transactions of at most four messages."""
    monkeypatch.setattr("redrive.kafka.room.TRANSACTION_WRITES", 4)
    producer: Any = Producer()
    world.write_by(producer, monkeypatch)
    return producer, world.delivery(end, **more)


def test_rows_that_send_more_than_one_transaction_takes_are_halved(world, monkeypatch):
    producer, delivery = transacting(world, monkeypatch, 5)
    sends = [{"topic": "out", "key": None, "value": b"v", "headers": None}]
    delivery.add(rows(*(row(n, n, sends=sends * (9 if n == 4 else 1)) for n in range(5))))
    delivery.finish()
    delivery.close()
    assert producer.commits == [(4, 4), (9, 5)]  # one row's messages are never parted


def test_rows_that_weigh_more_than_one_transaction_takes_are_halved(world, monkeypatch):
    monkeypatch.setattr("redrive.kafka.room.TRANSACTION_BYTES", 25_000)
    producer, delivery = transacting(world, monkeypatch, 4)
    monkeypatch.setattr("redrive.kafka.room.TRANSACTION_WRITES", 100)
    heavy = [{"topic": "out", "key": None, "value": b"v" * 10_000, "headers": None}]
    delivery.add(rows(*(row(n, n, sends=heavy) for n in range(4))))
    delivery.finish()
    delivery.close()
    assert producer.commits == [(2, 2), (2, 4)]


def test_records_that_fail_together_do_not_go_into_one_transaction(world, monkeypatch):
    world.send(*(b"%d" % n for n in range(10)))
    producer, delivery = transacting(world, monkeypatch, 10)
    delivery.fail(ValueError("no"))
    delivery.close()
    assert producer.commits == [(4, 4), (4, 8), (2, 10)]


def test_records_that_are_not_for_the_handler_do_not_go_into_one_transaction(world, monkeypatch):
    broken = (("redrive-app", b"shop"),)
    world.kafka.publish([Write("shop.retry.1s", b"k", b"v", broken) for _ in range(10)])
    place = TopicPartition("shop.retry.1s", 0)
    producer, delivery = transacting(world, monkeypatch, 10, place=place, delay=1000)
    delivery.finish()
    delivery.close()
    assert producer.commits == [(4, 4), (4, 8), (2, 10)]


@pytest.mark.parametrize(
    ("row_bytes", "rows"),
    [(0, 200), (100, 2000), (8_000, 2000), (16_000, 1000), (1_000_000, 16), (10**9, 1)],
)
def test_fewer_rows_go_to_python_at_once_the_heavier_they_are(row_bytes, rows):
    conf: Any = {"spark.redrive.set.spark.sql.execution.arrow.maxRecordsPerBatch": "true"}
    spark: Any = SimpleNamespace(conf=SimpleNamespace(get=conf.get, set=conf.__setitem__))
    lots = ArrowBatchSize(spark)
    lots.learn(row_bytes)
    lots.set()
    assert conf["spark.sql.execution.arrow.maxRecordsPerBatch"] == str(rows)
    conf.clear()
    lots.set()
    assert conf == {}  # the session's owner has chosen


def test_a_range_tells_how_heavy_its_rows_are(world):
    world.send(b"a", b"b", b"c")
    delivery = world.delivery(3)
    heavy = [{"topic": "out", "key": None, "value": b"x" * 100_000, "headers": None}]
    delivery.add(rows(row(0, 0, sends=heavy), row(1, 1, sends=heavy)))
    delivery.add(rows(row(2, 2)))
    delivery.finish()
    assert 100_000 <= delivery.report().row_bytes <= 101_000
