"""What `sends=` declares: which topics handlers can send to, and which are known before a run."""

from __future__ import annotations

import traceback

import pytest

from redrive import App, Bury, ConfigurationError, RetryPolicy
from redrive.testing import Simulation
from redrive.topics import topic_names


def app_that_sends_to(topic, *, app=None, **declared):
    app = app or App("items")

    @app.handler("orders", **declared)
    def handle(record, ctx):
        ctx.send(topic, record.value)

    return app


def run(app):
    with Simulation(app) as sim:
        sim.send("orders", "an order")
        sim.run()
    return sim


@pytest.mark.parametrize(
    ("app", "sends"),
    [
        (App("items"), "invoices"),
        (App("items"), ["alarms", "invoices"]),
        (App("items", sends="invoices"), None),
        (App("items", sends=["invoices"]), "alarms"),
        (App("items"), None),
    ],
    ids=["one", "several", "the app's", "both", "nothing declared"],
)
def test_what_is_declared_can_be_sent_to(app, sends):
    assert len(run(app_that_sends_to("invoices", app=app, sends=sends)).sent("invoices")) == 1


@pytest.mark.parametrize(
    ("app", "sends"),
    [
        (App("items"), "invoices"),
        (App("items", sends="invoices"), None),
        (App("items", sends="invoices"), "alarms"),
        (App("items"), ()),
    ],
    ids=["the handler's", "the app's", "both", "none at all"],
)
def test_a_topic_that_is_not_declared_is_an_error_of_the_line_that_sends(app, sends):
    sim = run(app_that_sends_to("invoice", app=app, sends=sends))
    (attempt,) = sim.attempts
    assert "ctx.send('invoice'): sends= does not declare it" in str(attempt.error)
    lines = [frame.line for frame in traceback.extract_tb(attempt.error.__traceback__)]
    assert "ctx.send(topic, record.value)" in lines
    assert sim.sent("invoice") == []


def test_the_topic_that_was_meant_is_named():
    (attempt,) = run(app_that_sends_to("invoice", sends=["invoices", "alarms"])).attempts
    assert '("invoices", "alarms"); did you mean "invoices"?' in str(attempt.error)


def test_a_batch_sends_where_its_handler_can():
    app = App("items")

    @app.handler("orders", batch=10, sends="seen")
    def handle(records, ctx):
        ctx.send("seen", str(len(records)))
        for record in records:
            ctx.of(record).send("accepted", record.value)

    sim = run(app)
    assert "ctx.send('accepted'): sends= does not declare it" in str(sim.attempts[-1].error)


def recovering(**options):
    app = App("items", **options)

    @app.handler("orders", sends="invoices", retry=RetryPolicy("5m"))
    def handle(record, ctx):
        raise Bury("never")

    @app.recover
    def tell(record, error, ctx):
        ctx.send("alarms", str(error))

    return app


def test_a_handlers_declaration_is_not_that_of_the_recovery_all_share():
    assert len(run(recovering()).sent("alarms")) == 1


def test_an_app_that_declares_what_it_sends_means_its_recoveries_too():
    assert len(run(recovering(sends="alarms")).sent("alarms")) == 1
    sim = run(recovering(sends="others"))
    assert "ctx.send('alarms'): sends= does not declare it" in str(sim.attempts[-1].error)


def test_outbound_topics_are_among_those_an_app_needs():
    app = App("items", sends=["audit", "invoices"])
    app.handler("orders", sends=["returns", "invoices"])(lambda record, ctx: None)
    app.handler("returns", sends="stock")(lambda record, ctx: None)
    assert app.outbound_topics == ["audit", "invoices", "stock"]
    assert topic_names(app) == ["orders", "returns", "audit", "invoices", "stock", "items.dead"]


def test_mistakes_in_what_is_declared():
    app = App("items", sends="no name")
    retry = RetryPolicy("5m")
    sends = [7, "items.dead", "items.retry.5m"]
    app.handler("orders", sends=sends, retry=retry)(lambda record, ctx: None)
    with pytest.raises(ConfigurationError) as raised:
        app.check()
    told = [problem.removeprefix('app "items": ') for problem in raised.value.problems]
    own = "one of the app's own topics: raise Retry or Bury instead"
    assert told == [
        "sends= names 'no name', which is not a valid Kafka topic name",
        'handler of "orders": sends= names 7, which is not a valid Kafka topic name',
        f"handler of \"orders\": sends= names 'items.dead', {own}",
        f"handler of \"orders\": sends= names 'items.retry.5m', {own}",
    ]
