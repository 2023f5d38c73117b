"""What librdkafka says for want of a permission, on a secured Kafka: one error, at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from redrive.config import Settings, load_settings
from redrive.errors import PublishError
from redrive.kafka.admin import Admin
from redrive.kafka.errors import NotAllowedError
from redrive.kafka.granted import granted
from redrive.kafka.log import KafkaLog
from redrive.kafka.progress import KafkaProgress
from redrive.kafka.publisher import KafkaPublisher
from redrive.kafka.topic_admin import KafkaTopics
from redrive.kafka.transactional_producer import TransactionalProducer
from redrive.permissions import Operation, Permission, Resource, lacking
from redrive.ports import Position
from redrive.record import TopicPartition, Write


@pytest.fixture
def place(redrive_secure_stack, redrive_prefix) -> TopicPartition:
    """The only partition of a topic with one record."""
    owner = load_settings(redrive_secure_stack.settings, environ={})
    KafkaTopics(owner).create(redrive_prefix, 1, {})
    publisher = KafkaPublisher(owner)
    publisher.publish([Write(redrive_prefix, b"key", b"value")])
    publisher.close()
    return TopicPartition(redrive_prefix, 0)


@pytest.fixture
def user(redrive_secure_stack, redrive_prefix, place) -> Callable[..., Settings]:
    """The settings of a user who may do this and nothing else, all of it on names of this test."""

    def make(**granted: Operation) -> Settings:
        kinds: dict[str, Resource] = {"ids": "transactional-id"}
        needed = [
            Permission("group", kinds.get(kind, kind), redrive_prefix, (operation,), kind == "ids")
            for kind, operation in granted.items()
        ]
        given = redrive_secure_stack.add_user(redrive_prefix, needed)
        return load_settings(given, environ={})

    return make


def test_progress_of_a_group_that_is_not_ones_own(user, place):
    progress = KafkaProgress(user(topic="READ"), place.topic)
    with pytest.raises(NotAllowedError, match=f"grant READ on group {place.topic};"):
        progress.committed([place])


def test_progress_of_a_group_that_was_ones_own_until_now(
    user, place, redrive_secure_stack, redrive_prefix
):
    progress = KafkaProgress(user(topic="READ", group="READ"), place.topic)
    assert progress.committed([place]) == {}
    gone = Permission("group", "group", place.topic, ("READ",))
    redrive_secure_stack.users.revoke(redrive_prefix, [gone])
    with pytest.raises(NotAllowedError, match=f"grant READ on group {place.topic};"):
        progress.committed([place])


def test_progress_without_the_right_to_write_it(user, place):
    progress = KafkaProgress(user(topic="READ", group="DESCRIBE"), place.topic)
    assert progress.committed([place]) == {}
    with pytest.raises(NotAllowedError, match=f"grant READ on group {place.topic};"):
        progress.commit({place: Position(1)})


def test_progress_in_a_topic_that_one_may_not_read(user, place):
    progress = KafkaProgress(user(topic="DESCRIBE", group="READ"), place.topic)
    with pytest.raises(NotAllowedError, match=f"grant READ on topic {place.topic};"):
        progress.commit({place: Position(1)})


def test_records_of_a_topic_that_one_may_not_read(user, place):
    log = KafkaLog(user(topic="DESCRIBE"), place.topic)
    try:
        with pytest.raises(NotAllowedError, match=f"grant READ on topic {place.topic};"):
            log.read(place, 0, 1)
    finally:
        log.close()


def test_records_are_read_without_any_right_to_a_group(user, place):
    log = KafkaLog(user(topic="READ"), place.topic)
    try:
        assert [record.value for record in log.read(place, 0, 1)] == [b"value"]
    finally:
        log.close()


@pytest.fixture
def writer(user, redrive_secure_stack, redrive_prefix) -> Iterator[KafkaPublisher]:
    """Of a user who may write to other topics."""
    settings = user(topic="READ")
    others = Permission("outbound topics", "topic", f"{redrive_prefix}.", ("WRITE",), prefixed=True)
    redrive_secure_stack.users.grant(redrive_prefix, [others])
    publisher = KafkaPublisher(settings)
    yield publisher
    publisher.close()


def test_a_topic_that_one_may_not_write_to(writer, place):
    assert writer.not_allowed is None
    with pytest.raises(PublishError, match=f"grant WRITE on topic {place.topic};") as raised:
        writer.publish([Write(place.topic, None, b"")])
    assert isinstance(raised.value, NotAllowedError)
    assert str(writer.not_allowed) == str(raised.value)


def test_what_was_handed_over_says_it_too(writer, place):
    handed = writer.hand_over([Write(place.topic, None, b"")])
    while handed.outstanding:
        handed.poll(0.1)
    assert isinstance(handed.error(), NotAllowedError)
    assert isinstance(writer.not_allowed, NotAllowedError)


def test_who_may_write_nowhere_has_no_producer_at_all(user, place):
    publisher = KafkaPublisher(user(topic="READ"))
    for _ in range(2):  # the second time with a new producer
        with pytest.raises(PublishError):
            publisher.publish([Write(place.topic, None, b"")])
        assert "grant WRITE on a topic" in str(publisher.not_allowed)
    publisher.close()


def test_transactions_of_an_id_that_is_not_ones_own(user, place):
    with pytest.raises(NotAllowedError, match="grant WRITE on transactional ids that begin with"):
        TransactionalProducer(user(topic="READ"), place.topic, place)


@pytest.mark.parametrize(("granted", "missing"), [("READ", "WRITE"), ("WRITE", "READ")])
def test_a_transaction_with_a_topic_that_one_may_not_use(user, place, granted, missing):
    settings = user(topic=granted, group="READ", ids="WRITE")
    producer = TransactionalProducer(settings, place.topic, place)
    with pytest.raises(NotAllowedError, match=f"grant {missing} on topic {place.topic};"):
        producer.commit([Write(place.topic, None, b"")], {place: Position(1)})


def test_what_is_allowed_can_be_asked(user, place):
    allowed = Admin(user(topic="WRITE")).allowed([place.topic, "another"])
    assert allowed == {place.topic: {"WRITE", "DESCRIBE"}, "another": set()}


def test_what_is_granted_of_a_group_and_of_transactional_ids(user, place):
    ids = Permission("transactional ids", "transactional-id", place.topic, ("WRITE",), True)
    needed = [Permission("group", "group", place.topic, ("READ",)), ids]
    refused = user(topic="READ")
    assert lacking(needed, granted(needed, refused, Admin(refused))) == needed
    allowed = user(group="READ", ids="WRITE")
    assert lacking(needed, granted(needed, allowed, Admin(allowed))) == []


def test_settings_that_may_not_be_seen_are_left_out(user, place):
    topics = KafkaTopics(user(topic="READ"))
    assert topics.visible_settings([place.topic]) == {}
    assert topics.describe([place.topic])[place.topic].config == {}
