"""An app without its code: fields that the console was told of are masked nevertheless."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest

from redrive import App, ConfigurationError
from redrive.cli import console as commands
from redrive.console.watched import Watched
from redrive.dead import Filter
from redrive.testing import Simulation

CARD = "tok_wonderland"


@pytest.fixture
def dead():
    """The dead topic of an app whose error quotes what should be masked."""
    app = App("shop")

    @app.handler("orders")
    def handle(record, ctx):
        raise ValueError(f"no customer {CARD}")

    with Simulation(app) as sim:
        sim.send("orders", json.dumps({"card": CARD, "n": 1}), key=CARD)
        sim.run_until_empty()
        yield sim.broker


def watched(log, *masked):
    made = Watched(App("shop", masked=masked), SimpleNamespace(), has_code=False)
    made.__dict__["log"] = log
    return made.letters


def test_what_the_console_was_told_to_mask_is_masked_without_code(dead):
    letters = watched(dead, "card")
    detail = letters.show("shop.dead[0]@0")
    assert json.loads(detail.value.text) == {"card": "***", "n": 1}
    [group] = letters.groups()[0]
    assert [*group.patterns] == ["no customer ***"]
    assert (letters.app, letters.masks, detail.seen.key) == (None, True, "***")


def test_nothing_is_masked_that_nobody_named(dead):
    letters = watched(dead)
    assert (letters.masks, CARD in letters.show("shop.dead[0]@0").value.text) == (False, True)


def test_who_resumes_a_job_of_the_page_means_the_letters_that_the_page_did(dead):
    letters = watched(dead, "card")
    wanted = Filter(keys=(CARD,), as_seen=True)
    assert [*letters.scan(Filter.of(json.loads(json.dumps(wanted.as_data()))))] == []
    assert len([*letters.scan(Filter(keys=("***",), as_seen=True))]) == 1
    # A command has the rights of Kafka, and compares what is there.
    assert len([*letters.scan(Filter(keys=(CARD,)))]) == 1
    assert "as_seen" not in Filter(attempts=0).as_data()
    assert Filter(attempts=0, since=0).as_data() == {"attempts": 0, "since": 0}


def test_fields_are_named_for_apps_without_code_and_for_no_others(monkeypatch):
    class Opened(Exception):
        pass

    def opened(apps, *_, **__):
        raise Opened(*apps)

    monkeypatch.setenv("REDRIVE_BOOTSTRAP", "127.0.0.1:9")
    monkeypatch.setattr("redrive.console.open_console", opened)
    with pytest.raises(Opened) as caught:
        commands.console(app_name=["shop"], masked=["card.number", "email"])
    [made] = caught.value.args
    assert (made.app.masked, made.has_code) == (("card.number", "email"), False)
    with pytest.raises(ConfigurationError, match="--masked is for apps that --app-name names"):
        commands.console(targets=["shop:app"], masked=["card"])
