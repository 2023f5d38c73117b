"""kill -9 in the middle of parallel work; twenty such kills of more work are in tests/chaos."""

from __future__ import annotations

from crashing import SLOW, crash
from processing import processing


def test_a_kill_loses_nothing_and_repeats_little(world):
    with processing(world, SLOW) as suite:
        found = crash(suite, 6_000)
    print(found)
    assert found.lost == 0
    assert found.repeated <= 250
