from __future__ import annotations

from datetime import datetime

import pytest

from redrive import ConfigurationError
from redrive.engines.spark.frames import due_options
from redrive.engines.spark.frames.due import as_ids, as_offsets, as_positions, as_row, hold
from redrive.record import Record, TopicPartition
from redrive.testing import VirtualClock


def test_the_end_of_a_topics_name_is_its_delay():
    found = due_options.read({"topics": "items.retry.5m, items.retry.1h30m"})
    assert found.delays == {"items.retry.5m": 300_000, "items.retry.1h30m": 5_400_000}
    assert (found.bootstrap, found.from_latest, found.most) == (None, False, 500_000)


def test_any_topic_may_be_a_delay_topic_if_its_delay_is_given():
    given = {"Topics": "later", "DELAY": "37s", "startingOffsets": "latest"}
    found = due_options.read({**given, "maxRecordsPerBatch": "10", "bootstrap": "kafka:9092"})
    assert found.delays == {"later": 37_000}
    assert (found.bootstrap, found.from_latest, found.most) == ("kafka:9092", True, 10)


def test_all_mistakes_are_reported_at_once():
    given = {"topics": "later", "startingOffsets": "now", "maxRecordsPerBatch": "0", "topic": "x"}
    given["failOnDataLoss"] = "perhaps"
    with pytest.raises(ConfigurationError) as raised:
        due_options.read({**given, "kafka.sasl.jaas.config": "secret"})
    told = str(raised.value)
    for word in (
        "does not end in its delay",
        "earliest or latest",
        "1 or more",
        "topic is no opt",
        "true or f",
    ):
        assert word in told
    assert "secret" not in told
    assert "shown in Spark's UI" in told


@pytest.mark.parametrize(
    "given", [{}, {"topics": ""}, {"topics": "a b!"}, {"topics": "a", "delay": "0s"}]
)
def test_what_cannot_be_read_is_refused(given):
    with pytest.raises(ConfigurationError, match="redrive-due"):
        due_options.read(given)


def test_offsets_are_kept_as_sparks_kafka_source_keeps_them():
    positions = {TopicPartition("a", 0): 5, TopicPartition("a", 1): 0, TopicPartition("b", 0): 9}
    kept = as_offsets(positions, {"a": "first", "b": "second"})
    assert kept == {"a": {"id": "first", "0": 5, "1": 0}, "b": {"id": "second", "0": 9}}
    assert as_positions(kept) == positions
    assert as_ids(kept) == {"a": "first", "b": "second"}
    assert as_ids({"a": {"0": 5}}) == {}  # of a checkpoint from before


@pytest.mark.parametrize("seconds", [0, 1, 59, 3_600])
def test_a_record_is_held_until_its_own_time_however_long(seconds, caplog):
    clock = VirtualClock()
    due = b"%d" % (clock.now() + 1000 * seconds)
    began = clock.now()
    record = Record("a", headers=(("redrive-due", due),))
    hold(record, clock, lambda seconds: clock.advance(round(1000 * seconds)))
    assert clock.now() - began == 1000 * seconds
    assert ("Was the writer's clock ahead?" in caplog.text) is (seconds > 60)


@pytest.mark.parametrize("header", [b"9" * 5000, b"9" * 16, b"", b"soon", b"-5", None, b"\xff"])
def test_a_header_that_is_no_time_holds_nobody(header):
    clock = VirtualClock()
    hold(Record("a", headers=(("redrive-due", header),)), clock, pytest.fail)


@pytest.mark.parametrize(("timestamp", "year"), [(-(2**62), 1), (10**15, 9999), (0, 1970)])
def test_a_time_that_spark_does_not_know_ends_no_query(timestamp, year):
    row = as_row(Record("items.retry.5m", 0, 0, b"k", b"v", timestamp=timestamp))
    assert [each.year for each in row if isinstance(each, datetime)] == [year]
