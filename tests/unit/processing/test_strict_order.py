"""`ordering="strict"`: a parked record is not overtaken by later ones of its key."""

from __future__ import annotations

import logging
from random import Random

import pytest
from strict_loop import written_by_operator

from redrive import App, Bury, InPlace, Retry, RetryPolicy
from redrive.ports import Position
from redrive.record import TopicPartition
from redrive.testing import Simulation


class Handler:
    """Fails as often as it is told to, and remembers what it has done."""

    def __init__(self, **fails):
        self.fails = fails
        self.done = []

    def __call__(self, record, ctx):
        value = record.value.decode()
        if self.fails.get(value, 0) > 0:
            self.fails[value] -= 1
            raise self.error(value)
        self.done.append(value)

    def error(self, value):
        return ConnectionError(value)


def app_of(handler, retry=None, **options):
    app = App("items", ordering="strict", retry=retry or RetryPolicy("5m 30m"), **options)
    app.handler("orders")(handler)
    return app


def send(sim, *values):
    for value in values:
        sim.send("orders", value, key=value[0])
    sim.run()


def of_key(key, values):
    return [value for value in values if value[0] == key]


def test_later_records_of_its_key_wait_for_a_parked_one_and_others_go_on():
    handler = Handler(a0=1)
    with Simulation(app_of(handler)) as sim:
        send(sim, "a0", "b0", "a1", "b1", "a2")
        assert handler.done == ["b0", "b1"]
        assert len(sim.parked) == 3
        assert sim.lag == 0
        sim.run_until_empty()
        assert of_key("a", handler.done) == ["a0", "a1", "a2"]
        assert sim.now == "5m"
        assert not sim.parked


def test_those_that_wait_behind_it_cost_no_attempt_and_no_delay_of_their_own():
    handler = Handler(a0=1)
    with Simulation(app_of(handler)) as sim:
        send(sim, "a0", "a1")
        sim.advance("4m")
        send(sim, "a2")
        sim.run_until_empty()
        seen = [(each.after, each.record.value, each.attempt) for each in sim.attempts[1:]]
        assert seen == [("5m", b"a0", 2), ("5m", b"a1", 1), ("5m", b"a2", 1)]


def test_a_key_is_free_again_when_all_of_it_is_done():
    handler = Handler(a0=1)
    with Simulation(app_of(handler)) as sim:
        send(sim, "a0", "a1")
        sim.run_until_empty()
        written = len(sim.sent("items.retry.behind"))
        send(sim, "a2")
        assert handler.done == ["a0", "a1", "a2"]
        assert len(sim.sent("items.retry.behind")) == written


@pytest.mark.parametrize("times", range(1, 7))
def test_a_head_that_fails_again_stays_the_head_while_others_arrive(times):
    handler = Handler(a0=times)
    retry = RetryPolicy("5m 5m 30m 30m 30m 1h")
    with Simulation(app_of(handler, retry)) as sim:
        send(sim, "a0", "a1")
        for number in range(2, 20):
            sim.advance("10m")
            send(sim, f"a{number:02}", f"b{number:02}")
        sim.run_until_empty()
        assert of_key("a", handler.done) == ["a0", "a1", *(f"a{n:02}" for n in range(2, 20))]
        assert of_key("b", handler.done) == [f"b{n:02}" for n in range(2, 20)]


def test_one_that_waited_can_become_the_head_itself():
    handler = Handler(a0=1, a1=2)
    with Simulation(app_of(handler)) as sim:
        send(sim, "a0", "a1", "a2")
        sim.run_until_empty()
        assert handler.done == ["a0", "a1", "a2"]
        assert sim.now == "40m"


def test_when_it_is_buried_those_behind_it_go_on():
    class Rejecting(Handler):
        def error(self, value):
            return Bury("never")

    handler = Rejecting(a1=1)
    handler.fails["a0"] = 0
    with Simulation(app_of(Handler(a0=3), RetryPolicy("5m"))) as sim:
        send(sim, "a0", "a1", "a2")
        sim.run_until_empty()
        assert [each.record.value for each in sim.dead] == [b"a0"]
        assert [each.record.value for each in sim.attempts[2:]] == [b"a1", b"a2"]


