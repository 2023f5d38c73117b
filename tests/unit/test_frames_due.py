from __future__ import annotations

import pytest

from redrive import ConfigurationError
from redrive.engines.spark.frames import due_options
from redrive.engines.spark.frames.due import as_offsets, as_positions
from redrive.record import TopicPartition


def test_the_end_of_a_topics_name_is_its_delay():
    found = due_options.read({"topics": "items.retry.5m, items.retry.1h30m"})
    assert found.delays == {"items.retry.5m": 300_000, "items.retry.1h30m": 5_400_000}
    assert (found.bootstrap, found.from_latest, found.most) == (None, False, 500_000)


def test_any_topic_may_be_a_delay_topic_if_its_delay_is_given():
    given = {"Topics": "later", "DELAY": "37s", "startingOffsets": "latest"}
    found = due_options.read({**given, "maxRecordsPerBatch": "10", "bootstrap": "kafka:9092"})
    assert found.delays == {"later": 37_000}
    assert (found.bootstrap, found.from_latest, found.most) == ("kafka:9092", True, 10)


def test_all_mistakes_are_told_at_once():
    given = {"topics": "later", "startingOffsets": "now", "maxRecordsPerBatch": "0", "topic": "x"}
    with pytest.raises(ConfigurationError) as raised:
        due_options.read({**given, "kafka.sasl.jaas.config": "secret"})
    told = str(raised.value)
    for word in ("does not end in its delay", "earliest or latest", "1 or more", "topic is no opt"):
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
    assert as_offsets(positions) == {"a": {"0": 5, "1": 0}, "b": {"0": 9}}
    assert as_positions(as_offsets(positions)) == positions
