"""`redrive parked` on a real Kafka: what is listed, what would be done, what is said."""

from __future__ import annotations

import json

import pytest

from redrive.config import load_settings
from redrive.envelope import Envelope
from redrive.kafka.publisher import KafkaPublisher
from redrive.record import Write


@pytest.fixture
def waiting(shop, redrive, redrive_stack, redrive_prefix):
    """An app with four parked records of two causes; runs `redrive parked`."""
    target, at = shop(), ("--bootstrap", redrive_stack.bootstrap)
    assert redrive("topics", target, *at, "--apply", "--create-sources").exit_code == 0
    settings = load_settings({"bootstrap": redrive_stack.bootstrap}, environ={})
    KafkaPublisher(settings).publish(
        [
            Write(
                f"{redrive_prefix}.retry.1h",
                b"k",
                b"v",
                Envelope(
                    app=redrive_prefix,
                    id=str(number),
                    origin_topic=f"{redrive_prefix}.orders",
                    origin_partition=0,
                    origin_offset=number,
                    first_received=1,
                    attempt=2,
                    error_type="Price" if number % 2 else "Stock",
                    error_group="aa11" if number % 2 else "bb22",
                ).headers(()),
            )
            for number in range(4)
        ]
    )
    return lambda verb, *options: redrive("parked", verb, target, *at, *options)


def test_what_waits_what_would_be_done_and_what_was_said(waiting, redrive_prefix):
    dry = waiting("hold", "--group", "aa")
    assert dry.exit_code == 0
    assert "2 parked records would be held" in dry.output
    assert "nothing was written" in dry.output
    plan = json.loads(waiting("run-now", "--group", "aa", "--json").output)
    assert (plan["count"], plan["moved"]) == (2, 2)
    assert plan["topics"] == {f"{redrive_prefix}.retry.1h": 2}
    assert json.loads(waiting("list", "--json").output)["rules"] == []

    held = waiting("hold", "--group", "aa", "--yes", "--by", "alice", "--reason", "down", "--json")
    [rule] = json.loads(held.output)["rules"]
    assert (rule["kind"], rule["by"], rule["why"]) == ("hold", "alice", "down")
    shown = waiting("list").output
    assert f"{redrive_prefix}.retry.1h: 4 waiting" in shown
    assert "2 held" in shown
    assert f"{rule['id']}: group aa, by alice: down" in shown
    listed = json.loads(waiting("list", "--json").output)
    assert [each["held"] for each in listed["parked"]] == [0, 2]
    assert [each["id"] for each in listed["rules"]] == [rule["id"]]

    assert "2 parked records would be released" in waiting("release", "--group", "aa").output
    ended = waiting("release", "--group", "aa", "--run-now", "--yes", "--by", "bob", "--json")
    over, let_go = json.loads(ended.output)["rules"]
    assert (over["status"], over["said"]) == ("ended", "ended by bob")
    assert (let_go["kind"], let_go["status"]) == ("run-now", "open")
    listed = json.loads(waiting("list", "--json").output)
    assert [each["to_run"] for each in listed["parked"]] == [0, 2]
    second = waiting("run-now", "--group", "bb", "--yes")
    assert second.exit_code != 0


def test_the_listing_needs_no_word(waiting, redrive, shop, redrive_stack):
    plain = redrive("parked", shop(), "--bootstrap", redrive_stack.bootstrap, "--json")
    assert plain.output == waiting("list", "--json").output
