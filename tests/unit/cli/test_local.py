"""`redrive local user`: who may do what."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from redrive import App, RetryPolicy
from redrive.errors import ConfigurationError
from redrive.permissions import permissions


@pytest.fixture
def add(redrive, monkeypatch):
    """Runs the command; gives the permissions that a stack is asked to grant."""
    app = App("shop", retry=RetryPolicy("5s"))
    app.handler("orders")(lambda record, ctx: None)
    granted = []

    class Stack:
        def __init__(self, plan, home):
            pass

        def add_user(self, name, permissions, *, certificate):
            granted.extend(permissions)
            return {"bootstrap": "127.0.0.1:1", "security": {}}

    monkeypatch.setattr("redrive.loading.load_app", lambda target: app)
    monkeypatch.setattr(
        "redrive.local.lifecycle.plan_of", lambda home: SimpleNamespace(securing=None)
    )
    monkeypatch.setattr("redrive.local.stacks.Stack", Stack)

    def run(*arguments):
        answer = redrive("local", "user", "olga", *arguments, "--json")
        if answer.exception is not None:
            raise answer.exception
        return granted

    run.app = app
    return run


def test_a_user_for_an_app_may_run_it(add):
    assert add("--for", "shop:app") == permissions(add.app, "run")


def test_an_operator_may_do_what_was_said_and_nothing_else(add):
    found = add("--for", "shop:app", "--may", "dead replay", "--may", "parked")
    assert found == [*permissions(add.app, "dead replay"), *permissions(add.app, "parked")]


def test_what_for_without_an_app_is_refused(add):
    with pytest.raises(ConfigurationError, match="--may: say of which app, with --for"):
        add("--may", "dead")
    with pytest.raises(ConfigurationError, match="--may 'all' is not known: write one of run, "):
        add("--for", "shop:app", "--may", "all")
