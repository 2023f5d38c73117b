"""Processes that are restarted one after the other; the full size is in tests/chaos."""

from __future__ import annotations

from guarantees import CommittedIsComplete, EveryRecordProcessed, FewDuplicates, OrderKept
from processing import HANDLER, MANUAL, processing, rolling_restart

COUNT = 2_000


def test_a_rolling_restart_keeps_every_guarantee(world):
    few = FewDuplicates(COUNT // 100)
    with (
        processing(world, HANDLER.format(ordering="key", pause=0.1)) as suite,
        CommittedIsComplete(world, "in") as committed,
    ):
        rolling_restart(suite, COUNT)
        suite.check(EveryRecordProcessed(), OrderKept("key"), few, committed)
    print(f"{few.count} of {COUNT} ran more than once; looked {committed.looks} times")


def test_a_rolling_restart_with_acknowledgements_from_other_threads(world):
    few = FewDuplicates(COUNT // 100)
    with (
        processing(world, MANUAL.format(ordering="key", pause=0.1)) as suite,
        CommittedIsComplete(world, "in") as committed,
    ):
        rolling_restart(suite, COUNT)
        suite.check(EveryRecordProcessed(), OrderKept("key"), few, committed)
    print(f"{few.count} of {COUNT} ran more than once; looked {committed.looks} times")
