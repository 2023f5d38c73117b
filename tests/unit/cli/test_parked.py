"""`redrive parked` shows nothing that the app masks."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from redrive import App, Retry, RetryPolicy
from redrive.cli import parked
from redrive.parked_rules import Match
from redrive.testing import Simulation


@pytest.fixture
def run(monkeypatch):
    """Runs a command about an app whose ids have a masked name, of which one is held."""
    app = App("shop", masked=["name"])

    @app.handler("orders", retry=RetryPolicy("1h"), id=lambda record: record.key.decode())
    def handle(record, ctx):
        raise Retry("later")

    with Simulation(app) as sim:
        for number in (7, 8, 9):
            sim.send("orders", '{"name": "alice"}', key=f"alice-{number}")
        sim.run()
        sim.steering.hold(Match(ids=("alice-7",)))
        monkeypatch.setattr(parked, "open_steering", lambda *_: sim.steering)
        monkeypatch.setattr(parked, "load_app", lambda _target: app)
        yield lambda *args: CliRunner().invoke(parked.app, [*args]).output


@pytest.mark.parametrize(
    "args",
    [
        ("list", "shop:app"),
        ("list", "shop:app", "--json"),
        ("hold", "shop:app", "--id", "alice-8", "--yes"),
        ("run-now", "shop:app", "--id", "alice-9", "--yes"),
        ("release", "shop:app"),
        ("release", "shop:app", "--yes"),
        ("hold", "shop:app", "--id", "alice-8", "--yes", "--json"),
        ("run-now", "shop:app", "--id", "alice-9", "--yes", "--json"),
        ("release", "shop:app", "--yes", "--json"),
    ],
)
def test_ids_of_rules_are_not_shown_where_fields_are_masked(run, args):
    output = run(*args)
    assert "***" in output
    assert "alice" not in output
