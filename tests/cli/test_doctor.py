"""`redrive doctor`: every line, and which of them stop a run."""

from __future__ import annotations

import json
import os
import uuid
from pathlib import Path

import psycopg
import pytest

from redrive.cli.doctor_database import clock_finding
from redrive.cli.doctor_kafka import retention_findings, topic_findings
from redrive.cli.doctor_machine import check_jars, check_java, check_python
from redrive.cli.doctor_permissions import findings as permission_findings
from redrive.config import load_settings
from redrive.kafka.admin import Admin
from redrive.kafka.progress import KafkaProgress
from redrive.kafka.topic_admin import KafkaTopics
from redrive.permissions import Permission
from redrive.ports import Position, TopicState
from redrive.processing.progress.notes import TOPIC, with_note
from redrive.record import TopicPartition
from redrive.topics import Plan, Problem, TopicPlan


def findings(result):
    """By subject; of several lines about one subject, the last."""
    data = json.loads(result.output)
    return {line["subject"]: line for line in data["findings"]}


@pytest.fixture
def stack_arguments(redrive_stack):
    return ["--bootstrap", redrive_stack.bootstrap, "--database", redrive_stack.database, "--json"]


# Against a real Kafka and PostgreSQL


def test_a_delivery_with_a_database_needs_the_ledger_in_it(redrive, shop, redrive_database):
    result = redrive("doctor", shop(delivery="outbox"), "--database", redrive_database, "--json")
    ledger = findings(result)["ledger"]
    assert (ledger["verdict"], ledger["todo"]) == ("wrong", "run `redrive ledger migrate`")
    result = redrive("doctor", "--database", redrive_database, "--json")
    assert "ledger" not in findings(result)


@pytest.mark.parametrize(
    "taken",
    ["usage on schema redrive", "select on redrive.migration", "insert, update on redrive.inbox"],
)
def test_privileges_that_are_missing_are_said_with_their_grant(
    redrive, shop, redrive_database, taken
):
    role = f"app_{uuid.uuid4().hex[:8]}"
    target = shop(delivery="idempotent")
    asked = (
        "doctor",
        target,
        "--database",
        f"{redrive_database}&options=-crole%3D{role}",
        "--json",
    )
    assert redrive("ledger", "migrate", "--database", redrive_database).exit_code == 0
    with psycopg.connect(redrive_database, autocommit=True) as admin:
        admin.execute(f"create role {role}")
        try:
            grants = findings(redrive(*asked))["database permissions"]["todo"]
            admin.execute(grants.split("`")[1])
            found = findings(redrive(*asked))
            assert found["database permissions"]["verdict"] == found["ledger"]["verdict"] == "ok"
            assert "public" not in str(found)
            admin.execute(f"revoke {taken} from {role}")
            found = findings(redrive(*asked))
            assert found["database permissions"]["verdict"] == "wrong"
            assert f"`grant {taken} to {role};`" in found["database permissions"]["todo"]
            assert found["database"]["verdict"] == "ok"
        finally:
            admin.execute(f"drop owned by {role}")
            admin.execute(f"drop role {role}")


def test_a_search_path_into_the_ledger_is_a_trap(redrive, shop, redrive_database):
    path = f"{redrive_database}&options=-csearch_path%3Dredrive"
    assert redrive("ledger", "migrate", "--database", redrive_database).exit_code == 0
    line = findings(redrive("doctor", "--database", path, "--json"))["search_path"]
    assert (line["verdict"], "into the ledger's" in line["seen"]) == ("warning", True)
    assert "search_path" not in findings(
        redrive("doctor", "--database", redrive_database, "--json")
    )


def test_a_healthy_app(redrive, shop, redrive_stack, redrive_prefix, redrive_database):
    target = shop(delivery="idempotent")
    assert redrive("ledger", "migrate", "--database", redrive_database).exit_code == 0
    stack_arguments = ["--bootstrap", redrive_stack.bootstrap, "--database", redrive_database]
    stack_arguments += ["--json"]
    made = redrive(
        "topics", target, "--apply", "--create-sources", "--bootstrap", redrive_stack.bootstrap
    )
    assert made.exit_code == 0
    result = redrive("doctor", target, *stack_arguments, "--probe")
    assert result.exit_code == 0
    found = findings(result)
    assert {
        subject for subject, line in found.items() if line["verdict"] == "ok"
    } >= {
        "python",
        "java",
        "app",
        "settings",
        "broker",
        "broker version",
        f"topic {redrive_prefix}.orders",
        f"topic {redrive_prefix}.dead",
        f"permissions on topics that begin with {redrive_prefix}.retry.",
        f"permissions on group {redrive_prefix}",
        "database",
        "database permissions",
        "ledger",
    }  # fmt: skip
    assert found["broker"]["seen"] == f"1 broker at {redrive_stack.bootstrap}"
    # Measured on one machine; how far apart is not the test's business.
    assert found["broker clock"]["seen"].endswith("this machine")
    assert found["database clock"]["seen"].endswith("this machine")


