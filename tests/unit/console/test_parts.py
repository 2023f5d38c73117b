"""Parts of pages: what they say beside the figures."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from redrive.console.access import Access
from redrive.console.asking import Console
from redrive.console.flow import Flow, Node
from redrive.console.parts import PARTS
from redrive.console.trends import Trends
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
