"""Strict order, in all that can happen to a small world: see `strict_world.py`."""

from __future__ import annotations

import pytest
from strict_world import DELAY, BrokenRuleError, Broker, Owner, World, explore

from redrive.ports import Position
from redrive.processing.order.blocked_keys import BlockedKeys

A, B = b"a", b"b"


def world(keys, *, failures, crashes=0, zombies=0, owner=Owner):
    broker = Broker(keys)
    return World(broker, owner(broker), failures, crashes, zombies)


@pytest.mark.parametrize(
    ("keys", "chances"),
    [
        ((A, A), {"failures": 3, "crashes": 1}),
        ((A, A), {"failures": 1, "crashes": 2}),
        ((A, A), {"failures": 2, "crashes": 1, "zombies": 1}),
        ((A, A, A), {"failures": 1, "crashes": 1}),
        ((A, B, A), {"failures": 2, "crashes": 1}),
        ((A, B, A, A), {"failures": 2}),
    ],
)
def test_whatever_happens_the_effects_of_a_key_are_in_its_order_and_none_is_lost(keys, chances):
    assert explore(world(keys, **chances)) > 100


class Releasing(BlockedKeys):
    def ends(self, spot):
        key = super().ends(spot)
        self.committed(spot.room, Position(spot.offset + 1))
        return key


class Forgetful(BlockedKeys):
    def found(self, spot, key, origin, stage):
        pass


class Hasty(BlockedKeys):
    def __init__(self, **options):
        super().__init__(**{**options, "known_end": 0})


class Doubling(BlockedKeys):
    def fresh(self, key, spot):
        decided = super().fresh(key, spot)
        return "run" if decided == "copy" else decided


class ReleasesBeforeTheCommit(Owner):
    """A key is free as soon as its records have ended."""

    blocked_keys = Releasing


class LocksInMemoryOnly(Owner):
    """A new owner does not look into the rooms."""

    blocked_keys = Forgetful


class RunsAheadOfTheSource(Owner):
    """What waits runs before the source was read up to it."""

    blocked_keys = Hasty


class RunsWhatWaits(Owner):
    """A record runs as it is read, although it waits already."""

    blocked_keys = Doubling


class HeadLosesItsPlace(Owner):
    """Those behind a head that fails again do not wait for it any more."""

    def run_parked(self, spot, broker, *, fails):
        key, origin, attempt = broker.rooms[spot.room][spot.offset]
        if not fails:
            super().run_parked(spot, broker, fails=False)
            return
        self.here.discard(spot)
        self.blocked.ends(spot)
        self.writes.append((DELAY, (key, origin, attempt + 1), spot.room, spot.offset))


class FollowersRun(Owner):
    """Records are not kept back behind one that was parked."""

    def take_in(self, key, offset):
        self.lanes.setdefault(key, []).append(offset)


@pytest.mark.parametrize(
    ("owner", "keys", "chances"),
    [
        (ReleasesBeforeTheCommit, (A, A, A), {"failures": 1, "crashes": 1}),
        (LocksInMemoryOnly, (A, A), {"failures": 1, "crashes": 1}),
        (RunsAheadOfTheSource, (A, A), {"failures": 1, "zombies": 1}),
        (RunsWhatWaits, (A, A), {"failures": 2, "crashes": 1}),
        (HeadLosesItsPlace, (A, A), {"failures": 2}),
        (FollowersRun, (A, A), {"failures": 1}),
    ],
)
def test_a_mistake_in_the_order_is_found(owner, keys, chances):
    with pytest.raises(BrokenRuleError):
        explore(world(keys, owner=owner, **chances))
