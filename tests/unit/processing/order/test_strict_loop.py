"""Strict order as a worker's loop drives it: what was put off is read again, and nobody starves."""

from __future__ import annotations

from dataclasses import replace

import pytest
from noted_lanes import note_lanes
from strict_loop import BEHIND, SOURCE, Failing, StrictLoop, strict_app

from redrive import RetryPolicy
from redrive import envelope as envelopes
from redrive.record import Write
from redrive.testing import Simulation


@pytest.fixture
def few_at_hand(monkeypatch):
    monkeypatch.setattr("redrive.processing.order.key_gate.FOLLOWERS_AT_HAND", 2)


def with_z_at_hand(handler, retry="1m 1h", **options):
    """Followers of z are all that is kept at hand: those of others are kept by their offsets."""
    handler.fails["z0"] = 2
    loop = StrictLoop(handler, retry, **options)
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
    loop.clock.advance(1000)
    loop.turn()
    assert handler.of("b") == ["b0"]  # its followers are asked for as well
    loop.turns(200, each=1000)
    assert loop.seeks == [(BEHIND.topic, 2)]  # reading comes to them from there
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


def test_one_that_fails_is_not_overtaken_by_followers_that_were_let_go_with_it():
    handler = Failing(k0=1, k11=1)
    loop = StrictLoop(handler, "1s 30m")
    loop.send(*(f"k-{number}" for number in range(10)))
    loop.turns(2)
    handler.done.clear()
    many = [f"k{number}" for number in range(11, 131)]
    loop.send("k0", *many)
    loop.turns(3)
    loop.clock.advance(1500)
    loop.turn(runs=False)
    while handler.fails["k11"]:  # it is the first of a lot
        lot = loop.dispatcher.take()
        assert lot is not None
        if b"k11" in [work.record.value for work in lot.works]:
            loop.replay(loop.broker.records("orders")[:10], "items.retry.1s")
            loop.turn(runs=False)
        lot.run()
        loop.dispatcher.report(lot)
        loop.turn(runs=False)
    loop.turns(50, each=60_000)
    assert [value for value in handler.done if "-" not in value] == ["k0", *many]
    assert not loop.left


def test_one_key_does_not_run_on_two_threads_whoever_writes_copies_of_its_records():
    handler = Failing(k1=1)
    loop = StrictLoop(handler, "1s 30m")
    loop.send("k0")
    loop.turns(2)
    loop.send("k1", "k2", "k3")
    loop.turns(3)
    loop.clock.advance(1500)
    loop.turn()
    loop.turn(runs=False)
    running = loop.dispatcher.take()
    assert running is not None
    assert running.works[0].record.value == b"k2"
    loop.replay(loop.broker.records("orders")[:1], "items.retry.1s")
    loop.clock.advance(1500)
    loop.turn(runs=False)
    loop.clock.advance(1500)
    loop.turn(runs=False)
    assert loop.dispatcher.take() is None
    running.run()
    loop.dispatcher.report(running)
    loop.turns(10, each=1000)
    assert handler.done == ["k0", "k1", "k2", "k3", "k0"]
    assert not loop.left


def test_a_head_that_comes_after_its_followers_were_written_is_not_kept_out_by_their_number(caplog):
    handler = Failing(a0=1)
    with Simulation(strict_app(handler, "5m", max_behind=10)) as first:
        first.broker.refuse("items.retry.5m")  # its leader is away; that of followers is not
        for value in ("a0", "a1", "a2"):
            first.send("orders", value, key="a")
        first.run()
        first.broker.accept("items.retry.5m")
        app = strict_app(handler, "5m", max_behind=2)  # the next version has a lower bound
        with Simulation(app, clock=first.clock, broker=first.broker) as second:
            second.run()
            second.run_until_empty()
    assert handler.done == ["a0", "a1", "a2"]
    assert "max_behind" not in caplog.text


def test_that_a_partition_waits_is_said_once_for_each_key(caplog):
    handler = Failing(a0=1)
    with Simulation(strict_app(handler, "5m", max_behind=2)) as sim:
        for number in range(9):
            sim.send("orders", f"a{number}", key="a")
            sim.run()
        sim.run_until_empty()
    assert handler.done == [f"a{number}" for number in range(9)]
    assert caplog.text.count("max_behind") == 1
    assert str(SOURCE) in caplog.text


