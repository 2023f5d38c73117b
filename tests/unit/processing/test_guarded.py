"""An outage of what a handler depends on: nobody loses an attempt, and nobody is driven around."""

from __future__ import annotations

import logging

import pytest

from redrive import App, Backoff, Bury, GiveBack, Guard, InPlace, Outage, Retry, RetryPolicy
from redrive.testing import Simulation

MINUTE = RetryPolicy("1m 1m")


class Service:
    """Something that is away, or not."""

    def __init__(self):
        self.away = True
        self.poison = set()

    def ask(self, record):
        if self.away or record.value in self.poison:
            raise ConnectionRefusedError("connection refused")


def guarded(service, *, handler=None, **options):
    """An app whose handler asks a service."""
    options = {"guard": Guard(), "retry": MINUTE, **options}
    app = App("shop", **options)

    @app.handler("orders", **(handler or {}))
    def handle(record, ctx):
        service.ask(record)

    return app


def send(sim, count, *, keys=None, start=0, partition=None):
    for number in range(start, start + count):
        key = f"k{number if keys is None else number % keys}"
        sim.send("orders", f"{number}", key=key, partition=partition)


def values(attempts):
    return [each.record.value.decode() for each in attempts]


def nobody_paid(sim):
    """No attempt was counted, no record moved, none died."""
    return {each.attempt for each in sim.attempts} <= {1} and sim.outcomes == [] and not sim.dead


@pytest.mark.parametrize("ordering", ["key", "unordered"])
@pytest.mark.parametrize("delivery", ["at-least-once", "idempotent", "idempotent+outbox"])
def test_an_outage_costs_no_attempt_no_hop_and_no_letter(ordering, delivery):
    service = Service()
    with Simulation(guarded(service, ordering=ordering, delivery=delivery)) as sim:
        send(sim, 60)
        sim.advance("10m")
        assert sim.lag == 60
        service.away = False
        sim.run_until_empty()
        assert sim.lag == 0
        assert nobody_paid(sim)


def test_while_it_is_open_only_probes_are_called_ever_more_rarely():
    service = Service()
    with Simulation(guarded(service)) as sim:
        send(sim, 60)
        sim.advance("2m")
        assert [each.after for each in sim.attempts[60:]] == [
            "1s250ms",
            "3s250ms",
            "7s250ms",
            "15s250ms",
            "31s250ms",
            "1m1s250ms",
            "1m31s250ms",
        ]


def test_probes_go_round_keys_and_partitions():
    service = Service()
    with Simulation(guarded(service), partitions=3) as sim:
        for partition in range(3):
            send(sim, 20, start=20 * partition, partition=partition)
        sim.advance("40s")
        probes = sim.attempts[60:]
        assert len({each.record.key for each in probes}) == len(probes) == 5
        assert {each.record.partition for each in probes} == {0, 1, 2}


def test_a_start_at_which_nothing_has_ever_succeeded_opens_it():
    """As circuit breakers that wait for a minimum of traffic to judge by do not."""
    service = Service()
    with Simulation(guarded(service)) as sim:
        send(sim, 20)
        sim.advance("1s")
        assert len(sim.attempts) == 20
        sim.advance("250ms")
        assert len(sim.attempts) == 21
        assert nobody_paid(sim)


def test_a_poison_record_beside_healthy_ones_goes_its_normal_way():
    service = Service()
    service.away, service.poison = False, {b"7"}
    with Simulation(guarded(service)) as sim:
        send(sim, 200)
        sim.run_until_empty()
        assert [each.reason for each in sim.dead] == ["exhausted"]
        assert [each.attempt for each in sim.attempts if each.record.value == b"7"] == [1, 2, 3]
        assert len(sim.attempts) == 202


def test_a_lone_record_of_a_quiet_topic_goes_its_normal_way():
    service = Service()
    with Simulation(guarded(service, retry=RetryPolicy(first=InPlace(3, Backoff("1s"))))) as sim:
        send(sim, 1)
        sim.run_until_empty()
        assert [each.tries for each in sim.attempts] == [1, 2, 3]
        assert [each.reason for each in sim.dead] == ["exhausted"]


@pytest.mark.parametrize("keys", [1, 9])
def test_few_keys_never_open_it_however_often_they_fail(keys):
    service = Service()
    with Simulation(guarded(service)) as sim:
        send(sim, 60, keys=keys)
        sim.run_until_empty()
        assert len(sim.dead) == 60
        assert len(sim.attempts) == 180


