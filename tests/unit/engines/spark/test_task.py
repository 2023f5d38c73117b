"""Tasks and slices in memory: what is committed, and when a task ends."""

from __future__ import annotations

import threading
from collections import Counter
from pathlib import Path
from time import monotonic

import pytest
from memory_engine import MiniSpark, WorkerDied, memory_runtime

from redrive import App, Backoff, Bury, InPlace, Retry, RetryPolicy
from redrive.delivery.refusing_topics import RefusingTopics
from redrive.engines.spark import marks, slices, task
from redrive.engines.spark.ranges import Range
from redrive.engines.spark.slices import Slice, TransactionSlice
from redrive.envelope import parse
from redrive.kafka.errors import BrokerError, OffsetsGoneError, not_allowed
from redrive.ports import Position
from redrive.processing.outcomes.report import Outcome, Report
from redrive.processing.progress.done_beyond import still_at
from redrive.record import Record, TopicPartition, Write
from redrive.tuning import TASK_READ_WAIT

PLACE = TopicPartition("in", 0)
START = Position(0)


def numbers(count: int, start: int = 0) -> list[bytes]:
    return [b"%d" % number for number in range(start, start + count)]


def copying(**options: object) -> App:
    app = App("app", **{"ordering": "partition", **options})  # type: ignore[arg-type]  # -- stands for the real one

    @app.handler("in")
    def copy(record, ctx):
        ctx.send("out", record.value)

    return app


def mini(app: App, partitions: int = 1, **spec: object) -> MiniSpark:
    spark = MiniSpark(app, partitions=partitions, **spec)
    spark.broker.create("out")
    return spark


@pytest.fixture
def pass_deadline(monkeypatch):
    """Called by a handler: from now on the batch deadline is over, however busy the machine is."""
    over: list[float] = []
    monkeypatch.setattr(task, "monotonic", lambda: monotonic() + sum(over))
    return lambda: over.append(3600)


# What is committed


def test_the_end_of_the_range_is_committed_over_the_gap_at_its_end():
    spark = mini(copying())
    spark.send("in", *numbers(3))
    spark.broker.gap(PLACE, 5)
    spark.run()
    assert spark.committed(PLACE) == Position(8)
    assert spark.values("out") == numbers(3)


def test_a_range_without_any_record_is_passed():
    spark = mini(copying())
    spark.broker.gap(PLACE, 5)
    (report,) = spark.run_task([Range("in", 0, 0, 5)])
    assert (report.end, report.counts.get("done", 0)) == (5, 0)
    assert spark.committed(PLACE) == Position(5)


def test_a_task_commits_no_more_than_its_range():
    spark = mini(copying())
    spark.send("in", *numbers(10))
    spark.run_task([Range("in", 0, 2, 6)])
    assert spark.committed(PLACE) == Position(6)
    assert spark.values("out") == [b"2", b"3", b"4", b"5"]


def test_a_write_that_is_not_allowed_ends_the_run():
    spark = mini(copying(), batch_deadline=50)
    spark.broker.refuse("out", error="TOPIC_AUTHORIZATION_FAILED")
    spark.send("in", *numbers(2))
    (report,) = spark.run_task([Range("in", 0, 0, 2)])
    assert "grant WRITE on topic out;" in report.fatal
    assert report.end == 0


def test_a_run_that_would_bury_most_of_its_records_ends():
    app = App("app", stop_on_dead=0.5, concurrency=1)

    @app.handler("in")
    def misread(record, ctx):
        raise Bury("the field was renamed")

    spark = mini(app)
    spark.send("in", *numbers(100))
    (report,) = spark.run_task([Range("in", 0, 0, 100)])
    assert "20 of the last 20 records would be buried" in report.fatal
    assert len(spark.dead) < 20


def test_a_burial_that_is_not_allowed_ends_the_run_too():
    spark = mini(copying())
    spark.broker.refuse("app.dead", error="TOPIC_AUTHORIZATION_FAILED")
    spark.send("in", *numbers(1))
    (report,) = spark.run_task([Range("in", 0, 0, 1, search="proven")])
    assert "grant WRITE on topic app.dead;" in report.fatal
    assert report.end == 0


def test_a_range_that_one_is_not_allowed_to_read_ends_the_run(monkeypatch):
    spark = mini(copying())
    spark.send("in", *numbers(3))

    def batches(partition, start, end, **options):
        raise not_allowed("read in[0]", "TOPIC_AUTHORIZATION_FAILED", "READ on topic in")
        yield

    monkeypatch.setattr(spark.log, "batches", batches)
    (report,) = spark.run_task([Range("in", 0, 0, 3)])
    assert "grant READ on topic in;" in report.fatal


