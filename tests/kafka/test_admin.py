"""Passing troubles are waited out; others are errors that say why."""

from __future__ import annotations

import privates
import pytest
from confluent_kafka import KafkaError, KafkaException

from redrive.config import load_settings
from redrive.kafka.admin import Admin, is_passing
from redrive.kafka.errors import BrokerError, MissingTopicError, NotAllowedError


class Client:
    """An admin client as librdkafka makes it: it gets what is to be told of errors."""

    def poll(self, _):
        return 0

    def list_topics(self, timeout):
        return ()


def admin_of(client, settings, monkeypatch, **options):
    """An Admin with that client."""

    def make(_kind, _config, on_error):
        client.on_error = on_error
        return client

    monkeypatch.setattr("redrive.kafka.admin.make_handle", make)
    return Admin(settings, **options)


def describe(client):
    return client.describe_cluster(request_timeout=1).result()


def test_a_passing_trouble_is_asked_again(admin):
    troubles = ["NOT_COORDINATOR", "COORDINATOR_LOAD_IN_PROGRESS", "LEADER_NOT_AVAILABLE"]
    answers = [KafkaException(KafkaError(getattr(KafkaError, name))) for name in troubles]

    def request(_):
        if answers:
            raise answers.pop()
        return "at last"

    assert admin.ask("do it", request) == "at last"


def test_a_lasting_trouble_is_an_error(settings):
    def request(_):
        raise KafkaException(KafkaError(KafkaError.NOT_COORDINATOR))

    with pytest.raises(
        BrokerError, match=r"cannot do it .NOT_COORDINATOR: .*check the broker's log"
    ):
        Admin(settings, patience=0.2).ask("do it", request)


def test_what_will_not_pass_is_not_asked_twice(admin):
    calls = []

    def request(_):
        calls.append(1)
        raise KafkaException(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED))

    with pytest.raises(NotAllowedError, match="a permission is missing; `redrive doctor"):
        admin.ask("do it", request)
    assert len(calls) == 1


def test_why_nobody_answers(nowhere):
    with pytest.raises(BrokerError, match=r"Connection refused.*no broker answers"):
        Admin(nowhere, patience=0).ask("describe the cluster", describe)


def test_a_plaintext_listener_where_tls_was_expected(redrive_stack):
    settings = load_settings(
        {"bootstrap": redrive_stack.bootstrap, "security": {"protocol": "SSL"}}, environ={}
    )
    with pytest.raises(BrokerError, match="PLAINTEXT broker listener"):
        Admin(settings, patience=1).ask("describe the cluster", describe)


def test_why_a_broker_refuses_us_is_reported_rather_than_that_it_hung_up(nowhere, monkeypatch):
    class HungUp(Client):
        def poll(self, _):
            for said in ("closed by peer", "SSL handshake failed: who are you?", "closed by peer"):
                self.on_error(KafkaError(privates.TRANSPORT, said))

        def list_topics(self, timeout):
            raise KafkaException(KafkaError(privates.TRANSPORT))

    def request(_):
        raise KafkaException(KafkaError(privates.TRANSPORT, "it hung up"))

    admin = admin_of(HungUp(), nowhere, monkeypatch, patience=0)
    with pytest.raises(BrokerError, match="who are you"):
        admin.ask("describe the cluster", request)


def test_a_missing_topic_is_not_created_by_asking(admin, redrive_prefix):
    for _ in range(2):
        with pytest.raises(MissingTopicError):
            admin.topic(redrive_prefix)


def test_waiting_for_something_that_does_not_happen(settings):
    with pytest.raises(BrokerError, match="the end of the world did not complete within 0 s"):
        Admin(settings, patience=0.1).wait_until("the end of the world", lambda: False)


def test_which_troubles_pass():
    assert is_passing(KafkaError(KafkaError.NOT_LEADER_FOR_PARTITION))
    assert is_passing(KafkaError(privates.DESTROY_BROKER))
    assert not is_passing(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART))


def test_a_broker_that_is_gone_is_not_asked_for_ever(settings, monkeypatch):
    """librdkafka asks whom it took for the controller, until it is made to look who is there."""

    class Looks(Client):
        looked = False

        def list_topics(self, timeout):
            self.looked = True

    def request(client):
        if not client.looked:
            raise KafkaException(KafkaError(privates.TRANSPORT))
        return "an answer"

    admin = admin_of(Looks(), settings, monkeypatch, patience=20)
    assert admin.ask("do something", request) == "an answer"


def test_a_broker_that_answers_is_not_said_to_be_silent(settings, monkeypatch):
    """The coordinator of a group may be another one, or busy."""

    def request(_):
        raise KafkaException(KafkaError(privates.TIMED_OUT, "waiting for a coordinator"))

    admin = admin_of(Client(), settings, monkeypatch, patience=0)
    with pytest.raises(BrokerError, match=r"coordinator\): a broker answers, but not"):
        admin.ask("ask for the progress of shop", request)