@pytest.mark.parametrize(
    "error", [ValueError("no such item"), Retry("later"), Bury("never")], ids=type
)
def test_errors_that_are_the_records_own_never_open_it(error):
    app = App("shop", guard=Guard(), retry=MINUTE)

    @app.handler("orders")
    def handle(record, ctx):
        raise error

    with Simulation(app) as sim:
        send(sim, 100)
        sim.run_until_empty()
        assert len(sim.dead) == 100


def test_undecodable_records_never_open_it():
    app = App("shop", guard=Guard(), retry=MINUTE)

    def decode(value):
        raise ConnectionError("not the service: the bytes")

    @app.handler("orders", decode=decode)
    def handle(record, ctx):
        raise AssertionError

    with Simulation(app) as sim:
        send(sim, 100)
        sim.run()
        assert {each.reason for each in sim.dead} == {"undecodable"}
        assert len(sim.dead) == 100


def test_counts_do_not_outlive_their_window():
    """Nine keys now and nine an hour later are no outage."""
    service = Service()
    with Simulation(guarded(service, retry=RetryPolicy("1h"))) as sim:
        send(sim, 27, keys=9)
        sim.advance("30m")
        assert len(sim.parked) == 27
        send(sim, 9, start=100)
        sim.advance("10m")
        assert len(sim.parked) == 36


def test_counts_begin_again_after_an_outage():
    service = Service()
    with Simulation(guarded(service)) as sim:
        send(sim, 60)
        sim.advance("5s")
        service.away = False
        sim.run_until_empty()
        service.away = True
        send(sim, 9, start=100)
        sim.advance("1s")
        assert len(sim.parked) == 9


def test_the_probe_being_a_poison_record_does_not_hold_it_open():
    service = Service()
    service.poison = {b"0", b"1"}
    with Simulation(guarded(service)) as sim:
        send(sim, 60)
        sim.advance("500ms")
        service.away = False
        sim.advance("30s")
        good = {each.record.value for each in sim.attempts if each.error is None}
        assert len(good) == 58
        sim.run_until_empty()
        assert {each.record.value for each in sim.dead} == service.poison
        paid = [each for each in sim.attempts if each.attempt > 1]
        assert {each.record.value for each in paid} == service.poison


@pytest.mark.parametrize("many", [1, 9])
def test_poisoned_keys_are_buried_as_usual_after_an_outage(many):
    service = Service()
    service.poison = {b"%d" % number for number in range(many)}
    with Simulation(guarded(service)) as sim:
        send(sim, 40)
        sim.advance("1s")
        service.away = False
        sim.run_until_empty()
        assert sim.lag == 0
        assert {each.record.value for each in sim.dead} == service.poison
        assert {each.reason for each in sim.dead} == {"exhausted"}


def test_it_ends_also_where_one_key_alone_can_show_that_it_is_over():
    """The others are poisoned: they fail as they did during the outage."""
    service = Service()
    service.poison = {b"%d" % number for number in range(9)}
    with Simulation(guarded(service)) as sim:
        send(sim, 9)
        for number in range(100, 130):
            sim.send("orders", f"{number}", key=None if number < 120 else "good")
        sim.advance("1s")
        service.away = False
        sim.run_until_empty()
        assert sim.lag == 0
        assert {each.record.value for each in sim.dead} == service.poison


def test_parked_records_that_come_due_meanwhile_wait_too():
    service = Service()
    service.away = False
    service.poison = {b"%d" % number for number in range(8)}
    with Simulation(guarded(service)) as sim:
        send(sim, 8)  # too few to be an outage
        sim.advance("10s")
        assert len(sim.parked) == 8
        service.away, service.poison = True, set()
        send(sim, 60, start=100)
        sim.advance("5m")
        assert len(sim.parked) == 8
        assert {each.attempt for each in sim.attempts if each.attempt > 1} <= {2}
        service.away = False
        sim.run_until_empty()
        assert not sim.dead
        assert sim.lag == 0
        assert max(each.attempt for each in sim.attempts) == 2


@pytest.mark.parametrize("ordering", ["key", "partition"])
@pytest.mark.parametrize("lanes", [10, 30])
def test_held_records_keep_their_order(ordering, lanes):
    service = Service()
    with Simulation(guarded(service, ordering=ordering), partitions=lanes) as sim:
        for number in range(5 * lanes):
            sim.send("orders", f"{number}", key=f"{number % lanes}", partition=number % lanes)
        sim.advance("3m")
        service.away = False
        sim.run_until_empty()
        assert nobody_paid(sim)
        for key in range(lanes):
            done = [
                int(each.record.value)
                for each in sim.attempts
                if each.error is None and each.record.key == b"%d" % key
            ]
            assert done == sorted(done)
            assert len(done) == 5


