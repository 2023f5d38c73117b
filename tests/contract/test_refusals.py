"""Why writes are refused, and which topics take none at all: on Kafka and in memory."""

from __future__ import annotations

import pytest

from redrive.errors import PublishError
from redrive.record import Write


def refused(broker, *writes):
    with pytest.raises(PublishError) as caught:
        broker.publisher.publish(writes)
    return caught.value


def test_each_refused_write_has_its_own_reason(broker):
    missing = broker.name()
    small = broker.topic(config={"max.message.bytes": "1000"})
    writes = [
        Write(small, None, b"v"),
        Write(small, None, b"x" * 2000),
        Write(missing, None, b"v"),
        Write(small, None, b"v", partition=9),
    ]
    error = refused(broker, *writes)
    assert [id(each) for each in error.refused] == [id(each) for each in writes[1:]]
    assert [each.kind for each in error.reasons] == ["message", "topic", "message"]
    assert [each.topic for each in error.reasons] == [small, missing, small]
    assert (error.kind, error.topic) == ("message", small)


def test_a_compacted_topic_does_not_take_messages_without_keys(broker):
    topic = broker.topic(config={"cleanup.policy": "compact"})
    assert refused(broker, Write(topic, None, b"v")).kind == "message"
    broker.publisher.publish([Write(topic, b"k", b"v")])


def test_a_missing_topic_takes_nothing_until_it_is_made(broker):
    there, missing = broker.topic(), broker.name()
    assert refused(broker, Write(missing, None, b"v")).kind == "topic"
    found = broker.publisher.refusing([there, missing])
    assert list(found) == [missing]
    assert "does not exist: create it" in str(found[missing])
    broker.topics.create(missing, 1, {})
    assert broker.publisher.refusing([there, missing]) == {}
    broker.publisher.publish([Write(missing, None, b"v")])
    assert len(broker.all_records(missing)) == 1


def test_a_topic_that_takes_some_messages_takes_writes(broker):
    small = broker.topic(config={"max.message.bytes": "1000"})
    assert broker.publisher.refusing([small]) == {}
    assert broker.publisher.refusing([]) == {}


def test_what_is_handed_over_alone_is_judged_by_itself(broker):
    small = broker.topic(config={"max.message.bytes": "1000"})
    writes = [Write(small, None, b"v"), Write(small, None, b"x" * 2000), Write(small, None, b"w")]
    handed = broker.publisher.hand_over(writes, alone=True)
    while handed.outstanding:
        handed.poll(0.1)
    error = handed.error()
    assert [id(each) for each in error.refused] == [id(writes[1])]
    assert [record.value for record in broker.all_records(small)] == [b"v", b"w"]
