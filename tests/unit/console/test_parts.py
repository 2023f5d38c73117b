"""Parts of pages: what they say beside the figures."""

from __future__ import annotations

from types import SimpleNamespace

import letters
import pytest

from redrive.console.access import Access
from redrive.console.asking import Console
from redrive.console.flow import Flow, Node
from redrive.console.letters_index import LettersIndex
from redrive.console.parts import PARTS
from redrive.console.trends import Trends
from redrive.dead import DeadLetters
from redrive.secret import Secret


def flow_of(*nodes, watches=False):
    """The part of the flow page of these topics."""
    sampler = SimpleNamespace(flow=Flow(nodes), seen=(), trends=Trends())
    board = SimpleNamespace(name="shop", sampler=sampler, watches=watches, concerns=list)
    console = Console({"shop": board}, Access(change=Secret("c"), read=Secret("r")))
    return PARTS["flow"](console, board)


@pytest.mark.parametrize(
    ("count", "said"),
    [(12, ""), (13, "1 more topic of the app is only in"), (20, "8 more topics of the app are")],
)
def test_topics_that_the_picture_has_no_room_for_are_said(count, said):
    page = flow_of(*(Node(f"orders{number}", "source") for number in range(count)))
    assert said in page
    assert ("more topic" in page) is bool(said)
    assert f"orders{count - 1}</th>" in page


def test_what_is_missing_without_an_address_of_runs_is_said_with_how_to_have_it():
    [said] = [line for line in flow_of().splitlines() if "--watch" in line]
    assert "lateness" in said
    assert "guards" in said
    assert "--metrics-port" in said
    assert "--watch" not in flow_of(watches=True)


def test_what_letters_call_themselves_is_bounded_and_plain():
    app = letters.shop()
    with letters.buried(app) as sim:
        headers = [("redrive-dead-reason", b"\xe2\x80\xae" + b"r" * 100_000)]
        headers += [("redrive-error-group", b"g" * 100_000)]
        sim.send(app.dead_topic, "v", headers=headers)
        index = LettersIndex(DeadLetters(sim.broker, app=app))
        index.refresh()
    board = SimpleNamespace(name="shop", index=index, index_trouble="")
    console = Console({"shop": board}, Access(change=Secret("c"), read=Secret("r")))
    page = PARTS["groups"](console, board)
    assert "1 of 1 letters counted" in page
    assert "\u202e" not in page
    assert "r" * 200 not in page
    assert "g" * 200 not in page.replace("group=" + "g" * 100_000, "")
