"""The console's own threads: whatever goes wrong, they say so and go on."""

from __future__ import annotations

from threading import Event
from types import SimpleNamespace

import pytest

from redrive.console import board as boards
from redrive.console import sampling
from redrive.console.board import Board
from redrive.console.endpoints import Endpoints
from redrive.dead.showing import Seen


def refuse(*_):
    raise KeyError("never thought of")


@pytest.fixture
def make(monkeypatch):
    """Makes a board of an app of which nothing can be had, as each asking fails unforeseen."""
    made = []
    for module in (boards, sampling):
        monkeypatch.setattr(module, "CONSOLE_LOOK_EVERY", 0.001)
    monkeypatch.setattr(boards, "past", refuse)
    log = SimpleNamespace(
        appended_since=refuse, names=refuse, partitions=refuse, close=lambda: None
    )
    letters = SimpleNamespace(log=log, topic="shop.dead", seen=Seen)
    watched = SimpleNamespace(
        name="shop",
        app=SimpleNamespace(name="shop"),
        log=log,
        letters=letters,
        has_code=True,
        watch=refuse,
        admin=SimpleNamespace(),
        settings=SimpleNamespace(),
        close=lambda: None,
    )

    def make(endpoints):
        made.append(Board(watched, endpoints, "prometheus:9090"))
        return made[-1]

    yield make
    for each in made:
        each.close()


@pytest.fixture
def board(make):
    return make(Endpoints([]))


def after(times, then):
    """Sets an event when something was called so many times."""
    reached, calls = Event(), []

    def called(*given):
        calls.append(1)
        if len(calls) >= times:
            reached.set()
        return then(*given)

    return called, reached


def test_a_board_goes_on_looking_and_counting_whatever_goes_wrong(board, monkeypatch):
    looks, looked = after(3, refuse)
    counts, counted = after(3, refuse)
    monkeypatch.setattr(board.watched.log, "names", looks)
    monkeypatch.setattr(board.index, "refresh", counts)
    board.start()
    assert looked.wait(60)
    assert counted.wait(60)
    assert "never thought of" in board.sampler.flow.trouble
    assert "letters are not counted" in board.index_trouble
    assert "never thought of" in board.index_trouble


def test_a_board_goes_on_when_what_runs_say_cannot_be_had(make):
    looks, looked = after(3, refuse)
    board = make(SimpleNamespace(look=looks, any=True))
    board.start()
    assert looked.wait(60)
    assert "never thought of" in board.sampler.flow.trouble


def test_open_pages_hear_when_something_was_said_about_parked_records(board):
    # Else whoever opens the page again is sent what was rendered before.
    before = board.version
    board.parked.outdated()
    assert board.version != before
