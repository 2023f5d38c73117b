"""Records of some keys are handled again by copies, once each, while the app runs."""

from __future__ import annotations

import json

import pytest
from rewinding import IDS, SOURCE, World, where

from redrive import App, RetryPolicy
from redrive.dead import running
from redrive.dead.desk import UnderWayError
from redrive.dead.state_topic import operation_write
from redrive.envelope import parse
from redrive.errors import ConfigurationError
from redrive.ids import field
from redrive.ports import Position
from redrive.processing.progress.done_beyond import encode
from redrive.record import Write

VALUES = [f"v{number}" for number in range(12)]
INBOX = "idempotent"
KEY = "k1"
MINE = ["v1", "v4", "v7", "v10"]
"""Those with the key."""


@pytest.fixture
def world():
    return World(*VALUES)


def again(world):
    """What the app handles now, without having been stopped."""
    del world.handled[:]
    world.sim.run_until_empty()
    return world.handled


def test_only_records_with_the_key_in_range_are_handled_again(world):
    plan = world.plan(3, keys=(KEY,))
    assert (plan.records, plan.handled) == (3, 3)
    assert "3 records with the key k1" in [*plan.sentences()]
    before = world.committed
    done = world.rewind(3, keys=(KEY,), why="prices")
    assert (done.status, done.counts, done.left) == ("done", {"rewound": 3}, 0)
    assert (world.committed, world.fenced) == (before, [])
    assert again(world) == MINE[1:]


def test_the_app_may_run(world):
    world.members.append("worker-1")
    assert world.plan(3, keys=(KEY,)).in_the_way == ""
    assert world.rewind(3, keys=(KEY,)).status == "done"


def test_a_copy_begins_again_and_keeps_who_it_is(world):
    world.sim.send("orders", "special", key=KEY, headers=(("trace", b"abc"),), timestamp=77)
    world.sim.run()
    source = world.broker.records("orders")[-1]
    done = world.rewind(source.offset, keys=(KEY,))
    [copy] = world.broker.records("shop.retry.5s")
    envelope = parse(copy.headers)
    assert (copy.key, copy.value) == (b"k1", b"special")
    assert copy.headers[0] == ("trace", b"abc")
    assert (envelope.origin_topic, envelope.origin_offset, envelope.origin_timestamp) == (
        "orders",
        source.offset,
        77,
    )
    assert envelope.id == f"{world.broker.topic_id('orders')}/0/{source.offset}"
    assert (envelope.attempt, envelope.app, envelope.operation) == (1, "shop", done.id)
    assert (envelope.first_received, envelope.replay_of) == (world.clock.now(), None)


def test_a_chosen_id_stays():
    world = World('{"id": 7}', keys=1, **IDS)
    world.rewind(0, keys=("k0",))
    [copy] = world.broker.records("shop.retry.5s")
    assert parse(copy.headers).id == "7"


def test_without_delays_copies_go_to_the_origin(world):
    world = World(*VALUES, retry=())
    world.rewind(3, keys=(KEY,))
    copy = world.broker.records("orders")[-1]
    assert (copy.value, parse(copy.headers).due) == (b"v10", None)
    assert again(world) == MINE[1:]
    # Those copies are no records of their own.
    plan = world.plan(3, keys=(KEY,))
    assert (plan.records, plan.handled, plan.left_out) == (6, 3, {"written-back": 3})


def test_what_cannot_be_read_is_left_out(world):
    headers = (("redrive-app", b"shop"), ("redrive-origin-topic", b"orders"))
    world.broker.publish([Write("orders", KEY.encode(), b"broken", headers)])
    world.sim.run()
    plan = world.plan(9, keys=(KEY,))
    assert (plan.records, plan.handled, plan.left_out) == (2, 1, {"broken-headers": 1})
    assert world.rewind(9, keys=(KEY,)).counts == {"rewound": 1, "broken-headers": 1}


def test_a_dry_run_knows_that_the_topic_of_the_copies_is_missing(world):
    world.broker.delete("shop.retry.5s")
    plan = world.plan(3, keys=(KEY,))
    assert (plan.records, plan.handled, plan.left_out) == (3, 0, {"no-topic": 3})
    assert "3 would not be handled, as they would go to topics that do not exist" in [
        *plan.sentences()
    ]
    assert world.rewind(3, keys=(KEY,)).counts == {"no-topic": 3}


def test_an_inbox_would_drop_what_it_knows():
    world = World(*VALUES, delivery=INBOX)
    plan = world.plan(3, keys=(KEY,))
    assert (plan.handled, plan.left_out) == (0, {"done": 3})
    assert world.rewind(3, keys=(KEY,)).counts == {"done": 3}
    assert again(world) == []


def test_ids_are_forgotten_before_their_copies_are_there():
    world = World(*VALUES, delivery=INBOX)
    done = world.rewind(3, keys=(KEY,), forget=True)
    assert done.counts == {"rewound": 3, "forgotten": 3}
    assert len(world.store.rows) == len(VALUES) - 3
    assert again(world) == MINE[1:]
    assert len(world.store.rows) == len(VALUES)


