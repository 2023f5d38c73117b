"""Copies: for the app that failed, and for nobody else."""

from __future__ import annotations

import letters
import pytest
from operating import World

from redrive import App, RetryPolicy, envelope
from redrive.dead import Filter
from redrive.dead.copies import Replay
from redrive.dead.letter import Letter


def taker(name, **options):
    app = App(name, retry=RetryPolicy("5s"), **options)
    app.handler("orders")(lambda record, ctx: None)
    return app


def test_letters_of_another_app_are_left_out_though_both_read_the_topic(world):
    other = taker("billing")
    world.broker.create("billing.retry.5s")
    operator = world.operator(app=other, topic="shop.dead")
    plan = operator.plan(Filter())
    assert (plan.letters, plan.left_out, plan.examples) == (
        0,
        {"other-app": 20},
        {"other-app": "shop"},
    )
    assert operator.replay(Filter()).counts == {"other-app": 20}
    assert world.broker.records("billing.retry.5s") == []


def test_an_app_that_was_renamed_gets_its_letters(world):
    renamed = taker("store", was="shop")
    world.broker.create("store.retry.5s")
    assert world.operator(app=renamed, topic="shop.dead").replay(Filter()).done == 20
    assert len(world.broker.records("store.retry.5s")) == 20


def test_what_is_parked_is_not_dead(world):
    """A delay topic that somebody takes for a dead topic: its records would be handled twice."""
    parked = World(values=())
    parked.sim.send("orders", "a")
    parked.sim.run()
    for dialect, why in (("redrive", "not-dead"), ("auto", "no-origin")):
        operator = parked.operator(app=parked.app, topic="shop.retry.5s", dialect=dialect)
        assert operator.plan(Filter()).left_out == {why: 1}


MOST = 2**31 - 1


@pytest.mark.parametrize(
    ("said", "written"),
    [(b"9" * 19, MOST), (b"%d" % MOST, MOST), (b"-3", 1), (b"no", 1), (b"4", 5)],
)
def test_a_copy_counts_its_replays_whatever_its_letter_says(said, written):
    """Anybody can write headers; a count that cannot be read would break the copy's."""
    given = letters.foreign(
        "orders.DLT", ("kafka_dlt-original-topic", b"orders"), ("redrive-replay-count", said)
    )
    copy = Replay("replay-1", None, {"orders": 1}, ["orders"]).copy(Letter(given), b"v", 0)
    assert dict(copy.headers)["redrive-replay-count"] == b"%d" % written


def test_a_letter_that_was_replayed_as_often_as_can_be_counted_can_be_handled(world):
    dead = world.broker.records("shop.dead")[0]
    often = ("redrive-replay-count", b"%d" % MOST)
    letter = Letter(dead._replace(headers=(*dead.headers, often)))
    copy = Replay("replay-1", world.app, {"shop.retry.5s": 1}).copy(letter, b"v", 0)
    assert envelope.parse(copy.headers).replay_count == MOST
