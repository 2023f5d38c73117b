"""Letters from the end backwards, a page at a time: each once, whatever the pages are like."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from letters import buried, shop

from redrive.dead import DeadLetters, Filter
from redrive.dead import latest as module
from redrive.dead.latest import latest

APP = shop()
SIM = buried(APP, *(f"{('bad', 'missing')[n % 2]} {n}" for n in range(40)), partitions=3)
LETTERS = DeadLetters(SIM.broker, app=APP)


def pages(**options):
    before = None
    while True:
        page = latest(LETTERS, before=before, **options)
        yield page
        if not page.left:
            return
        before = page.before


@given(st.integers(1, 50), st.integers(1, 50))
def test_every_letter_is_on_one_page(limit, block):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "DEAD_BLOCK", block)
        found = [each.letter.place for page in pages(limit=limit) for each in page.found]
    assert len(found) == len({*found}) == 40


def test_those_that_died_last_come_first():
    [page] = pages(limit=1000)
    died = [each.letter.died for each in page.found]
    assert died == sorted(died, reverse=True)
    assert page.scanned.complete


def test_a_filter_leaves_others_out():
    found = [
        each for page in pages(limit=7, wanted=Filter(errors=("KeyError",))) for each in page.found
    ]
    assert {each.letter.error_type for each in found} == {"KeyError"}
    assert len(found) == 20


def test_a_page_ends_when_its_time_is_over_and_says_where_to_go_on(monkeypatch):
    monkeypatch.setattr(module, "DEAD_BLOCK", 2)
    times = iter(range(1000))
    page = latest(LETTERS, Filter(text="no such"), seconds=3, timer=lambda: float(next(times)))
    assert page.found == []
    assert 0 < page.left < 40
    assert not page.scanned.complete


def test_what_dies_meanwhile_is_on_no_later_page():
    app = shop("shop2")
    sim = buried(app, *(f"bad {n}" for n in range(6)))
    letters = DeadLetters(sim.broker, app=app)
    first = latest(letters, limit=2)
    sim.send("orders", "bad 6", key="k")
    sim.run_until_empty()
    rest = latest(letters, limit=100, before=first.before)
    assert len(rest.found) == 4
