"""Gaps, refused commits and writes, brokers and partitions that go and come back."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType
from guarantees import CommittedIsComplete, EveryRecordProcessed, FewDuplicates, OrderKept
from processing import HANDLER, processing
from running import FAILING_ONCE

from redrive.engines.worker import group_member
from redrive.kafka.config import make_handle
from redrive.record import Write

NOTES = """
    app = App(NAME, concurrency=4, {choices})

    @app.handler(topic("in"))
    def handle(record, ctx):
        note(value=(record.value or b"").decode(), partition=record.partition, offset=record.offset)
"""


def handled(world):
    return sorted(note["value"] for note in world.notes())


# Gaps


@pytest.mark.parametrize("delivery", ["at-least-once", "transaction"])
def test_gaps_of_transactions_are_passed(world, start, delivery):
    target = world.app(NOTES.format(choices=f"delivery={delivery!r}"), partitions=1)
    producer = Producer({"bootstrap.servers": world.bootstrap, "transactional.id": world.prefix})
    producer.init_transactions(30)
    for number in range(6):
        producer.begin_transaction()
        for each in range(3):
            producer.produce(world.topic("in"), b"%d-%d" % (number, each))
        producer.flush(30)
        (producer.abort_transaction if number % 2 else producer.commit_transaction)(30)
    run = start(target)
    world.wait(run, "the end, markers and all", lambda: world.lag("in") == 0)
    run.stop()
    assert handled(world) == sorted(f"{n}-{m}" for n in (0, 2, 4) for m in range(3))
    again = start(target, until="empty")
    assert again.worker.await_termination(60)
    assert len(world.notes()) == 9


def test_gaps_of_compaction_are_passed(world, start, redrive_stack):
    target = world.app(NOTES.format(choices=""), partitions=1)
    topic = world.topic("in")
    _clean_often(world, redrive_stack.brokers[0])
    world.topics.configure(
        topic, {"cleanup.policy": "compact", "segment.ms": "50", "max.compaction.lag.ms": "50",
                "min.cleanable.dirty.ratio": "0.01"},
    )  # fmt: skip

    def compacted():
        # A segment is closed by the record after it, and only closed ones are cleaned.
        world.publisher.publish([Write(topic, b"again", b"%d" % world.count("in"))])
        return len(world.log.read(*_all_of(world))) < world.count("in") - 5

    world.publisher.publish(
        [Write(topic, b"key" if number % 3 else b"once-%d" % number, b"%d" % number)
         for number in range(30)]
    )  # fmt: skip
    world.wait(None, "the cleaner", compacted)
    run = start(target)
    world.wait(run, "the end", lambda: world.lag("in") == 0)
    run.stop()
    assert {"0", "3", "27", "29"} <= set(handled(world))
    assert len(world.notes()) < world.count("in") - 5


def _all_of(world):
    (place,) = world.places("in")
    return place, *world.log.bounds(place)


def _clean_often(world, broker):
    entry = ConfigEntry(
        "log.cleaner.backoff.ms", "100", incremental_operation=AlterConfigOpType.SET
    )
    resource = ConfigResource(ResourceType.BROKER, str(broker.node), incremental_configs=[entry])
    for future in world.admin.client.incremental_alter_configs([resource]).values():
        future.result(30)


# Commits


class Refusing:
    """The consumer, whose commits are refused for a while."""

    def __init__(self, consumer):
        self._consumer = consumer
        self.left = 0

    def commit(self, **arguments):
        if self.left:
            self.left -= 1
            raise KafkaException(KafkaError(KafkaError.REBALANCE_IN_PROGRESS))
        return self._consumer.commit(**arguments)

    def __getattr__(self, name):
        return getattr(self._consumer, name)


def test_refused_commits_are_tried_again_and_end_nothing(world, start, monkeypatch, caplog):
    target = world.app(NOTES.format(choices=""))
    made = []

    def make(*given):
        made.append(Refusing(make_handle(*given)))
        return made[-1]

    with monkeypatch.context() as patch:
        patch.setattr(group_member, "make_handle", make)
        run = start(target)
    (consumer,) = made
    consumer.left = 3
    world.send("in", *[b"%d" % number for number in range(100)])
    world.wait(run, "all", lambda: world.lag("in") == 0)
    assert run.worker.counting.commit_failures == 3
    assert "commits are accepted again" in caplog.text or "a commit was refused" in caplog.text
    consumer.left = 1000
    world.send("in", b"last")
    world.wait(run, "the last", lambda: "last" in handled(world))
    run.stop()  # with a commit that fails as the partitions go
    again = start(target, until="empty")
    assert again.worker.await_termination(60)
    assert set(handled(world)) == {*map(str, range(100)), "last"}
    assert world.lag("in") == 0


# Writes


@pytest.mark.parametrize("refusal", ["too large", "gone"])
def test_a_dead_topic_that_refuses_holds_the_offset_until_it_accepts(world, start, refusal, caplog):
    target = world.app(
        """
        app = App(NAME, concurrency=4)

        @app.handler(topic("in"))
        def handle(record, ctx):
            note(value=record.value[:4].decode())
            if record.value.startswith(b"dead"):
                raise Bury("never")
        """,
        partitions=1,
    )
    run = start(target)
    dead = world.topic("dead")
    if refusal == "gone":
        world.topics.delete(dead)
    else:
        world.topics.configure(dead, {"max.message.bytes": "200"})
    world.send("in", b"good", b"dead" + b"x" * 5000, b"more", b"last")
    world.wait(run, "the refusal", lambda: "stay where they are" in caplog.text, timeout=120)
    assert run.worker.refused == 1
    world.wait(run, "the others", lambda: "last" in handled(world))
    (place,) = world.places("in")
    assert world.committed("in")[place].offset <= 1
    if refusal == "gone":
        world.create(dead)
    else:
        world.topics.configure(dead, {"max.message.bytes": "1000000"})
    world.wait(run, "the burial", lambda: world.lag("in") == 0, timeout=120)
    run.stop()
    assert handled(world) == ["dead", "good", "last", "more"]
    assert len(world.values("dead")) == 1
    (told,) = [each.message for each in caplog.records if "stay where they are" in each.message]
    assert dead in told  # once, however often it was tried


def test_a_record_is_not_passed_over_because_its_message_has_a_twin(world, start):
    """Both send the same key and value; a header of the second is too large for the topic."""
    target = world.app(
        """
        app = App(NAME, ordering="partition")

        @app.handler(topic("in"))
        def handle(record, ctx):
            large = record.value == b"large"
            headers = {"from": record.value, "pad": b"x" * (5000 if large else 1)}
            ctx.send(topic("out"), b"ping", partition=1 if large else 0, headers=headers)
        """,
        partitions=1,
    )
    out = world.topic("out")
    world.create(out, 2)
    world.topics.configure(out, {"max.message.bytes": "2000"})
    world.send("in", b"small", b"large")
    run = start(target)
    world.wait(run, "both", lambda: world.lag("in") == 0)
    run.stop()
    assert [record.header("from") for record in world.records("out")] == [b"small"]
    assert world.values("dead") == [b"large"]


# Brokers


@pytest.mark.parametrize("delivery", ["at-least-once", "transaction"])
def test_a_broker_that_is_restarted(world, start, redrive_stack, delivery):
    options = f'delivery={delivery!r}, concurrency=8, retry=RetryPolicy("200ms")'
    target = world.app(FAILING_ONCE.format(options=options, seconds=0.005), partitions=2)
    world.create(world.topic("out"), 2)
    values = [b"%d" % number for number in range(3000)]
    world.send("in", *values)
    run = start(target)
    world.wait(run, "some of it", lambda: world.count("out") >= 300)
    broker = redrive_stack.brokers[0]
    # One that is to say good-bye, alone, waits ten seconds for transactions that wait for it.
    (broker.kill if delivery == "transaction" else broker.stop)()
    broker.start()
    world.wait(run, "all of it", lambda: {*world.values("out")} == {*values}, timeout=120)
    world.wait(run, "progress", lambda: world.lag("in") == 0)
    run.stop()
    assert world.values("dead") == []
    if delivery == "transaction":
        assert sorted(world.values("out")) == sorted(values)


# Partitions that come and go


@pytest.mark.parametrize("delivery", ["at-least-once", "transaction"])
def test_a_partition_that_starts_again_waits_for_handlers_that_still_run(world, start, delivery):
    target = world.app(
        f"""
        app = App(NAME, concurrency=4, delivery={delivery!r})

        @app.handler(topic("in"))
        def handle(record, ctx):
            note(value=record.value.decode(), what="begins")
            while not Path(NOTES).with_name("go").exists():
                time.sleep(0.01)
            note(value=record.value.decode(), what="ends")
        """,
        partitions=1,
    )
    world.publisher.publish([Write(world.topic("in"), b"key", value) for value in (b"1", b"2")])
    run = start(target)
    world.wait(run, "the first", lambda: len(world.notes()) == 1)
    partitions = run.worker.assignment.partitions
    (before,) = [each for each in partitions.values() if each.delay is None]
    run.worker.member.loop.ask(lambda: run.worker.member.reopening.set_aside([before]))

    def reopened():
        now = partitions.get(before.place)
        return now is not None and now is not before and now.in_flight == 2

    world.wait(run, "it is read again", reopened)
    assert len(world.notes()) == 1
    (world.folder / "go").touch()
    world.wait(run, "both", lambda: world.lag("in") == 0)
    run.stop()
    told = [(note["value"], note["what"]) for note in world.notes()]
    assert told == [(value, what) for value in "112" for what in ("begins", "ends")]


def test_a_partition_that_goes_and_comes_back_while_work_is_in_flight(world, start):
    """Its late acknowledgements count for nothing, and it is read anew, not paused."""
    target = world.app(
        """
        app = App(NAME, concurrency=4, librdkafka={"session.timeout.ms": 6000})
        contexts = []

        @app.handler(topic("in"), ack="manual")
        def handle(record, ctx):
            contexts.append(ctx)
            note(value=record.value.decode(), partition=record.partition)
        """,
        partitions=2,
    )
    topic = world.topic("in")
    world.publisher.publish(
        [Write(topic, b"%d-%d" % (n, m), b"%d-%d" % (n, m), (), n)
         for n in range(2) for m in range(3)]
    )  # fmt: skip
    first = start(target, max_in_flight=2)
    world.wait(first, "all in flight", lambda: len(world.notes()) == 6)
    (held_back,) = {each.paused for each in first.worker.assignment.partitions.values()}
    assert held_back
    contexts = first.worker.app.handlers[topic].call.__globals__["contexts"]
    held = list(contexts)
    second = start(target, max_in_flight=2, drain="100ms")
    world.wait(second, "its share", lambda: second.worker.assigned == 1)
    world.wait(second, "the work, again", lambda: len(world.notes()) == 9)
    for context in held:
        context.ack()
    mine = {place for place in first.worker.assignment.partitions if place.topic == topic}
    moved = next(place for place in world.places("in") if place not in mine)
    second.stop()
    world.wait(first, "both", lambda: first.worker.assigned == 2)
    world.wait(first, "the work, a third time", lambda: len(world.notes()) == 12)
    assert world.committed("in")[moved].offset == 0
    for context in contexts[6:]:
        context.ack()
    world.wait(first, "the end", lambda: world.lag("in") == 0)
    world.send("in", b"more", b"and more")
    world.wait(first, "more", lambda: len(world.notes()) == 14)
    first.stop()


def test_a_handler_that_takes_longer_than_the_poll_interval_disturbs_nobody(world, start):
    target = world.app(
        """
        app = App(NAME, librdkafka={"session.timeout.ms": 6000, "max.poll.interval.ms": 6000})

        @app.handler(topic("in"))
        def handle(record, ctx):
            note(value=record.value.decode())
            time.sleep(9)
        """,
        partitions=1,
    )
    world.send("in", b"slow")
    run = start(target, revoke_wait="2s")
    world.wait(run, "its end", lambda: world.lag("in") == 0)
    assert run.worker.counting.rebalances == {"assigned": 1}
    run.stop()
    assert handled(world) == ["slow"]


def test_a_worker_that_was_stopped_and_continued_moves_no_offsets(world):
    (world.folder / "redrive.toml").write_text("[librdkafka]\n'session.timeout.ms' = 6000\n")
    source = HANDLER.format(ordering="key", pause=0.05)
    with processing(world, source) as suite, CommittedIsComplete(world, "in") as committed:
        suite.send(2000)
        first = suite.start()
        suite.wait_for(300, first)
        first.freeze()
        second = suite.start()
        suite.wait_for(suite.begun() + 300, second)
        first.go_on()
        suite.wait_for_all()
        for run in (first, second):
            run.stop()
            assert run.wait(1) == 0, run.output()
        assert "lost:" in first.output()
        suite.check(EveryRecordProcessed(), committed)


# The group's protocols


def test_the_new_protocol_works_over_restarts(world):
    """Killed instead of stopped, it has to wait for its name: tests/chaos."""
    source = HANDLER.format(ordering="key", pause=0.02)
    with processing(world, source, "--group-protocol", "consumer") as suite:
        suite.send(500)
        first = suite.start()
        suite.wait_for(100, first)
        second = suite.start()
        suite.wait_for(200, second)
        for run in (first, second):
            world.wait(run, "its partitions", lambda run=run: "assigned:" in run.output())
            run.stop()
            assert run.wait(1) == 0, run.output()
            suite.start()
        suite.wait_for_all()
        few = FewDuplicates(25)
        suite.check(EveryRecordProcessed(), OrderKept("key"), few)


def test_a_name_that_another_worker_takes_ends_the_first_with_a_sentence(world, start):
    target = world.app(NOTES.format(choices=""))
    first = start(target, instance="twin")
    world.wait(first, "its partitions", lambda: first.worker.ready)
    second = start(target, instance="twin")
    world.wait(second, "its partitions", lambda: second.worker.ready)
    world.wait(None, "the end of the first", first.worker.ended.is_set)
    with pytest.raises(Exception, match="--instance"):
        first.worker.check()
    world.send("in", b"1")
    world.wait(second, "it", lambda: world.lag("in") == 0)