def test_records_without_a_key_have_no_order():
    handler = Handler(x0=1)
    with Simulation(app_of(handler)) as sim:
        sim.send("orders", "x0")
        sim.send("orders", "x1")
        sim.run()
        assert handler.done == ["x1"]
        sim.run_until_empty()
        assert handler.done == ["x1", "x0"]


def test_followers_beyond_what_memory_holds_are_read_again_and_keep_nobody_waiting(monkeypatch):
    monkeypatch.setattr("redrive.processing.order.key_gate.FOLLOWERS_AT_HAND", 10)
    handler = Handler(a0=1, b0=2)
    many = [f"a{number:03}" for number in range(1, 200)]
    with Simulation(app_of(handler, RetryPolicy("5m 5m"))) as sim:
        send(sim, "b0", "a0", *many[:100], "b1", *many[100:], "b2")
        sim.advance("5m")
        assert of_key("a", handler.done) == ["a0", *many]
        sim.run_until_empty()
        assert of_key("b", handler.done) == ["b0", "b1", "b2"]


def test_one_key_that_waits_does_not_keep_another_waiting_behind_it(monkeypatch):
    monkeypatch.setattr("redrive.processing.order.key_gate.FOLLOWERS_AT_HAND", 10)
    handler = Handler(a0=2, b0=1)
    many = [f"a{number:03}" for number in range(1, 50)]
    with Simulation(app_of(handler, RetryPolicy("5m 1h"))) as sim:
        send(sim, "a0", *many, "b0", "b1")
        sim.advance("5m")
        assert handler.done == ["b0", "b1"]
        sim.run_until_empty()
        assert of_key("a", handler.done) == ["a0", *many]


def test_with_too_many_behind_one_the_partition_waits_and_says_so(caplog):
    handler = Handler(a0=1)
    with Simulation(app_of(handler, max_behind=3)) as sim:
        with caplog.at_level(logging.WARNING, "redrive.processing"):
            send(sim, "a0", "a1", "a2", "a3", "a4", "b0")
        assert sim.lag == 2
        assert "max_behind" in caplog.text
        sim.run_until_empty()
        assert handler.done == ["b0", "a0", "a1", "a2", "a3", "a4"]
        assert sim.lag == 0


def test_a_handler_that_knows_better_when_keeps_the_order():
    class Later(Handler):
        def error(self, value):
            return Retry("rate limited", after="17m")

    handler = Later(a0=1)
    with Simulation(app_of(handler)) as sim:
        send(sim, "a0", "a1")
        sim.run_until_empty()
        assert handler.done == ["a0", "a1"]
        assert [each.attempt for each in sim.attempts] == [1, 2, 1]


def test_what_is_tried_first_in_place_is_tried_by_those_that_waited_too():
    handler = Handler(a0=2, a1=1)
    retry = RetryPolicy("5m", first=InPlace(attempts=2))
    with Simulation(app_of(handler, retry)) as sim:
        send(sim, "a0", "a1", "a2")
        sim.run_until_empty()
        assert handler.done == ["a0", "a1", "a2"]
        assert [each.tries for each in sim.attempts] == [1, 2, 1, 1, 2, 1]


def test_a_recovery_that_fails_keeps_those_behind_it_waiting():
    handler = Handler(a0=9)
    app = app_of(handler, RetryPolicy("5m"))
    recovered = []

    @app.recover
    def recover(record, error, ctx):
        recovered.append((record.value, list(handler.done)))
        if len(recovered) == 1:
            raise ConnectionError

    with Simulation(app) as sim:
        send(sim, "a0", "a1")
        sim.run_until_empty()
        assert recovered == [(b"a0", []), (b"a0", [])]
        assert handler.done == ["a1"]


def test_acknowledgements_that_come_later_keep_the_order():
    app = App("items", ordering="strict", retry=RetryPolicy("5m"))
    contexts, calls = {}, []

    @app.handler("orders", ack="manual")
    def handle(record, ctx):
        calls.append(record.value)
        contexts[record.value] = ctx

    with Simulation(app) as sim:
        send(sim, "a0", "a1", "b0")
        assert calls == [b"a0", b"b0"]
        contexts[b"a0"].fail(ConnectionError())
        sim.run()
        assert calls == [b"a0", b"b0"]
        sim.advance("5m")
        assert calls == [b"a0", b"b0", b"a0"]
        contexts[b"a0"].ack()
        sim.run()
        assert calls == [b"a0", b"b0", b"a0", b"a1"]


