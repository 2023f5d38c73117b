"""A retry sequence hop by hop, and dead letters that are what the records were; on every engine."""

from __future__ import annotations

from collections import defaultdict

from redrive.durations import milliseconds
from redrive.envelope import parse, user_headers
from redrive.record import Write

DELAYS = "1s 1s 3s 3s 3s 6s"
RECORDS = 3


def test_a_sequence_of_delays_hop_by_hop(world, start):
    target = world.app(f"""
        app = App(NAME, retry=RetryPolicy("{DELAYS}"))

        @app.handler(topic("in"))
        def fail(record, ctx):
            note(id=record.value.decode(), attempt=ctx.attempt, due=ctx.envelope.due)
            raise Retry(f"failure {{ctx.attempt}}")
    """)
    headers = (("user", b"1"), ("user", b"2"), ("none", None))
    world.publisher.publish([
        Write(world.topic("in"), b"k%d" % number, b"v%d" % number, headers)
        for number in range(RECORDS)
    ])  # fmt: skip
    sources = {record.value: record for record in world.records("in")}
    run = start(target)
    world.wait(run, "the burials", lambda: world.count("dead") == RECORDS, timeout=90)
    run.stop()

    calls = defaultdict(list)
    for note in world.notes():
        calls[note["id"].encode()].append(note)
    delays = [milliseconds(delay) for delay in DELAYS.split()]
    for value, source in sources.items():
        told = calls[value]
        assert [note["attempt"] for note in told] == [1, 2, 3, 4, 5, 6, 7]
        hops = [
            (record, parse(record.headers), milliseconds(delay))
            for delay in ("1s", "3s", "6s")
            for record in world.records(f"retry.{delay}")
            if record.value == value
        ]
        hops.sort(key=lambda hop: hop[1].attempt)
        assert [envelope.attempt for _, envelope, _ in hops] == [2, 3, 4, 5, 6, 7]
        assert [delay for _, _, delay in hops] == delays
        for (record, envelope, delay), before, after in zip(hops, told, told[1:], strict=False):
            assert (record.key, user_headers(record.headers)) == (source.key, headers)
            assert envelope.origin_topic == source.topic
            assert envelope.origin_partition == source.partition
            assert envelope.origin_offset == source.offset
            assert envelope.origin_timestamp == source.timestamp
            assert envelope.error_message == f"failure {envelope.attempt - 1}"
            assert envelope.dead_reason is None
            assert envelope.due >= before["at"] + delay  # from the failure, not from the hop before
            assert after["due"] == envelope.due
            assert after["at"] >= max(envelope.due, record.timestamp + delay), "early"
    for letter in world.records("dead"):
        source = sources[letter.value]
        envelope = parse(letter.headers)
        assert (letter.key, user_headers(letter.headers)) == (source.key, headers)
        assert (envelope.dead_reason, envelope.attempt) == ("exhausted", 7)
        assert envelope.due is None
        assert envelope.origin_offset == source.offset
        assert envelope.error_message == "failure 7"


def test_dead_letters_are_the_records_byte_for_byte(world, start, caplog):
    target = world.app("""
        app = App(NAME)

        @app.handler(topic("in"), decode=lambda value: value.decode())
        def refuse(record, ctx):
            raise Bury("never")
    """)
    topic = world.topic("in")
    written = [
        Write(topic, None, b"null key", (("h", b"\xff\x00"),)),
        Write(topic, b"null value", None, (("h", None), ("h", b"twice"))),
        Write(topic, b"\x00\xffbinary", b"\xfe\x00\xfd not text", ()),
        Write(topic, b"", b"", (("", b""),)),
        Write(topic, b"large", b"x" * 900_000, ()),
    ]
    world.publisher.publish(written)
    run = start(target)
    world.wait(run, "the burials", lambda: world.count("dead") == len(written))
    run.stop()
    found = {
        (letter.key, letter.value, user_headers(letter.headers)): parse(letter.headers).dead_reason
        for letter in world.records("dead")
    }
    assert found == {
        (write.key, write.value, write.headers): (
            "undecodable" if write.key == b"\x00\xffbinary" else "rejected"
        )
        for write in written
    }
    assert run.handle.figures.dead() == {(topic, "rejected"): 4, (topic, "undecodable"): 1}
    why = [line for line in caplog.records if line.name == "redrive.causes"]
    traces = {line.reason: line.exc_text for line in why if line.exc_text}
    assert 'raise Bury("never")' in traces["rejected"]
    assert "UnicodeDecodeError" in traces["undecodable"]
    assert len([line for line in why if line.exc_text]) == 2, "each cause once with its trace"
    assert {line.reason: line.total for line in why} == {"rejected": 4, "undecodable": 1}
