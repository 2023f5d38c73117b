"""Trying letters: what would pass now, and nothing of it remains."""

from __future__ import annotations

import json

import pytest

from redrive import App, ConfigurationError, RetryPolicy
from redrive.dead import DeadLetters, Filter, Trying
from redrive.testing import Simulation


class Shop:
    def __init__(self, **options):
        self.broken = True
        self.called = []
        self.app = App("shop", retry=RetryPolicy("5s"), **options)

    def handle(self, record, ctx):
        self.called.append((record.data, ctx.trying, ctx.attempt))
        if self.broken or record.data == "never":
            raise KeyError(record.data)
        ctx.send("done", record.value)

    def buried(self, *values):
        self.sim = Simulation(self.app)
        for value in values:
            self.sim.send("orders", value, key="k")
        self.sim.run_until_empty()
        self.called.clear()
        self.broken = False
        self.ends = len(self.sim.sent("done")), len(self.sim.sent("shop.dead"))
        return DeadLetters(self.sim.broker, app=self.app)


@pytest.fixture
def shop():
    made = Shop()
    made.app.handler("orders", decode=json.loads)(made.handle)
    return made


def test_what_would_pass_and_what_would_fail_and_how(shop):
    letters = shop.buried('"a"', '"never"', '"b"', "{")
    trials = Trying(letters).run()
    assert trials.total == {"pass": 2, "fail": 2}
    by_error = {each.error_type: each for each in trials.groups.values()}
    assert by_error["KeyError"].verdicts == {"pass": 2, "fail": 1}
    assert by_error["KeyError"].sends == {"done": 2}
    assert by_error["KeyError"].errors == {"KeyError": 1}
    assert by_error["redrive.errors.Undecodable"].errors == {"Undecodable": 1}
    assert trials.scanned.complete


def test_nothing_of_it_remains(shop):
    letters = shop.buried('"a"')
    Trying(letters).run()
    assert shop.called == [("a", True, 1)]
    assert (len(shop.sim.sent("done")), len(shop.sim.sent("shop.dead"))) == shop.ends
    shop.sim.run_until_empty()
    assert shop.sim.sent("done") == []


def test_a_fix_is_tried_with_it(shop):
    letters = shop.buried('"never"', '"worse"')

    def fix(record):
        if record.value == b'"worse"':
            raise ValueError("no")
        return '"now"'

    trials = Trying(letters, fix=fix).run()
    assert trials.total == {"pass": 1, "fix-failed": 1}
    assert shop.called == [("now", True, 1)]


@pytest.mark.parametrize("form", ["async", "batch", "async batch", "manual", "manual fails"])
def test_all_forms_of_handlers_can_be_tried(form):
    shop = Shop()
    options = {"batch": 10} if "batch" in form else {}
    if "manual" in form:
        options["ack"] = "manual"

    def act(record, ctx):
        if shop.broken:
            raise KeyError("x")
        if "manual" in form:
            ctx.fail(ValueError("no")) if "fails" in form else ctx.ack()

    def plain(given, ctx):
        act(given, ctx)

    async def later(given, ctx):
        act(given, ctx)

    shop.app.handler("orders", **options)(later if "async" in form else plain)
    letters = shop.buried("a", "b")
    shop.sim.close()
    trials = Trying(letters).run()
    assert trials.total == ({"fail": 2} if "fails" in form else {"pass": 2})


def test_resources_are_those_that_are_named_for_it(shop):
    @shop.app.resource
    def bank():
        yield "the real one"

    letters = shop.buried('"a"', "{")
    trying = Trying(letters)
    assert trying.run().total == {"decoded": 1, "fail": 1}
    assert "name what takes their place with --resources" in trying.limits[0]
    assert shop.called == []
    assert Trying(letters, resources={"bank": "a fake"}).run().total == {"pass": 1, "fail": 1}
    with pytest.raises(ConfigurationError, match="the app has no resource x"):
        Trying(letters, resources={"x": 1, "bank": 2})


def test_without_a_database_to_roll_back_in_it_stops_after_decoding():
    shop = Shop(delivery="idempotent")
    shop.app.handler("orders")(shop.handle)
    letters = DeadLetters(Simulation(shop.app).broker, app=shop.app)
    assert "ctx.db needs a database" in Trying(letters).limits[0]


def test_letters_without_a_handler_are_said_to_have_none(shop):
    letters = shop.buried('"a"')
    other = App("shop")
    other.handler("returns")(lambda record, ctx: None)
    assert Trying(DeadLetters(letters.log, app=other)).run().total == {"no-handler": 1}


def test_it_needs_an_app(shop):
    letters = shop.buried('"a"')
    with pytest.raises(ConfigurationError, match="needs an app"):
        Trying(DeadLetters(letters.log, topic="shop.dead"))
    assert Trying(letters).run(Filter(keys=("other",))).total == {}
