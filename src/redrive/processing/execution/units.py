"""Units: what executors need of units of work, which are a delivery's own."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import Protocol

from redrive.processing.calls.lots import Lot
from redrive.processing.dispatcher import Dispatcher
from redrive.processing.work import Work


class Units(Protocol):
    """Runs lots as units of work: a database transaction around the calls of handlers."""

    def run(self, lot: Lot, dispatcher: Dispatcher, until: float = inf) -> None:
        """Run a lot whose function is sync, and finish it."""
        ...

    async def run_async(self, lot: Lot, dispatcher: Dispatcher, until: float = inf) -> None:
        """Run a lot whose function is async, and finish it."""
        ...

    def give_up(
        self, lot: Lot, works: Sequence[Work], error: BaseException, dispatcher: Dispatcher
    ) -> None:
        """End the unit of a lot whose thread does not come back, finish the lot.

        One record has failed with the error; several are called one by one next.
        """
        ...
