"""What orchestrators are told of a worker."""

from __future__ import annotations

import pytest

from redrive.engines.worker.health import checks


class Run:
    """A worker whose status a test chooses."""

    ready, stopping = True, False

    def __init__(self, **status):
        self._status = status

    def not_live(self):
        return ""

    def status(self, lane):
        return self._status


@pytest.mark.parametrize(
    ("status", "said"),
    [
        ({}, ""),
        ({"guard": "the guard of orders is open: ConnectionRefusedError: away"}, ""),
        ({"trouble": "the database is away"}, "it waits: the database is away"),
    ],
)
def test_an_open_guard_leaves_a_worker_ready(status, said):
    """It does all it should, and whoever replaced it would help nobody."""
    asked = checks(Run(**status))
    assert asked["/ready"]() == said
    assert asked["/live"]() == ""
