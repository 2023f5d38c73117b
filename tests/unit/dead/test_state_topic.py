"""The state topic: what redrive did not write is left alone, whatever it is."""

from __future__ import annotations

import io
import json

import pytest

from redrive.dead import Filter
from redrive.dead.operations import Operation
from redrive.dead.operator import ReplayOptions
from redrive.dead.state_topic import read_state

STATE = "shop.dead.state"
MARK = {"state": "discarded", "operations": ["a"]}
OPERATION = Operation(id="a", kind="replay", by="eve", at=1, status="paused").as_data()
SHARD = {**OPERATION, "run": "r", "cursor": {"0": 1}}
DEEP = b"[" * 100_000 + b"]" * 100_000


def letter(**changes):
    return "letter/{topic}/0/1", {**MARK, **changes}


def operation(**changes):
    return "operation/a", {**OPERATION, **changes}


BROKEN = {
    "an offset above 64 bits": ("letter/{topic}/0/99999999999999999999", MARK),
    "an offset of 64 bits": (f"letter/{{topic}}/0/{1 << 63}", MARK),
    "an offset of thousands of digits": (f"letter/{{topic}}/0/{'9' * 5000}", MARK),
    "a partition above 32 bits": ("letter/{topic}/9999999999/0", MARK),
    "an offset of another topic": ("letter/x/0/9999999999999999999", MARK),
    "a mark that is nested too deep": ("letter/{topic}/0/1", DEEP),
    "a mark that is no object": ("letter/{topic}/0/1", b"7"),
    "a state that is none": letter(state="gone"),
    "a state that is no text": letter(state=["replayed"]),
    "operations that are no list": letter(operations="abc"),
    "operations that are no texts": letter(operations=[1, None]),
    "an operation that is nested too deep": ("operation/a", DEEP),
    "an operation of another id": operation(id="b"),
    "an id that is no text": operation(id=["a"]),
    "a kind that is none": operation(kind="burn"),
    "a status that is no text": operation(status=["paused"]),
    "somebody who is no text": operation(by={"name": "eve"}),
    "a time that is text": operation(at="yesterday"),
    "a time that is in no calendar": operation(at=10**18),
    "a time before all": operation(updated=-(10**18)),
    "a filter that is none": operation(filter=["all"]),
    "a filter of another type": operation(filter={"places": 5}),
    "a filter with a place that is none": operation(filter={"places": ["nowhere"]}),
    "options that are a list": operation(options=[1]),
    "counts that are texts": operation(counts={"sent": "many"}),
    "a cursor that is a list": operation(cursor=[1]),
    "a cursor above 64 bits": operation(cursor={"0": 1 << 63}),
    "ends that are no numbers": operation(ends={"0": None}),
    "a shard that is nested too deep": ("shard/a/0", DEEP),
    "a shard of no partition": ("shard/a/99999999999", SHARD),
    "a shard that has come nowhere": ("shard/a/0", {**SHARD, "cursor": {}}),
    "a shard of another id": ("shard/b/0", SHARD),
    "a shard that is text": ("shard/a/0", b'"text"'),
}


def write(world, key, value):
    key = key.replace("{topic}", world.broker.topic_id("shop.dead"))
    data = value if isinstance(value, bytes) else json.dumps(value)
    world.sim.send(STATE, data, key=key)


@pytest.mark.parametrize("what", BROKEN)
def test_what_redrive_did_not_write_is_left_alone(world, what):
    write(world, *BROKEN[what])
    known = read_state(world.broker, "shop.dead")
    assert (len(known.marks), known.before, known.operations, known.shards) == (0, {}, {}, {})


def test_no_command_ends_by_what_others_write_there(world):
    for each in BROKEN.values():
        write(world, *each)
    world.repair()
    letters, operator = world.letters, world.operator()
    assert letters.stats()[0].states == {"open": 20}
    assert letters.show("shop.dead[0]@1").operations == []
    letters.export(io.StringIO())
    assert operator.discard(Filter(keys=("k0",)), "no").status == "done"
    assert operator.replay(Filter(), ReplayOptions(stop_above=0.5)).done == 13
    assert {each.kind for each in operator.operations()} == {"discard", "replay"}


def test_what_redrive_writes_is_read(world):
    write(world, *letter())
    write(world, "letter/x/2147483647/9223372036854775807", MARK)
    write(world, *operation(options={"new": {"of": ["a newer version"]}}, also="that"))
    write(world, "shard/a/0", SHARD)
    known = read_state(world.broker, "shop.dead")
    assert known.marks.get(0, 1) == ("discarded", ("a",))
    assert [*known.before["x"].before(2147483647)] == [9223372036854775807]
    assert known.operations["a"].by == "eve"
    assert known.shards["a", 0].cursor == {"0": 1}
