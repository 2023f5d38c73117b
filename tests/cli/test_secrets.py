"""A secret in every setting, and every command that fails: it is in nothing that anybody sees."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable

import pytest

from redrive.cli import doctor_kafka
from redrive.engines import preflight
from redrive.kafka.admin import Admin

SECRET = "hunter2"  # also what lies before and after a character that has to be escaped
PEM = f"-----BEGIN PRIVATE KEY-----\n{SECRET}\n-----END PRIVATE KEY-----"
SASL = {"protocol": "SASL_SSL", "mechanism": "PLAIN", "user": "me", "password": SECRET}
COMMANDS = {
    "worker": ("run", "{target}", "--engine", "worker", "--once"),
    "spark": ("run", "{target}", "--engine", "spark", "--once"),
    "topics": ("topics", "{target}"),
    "doctor": ("doctor", "{target}"),
    "doctor as data": ("doctor", "{target}", "--json"),
    "migrate": ("ledger", "migrate", "{target}"),
    "status": ("ledger", "status", "{target}"),
    "relay": ("relay", "{target}", "--until-empty"),
}
NOBODY = "127.0.0.1:9"
AWAY = f"postgresql://me:{SECRET}@{NOBODY}/shop?sslpassword={SECRET}"
DATABASES = {
    "away": AWAY,
    "a percent sign": f"postgresql://me:{SECRET}%zz@{NOBODY}/shop",
    "an at sign": f"postgresql://me:hun@{SECRET}@{NOBODY}/shop",
    "a slash": f"postgresql://me:hun/{SECRET}@{NOBODY}/shop",
    "a colon forgotten": f"postgresql//me:{SECRET}@{NOBODY}/shop",
    "a blank": f"host=127.0.0.1 port=9 password=hun {SECRET}=",
    "a misspelt word": f"postgresql://me@{NOBODY}/shop?passwrd={SECRET}",
}
KAFKAS = {
    "away": {"security": SASL, "librdkafka": {"socket.timeout.ms": 500}},
    "a key that is none": {"security": {**SASL, "certificate": PEM, "key": PEM}},
    "by hand": {"librdkafka": {"ssl.key.pem": SECRET, "security.protocol": "ssl"}},
    "a word for a number": {
        "security": SASL,
        "librdkafka": {"ssl.key.password": SECRET, "socket.timeout.ms": "soon"},
    },
    "contradictory": {"security": {"password": SECRET, "key": PEM}},
    "misspelt": {
        "security": {**SASL, "passwrd": SECRET},
        "librdkafka": {"sasl.password": [SECRET]},
    },
    "for Spark": {"spark": {"spark.ssl.keyPassword": SECRET, "spark.x.token": [SECRET]}},
}


@pytest.fixture
def said(redrive, shop, monkeypatch, caplog) -> Callable[..., str]:
    """Runs a command that fails; gives all that anybody could see of it."""
    monkeypatch.setattr(Admin.__init__, "__kwdefaults__", {"patience": 0.1})
    monkeypatch.setattr(preflight, "START_PATIENCE", 0.1)
    monkeypatch.setattr(doctor_kafka, "DOCTOR_PATIENCE", 0.1)

    def run(command: str, **settings: object) -> str:
        caplog.clear()
        target = shop(delivery="outbox", more=f", **{settings!r}")
        sys.modules.pop(target.partition(":")[0], None)
        result = redrive(*(word.format(target=target) for word in COMMANDS[command]))
        assert result.exit_code != 0
        shown = "".join(traceback.format_exception(result.exception)) if result.exception else ""
        return f"{result.output} {shown} {caplog.text}"

    return run


@pytest.mark.parametrize("database", DATABASES)
def test_of_the_database(said, redrive, shop, redrive_stack, database):
    kafka = redrive_stack.bootstrap
    redrive("topics", shop(more=f", bootstrap={kafka!r}"), "--apply", "--create-sources")
    for command in COMMANDS:
        if command == "topics" or (command == "relay" and database == "away"):
            continue  # the one needs no database, the other waits for it
        assert SECRET not in said(command, bootstrap=kafka, database=DATABASES[database])


@pytest.mark.parametrize("kafka", KAFKAS)
def test_of_kafka_and_spark(said, kafka):
    for command in ("worker", "spark", "topics", "doctor", "doctor as data"):
        assert SECRET not in said(command, bootstrap=NOBODY, database=AWAY, **KAFKAS[kafka])