def test_what_was_done_beyond_a_gap_is_not_run_again():
    app = App("app", ordering="unordered", retry=RetryPolicy())
    calls: list[bytes] = []

    @app.handler("in")
    def handle(record, ctx):
        calls.append(record.value)
        ctx.send("refused" if record.value == b"0" else "out", record.value)

    spark = mini(app)
    spark.broker.create("refused")
    spark.broker.refuse("refused", error="UNKNOWN_TOPIC_OR_PART")
    spark.send("in", *numbers(4))
    (report,) = spark.run_task([Range("in", 0, 0, 4)])
    position = spark.committed(PLACE)
    assert position is not None
    assert position.offset == report.end == 0
    assert position.metadata.startswith("r1:")
    assert (report.refused, report.trouble) == (1, "")
    spark.broker.accept("refused")
    spark.run()
    assert sorted(calls) == [b"0", b"0", b"1", b"2", b"3"]
    assert spark.committed(PLACE) == Position(4)


# One range of several


def test_a_range_of_which_nothing_comes_holds_up_no_other():
    spark = mini(copying(), partitions=2, batch_deadline=2000)
    for number in range(2):
        spark.send("in", *numbers(500), partition=number)
    spark.log.without_leader = {TopicPartition("in", 0)}
    silent, other = spark.run_task([Range("in", 0, 0, 500), Range("in", 1, 0, 500)])
    assert (other.end, other.trouble) == (500, "")
    assert (silent.end, silent.fatal) == (0, "")
    assert spark.values("out") == numbers(500)


def test_a_range_that_stays_silent_says_so(monkeypatch):
    monkeypatch.setattr(slices, "RANGE_SILENCE", 0.1)
    spark = mini(copying(), batch_deadline=300)
    spark.send("in", *numbers(5))
    spark.log.without_leader = {PLACE}
    (silent,) = spark.run_task([Range("in", 0, 0, 5)])
    assert silent.trouble.startswith(
        "in[0]: nothing could be read at offset 0 for 0 s, although the log"
    )


def test_a_task_with_nothing_to_do_waits_where_its_records_come(monkeypatch):
    """And not for a while of its own: records that came meanwhile would wait as long."""
    spark = mini(copying())
    spark.send("in", *numbers(20))
    read, waits = spark.log.batches, []

    def batches(partition, start, end, **options):
        for lot in read(partition, start, end, **options):
            waits.append((yield []))  # it is on its way
            yield lot

    monkeypatch.setattr(spark.log, "batches", batches)
    (report,) = spark.run_task([Range("in", 0, 0, 20)])
    assert report.end == 20
    assert waits == [TASK_READ_WAIT]


def test_nobody_waits_for_records_while_others_are_there(monkeypatch):
    spark = mini(copying(), partitions=2)
    spark.send("in", *numbers(5000), partition=1)
    read, left, waits = spark.log.batches, [5000], []

    def batches(partition, start, end, **options):
        while partition == PLACE and left[0]:
            waits.append((yield []))
        for lot in read(partition, start, end, **options):
            left[0] -= len(lot)
            yield lot

    monkeypatch.setattr(spark.log, "batches", batches)
    spark.run_task([Range("in", 0, 0, 5), Range("in", 1, 0, 5000)])
    assert len(spark.values("out")) == 5000
    assert set(waits) == {0}


def test_a_range_that_cannot_be_read_ends_alone(monkeypatch):
    spark = mini(copying(), partitions=2)
    for number in range(2):
        spark.send("in", *numbers(50), partition=number)
    read = spark.log.batches

    def batches(partition, start, end, **options):
        yield from read(partition, start, 10 if partition == PLACE else end, **options)
        if partition == PLACE:
            raise OffsetsGoneError(partition, 10)

    monkeypatch.setattr(spark.log, "batches", batches)
    gone, other = spark.run_task([Range("in", 0, 0, 50), Range("in", 1, 0, 50)])
    assert (other.end, other.trouble) == (50, "")
    assert gone.end == 10  # what had been read is done
    assert "in[0]: offset 10 is not in the log" in gone.trouble


# How much is in flight


