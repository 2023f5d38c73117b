"""Patience: who hangs is given up, and what raises is no hanging."""

from __future__ import annotations

import threading
from threading import Event

import pytest

from redrive.dead.patience import Patience
from redrive.errors import HandlerTimeout
from redrive.tuning import TRIAL_HANGING


def hung(patience):
    """A call that is given up, and comes back after that."""
    over = Event()
    with pytest.raises(HandlerTimeout):
        patience.call(lambda _: over.wait(), 0)
    over.set()
    for each in threading.enumerate():
        if each.name == "redrive-trial":
            each.join()


@pytest.mark.parametrize("between", [lambda _: 1, lambda _: 1 / 0])
def test_only_calls_that_hang_one_after_the_other_are_too_many(between):
    patience = Patience()
    for _ in range(TRIAL_HANGING):
        hung(patience)
        assert not patience.is_over
        try:
            patience.call(between, 60)
        except ZeroDivisionError:
            pass
        finally:
            patience.close()
    assert not patience.is_over
    for _ in range(TRIAL_HANGING):
        assert not patience.is_over
        hung(patience)
    assert patience.is_over
