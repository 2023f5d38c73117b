"""Rules about parked records: what they say about one record, and how they are kept."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive.parked_rules import (
    NOTHING,
    Match,
    ParkedRule,
    Said,
    open_rules,
    opened_to,
    read_rules,
    rule_write,
    said,
)
from redrive.record import TopicPartition, Write
from redrive.testing.memory_broker import MemoryBroker
from redrive.testing.virtual_clock import VirtualClock

PLACE = TopicPartition("shop.retry.1h", 0)
TOPIC = "shop.retry.rules"


def rule(kind="hold", name="a", end=0, topic_id="T", **match):
    ends = {PLACE.topic: {"0": end}} if end else {}
    ids = {PLACE.topic: topic_id} if end else {}
    made = Match(**{each: tuple(names) for each, names in match.items()})
    return ParkedRule(id=name, kind=kind, match=made, by="me", at=1, ends=ends, topic_ids=ids)


def asked(rules, offset=0, group="g1", record_id="7"):
    return said(rules, PLACE, "T", offset, group=group, record_id=record_id)


@pytest.mark.parametrize(
    ("match", "fits"),
    [
        ({"topics": ["shop.retry.1h"]}, True),
        ({"topics": ["shop.retry.5m"]}, False),
        ({"groups": ["g1"]}, True),
        ({"groups": ["g"]}, True),
        ({"groups": ["g2", "g1"]}, True),
        ({"groups": ["g12"]}, False),
        ({"ids": ["7"]}, True),
        ({"ids": ["77"]}, False),
        ({"ids": ["7"], "groups": ["g2"]}, False),
    ],
)
def test_a_record_is_meant_if_it_fits_all_that_is_given(match, fits):
    assert asked([rule(**match)]).order == ("hold" if fits else None)


def test_a_record_without_a_cause_fits_no_group():
    assert asked([rule(groups=["g"])], group=None) == NOTHING


def test_a_run_now_is_about_what_waited_when_it_was_made():
    rules = [rule("run-now", end=10, groups=["g1"])]
    assert asked(rules, 9) == Said("run-now", makes_way=True)
    assert asked(rules, 10) == NOTHING
    assert asked(rules, 9, group="g2") == Said(None, makes_way=True)
    assert (opened_to(rules, PLACE, "T"), opened_to([rule(groups=["g"])], PLACE, "T")) == (10, 0)


def test_offsets_of_a_topic_that_was_recreated_mean_other_records():
    rules = [rule("run-now", end=10, topic_id="before", groups=["g1"])]
    assert asked(rules) == NOTHING
    assert opened_to(rules, PLACE, "T") == 0
    assert opened_to(rules, PLACE, "before") == 10


def test_of_several_rules_the_newest_counts():
    hold, run = rule(groups=["g1"]), rule("run-now", end=10, ids=["7"])
    assert asked([hold, run]).order == "run-now"
    assert asked([run, hold]) == Said("hold", makes_way=True)
    assert asked([hold, run], record_id="8").order == "hold"


texts = st.text(max_size=5)
matches = st.builds(
    Match,
    topics=st.lists(texts, max_size=2).map(tuple),
    groups=st.lists(texts, max_size=2).map(tuple),
    ids=st.lists(texts, max_size=2).map(tuple),
).filter(bool)
rules_of_any_kind = st.builds(
    ParkedRule,
    id=texts,
    kind=st.sampled_from(["hold", "run-now"]),
    match=matches,
    by=texts,
    at=st.integers(0),
    status=st.sampled_from(["open", "ended"]),
    ends=st.dictionaries(texts, st.dictionaries(st.sampled_from("012"), st.integers(1))),
    topic_ids=st.dictionaries(texts, texts),
)


@given(rules_of_any_kind)
def test_a_rule_comes_back_as_it_was_written(one):
    broker = MemoryBroker(VirtualClock())
    broker.create(TOPIC)
    broker.publish([rule_write(TOPIC, one)])
    assert list(read_rules(broker, TOPIC).values()) == [one]


def test_of_rules_the_last_word_counts_and_what_others_wrote_is_left_alone():
    broker = MemoryBroker(VirtualClock())
    assert read_rules(broker, TOPIC) == {}
    broker.create(TOPIC)
    first, second = rule(name="1", ids=["7"]), rule(name="2", ids=["8"])
    broker.publish([rule_write(TOPIC, each) for each in (first, second)])
    broker.publish([rule_write(TOPIC, first.change(status="ended"))])
    for key, value in ((b"rule/x", b"{"), (b"rule/y", b"[]"), (b"rule/z", None), (None, b"")):
        broker.publish([Write(TOPIC, key, value)])
    assert open_rules(read_rules(broker, TOPIC)) == (second,)
    assert list(read_rules(broker, TOPIC)) == ["1", "2"]


@pytest.mark.parametrize(
    "odd",
    [
        {"id": []},
        {"kind": None},
        {"at": "now"},
        {"ends": None},
        {"ends": []},
        {"ends": {PLACE.topic: 5}},
        {"ends": {PLACE.topic: {"0": "5"}}},
        {"topic_ids": None},
        {"topic_ids": {PLACE.topic: 1}},
        {"match": []},
        {"match": {"ids": 7}},
        {"match": {"ids": "17"}},
        {"match": {"keys": ["of a newer version"]}},
        {"match": {"ids": ["7"], "keys": ["of a newer version"]}},
        {"match": {}},
    ],
)
def test_a_rule_of_another_shape_ends_no_run(odd):
    broker = MemoryBroker(VirtualClock())
    broker.create(TOPIC)
    data = rule("run-now", end=9).as_data() | odd
    broker.publish([Write(TOPIC, b"rule/a", json.dumps(data).encode())])
    broker.publish([Write(TOPIC, b"rule/b", b"[" * 100_000)])
    assert read_rules(broker, TOPIC) == {}
