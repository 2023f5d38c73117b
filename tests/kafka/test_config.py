"""What clients are told, and that their logs and errors tell no secrets."""

from __future__ import annotations

import logging

import privates
import pytest
from confluent_kafka import KafkaError, Producer
from confluent_kafka.admin import AdminClient

from redrive.config import load_settings
from redrive.errors import ConfigurationError
from redrive.kafka.config import (
    NotAgain,
    admin_config,
    consumer_config,
    make_handle,
    producer_config,
    report_error,
    transactional_config,
)
from redrive.kafka.java_config import java_properties

PEM = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"
KEY = "-----BEGIN PRIVATE KEY-----\nMIIE\n-----END PRIVATE KEY-----\n"


def settings_of(**given):
    return load_settings({"bootstrap": "a:1,b:2", **given}, environ={})


def test_producers_are_idempotent_and_partition_like_java():
    config = producer_config(settings_of(librdkafka={"linger.ms": 7, "fetch.min.bytes": 9}))
    assert config["bootstrap.servers"] == "a:1,b:2"
    assert config["enable.idempotence"] is True
    assert config["acks"] == "all"
    assert config["partitioner"] == "murmur2_random"
    assert config["linger.ms"] == 7
    assert "fetch.min.bytes" not in config  # it would only make librdkafka warn


def test_consumers_read_what_is_committed_and_never_jump():
    config = consumer_config(settings_of(librdkafka={"linger.ms": 7, "fetch.min.bytes": 9}), "g")
    assert config["group.id"] == "g"
    assert config["isolation.level"] == "read_committed"
    assert config["auto.offset.reset"] == "error"
    assert config["enable.auto.commit"] is False
    assert config["enable.partition.eof"] is True
    assert config["fetch.wait.max.ms"] == 10
    assert config["allow.auto.create.topics"] is False
    assert config["fetch.min.bytes"] == 9
    assert "linger.ms" not in config


def test_defaults_can_be_changed():
    config = producer_config(settings_of(librdkafka={"message.timeout.ms": 5}))
    assert config["message.timeout.ms"] == 5
    assert admin_config(settings_of(librdkafka={"socket.timeout.ms": 5}))["socket.timeout.ms"] == 5


@pytest.mark.parametrize(
    ("given", "timeout"),
    [
        ({}, 30_000),
        ({"message.timeout.ms": 5}, 5),
        ({"message.timeout.ms": 120_000}, 60_000),
        ({"message.timeout.ms": 0}, 60_000),
        ({"delivery.timeout.ms": "90000"}, 60_000),
        ({"transaction.timeout.ms": 300_000, "message.timeout.ms": 120_000}, 120_000),
    ],
)
def test_a_message_is_given_up_before_its_transaction_is(given, timeout):
    config = transactional_config(settings_of(librdkafka=given), "shop/orders/0")
    assert config["message.timeout.ms"] == timeout
    make_handle(Producer, config)  # else librdkafka refuses the settings


def test_security_in_librdkafkas_words(tmp_path):
    (tmp_path / "ca.pem").write_text(PEM)
    security = {
        "protocol": "SASL_SSL",
        "mechanism": "SCRAM-SHA-512",
        "user": "me",
        "password": "hunter2",
        "ca": str(tmp_path / "ca.pem"),
        "certificate": PEM,
        "key": KEY,
    }
    config = admin_config(settings_of(security=security))
    del config["bootstrap.servers"], config["client.id"], config["socket.timeout.ms"]
    assert config == {
        "security.protocol": "sasl_ssl",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "me",
        "sasl.password": "hunter2",
        "ssl.ca.location": str(tmp_path / "ca.pem"),
        "ssl.certificate.pem": PEM,
        "ssl.key.pem": KEY,
    }


def test_secrets_among_the_rest_are_revealed_to_librdkafka_only():
    settings = settings_of(librdkafka={"ssl.key.password": "hunter2"})
    assert "hunter2" not in repr(settings)
    assert admin_config(settings)["ssl.key.password"] == "hunter2"