@pytest.mark.parametrize("delivery", ["at-least-once", "transaction"])
def test_records_in_flight_are_weighed_and_shared_out_among_the_ranges_of_a_task(
    delivery, monkeypatch
):
    monkeypatch.setattr(task, "MAX_BYTES_IN_FLIGHT", 2_000_000)
    monkeypatch.setattr(slices, "RANGE_WINDOW", 40)  # batches of ten
    app = App("app", ordering="unordered", concurrency=4, delivery=delivery)
    read, begun, most = Counter(), Counter(), 0

    @app.handler("in")
    def handle(record, ctx):
        nonlocal most
        most = max(most, read[record.partition] - begun[record.partition])
        begun[record.partition] += 1
        ctx.send("out", b"")

    spark = mini(app, partitions=2)
    all_batches = spark.log.batches

    def batches(partition, start, end, **options):
        for lot in all_batches(partition, start, end, **options):
            read[partition.partition] += len(lot)
            yield lot

    monkeypatch.setattr(spark.log, "batches", batches)
    for number in range(2):
        spark.send("in", *(b"%d" % n + bytes(100_000) for n in range(100)), partition=number)
    spark.run_task([Range("in", 0, 0, 100), Range("in", 1, 0, 100)])
    # A million bytes each: ten records, and a lot that was read when there were less.
    assert most <= 30
    assert len(spark.values("out")) == 200


# When it ends


def test_the_deadline_ends_a_task_with_exact_progress():
    app = App("app", ordering="partition")

    @app.handler("in")
    def slow(record, ctx):
        threading.Event().wait(0.01)
        ctx.send("out", record.value)

    spark = mini(app, batch_deadline=1000)  # on a busy machine a task takes a while to begin
    spark.send("in", *numbers(500))
    (report,) = spark.run_task([Range("in", 0, 0, 500)])
    assert 0 < report.end < 500
    assert spark.committed(PLACE) == Position(report.end)
    assert spark.values("out") == numbers(report.end)
    assert report.counts == {"done": report.end}
    assert report.trouble == ""


def test_a_stop_request_ends_a_task(tmp_path: Path):
    app = App("app", ordering="partition")

    @app.handler("in")
    def handle(record, ctx):
        if record.value == b"2":
            (tmp_path / "stop").touch()
        threading.Event().wait(0.02)
        ctx.send("out", record.value)

    spark = mini(app, scratch=str(tmp_path))
    spark.send("in", *numbers(500))
    (report,) = spark.run_task([Range("in", 0, 0, 500)])
    assert 3 <= report.end < 500
    assert spark.values("out") == numbers(report.end)


def test_what_would_wait_in_place_past_the_deadline_is_parked(pass_deadline):
    app = App("app", ordering="key")

    @app.handler("in", retry=RetryPolicy("5m", first=InPlace(9, Backoff("2h", jitter=0))))
    def fail(record, ctx):
        if record.value == b"1":
            raise Retry("not yet")
        if record.value == b"2":
            pass_deadline()

    spark = mini(app, batch_deadline=600_000)
    spark.send("in", *numbers(3))
    (report,) = spark.run_task([Range("in", 0, 0, 3)])
    assert report.end == 3
    assert report.counts == {"done": 2, "park": 1}
    (parked,) = spark.broker.records("app.retry.5m")
    assert parse(parked.headers).attempt == 2


def test_what_waits_in_place_for_ever_holds_the_progress_but_not_the_others(pass_deadline):
    app = App("app", ordering="key")

    @app.handler("in", retry=RetryPolicy(first=InPlace(None, Backoff("2h", jitter=0))))
    def fail(record, ctx):
        if record.value == b"1":
            raise Retry("not yet")
        if record.value == b"2":
            pass_deadline()

    spark = mini(app, batch_deadline=600_000)
    spark.send("in", *numbers(3))
    (report,) = spark.run_task([Range("in", 0, 0, 3)])
    assert report.end == 1
    assert report.counts == {"done": 2}


def test_records_that_are_due_much_later_do_not_hold_a_task():
    app = App("app", retry=RetryPolicy("1h"))
    app.handler("in")(lambda record, ctx: None)
    spark = mini(app)
    spark.send("in", b"x")
    now = spark.clock.now()
    headers = {
        "app": "app", "id": "1", "origin-topic": "in", "origin-partition": "0",
        "origin-offset": "0", "first-received": str(now), "attempt": "2",
        "due": str(now + 3_600_000),
    }  # fmt: skip
    written = tuple((f"redrive-{name}", value.encode()) for name, value in headers.items())
    spark.broker.publish([Write("app.retry.1h", None, b"x", written)])
    (report,) = spark.run_task([Range("app.retry.1h", 0, 0, 1, 3_600_000)])
    assert (report.end, report.counts.get("done", 0)) == (0, 0)


