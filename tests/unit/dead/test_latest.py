"""Letters from the end backwards, a page at a time: each once, whatever the pages are like."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from letters import buried, shop
from operating import Held

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


def test_a_page_is_no_larger_than_its_bytes_and_has_one_letter_at_least(monkeypatch):
    monkeypatch.setattr(module, "DEAD_PAGE_BYTES", 5_000)
    app = shop("shop3")
    sim = buried(app, *(f"bad {n} {'x' * 1_000 * (n + 1)}" for n in range(9)))
    letters = DeadLetters(sim.broker, app=app)
    page = latest(letters)
    sizes = [[each.letter.record.size for each in page.found]]
    while page.left:
        page = latest(letters, before=page.before)
        sizes.append([each.letter.record.size for each in page.found])
    assert len([size for each in sizes for size in each]) == 9
    assert all(sum(each[:-1]) <= 5_000 for each in sizes)
    assert max(map(len, sizes)) > 1


def test_a_block_of_letters_is_not_in_memory_at_once():
    log = Held(LETTERS.log, LETTERS.topic)
    page = latest(DeadLetters(log, app=APP), Filter(), limit=3)
    assert len(page.found) == 3
    assert log.now == 3
    assert log.most <= 6  # beside the page, what is read and what makes room for it


def test_blocks_grow_while_they_are_read_quickly_and_shrink_while_not(monkeypatch):
    monkeypatch.setattr(module, "DEAD_BLOCK", 16)
    asked = []

    sim = buried(shop("shop4"), *(f"bad {n}" for n in range(40)))

    class Asked:
        def __getattr__(self, name):
            return getattr(sim.broker, name)

        def batches(self, place, start, end):
            asked.append(end - start)
            return sim.broker.batches(place, start, end)

    letters = DeadLetters(Asked(), topic="shop4.dead")
    latest(letters, Filter(text="no such"), limit=2, timer=lambda: 0.0)
    assert asked[0] == 2
    assert max(asked) > 2
    asked.clear()
    times = iter(range(1000))
    latest(letters, Filter(text="no such"), limit=4, seconds=8, timer=lambda: float(next(times)))
    assert asked[-1] < 4