def test_a_record_that_waits_is_handled_once():
    world = World("later 0", "v1", keys=1, delivery=INBOX)
    done = world.rewind(0, keys=("k0",), forget=True)
    assert done.counts == {"rewound": 1, "forgotten": 1, "waiting": 1}
    assert sorted(again(world)) == ["later 0", "v1"]


class Killed(BaseException):
    """As kill -9: nothing is tidied up."""


@pytest.mark.parametrize("transactions", [1, 2, 3, 4])
def test_a_job_that_is_killed_leaves_none_out_and_copies_none_twice(transactions, monkeypatch):
    monkeypatch.setattr(running, "DEAD_STEP", 2)
    world = World(*VALUES, keys=1, delivery=INBOX)
    commit, left = world.broker.commit_as, [transactions]

    def dying(*given):
        if not left[0]:
            raise Killed
        left[0] -= 1
        commit(*given)

    monkeypatch.setattr(world.broker, "commit_as", dying)
    with pytest.raises(Killed):
        world.rewind(3, keys=("k0",), forget=True)
    monkeypatch.setattr(world.broker, "commit_as", commit)
    [operation] = world.operations()
    done = world.rewinder("bob").resume(operation.id)
    assert (done.status, done.done) == ("done", 9)
    assert again(world) == VALUES[3:]


def test_a_job_does_not_go_on_in_a_topic_that_was_recreated(world, monkeypatch):
    monkeypatch.setattr(running, "DEAD_STEP", 1)
    paused = world.rewinder().rewind(
        where(3), keys=(KEY,), stopping=lambda: len(world.broker.records("shop.retry.5s")) > 0
    )
    assert (paused.status, paused.done) == ("paused", 1)
    world.broker.delete("orders")
    world.broker.create("orders")
    world.send(*VALUES)
    with pytest.raises(UnderWayError, match="orders, which has been recreated"):
        world.rewinder().resume(paused.id)
    assert len(world.broker.records("shop.retry.5s")) == 1


def test_what_is_done_beyond_is_known_when_it_goes_on(world):
    """A job goes by what was handled when it began, whoever continues it."""

    world.progress.commit({SOURCE: Position(4, encode(4, [(7, 8)]))})
    plan = world.plan(0, keys=(KEY,))
    assert plan.records == 2
    done = world.rewind(0, keys=(KEY,))
    assert done.done == 2
    copies = [record.value for record in world.broker.records("shop.retry.5s")]
    assert copies == [b"v1", b"v7"]


def test_keys_need_a_place_to_begin(world):
    with pytest.raises(ConfigurationError, match="give --to-time or --to-offset"):
        world.rewinder().rewind(where(), keys=(KEY,))


def test_what_is_left_out_keeps_its_id_as_its_original_may_be_out_of_range():
    failed, handled = set(), []
    app = App("shop", delivery=INBOX, retry=RetryPolicy("5s", redeliver="origin"))

    @app.handler("orders", decode=json.loads, id=field("id"))
    def handle(record, ctx):
        number = record.data["id"]
        if number == 1 and number not in failed:
            failed.add(number)
            raise KeyError(number)
        handled.append(number)

    world = World(*(f'{{"id": {number}}}' for number in (1, 2, 3)), keys=1, app=app)
    world.sim.run_until_empty()
    done = world.rewind(1, keys=("k0",), forget=True)
    assert done.counts == {"forgotten": 2, "rewound": 2, "written-back": 1}
    handled.clear()
    world.sim.send("orders", '{"id": 1}', key="k0")  # its producer sends it once more
    world.sim.run_until_empty()
    assert sorted(handled) == [2, 3]


def test_a_rewind_of_a_newer_version_is_not_done_in_another_way(world):
    paused = world.rewind(3, keys=(KEY,), stopping=lambda: True)
    newer = paused.change(options={**paused.options, "only": "adults"})
    world.broker.publish([operation_write(world.app.dead_topic, newer)])
    with pytest.raises(ConfigurationError, match="begun with only, which this version of redrive"):
        world.rewinder().resume(paused.id)
    assert again(world) == []


def test_a_rewind_of_a_topic_that_the_app_handles_no_more_is_refused(world):
    paused = world.rewind(3, keys=(KEY,), stopping=lambda: True)
    other = App("shop", retry=RetryPolicy("5s"))
    other.handler("payments")(lambda record, ctx: None)
    world.app = other
    with pytest.raises(ConfigurationError, match="about orders, for which the app has no handler"):
        world.rewinder().resume(paused.id)


def test_a_rewind_that_finds_nothing_yet_can_be_paused(world):
    asked = iter([False, False])
    paused = world.rewind(3, keys=("nobody",), stopping=lambda: next(asked, True))
    assert paused.status == "paused"
    assert world.rewinder().resume(paused.id).status == "done"