# Transactions


def test_outputs_and_progress_are_committed_together_and_in_order():
    spark = mini(copying(delivery="transaction"))
    spark.send("in", *numbers(50))
    spark.run()
    commits = spark.transactions.commits
    assert [write.value for writes, _ in commits for write in writes] == numbers(50)
    assert [positions for _, positions in commits][-1] == {PLACE: Position(50)}


@pytest.mark.parametrize("limits", [{"TRANSACTION_WRITES": 6}, {"TRANSACTION_BYTES": 6 * 73}])
def test_a_transaction_takes_no_more_than_there_is_room_for(monkeypatch, limits):
    for name, limit in limits.items():
        monkeypatch.setattr(f"redrive.kafka.room.{name}", limit)
    app = App("app", delivery="transaction", ordering="partition")

    @app.handler("in")
    def three_times(record, ctx):
        if record.offset % 5:
            for _ in range(3):
                ctx.send("out", record.value)

    spark = mini(app)
    spark.send("in", *numbers(50))
    (report,) = spark.run_task([Range("in", 0, 0, 50)])
    commits = spark.transactions.commits
    assert all(len(writes) <= 6 for writes, _ in commits)
    written = [write.value for writes, _ in commits for write in writes]
    assert written == [value for n, value in enumerate(numbers(50)) if n % 5 for _ in range(3)]
    reached = [positions[PLACE].offset for _, positions in commits]
    assert reached == sorted(reached)
    assert reached[-1] == 50
    assert report.counts == {"done": 50}


def test_a_crash_before_the_commit_leaves_nothing():
    app = App("app", delivery="transaction", ordering="partition")

    @app.handler("in")
    def die(record, ctx):
        ctx.send("out", record.value)
        if record.value == b"40":
            raise WorkerDied

    spark = mini(app)
    spark.send("in", *numbers(50))
    with pytest.raises(WorkerDied):
        spark.run_task([Range("in", 0, 0, 50)])
    assert spark.values("out") == []
    assert spark.committed(PLACE) is None


def opened_slice(
    spark: MiniSpark, runtime: object, count: int, start: Position = START
) -> TransactionSlice:
    spark.send("in", *numbers(count))
    opened = TransactionSlice(
        runtime,  # type: ignore[arg-type]  # -- stands for the real one
        Range("in", 0, 0, count),
        start,
        spark.transactions,  # type: ignore[arg-type]  # -- stands for the real one
        most_bytes=1_000_000,
        topics=RefusingTopics(spark.broker.refusing, spark.clock),
    )
    opened.processor.offer(opened.read(), spark.clock.now())
    return opened


def ended(*offsets: int, parked: int | None = None) -> Report:
    report = Report()
    report.sent = [
        (offset, [Write("out", None, b"%d" % offset)], Record("in", 0, offset))
        for offset in offsets
    ]
    if parked is not None:
        write = Write("out", None, b"parked")
        report.outcomes = [Outcome("park", parked, Record("in", 0, parked), (write,))]
    return report


def test_a_transaction_that_has_much_to_write_takes_in_nothing_more():
    app = copying(delivery="transaction")
    spark = mini(app)
    with memory_runtime(app, spark.broker, spark.log, spark.clock) as runtime:
        opened = opened_slice(spark, runtime, 6)
        assert opened.wants_records
        report = ended(0)
        report.sent[0][1][:] = [Write("out", None, bytes(300_000))] * 4
        opened.add(opened.processor, report)
        assert not opened.wants_records


def test_what_is_done_beyond_a_record_that_is_stuck_is_weighed():
    app = copying()
    spark = mini(app)
    spark.send("in", *[bytes(100_000)] * 15)
    with memory_runtime(app, spark.broker, spark.log, spark.clock) as runtime:
        opened = Slice(runtime, Range("in", 0, 0, 15), START, most_bytes=1_000_000)
        opened.processor.offer(opened.read(), spark.clock.now())
        opened.processor.settle(range(1, 15))
        assert opened.tracker.in_flight == 1
        assert not opened.wants_records
        opened.processor.settle([0])
        assert opened.wants_records


def test_only_the_prefix_is_committed_and_what_is_beyond_a_gap_is_not():
    app = copying(delivery="transaction")
    spark = mini(app)
    with memory_runtime(app, spark.broker, spark.log, spark.clock) as runtime:
        opened = opened_slice(spark, runtime, 6)
        opened.add(opened.processor, ended(0, 1, 3, parked=4))
        opened.commit(every=0, last=True)
    assert spark.values("out") == [b"0", b"1"]
    assert spark.committed(PLACE) == Position(2)
    assert opened.report().end == 2
    assert "park" not in opened.report().counts