def test_the_probe_leaves_nothing_behind(redrive, shop, stack_arguments, redrive_stack):
    from confluent_kafka.admin import AdminClient

    redrive("doctor", *stack_arguments, "--probe")
    topics = AdminClient({"bootstrap.servers": redrive_stack.bootstrap}).list_topics().topics
    assert [name for name in topics if name.startswith("redrive-doctor-")] == []


def test_missing_topics_stop_a_run(redrive, shop, redrive_prefix, stack_arguments):
    result = redrive("doctor", shop(), *stack_arguments)
    assert result.exit_code == 1
    found = findings(result)
    dead = found[f"topic {redrive_prefix}.dead"]
    assert (dead["verdict"], dead["seen"]) == ("wrong", "missing")
    assert dead["todo"].startswith("redrive topics --apply would create")
    assert found["permission to create topics"]["verdict"] == "ok"


def test_an_app_that_may_have_had_another_name(
    redrive, shop, redrive_prefix, redrive_stack, stack_arguments
):
    target = shop()
    redrive("topics", target, "--apply", "--create-sources", "--bootstrap", redrive_stack.bootstrap)
    assert findings(redrive("doctor", target, *stack_arguments))["name"]["verdict"] == "ok"
    settings = load_settings({"bootstrap": redrive_stack.bootstrap}, environ={})
    old = f"{redrive_prefix}-old"
    KafkaTopics(settings).create(f"{old}.dead", 1, {})
    at = with_note(Position(0), TOPIC, "its-id")
    KafkaProgress(settings, old).commit({TopicPartition(f"{redrive_prefix}.orders", 0): at})
    result = redrive("doctor", target, *stack_arguments)
    assert result.exit_code == 1
    found = findings(result)["name"]
    assert found["verdict"] == "wrong"
    assert f'was="{old}"' in found["todo"]


def test_without_an_app_what_needs_one_is_said_not_left_out(redrive, shop, stack_arguments):
    result = redrive("doctor", *stack_arguments)
    assert result.exit_code == 0
    found = findings(result)
    unchecked = {subject for subject, line in found.items() if line["verdict"] == "not checked"}
    assert {"app", "topics", "permissions", "broker clock"} <= unchecked
    assert found["broker"]["verdict"] == found["database"]["verdict"] == "ok"


# Without


def test_nothing_given_at_all(redrive, shop):
    result = redrive("doctor")
    assert result.exit_code == 0
    assert "not checked broker: no address given (--bootstrap, REDRIVE_BOOTSTRAP)" in result.output
    assert "not checked database: none given" in result.output


def test_an_app_needs_a_broker_and_perhaps_a_database(redrive, shop):
    result = redrive("doctor", shop(delivery="outbox"), "--json")
    assert result.exit_code == 2
    found = findings(result)
    assert found["broker"]["verdict"] == found["database"]["verdict"] == "wrong"
    assert "delivery 'outbox' needs one" in found["database"]["seen"]


def test_nobody_answers(redrive, shop):
    dsn = "postgresql://me:hunter2@127.0.0.1:9/shop"
    result = redrive("doctor", shop(), "--bootstrap", "127.0.0.1:9", "--database", dsn, "--json")
    assert result.exit_code == 1
    found = findings(result)
    assert found["broker"]["verdict"] == found["database"]["verdict"] == "wrong"
    assert "Connection refused" in found["broker"]["seen"]
    assert found["topics"]["verdict"] == "not checked"
    assert "postgresql://me:***@127.0.0.1:9/shop cannot be reached" in found["database"]["seen"]
    assert "hunter2" not in result.output


def test_an_address_that_no_database_understands_is_not_printed_in_parts(redrive, shop):
    result = redrive("doctor", "--database", "hunter2 is my password", "--json")
    found = findings(result)
    assert result.exit_code == 2
    assert found["settings"]["verdict"] == "wrong"
    assert "is not a PostgreSQL address" in found["settings"]["seen"]
    assert "hunter2" not in result.output


def test_mistakes_in_app_and_settings(redrive, shop, monkeypatch):
    monkeypatch.setenv("REDRIVE_SECURITY_PROTOCOL", "TLS")
    result = redrive("doctor", "gone:app", "--json")
    assert result.exit_code == 2
    found = findings(result)
    assert {name for name, line in found.items() if line["is_configuration"]} == {"app", "settings"}
    assert "there is no module gone" in found["app"]["seen"]
    assert "REDRIVE_SECURITY_PROTOCOL: is 'TLS'" in found["settings"]["seen"]
    assert found["broker"]["verdict"] == found["database"]["verdict"] == "not checked"


