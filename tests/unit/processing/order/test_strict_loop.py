"""Strict order as a worker's loop drives it: what was put off is read again, and nobody starves."""

from __future__ import annotations

import pytest
from strict_loop import BEHIND, Failing, StrictLoop


@pytest.fixture
def few_at_hand(monkeypatch):
    monkeypatch.setattr("redrive.processing.order.key_gate.FOLLOWERS_AT_HAND", 2)


def with_z_at_hand(handler, **options):
    """Followers of z are all that is kept at hand: those of others are kept by their offsets."""
    handler.fails["z0"] = 2
    loop = StrictLoop(handler, "1m 1h", **options)
    loop.send("z0")
    loop.turns(2)
    loop.send("z1", "z2")
    loop.turns(3)
    return loop


def test_what_was_asked_for_is_read_though_more_is_asked_for_before_it_comes(few_at_hand):
    handler = Failing(a0=1, b0=1)
    loop = with_z_at_hand(handler, latency=3)
    loop.send("a0")
    loop.turns(1)
    loop.clock.advance(2000)
    loop.send("b0")
    loop.turns(1)
    loop.send("a1", "a2", "b1", "b2")
    loop.turns(3)
    loop.clock.advance(59_500)
    loop.turns(2)
    assert loop.seeks == [(BEHIND.topic, 2)]
    loop.turns(200, each=1000)
    assert handler.of("a") == ["a0", "a1", "a2"]
    assert handler.of("b") == ["b0", "b1", "b2"]


def test_what_was_asked_for_is_not_asked_for_again_by_each_record_of_its_key(few_at_hand):
    handler = Failing(a0=1)
    loop = with_z_at_hand(handler, latency=2)
    loop.send("a0")
    loop.turns(1)
    loop.send("a1", "a2", "a3")
    loop.turns(3)
    loop.clock.advance(61_000)
    for number in range(4, 20):
        loop.send(f"a{number}")
        loop.turn()
        if number == 6:
            assert loop.seeks == [(BEHIND.topic, 2)]
    assert handler.of("a")[:4] == ["a0", "a1", "a2", "a3"]
