"""`redrive topics` against a real Kafka."""

from __future__ import annotations

import io
import json
import re

from rich.console import Console

from redrive.cli.topics import table
from redrive.config import load_settings
from redrive.errors import ConfigurationError
from redrive.kafka.topic_admin import KafkaTopics
from redrive.ports import TopicState
from redrive.topics import Configure, Plan, Problem, TopicPlan


def test_show_apply_and_show_again(redrive, shop, redrive_stack, redrive_prefix):
    arguments = ["topics", shop(), "--bootstrap", redrive_stack.bootstrap]
    topics = KafkaTopics(load_settings({"bootstrap": redrive_stack.bootstrap}, environ={}))
    names = [redrive_prefix + end for end in (".orders", ".retry.5s", ".retry.1h", ".dead")]

    shown = redrive(*arguments)
    assert shown.exit_code == 1
    assert f"{names[0]}: missing: create it with the settings you want" in shown.output
    assert f"{names[1]}: missing (--apply: create {names[1]} with 3 partitions)" in shown.output
    assert topics.describe(names) == {}

    # Sources are not created silently, the rest is.
    applied = redrive(*arguments, "--apply")
    assert applied.exit_code == 1
    assert set(topics.describe(names)) == set(names[1:])

    topics.create(names[0], 5, {"max.message.bytes": "3000000"})
    topics.configure(names[1], {"message.timestamp.type": "CreateTime"})
    assert redrive(*arguments).exit_code == 1
    corrected = redrive(*arguments, "--apply")
    assert corrected.exit_code == 0
    assert f"done    set message.timestamp.type=LogAppendTime on {names[1]}" in corrected.output
    assert f"done    increase {names[1]} to 5 partitions" in corrected.output
    assert "All topics are set up correctly." in corrected.output

    again = redrive(*arguments, "--apply")
    assert again.exit_code == 0
    assert "done" not in again.output
    state = topics.describe([names[2]])[names[2]]
    assert state.config["message.timestamp.type"] == "LogAppendTime"
    assert int(state.config["retention.ms"]) == (7 * 24 + 1) * 3_600_000
    assert int(state.config["max.message.bytes"]) > 3_000_000


def test_sources_outage_and_json(redrive, shop, redrive_stack, redrive_prefix):
    arguments = ["topics", shop(), "--bootstrap", redrive_stack.bootstrap, "--json"]
    before = json.loads(redrive(*arguments).output)
    assert before["ok"] is False
    assert before["applied"] == []
    made = redrive(*arguments, "--apply", "--create-sources", "--outage", "3d")
    assert made.exit_code == 0
    data = json.loads(made.output)
    assert data["ok"] is True
    assert len(data["applied"]) == 6
    roles = ["source", "delay", "delay", "dead", "state", "rules"]
    assert [topic["role"] for topic in data["topics"]] == roles
    longer = json.loads(redrive(*arguments, "--outage", "30d").output)
    assert "an outage of 30d must not delete it" in longer["topics"][1]["problems"][0]["text"]


def test_outbound_topics_are_checked_and_created_where_they_are_declared(
    redrive, shop, redrive_stack, redrive_prefix
):
    at = ["--bootstrap", redrive_stack.bootstrap]
    invoices = f"{redrive_prefix}.invoices"
    target = shop(more=f', sends="{invoices}"')
    shown = redrive("topics", target, *at)
    assert shown.exit_code == 1
    assert f"{invoices}: missing (--apply: create {invoices} with 3 partitions)" in shown.output
    doctor = redrive("doctor", target, *at)
    assert f"topic {invoices}: missing" in doctor.output
    made = redrive("topics", target, *at, "--apply", "--create-sources")
    assert made.exit_code == 0
    assert f"done    create {invoices} with 3 partitions" in made.output
    assert (
        f"permissions on topic {invoices}: WRITE allowed" in redrive("doctor", target, *at).output
    )


def test_what_cannot_be_checked_is_said(redrive, shop, redrive_stack, redrive_prefix):
    at = ["--bootstrap", redrive_stack.bootstrap]
    made = redrive("topics", shop(), *at, "--apply", "--create-sources")
    assert (
        f"not checked: the topics that the handlers of {redrive_prefix}.orders send to"
        in made.output
    )
    doctor = redrive("doctor", shop(), *at)
    assert f"outbound topics: the handlers of {redrive_prefix}.orders do not declare" in (
        doctor.output
    )


def test_the_apps_own_address_is_used(redrive, shop, redrive_stack):
    target = shop(more=f', bootstrap="{redrive_stack.bootstrap}"')
    assert redrive("topics", target, "--apply", "--create-sources").exit_code == 0


def test_no_address_at_all_is_one_sentence(redrive, shop):
    failed = redrive("topics", shop())
    assert isinstance(failed.exception, ConfigurationError)
    assert "no Kafka address: give --bootstrap" in str(failed.exception)


def test_an_outage_that_is_no_duration(redrive, shop):
    failed = redrive("topics", shop(), "--bootstrap", "127.0.0.1:9", "--outage", "soon")
    assert "'soon' is not a duration" in str(failed.exception)


def test_the_table_of_a_terminal():
    state = TopicState(4, 1, {})
    wrong = Problem(
        "cleanup.policy is [compact]", Configure("a.dead", {"cleanup.policy": "delete"})
    )
    plan = Plan(
        "a", (TopicPlan("src", "source", state, ()), TopicPlan("a.dead", "dead", None, (wrong,)))
    )
    console = Console(width=140, file=io.StringIO(), force_terminal=True, color_system=None)
    console.print(table(plan))
    shown = console.file.getvalue()
    assert "topics of a" in shown
    # Squared brackets are text, not markup.
    assert "cleanup.policy is [compact] (--apply: set cleanup.policy=delete on a.dead)" in shown
    assert re.search(r"src\s+│ source │ 4\s+│ ok", shown)
