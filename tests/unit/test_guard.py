"""What an app says about outages."""

from __future__ import annotations

import pytest

from redrive import App, Bury, ConfigurationError, Guard, HandlerTimeout, Outage, Retry


def caused_by(cause):
    error = RuntimeError("no answer")
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    "error",
    [
        ConnectionRefusedError("refused"),
        TimeoutError("late"),
        HandlerTimeout("late"),
        caused_by(ConnectionResetError("reset")),
        ExceptionGroup("tasks", [ValueError("no"), ConnectionError("away")]),
        Outage("away"),
    ],
    ids=repr,
)
def test_errors_that_can_be_an_outage(error):
    assert Guard().sees_outage(error)


def answered(signal):
    signal.__context__ = ConnectionError("refused")
    return signal


@pytest.mark.parametrize(
    "error",
    [ValueError("no"), OSError("disk full"), answered(Retry("later")), answered(Bury("never"))],
    ids=repr,
)
def test_errors_that_cannot(error):
    assert not Guard().sees_outage(error)


def test_an_app_has_its_own():
    class RateLimitedError(Exception):
        pass

    guard = Guard(outage_on=[RateLimitedError])
    assert guard.sees_outage(RateLimitedError())
    assert not guard.sees_outage(ConnectionError())


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"failures": 0}, "failures is 0; it must be at least 1"),
        ({"keys": True}, "keys is True; it must be at least 1"),
        ({"failures": 5}, "keys is 10, more than failures \\(5\\)"),
        ({"window": "0s"}, "window is 0"),
        ({"window": "soon"}, "window: "),
        ({"max_open": "soon"}, "max_open: "),
        ({"outage_on": ["no"]}, "outage_on: 'no' is not an exception class"),
    ],
)
def test_mistakes_are_said(options, said):
    with pytest.raises(ConfigurationError, match=said):
        Guard(**options)


def test_handlers_have_their_apps_unless_they_have_their_own():
    mine, own = Guard(), Guard(failures=50)
    app = App("shop", guard=mine)
    app.handler("orders")(lambda record, ctx: None)
    app.handler("payments", guard=own)(lambda record, ctx: None)
    assert app.handlers["orders"].guard is mine
    assert app.handlers["payments"].guard is own


def test_anything_else_is_refused():
    app = App("shop", guard=True)
    app.handler("orders")(lambda record, ctx: None)
    with pytest.raises(ConfigurationError, match=r"guard is True; write Guard\(\)"):
        app.check()


@pytest.mark.parametrize("options", [{"guard": Guard()}, {"stop_on_dead": 0.5}], ids=lambda o: [*o])
def test_they_are_refused_where_nobody_heeds_them(options):
    app = App("shop", **options)
    app.handler("orders")(lambda record, ctx: None)
    app.check("worker")
    app.check("spark")
    frames = App("shop", **options)
    frames.frame("orders")(lambda frame: frame)
    (name,) = options
    with pytest.raises(ConfigurationError, match=rf'frame handler of "orders": {name}='):
        frames.check("spark")
