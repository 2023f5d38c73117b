from __future__ import annotations

import json

from redrive.config import load_settings
from redrive.engines.spark.frames.intake import Rules, columns, given_headers, runs
from redrive.engines.spark.frames.reading import options
from redrive.engines.spark.ranges import Range
from redrive.envelope import HEADERS

RANGES = [Range("a", 0, 5, 9), Range("a", 3, 0, 1), Range("b", 0, 7, 8)]


def test_exactly_the_planned_ranges_are_read_and_only_what_is_committed():
    settings = load_settings({"bootstrap": "kafka:9092"}, environ={})
    found = options(settings, RANGES, "group")
    assert json.loads(found["assign"]) == {"a": [0, 3], "b": [0]}
    assert json.loads(found["startingOffsets"]) == {"a": {"0": 5, "3": 0}, "b": {"0": 7}}
    assert json.loads(found["endingOffsets"]) == {"a": {"0": 9, "3": 1}, "b": {"0": 8}}
    assert found["kafka.bootstrap.servers"] == "kafka:9092"
    assert found["kafka.isolation.level"] == "read_committed"
    assert found["kafka.group.id"] == "group"
    assert (found["includeHeaders"], found["failOnDataLoss"]) == ("true", "true")


def test_the_read_is_secured_as_the_settings_say():
    settings = load_settings(
        {
            "bootstrap": "kafka:9092",
            "security": {
                "protocol": "SASL_PLAINTEXT",
                "mechanism": "PLAIN",
                "user": "ada",
                "password": "secret",
            },
        },
        environ={},
    )
    found = options(settings, RANGES, "group")
    assert found["kafka.security.protocol"] == "SASL_PLAINTEXT"
    assert 'password="secret"' in found["kafka.sasl.jaas.config"]


def rules(**changes: object) -> Rules:
    given = {"app": "shop", "topic": "orders", "topic_id": "ID", "now": 17}
    return Rules(**{**given, **changes})  # type: ignore[arg-type]  # -- its fields


def test_records_of_a_source_topic_are_looked_at_only_if_redrive_wrote_them():
    assert given_headers(rules()).startswith("if(headers IS NOT NULL AND exists(headers")
    assert runs(rules()).startswith("redrive_envelope IS NULL OR")


def test_nothing_of_a_delay_topic_runs_that_goes_back_to_its_origin():
    assert runs(rules(delays={"shop.retry.1s": 1000}, to_origin=True)) == "false"
    assert "WHEN 'shop.retry.1s' THEN 1000L" in runs(rules(delays={"shop.retry.1s": 1000}))


def test_the_handler_sees_none_of_redrives_headers():
    (headers,) = [made for made in columns(rules()) if made.endswith(" AS headers")]
    assert all(f"'{name}'" in headers for name in HEADERS)
