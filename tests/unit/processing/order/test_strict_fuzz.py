"""Strict order under whatever a seed draws: failures, crashes, operators, late commits."""

from __future__ import annotations

from random import Random

import pytest
from strict_loop import Failing, StrictLoop, strict_app, written_by_operator

from redrive import Backoff, InPlace, RetryPolicy
from redrive.dead import Match
from redrive.processing.calls.lots import Lot
from redrive.processing.order import key_gate
from redrive.processing.order.blocked_keys import BlockedKeys
from redrive.testing import Simulation

ROOMS = ("items.retry.1m", "items.retry.5m", "items.retry.1h")


def windows(monkeypatch, at_hand, ahead):
    monkeypatch.setattr(key_gate, "FOLLOWERS_AT_HAND", at_hand)
    monkeypatch.setitem(BlockedKeys.__init__.__kwdefaults__, "ahead", ahead)


def check(sent, done, dead):
    """None is lost, and the last effects of each key are in its order."""
    last = {value: at for at, value in enumerate(done)}
    assert [value for value in sent if value not in last and value not in dead] == []
    for key in "abc":
        mine = [value for value in sent if value[0] == key and value in last]
        assert sorted(mine, key=last.__getitem__) == mine


@pytest.mark.parametrize("operators", [False, True])
@pytest.mark.parametrize("seed", range(6))
def test_whatever_operators_do_and_however_often_it_crashes(seed, operators, monkeypatch):
    random = Random(seed)
    windows(monkeypatch, random.choice((1, 3, 1000)), random.choice((1, 3, 100)))
    first = random.choice((None, InPlace(attempts=2, backoff=Backoff("10s"))))
    handler, sent, rules = Failing(), [], []
    app = strict_app(
        handler, RetryPolicy("1m 5m 1h", first=first), max_behind=random.choice((5, 1000))
    )
    with Simulation(app) as sim:
        for number in range(60):
            value = f"{random.choice('abc')}{number:03}"
            handler.fails[value] = random.choice((0, 0, 0, 0, 1, 3, 6))
            sent.append(value)
            sim.send("orders", value, key=value[0])
            if random.random() < 0.6:
                sim.run()
            if random.random() < 0.3:
                sim.advance(f"{random.randrange(1, 600)}s")
            if random.random() < 0.1:
                sim.crash()
            if rules and random.random() < 0.1:
                sim.steering.release([rules.pop()])
            elif not rules and random.random() < 0.05:
                rules.append(sim.steering.hold(Match(topics=(random.choice(ROOMS[:2]),))))
            if operators and random.random() < 0.1:
                now = sim.clock.now()
                old = [r._replace(value=b"x" + (r.value or b"")) for r in sim.sent("orders")[:5]]
                copies = [written_by_operator(r, ROOMS[0], f"op{number}", now) for r in old]
                sim.broker.publish(copies)
        if rules:
            sim.steering.release(rules)
        sim.run_until_empty()
        done = [value for value in handler.done if value[0] != "x"]
        check(sent, done, {(each.record.value or b"").decode() for each in sim.dead})
        assert not sim.parked


def take(loop: StrictLoop, lots: list[Lot]) -> None:
    """Another thread takes a lot, of keys that no other thread has."""
    lot = loop.dispatcher.take()
    if lot is not None:
        busy = {work.record.key for each in lots for work in each.works}
        assert busy.isdisjoint(work.record.key for work in lot.works)
        lots.append(lot)


@pytest.mark.parametrize("seed", range(8))
def test_whatever_runs_beside_each_other_and_whenever_it_is_committed(seed, monkeypatch):
    random = Random(seed)
    windows(monkeypatch, random.choice((1, 3, 1000)), random.choice((1, 3, 100)))
    handler, sent, lots = Failing(), [], []
    loop = StrictLoop(
        handler,
        "1m 5m",
        latency=random.choice((0, 1, 3)),
        max_in_flight=random.choice((4, 30, 10_000)),
        max_behind=random.choice((4, 1000)),
    )
    for number in range(200):
        if random.random() < 0.4:
            value = f"{random.choice('abc')}{number:03}"
            handler.fails[value] = random.choice((0, 0, 0, 0, 1, 2))
            sent.append(value)
            loop.send(value)
        loop.turn(runs=False, commits=False, fetch=random.choice((1, 5, 1000)))
        take(loop, lots)
        if lots and random.random() < 0.7:
            lot = lots.pop(random.randrange(len(lots)))
            lot.run()
            loop.dispatcher.report(lot)
        if random.random() < 0.5:
            loop.commit(random.sample(list(loop.partitions), random.randrange(3)))
        if random.random() < 0.2:
            loop.clock.advance(random.randrange(1, 100_000))
        if random.random() < 0.02:
            loop.restart(lots)
            lots.clear()
    for lot in lots:
        lot.run()
        loop.dispatcher.report(lot)
    loop.turns(400, each=10_000)
    dead = {(each.value or b"").decode() for each in loop.broker.records("items.dead")}
    check(sent, handler.done, dead)
    assert not loop.left