def test_security_in_javas_words(tmp_path):
    (tmp_path / "ca.pem").write_text(PEM)
    security = {
        "protocol": "SASL_SSL",
        "mechanism": "PLAIN",
        "user": 'm"e',
        "password": 'hun"ter\\2\nmore',
        "ca": str(tmp_path / "ca.pem"),
        "certificate": PEM,
        "key": KEY,
    }
    assert java_properties(settings_of(security=security)) == {
        "bootstrap.servers": "a:1,b:2",
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "PLAIN",
        "sasl.jaas.config": (
            "org.apache.kafka.common.security.plain.PlainLoginModule required"
            r' username="m\"e" password="hun\"ter\\2\nmore";'
        ),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.certificates": PEM,
        "ssl.keystore.type": "PEM",
        "ssl.keystore.certificate.chain": PEM,
        "ssl.keystore.key": KEY,
    }


def test_java_without_security():
    assert java_properties(settings_of()) == {
        "bootstrap.servers": "a:1,b:2",
        "security.protocol": "PLAINTEXT",
    }


def test_scram_has_its_own_module():
    security = {"protocol": "SASL_PLAINTEXT", "mechanism": "SCRAM-SHA-256", "user": "u"}
    properties = java_properties(settings_of(security={**security, "password": "p"}))
    assert "scram.ScramLoginModule" in properties["sasl.jaas.config"]


# Handles


@pytest.mark.parametrize(
    ("librdkafka", "told"),
    [
        ({"no.such.thing": 1}, 'No such configuration property: "no.such.thing"'),
        ({"socket.timeout.ms": "soon"}, "socket.timeout.ms"),
    ],
)
def test_mistakes_that_only_librdkafka_finds(librdkafka, told):
    with pytest.raises(ConfigurationError) as caught:
        make_handle(AdminClient, admin_config(settings_of(librdkafka=librdkafka)))
    assert told in str(caught.value)


def test_a_key_that_cannot_be_read_is_not_printed():
    security = {"protocol": "SSL", "certificate": PEM, "key": KEY.replace("MIIE", "hunter2")}
    with pytest.raises(ConfigurationError) as caught:
        make_handle(Producer, producer_config(settings_of(security=security)))
    assert "hunter2" not in str(caught.value)


def test_librdkafkas_lines_go_to_pythons_logging(caplog):
    producer = make_handle(Producer, producer_config(load_settings({"bootstrap": "127.0.0.1:9"})))
    with caplog.at_level(logging.DEBUG, logger="redrive.kafka"):
        while not caplog.records:
            producer.poll(0.1)
    assert "127.0.0.1:9" in caplog.text


def test_errors_are_logged(caplog, monkeypatch):
    # Another test of this process may have run a command, which has its own way to show the log.
    log = logging.getLogger("redrive.kafka")
    for each in (log, logging.getLogger("redrive")):
        monkeypatch.setattr(each, "propagate", True)
        monkeypatch.setattr(each, "disabled", False)
    # Never `level = ...`: loggers remember which levels are enabled until setLevel().
    caplog.set_level(logging.NOTSET, "redrive.kafka")
    caplog.set_level(logging.WARNING, "redrive")
    report_error(KafkaError(privates.TRANSPORT, "it broke, one time only"))
    assert "it broke, one time only: librdkafka keeps trying" in caplog.text


def test_the_same_line_is_logged_once_a_minute():
    now = 0.0
    news = NotAgain(lambda: now)

    def told(text):
        return news.filter(logging.LogRecord("n", 30, "p", 1, text, (), None))

    assert told("refused (after 3ms in state CONNECT)")
    assert not told("refused (after 7ms in state CONNECT, 2 identical error(s) suppressed)")
    assert told("something else")
    now = 60.0
    assert told("refused (after 3ms in state CONNECT)")
    assert not told("refused (after 3ms in state CONNECT)")
    for number in range(2000):  # it does not remember for ever
        assert told(f"line {number} ")
    assert told("refused (after 3ms in state CONNECT)")
