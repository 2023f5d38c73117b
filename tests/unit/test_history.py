"""The history of a record: bounded, and readable whatever classes of errors are called."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from redrive.history import ERROR_BYTES, Tried, added, attempts
from redrive.tuning import HISTORY_ATTEMPTS


def test_it_is_text_that_any_tool_shows():
    first = added(None, Tried(1, 1751371696789, "KeyError"))
    both = added(first, Tried(2, 1751371996790, "shop.Missing"))
    assert both == "1@1751371696789 KeyError, 2@1751371996790 shop.Missing"
    assert attempts(both) == [
        Tried(1, 1751371696789, "KeyError"),
        Tried(2, 1751371996790, "shop.Missing"),
    ]


def test_calls_within_one_attempt_are_one_entry_the_last_one():
    tries = added(added(None, Tried(1, 5, "OSError")), Tried(1, 7, "KeyError"))
    assert attempts(tries) == [Tried(1, 7, "KeyError")]


@given(st.lists(st.text(max_size=300), min_size=1, max_size=30))
def test_it_never_grows_beyond_its_bound_and_can_be_read_back(names):
    written = None
    for number, name in enumerate(names, 1):
        written = added(written, Tried(number, number, name))
    found = attempts(written)
    kept = range(max(1, len(names) - HISTORY_ATTEMPTS + 1), len(names) + 1)
    assert [each.attempt for each in found] == [*kept]
    assert len(written) <= HISTORY_ATTEMPTS * (ERROR_BYTES + 34)
    assert written.isascii()


def test_what_others_wrote_there_is_left_out():
    assert attempts("nonsense, 2@7 KeyError, @, 3@x y") == [Tried(2, 7, "KeyError")]
    assert attempts(None) == attempts("") == []
