"""`redrive dead` on a real Kafka: what failed, of an app and of others."""

from __future__ import annotations

import json

import letters
import pytest

from redrive.config import load_settings
from redrive.kafka.publisher import KafkaPublisher
from redrive.record import Write


@pytest.fixture
def bootstrap(redrive_stack):
    return redrive_stack.bootstrap


@pytest.fixture
def publish(bootstrap):
    publisher = KafkaPublisher(load_settings({"bootstrap": bootstrap}, environ={}))
    yield publisher.publish
    publisher.close()


@pytest.fixture
def foreign(redrive_topic, publish):
    """A topic with one letter of each dialect."""
    topic = redrive_topic()
    for headers in (
        letters.SPRING,
        letters.SPRING_RETRYABLE,
        letters.SMALLRYE,
        letters.CONNECT,
        letters.STREAMS,
        letters.SHARE,
        (),
    ):
        publish([Write(topic, b"k", b'{"n": 1}', headers)])
    return topic


def test_letters_of_others_are_read_without_an_app(redrive, bootstrap, foreign):
    at = ("--topic", foreign, "--bootstrap", bootstrap)
    answer = redrive("dead", "groups", *at, "--json")
    assert answer.exit_code == 0, answer.output
    data = json.loads(answer.stdout)
    assert data["scan"] == {
        "topic": foreign,
        "scanned": 7,
        "matched": 7,
        "complete": True,
        "deleted": 0,
        "places": [],
    }
    assert len(data["groups"]) == 7
    listed = redrive("dead", "list", *at, "--error", "IllegalStateException")
    assert "orders[3]@4711" in listed.stdout
    assert f"1 of 7 letters scanned in {foreign} (all of them)" in listed.stdout
    shown = redrive("dead", "show", *at, "--at", f"{foreign}[0]@0")
    assert "header    trace-id = abc" in shown.stdout
    assert "com.shop.Billing" in shown.stdout
    stats = json.loads(redrive("dead", "stats", *at, "--json").stdout)
    assert stats["dialects"]["spring"] == 2
    exported = redrive("dead", "export", *at, "--dialect", "auto")
    assert len(exported.stdout.splitlines()) == 7


def test_mistakes_are_sentences(redrive, bootstrap, foreign):
    def said(*arguments):
        answer = redrive("dead", *arguments)
        assert answer.exit_code != 0
        return str(answer.exception)

    assert "name an app, such as shop:app" in said("groups")
    at = ("--topic", foreign, "--bootstrap", bootstrap)
    assert "there is no dialect 'x'" in said("groups", *at, "--dialect", "x")
    assert "retention may have deleted it" in said("show", *at, "--at", f"{foreign}[0]@99")
    gone = ("--topic", f"{foreign}.gone", "--bootstrap", bootstrap)
    assert "does not exist" in said("groups", *gone)