def test_settings_that_librdkafka_does_not_take(redrive, shop, monkeypatch, tmp_path):
    (tmp_path / "wrong.toml").write_text('librdkafka."no.such.setting" = 1\n')
    monkeypatch.setenv("REDRIVE_CONFIG", str(tmp_path / "wrong.toml"))
    result = redrive("doctor", "--bootstrap", "127.0.0.1:9", "--json")
    assert result.exit_code == 2
    assert "no.such.setting" in findings(result)["broker"]["seen"]


def test_each_bad_line_says_what_to_do(redrive, shop):
    result = redrive("doctor", shop(delivery="outbox"), "--json")
    bad = [line for line in findings(result).values() if line["verdict"] in ("wrong", "warning")]
    assert bad
    assert all(line["todo"] for line in bad)


# The machine


def test_python_versions():
    verdicts = [check_python(version).verdict for version in ((3, 10, 9), (3, 11, 0), (3, 14, 0))]
    assert verdicts == ["wrong", "ok", "warning"]


def test_no_java(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    finding = check_java()
    assert finding.verdict == "wrong"
    assert "install Java 17" in finding.todo


def test_java_is_not_missed_where_there_is_no_spark(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    assert check_java().verdict == check_jars().verdict == "not checked"


def test_an_old_java(monkeypatch, tmp_path):
    fake = Path(tmp_path / "java")
    fake.write_text("#!/bin/sh\necho 'openjdk version \"11.0.2\"' >&2\n")
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}/bin")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    finding = check_java()
    assert finding.verdict == "wrong"
    assert "is 11" in finding.seen


def test_jars_that_are_not_there_yet_stop_nothing(monkeypatch, tmp_path):
    monkeypatch.setenv("REDRIVE_HOME", str(tmp_path))
    finding = check_jars()
    assert finding.verdict == "warning"
    assert "redrive local up" in finding.todo


# Judgements


@pytest.mark.parametrize(
    ("difference", "verdict", "seen"),
    [
        (0, "ok", "0 ms behind this machine"),
        (1000, "ok", "1000 ms ahead of this machine"),
        (-1001, "warning", "1001 ms behind this machine"),
        (90_000, "warning", "90000 ms ahead of this machine"),
    ],
)
def test_clocks(difference, verdict, seen):
    finding = clock_finding("clock", difference)
    assert (finding.verdict, finding.seen) == (verdict, seen)


@pytest.mark.parametrize(
    ("minutes", "verdicts"),
    [(10_080, []), (10_079, ["warning"]), (120, ["warning"]), (119, ["wrong"]), (1, ["wrong"])],
)
def test_how_long_offsets_are_remembered(minutes, verdicts):
    assert [finding.verdict for finding in retention_findings(minutes)] == verdicts


def test_a_broker_that_forgets_offsets_too_soon_is_reported(redrive, stack_arguments, monkeypatch):
    asked = Admin.broker_settings
    short = {"offsets.retention.minutes": "60"}
    monkeypatch.setattr(Admin, "broker_settings", lambda *each: asked(*each) | short)
    found = findings(redrive("doctor", *stack_arguments))["progress"]
    assert (found["verdict"], found["seen"][:33]) == ("wrong", "offsets.retention.minutes is 60: ")


def test_permissions():
    one = Permission("delay topics", "topic", "t", ("READ", "WRITE"))

    def verdict(allowed):
        (line,) = permission_findings([one], allowed)
        return line.verdict, line.seen

    assert verdict({("topic", "t"): frozenset({"READ", "WRITE"})}) == ("ok", "READ, WRITE allowed")
    assert verdict({("topic", "t"): None}) == ("not checked", "the broker does not say")
    assert verdict({}) == ("not checked", "it does not exist yet")
    assert verdict({("topic", "t"): frozenset()}) == ("wrong", "READ and WRITE not allowed")
    assert verdict({("topic", "t"): frozenset({"READ"})}) == ("wrong", "WRITE not allowed")


def test_topic_problems_by_weight():
    state = TopicState(1, 1, {})
    plan = Plan(
        "a",
        (
            TopicPlan("t", "dead", state, (Problem("bad"), Problem("hm", weight="note"))),
            TopicPlan("u", "source", state, ()),
        ),
    )
    assert [(line.subject, line.verdict) for line in topic_findings(plan)] == [
        ("topic t", "wrong"),
        ("topic t", "warning"),
        ("topic u", "ok"),
    ]


def test_what_to_do_about_a_topic_is_said_once():
    text = "missing: create it, or let `redrive topics --apply --create-sources` do it"
    plan = Plan("a", (TopicPlan("t", "source", None, (Problem(text), Problem("bad"))),))
    assert [(line.seen, line.todo) for line in topic_findings(plan)] == [
        ("missing", "create it, or let `redrive topics --apply --create-sources` do it"),
        ("bad", "do it by hand"),
    ]