def test_what_a_run_before_has_noted_as_done_stays_noted_until_a_transaction_has_passed_it():
    app = copying(delivery="transaction")
    spark = mini(app)
    noted = still_at(0, [(1, 2), (4, 5)])
    with memory_runtime(app, spark.broker, spark.log, spark.clock) as runtime:
        opened = opened_slice(spark, runtime, 7, noted)
        opened.add(opened.processor, ended(0, 3, 6))
        opened.commit(every=0, last=True)
    assert spark.values("out") == [b"0"]
    assert spark.committed(PLACE) == still_at(2, [(4, 5)])


def test_what_a_run_before_has_noted_as_done_is_not_run_again_in_a_transaction():
    spark = mini(copying(delivery="transaction"))
    spark.send("in", *numbers(7))
    spark.broker.progress("app").commit({PLACE: still_at(0, [(1, 2), (4, 6)])})
    spark.run()
    assert spark.values("out") == [b"0", b"2", b"3", b"6"]
    assert spark.committed(PLACE) == Position(7)


def test_a_transaction_writes_what_recoveries_send_in_their_place():
    app = App("app", delivery="transaction")

    @app.handler("in")
    def handle(record, ctx):
        if record.value == b"2":
            raise Bury("never")
        ctx.send("out", b"paid " + record.value, key=b"k")

    @app.recover
    def recover(record, error, ctx):
        ctx.send("out", b"failed " + record.value, key=b"k")

    spark = mini(app)
    spark.send("in", *numbers(4))
    spark.run_task([Range("in", 0, 0, 4)])
    assert spark.values("out") == [b"paid 0", b"paid 1", b"failed 2", b"paid 3"]


def test_a_transaction_waits_for_all_of_its_records():
    app = copying(delivery="transaction")
    spark = mini(app)
    with memory_runtime(app, spark.broker, spark.log, spark.clock) as runtime:
        opened = opened_slice(spark, runtime, 3)
        opened.add(opened.processor, ended(0, 1))
        opened.commit(every=0)
        assert spark.transactions.commits == []
        opened.add(opened.processor, ended(2))
        opened.read()  # the end of the range
        opened.commit(every=0)
    assert spark.values("out") == [b"0", b"1", b"2"]
    assert spark.committed(PLACE) == Position(3)


def test_what_counts_as_done_was_committed():
    """Figures must not tell of records whose transaction was never committed."""
    app = copying(delivery="transaction")
    spark = mini(app)
    with memory_runtime(app, spark.broker, spark.log, spark.clock) as runtime:
        opened = opened_slice(spark, runtime, 6)
        opened.add(opened.processor, ended(0, 1, 3, 4, 5))
        opened.commit(every=0, last=True)
    assert opened.report().counts["done"] == 2


def test_a_task_that_ends_early_waits_for_its_handlers_as_the_next_may_run_the_same_records():
    app = App("app", concurrency=4)
    began, may_end, ended = threading.Event(), threading.Event(), threading.Event()

    @app.handler("in")
    def handle(record, ctx):
        if record.value == b"1":
            began.set()
            may_end.wait(10)
            ended.set()

    class Away:
        """A coordinator that goes away while a handler runs."""

        def commit(self, positions):
            began.wait(10)
            threading.Timer(0.05, may_end.set).start()
            raise BrokerError("the coordinator is away")

    spark = mini(app)
    spark.send("in", *numbers(3))
    with memory_runtime(app, spark.broker, spark.log, spark.clock) as runtime:
        runtime.progress = Away()  # type: ignore[assignment]  # -- stands for the real one
        (report,) = task.Task(spark.spec, runtime).run([Range("in", 0, 0, 3)])
        assert ended.is_set()
    assert "the coordinator is away" in report.trouble


def test_what_a_late_task_committed_for_a_recreated_topic_is_not_where_a_transaction_begins():
    spark = mini(copying(delivery="transaction"))
    spark.send("in", *numbers(5))
    late = marks.labelled(Position(3), topic_id="the one before", run="run")
    spark.progress.commit({PLACE: late})
    topic_id = spark.log.topic_id("in")
    spark.run_task([Range("in", 0, 0, 5, topic_id=topic_id)])
    assert spark.values("out") == numbers(5)
