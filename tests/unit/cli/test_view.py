"""What a run shows while it runs."""

from __future__ import annotations

from redrive.cli import view
from redrive.processing.outcomes.guard_log import GuardSeen, words_of


def test_an_open_guard_is_shown_with_what_failed():
    seen = [
        GuardSeen("orders", "open", 1, 1, "1f", "ConnectionError: away", {}),
        GuardSeen("payments", "ramp", 1, 1, "1f", "TimeoutError: late", {}),
        GuardSeen("refunds", "suspect", 1, 0, "", "", {}),
    ]
    (said,) = view.troubles({"main": {"guard": words_of(seen)}, "retry": {}})
    assert said == (
        "main lane: the guard of orders is open: ConnectionError: away; the guard of payments is"
        " half open: TimeoutError: late"
    )


def test_closed_guards_are_not_shown():
    assert [*view.troubles({"main": {"guard": words_of([])}})] == []
