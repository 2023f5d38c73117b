"""Progress beside transactions and beside members of the group."""

from __future__ import annotations

import threading

import confluent_kafka
import pytest
from confluent_kafka import Consumer

from redrive.kafka.admin import Admin
from redrive.kafka.errors import BrokerError
from redrive.kafka.progress import KafkaProgress
from redrive.ports import Position


@pytest.fixture
def group(redrive_prefix):
    return f"{redrive_prefix}-group"


@pytest.fixture
def progress(settings, group):
    return KafkaProgress(settings, group)


@pytest.fixture
def consumer(redrive_stack, group):
    made = Consumer(
        {
            "bootstrap.servers": redrive_stack.bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
        }
    )
    yield made
    made.close()


def test_what_another_client_committed_is_seen_at_once(progress, consumer, place):
    progress.commit({place: Position(1, "mine")})
    theirs = confluent_kafka.TopicPartition(*place, 2, metadata="theirs")
    consumer.commit(offsets=[theirs], asynchronous=False)
    assert progress.committed([place]) == {place: Position(2, "theirs")}


def test_metadata_is_not_kept_from_an_earlier_commit(progress, place):
    progress.commit({place: Position(1, "something")})
    progress.commit({place: Position(2)})
    assert progress.committed([place]) == {place: Position(2, "")}


def test_a_group_with_members_is_refused_with_the_reason(progress, consumer, place):
    joined = threading.Event()
    consumer.subscribe([place.topic], on_assign=lambda *_: joined.set())
    while not joined.is_set():
        consumer.poll(0.1)
    with pytest.raises(BrokerError, match=r"has active members.*stop one of them"):
        progress.commit({place: Position(5)})
    assert progress.committed([place]) == {}


def test_offsets_of_an_open_transaction_are_waited_for(
    settings, group, consumer, place, transaction
):
    KafkaProgress(settings, group).commit({place: Position(1)})
    producer = transaction(place, b"v")
    producer.send_offsets_to_transaction(
        [confluent_kafka.TopicPartition(*place, 7)], consumer.consumer_group_metadata()
    )
    impatient = KafkaProgress(settings, group, admin=Admin(settings, patience=0))
    with pytest.raises(BrokerError, match="_TIMED_OUT"):
        impatient.committed([place])
    producer.commit_transaction()
    assert KafkaProgress(settings, group).committed([place]) == {place: Position(7)}


def test_one_bad_partition_is_named_not_swallowed(progress, place):
    gone = place._replace(topic=f"{place.topic}.gone")
    with pytest.raises(BrokerError, match="UNKNOWN_TOPIC_OR_PART"):
        progress.commit({place: Position(1), gone: Position(1)})


def test_nothing_is_committed_where_it_is_not_for_this_one_to_commit_any_more(
    settings, group, place
):
    class TakenOverError(Exception):
        pass

    def check(places):
        raise TakenOverError(*places)

    KafkaProgress(settings, group).commit({place: Position(5)})
    with pytest.raises(TakenOverError):
        KafkaProgress(settings, group, check=check).commit({place: Position(9)})
    assert KafkaProgress(settings, group).committed([place]) == {place: Position(5)}
