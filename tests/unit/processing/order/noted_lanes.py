"""The lanes of processors, for tests that say how quick handlers are instead of running many."""

from __future__ import annotations

from typing import Any

import pytest

from redrive.processing.order.lanes import Lanes


def note_lanes(patch: pytest.MonkeyPatch) -> list[Lanes]:
    """A list to which the lanes of each processor are added that is made from now on."""
    made: list[Lanes] = []

    def make(*given: Any, **named: Any) -> Lanes:
        made.append(Lanes(*given, **named))
        return made[-1]

    patch.setattr("redrive.processing.processor.Lanes", make)
    return made