def test_what_waits_in_place_when_it_opens_is_not_tried_before_its_end():
    service = Service()
    service.away, service.poison = False, {b"0"}
    patient = RetryPolicy(first=InPlace(None, Backoff("2s", cap="2s", jitter=0)))
    with Simulation(guarded(service, retry=patient)) as sim:
        send(sim, 30)
        sim.advance("3s")
        tries = len(sim.attempts)
        service.away = True
        send(sim, 60, start=100)
        sim.advance("500ms")
        assert len(sim.attempts) == tries + 60
        sim.advance("20s")
        assert len(sim.attempts) - tries - 60 <= 5


def test_records_are_not_given_back_during_an_outage():
    service = Service()
    retry = RetryPolicy(first=GiveBack(3, Backoff("1s", jitter=0)))
    with Simulation(guarded(service, retry=retry)) as sim:
        send(sim, 60)
        sim.advance("1m")
        service.away = False
        sim.run_until_empty()
        assert {each.tries for each in sim.attempts} == {1}
        assert nobody_paid(sim)


def test_a_handler_that_says_so_opens_it_at_once():
    app = App("shop", guard=Guard(), retry=MINUTE)
    service = Service()

    @app.handler("orders")
    def handle(record, ctx):
        if service.away:
            raise Outage("the payment service is down", retry_after="42s")

    with Simulation(app) as sim:
        send(sim, 60)
        sim.advance("41s")
        assert len(sim.attempts) == 1
        service.away = False
        sim.run_until_empty()
        assert sim.attempts[1].after == "42s"
        assert nobody_paid(sim)


def test_an_outage_that_nobody_is_left_to_end_by_waits_for_the_next_records():
    app = App("shop", guard=Guard(), retry=MINUTE)
    service = Service()

    @app.handler("orders")
    def handle(record, ctx):
        if service.away:
            raise Outage("away")

    with Simulation(app) as sim:
        send(sim, 1)
        sim.run()
        service.away = False
        sim.run_until_empty()
        assert (sim.lag, sim.now) == (0, "1s")
        send(sim, 10, start=1)
        sim.run()
        assert sim.lag == 0


def test_without_a_guard_an_outage_is_an_error_like_any_other():
    app = App("shop", retry=RetryPolicy("1m", retry_on=[KeyError]))

    @app.handler("orders")
    def handle(record, ctx):
        raise Outage("the payment service is down")

    with Simulation(app) as sim:
        send(sim, 1)
        sim.run_until_empty()
        assert [each.attempt for each in sim.attempts] == [1, 2]
        assert [each.reason for each in sim.dead] == ["exhausted"]


def test_a_batch_that_fails_as_a_whole_is_not_called_again_record_by_record():
    calls = []
    app = App("shop", guard=Guard(), retry=MINUTE)
    service = Service()

    @app.handler("orders", batch=10)
    def handle(records, ctx):
        calls.append(len(records))
        service.ask(records[0])

    with Simulation(app) as sim:
        send(sim, 300)
        sim.advance("500ms")
        assert len(sim.attempts) > len(calls)
        sizes = "".join("1" if size == 1 else "n" for size in calls)
        assert "1111n" not in sizes
        before = len(calls)
        sim.advance("1m")
        assert calls[before:] == [1] * 5
        service.away = False
        sim.run_until_empty()
        assert sim.lag == 0
        assert nobody_paid(sim)


def test_batches_in_units_of_work_wait_as_well():
    app = App("shop", guard=Guard(), retry=MINUTE, delivery="idempotent")
    service = Service()

    @app.handler("orders", batch=10)
    def handle(records, ctx):
        service.ask(records[0])

    with Simulation(app) as sim:
        send(sim, 300)
        sim.advance("1m")
        service.away = False
        sim.run_until_empty()
        assert sim.lag == 0
        assert nobody_paid(sim)


def test_manual_acks_wait_as_well():
    app = App("shop", guard=Guard(), retry=MINUTE)
    service = Service()

    @app.handler("orders", ack="manual")
    def handle(record, ctx):
        service.ask(record)
        ctx.ack()

    with Simulation(app) as sim:
        send(sim, 60)
        sim.advance("1m")
        service.away = False
        sim.run_until_empty()
        assert sim.lag == 0
        assert nobody_paid(sim)