def replayed_behind_one_that_fails_again(loop, handler, count):
    """Letters of one key are replayed; the first fails, and hops to the end of the same room."""
    loop.send(*(f"k{number}" for number in range(count)))
    loop.turns(count, fetch=5)
    handler.done.clear()
    handler.fails["k0"] = 1
    loop.replay(loop.broker.records("orders"), "items.retry.5m")
    loop.turns(12, each=30_000, fetch=5)


def test_a_room_full_of_what_waits_for_a_record_further_on_in_it_is_read_on():
    handler = Failing()
    loop = StrictLoop(handler, RetryPolicy.every("5m", until="7d"), max_in_flight=30, latency=0)
    replayed_behind_one_that_fails_again(loop, handler, 60)
    loop.turns(60, each=60_000, fetch=5)
    assert handler.done == [f"k{number}" for number in range(60)]
    assert not loop.left


def test_it_is_read_on_after_a_restart_too():
    handler = Failing()
    loop = StrictLoop(handler, RetryPolicy.every("5m", until="7d"), max_in_flight=30, latency=0)
    replayed_behind_one_that_fails_again(loop, handler, 60)
    loop.restart()
    loop.turns(60, each=60_000, fetch=5)
    assert handler.done == [f"k{number}" for number in range(60)]
    assert not loop.left


def test_those_that_wait_for_one_key_do_not_fill_its_room_however_little_may_be_in_flight():
    handler = Failing(a0=2, b0=1)
    loop = StrictLoop(handler, "1m 24h", max_in_flight=20)
    loop.send("a0", "b0", *(f"a{number:02}" for number in range(1, 60)), "b1")
    loop.turns(30, fetch=5)
    loop.turns(60, each=60_000, fetch=5)
    assert handler.done == ["b0", "b1"]


def test_what_is_not_kept_in_memory_does_not_count_as_bytes_in_flight():
    handler = Failing(a0=9)
    loop = StrictLoop(handler, "1h 24h", max_in_flight=20)
    loop.send("a0", *(f"a{number:02}" for number in range(1, 90)))
    loop.turns(40, fetch=5)
    room = loop.partitions[BEHIND]
    assert room.in_flight == 5
    assert 5 * 400 <= room.bytes_in_flight < 5 * 700


def test_a_copy_that_was_put_off_is_dropped_when_another_one_counts(few_at_hand):
    handler = Failing(a0=2)
    loop = with_z_at_hand(handler, retry="1m 1h 24h")
    loop.send("a0")
    loop.turns(1)
    loop.send("a1")
    loop.turns(3)
    follower = loop.broker.records(BEHIND.topic)[-1]
    assert follower.value == b"a1"
    # A worker that was taken for dead had run it, and writes so late that it has failed.
    later = replace(envelopes.parse(follower.headers), attempt=2)
    copy = Write("items.retry.1m", follower.key, follower.value, later.headers(()), 0)
    loop.broker.publish([copy])
    loop.turns(400, each=30_000)
    assert handler.of("a") == ["a0", "a1"]
    assert b"a" not in loop.gate.keys
    assert not loop.left


def test_who_was_done_beside_a_slow_record_keeps_nobody_of_its_key_waiting(monkeypatch):
    lanes = note_lanes(monkeypatch)
    loop = StrictLoop(Failing(a0=1, b0=1, c0=1), "5m")
    loop.send("a0", "b0", "c0")
    loop.turns(6)
    loop.send("a1", "b1", "c1")
    loop.turns(6)
    for each in lanes:
        each.quick = True
    loop.clock.advance(5 * 60_000 + 1000)
    loop.turn(runs=False)
    loop.turn(runs=False)
    lot = loop.dispatcher.take()
    assert len(lot.lanes) == 3
    # One of three is done and committed, one takes long, one has not begun: that one is taken away.
    monkeypatch.setattr("redrive.processing.work.SLOW_RECORD", 1e9)
    lot.begin(1)
    lot.results.append(None)
    lot.begin(1)
    loop.turn(runs=False)
    loop.turn(runs=False)
    monkeypatch.setattr("redrive.processing.work.SLOW_RECORD", -1.0)
    loop.turn(runs=False)
    assert len(lot.lanes) == 1
    monkeypatch.setattr("redrive.processing.work.SLOW_RECORD", 1e9)
    while (other := loop.dispatcher.take()) is not None:
        other.run()
        loop.dispatcher.report(other)
    lot.results.append(None)
    loop.dispatcher.report(lot)
    loop.turns(10, each=60_000)
    assert loop.left == []