def test_an_async_handler_keeps_the_order():
    handler = Handler(a0=1)

    async def handle(record, ctx):
        handler(record, ctx)

    with Simulation(app_of(handle, concurrency=4)) as sim:
        send(sim, "a0", "a1", "b0", "a2")
        sim.run_until_empty()
        assert of_key("a", handler.done) == ["a0", "a1", "a2"]


@pytest.mark.parametrize("delivery", ["idempotent", "outbox", "idempotent+outbox"])
def test_a_delivery_with_a_database_keeps_the_order(delivery):
    handler = Handler(a0=2, a2=1)
    with Simulation(app_of(handler, delivery=delivery, concurrency=4)) as sim:
        send(sim, "a0", "a1", "b0", "a2", "a3")
        sim.advance("1m")
        send(sim, "a4")
        sim.run_until_empty()
        assert of_key("a", handler.done) == ["a0", "a1", "a2", "a3", "a4"]
        send(sim, "a5")
        assert handler.done[-1] == "a5"


def test_what_operators_hold_keeps_those_behind_it_waiting():
    from redrive.dead import Match

    handler = Handler(a0=1)
    with Simulation(app_of(handler, RetryPolicy("5m"))) as sim:
        send(sim, "a0", "a1")
        rule = sim.steering.hold(Match(topics=("items.retry.5m",)))
        sim.advance("30m")
        assert handler.done == []
        sim.steering.release([rule])
        sim.run_until_empty()
        assert handler.done == ["a0", "a1"]


def test_a_hold_is_obeyed_by_what_is_due_and_waits_for_its_key():
    from redrive.dead import Match

    handler = Handler()
    with Simulation(app_of(handler)) as sim:
        send(sim, "o0", "o1", "o2")
        handler.done.clear()
        handler.fails["o0"] = 2
        now = sim.clock.now()
        copies = [
            written_by_operator(record, "items.retry.5m", "op", now)
            for record in sim.sent("orders")
        ]
        sim.broker.publish(copies)
        sim.advance("11m")  # the first has failed twice; the others are due, and wait for it
        rule = sim.steering.hold(Match(topics=("items.retry.5m",)))
        sim.advance("2h")
        assert handler.done == ["o0"]
        sim.steering.release([rule])
        sim.run_until_empty()
        assert handler.done == ["o0", "o1", "o2"]


def test_a_record_of_a_recreated_topic_is_no_copy_of_one_that_had_its_offset_before():
    handler = Handler(old=2)
    with Simulation(app_of(handler, RetryPolicy("1h 1h"))) as sim:
        sim.send("orders", "old", key="k")
        sim.run()
        sim.advance("1s")
        sim.broker.delete("orders")
        sim.broker.create("orders", 1)
        sim.broker.progress("items").commit({TopicPartition("orders", 0): Position(0)})
        sim.crash()
        sim.send("orders", "new", key="k")
        sim.run_until_empty()
        assert handler.done == ["old", "new"]


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("delivery", ["at-least-once", "idempotent"])
def test_after_crashes_the_effects_of_each_key_are_in_order_and_none_is_lost(seed, delivery):
    random = Random(seed)
    handler = Handler()
    sent = []
    with Simulation(app_of(handler, RetryPolicy("1m 5m 1h"), delivery=delivery)) as sim:
        for number in range(120):
            value = f"{random.choice('abc')}{number:03}"
            handler.fails[value] = random.choice((0, 0, 0, 0, 1, 3))
            sent.append(value)
            sim.send("orders", value, key=value[0])
            if random.random() < 0.6:
                sim.run()
            if random.random() < 0.3:
                sim.advance(f"{random.randrange(1, 600)}s")
            if random.random() < 0.1:
                sim.crash()
        sim.run_until_empty()
    last = {value: place for place, value in enumerate(handler.done)}
    assert sorted(last) == sorted(sent)
    for key in "abc":
        mine = of_key(key, sent)
        assert sorted(mine, key=last.__getitem__) == mine