def test_acknowledgements_that_time_out_are_an_outage_too():
    app = App("shop", guard=Guard(), retry=MINUTE)
    contexts = []

    @app.handler("orders", ack="manual", timeout="5s")
    def handle(record, ctx):
        contexts.append(ctx)

    with Simulation(app) as sim:
        send(sim, 60)
        sim.advance("1m")
        assert nobody_paid(sim)
        assert len(contexts) < 66


def test_each_handler_has_its_own():
    service = Service()
    app = guarded(service)
    paid = []

    @app.handler("payments")
    def pay(record, ctx):
        paid.append(record.value)

    with Simulation(app) as sim:
        send(sim, 60)
        sim.advance("1m")
        sim.send("payments", "1", key="1")
        sim.run()
        assert paid == [b"1"]


def test_parked_records_of_other_handlers_do_not_wait_in_a_shared_delay_topic():
    service = Service()
    app = guarded(service)
    paid = []

    @app.handler("payments")
    def pay(record, ctx):
        if ctx.attempt == 1:
            raise RuntimeError("once")
        paid.append(record.value)

    with Simulation(app) as sim:
        send(sim, 8)
        sim.advance("10s")  # parked
        sim.send("payments", "1", key="1")
        send(sim, 60, start=100)
        sim.advance("2m")
        assert paid == [b"1"]
        assert len(sim.parked) == 8


def test_a_recovery_is_called_during_an_outage():
    service = Service()
    app = guarded(service, retry=RetryPolicy())
    recovered = []

    @app.recover
    def recover(record, error, ctx):
        recovered.append(record.value)

    def buried(record):
        if record.value == b"0":
            raise Bury("never")
        Service.ask(service, record)

    service.ask = buried
    with Simulation(app) as sim:
        send(sim, 60, start=1)
        sim.advance("500ms")
        send(sim, 1)
        service.away = False
        sim.run_until_empty()
        assert recovered == [b"0"]


def test_a_restart_during_an_outage_costs_nothing_either():
    service = Service()
    with Simulation(guarded(service)) as sim:
        send(sim, 60)
        for _ in range(5):
            sim.advance("20s")
            sim.crash()
        assert sim.lag == 60
        service.away = False
        sim.run_until_empty()
        assert sim.lag == 0
        assert nobody_paid(sim)


def test_what_is_read_during_an_outage_waits_behind_what_was_read_before():
    service = Service()
    with Simulation(guarded(service)) as sim:
        send(sim, 60, keys=20)
        sim.advance("1s")
        send(sim, 60, keys=20, start=60)
        service.away = False
        sim.run_until_empty()
        assert sim.lag == 0
        for key in range(20):
            mine = [
                int(each.record.value)
                for each in sim.attempts
                if each.error is None and each.record.key == b"k%d" % key
            ]
            assert mine == sorted(mine)


def test_nineteen_of_twenty_failing_opens_it():
    app = App("shop", guard=Guard(), retry=RetryPolicy("1h"))

    @app.handler("orders")
    def handle(record, ctx):
        if int(record.value) % 20:
            raise TimeoutError("gateway")

    with Simulation(app) as sim:
        for start in range(0, 1000, 20):
            send(sim, 20, start=start)
            sim.advance("20ms")
        sim.advance("1s")
        assert len(sim.attempts) < 1000
        assert len(sim.parked) == 0


def test_half_of_them_failing_does_not():
    app = App("shop", guard=Guard(), retry=RetryPolicy("1h"))

    @app.handler("orders")
    def handle(record, ctx):
        if int(record.value) % 2:
            raise TimeoutError("gateway")

    with Simulation(app) as sim:
        for start in range(0, 400, 20):
            send(sim, 20, start=start)
            sim.advance("20ms")
        sim.advance("1s")
        assert len(sim.parked) == 200
        assert len(sim.attempts) == 400


def test_it_is_logged_when_it_opens_and_closes_and_why(caplog):
    service = Service()
    caplog.set_level(logging.INFO, "redrive.processing")
    with Simulation(guarded(service, guard=Guard(max_open="1m"))) as sim:
        send(sim, 60)
        sim.advance("5m")
        service.away = False
        sim.run_until_empty()
    said = [each.getMessage() for each in caplog.records if "guard" in each.getMessage()]
    assert said[0].startswith(
        "orders: the guard is open: 20 failures of 20 keys, 0 successes, within 250ms"
        " (ConnectionRefusedError: connection refused, group "
    )
    loud = [each for each in said if "max_open" in each]
    assert len(loud) == 5
    assert said[-1].startswith("orders: the guard is closed: the outage lasted 5m")
    assert said[-2].startswith("orders: probes succeed")
