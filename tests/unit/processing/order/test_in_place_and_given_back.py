"""What is tried first: in place, or given back; and what that does to the order of others."""

from __future__ import annotations

from redrive import App, Backoff, GiveBack, InPlace, Retry, RetryPolicy
from redrive.testing import Simulation

EVEN = Backoff("1s", factor=2, cap="4s", jitter=0)


def app_failing_for(bad, retry, times=1_000_000, **options):
    """An app whose handler fails so many times for that value."""
    app = App("items", **options)
    left = [times]

    @app.handler("orders", retry=retry)
    def handle(record, ctx):
        if record.value == bad and left[0] > 0:
            left[0] -= 1
            raise RuntimeError("no")

    return app


def calls(sim):
    return [(each.record.value.decode(), each.after) for each in sim.attempts]


def send(sim, *values):
    """Records whose key is their first letter: "a1" has the key "a"."""
    for value in values:
        sim.send("orders", value, key=value[0])


def test_in_place_waits_with_backoff_then_parks_and_is_not_tried_in_place_again():
    with Simulation(app_failing_for(b"a1", RetryPolicy("5m 5m", first=InPlace(3, EVEN)))) as sim:
        send(sim, "a1")
        sim.run_until_empty()
        assert calls(sim) == [
            ("a1", "0s"),
            ("a1", "1s"),
            ("a1", "3s"),
            ("a1", "5m3s"),
            ("a1", "10m3s"),
        ]
        assert [(each.attempt, each.tries) for each in sim.attempts] == [
            (1, 1),
            (1, 2),
            (1, 3),
            (2, 1),
            (3, 1),
        ]


def test_in_place_for_ever_goes_on_until_it_works():
    app = app_failing_for(b"a1", RetryPolicy(first=InPlace(None, EVEN)), times=500)
    with Simulation(app) as sim:
        send(sim, "a1")
        sim.run_until_empty()
        assert len(sim.attempts) == 501
        assert sim.attempts[-1].error is None
        assert (sim.dead, sim.lag) == ([], 0)


def test_in_place_within_max_duration_expires():
    retry = RetryPolicy(first=InPlace(None, EVEN), max_duration="10s")
    with Simulation(app_failing_for(b"a1", retry)) as sim:
        send(sim, "a1")
        sim.run_until_empty()
        assert [after for _, after in calls(sim)] == ["0s", "1s", "3s", "7s"]
        assert [dead.reason for dead in sim.dead] == ["expired"]


def test_in_place_keeps_the_order_of_its_key_and_lets_others_go_on():
    app = app_failing_for(b"a1", RetryPolicy(first=InPlace(3, EVEN)), times=2)
    with Simulation(app) as sim:
        send(sim, "a1", "a2", "b1", "b2")
        sim.run_until_empty()
        assert calls(sim) == [
            ("a1", "0s"),
            ("b1", "0s"),
            ("b2", "0s"),
            ("a1", "1s"),
            ("a1", "3s"),
            ("a2", "3s"),
        ]


def test_in_place_with_partition_order_holds_up_its_partition_only():
    app = app_failing_for(b"a1", RetryPolicy(first=InPlace(2, EVEN)), 1, ordering="partition")
    with Simulation(app, partitions=2) as sim:
        sim.send("orders", "a1", partition=0)
        sim.send("orders", "b1", partition=0)
        sim.send("orders", "c1", partition=1)
        sim.run_until_empty()
        assert sorted(calls(sim)) == [("a1", "0s"), ("a1", "1s"), ("b1", "1s"), ("c1", "0s")]


def test_a_parked_record_may_be_overtaken_by_the_next_of_its_key():
    with Simulation(app_failing_for(b"a1", RetryPolicy("5m"), times=1)) as sim:
        send(sim, "a1", "a2")
        sim.run_until_empty()
        assert calls(sim) == [("a1", "0s"), ("a2", "0s"), ("a1", "5m")]


def test_given_back_is_read_again_with_its_count_then_parked():
    with Simulation(app_failing_for(b"a1", RetryPolicy("5m", first=GiveBack(3, EVEN)))) as sim:
        send(sim, "a1")
        sim.run_until_empty()
        assert calls(sim) == [("a1", "0s"), ("a1", "1s"), ("a1", "3s"), ("a1", "5m3s")]
        assert [each.tries for each in sim.attempts] == [1, 2, 3, 1]
        assert [dead.reason for dead in sim.dead] == ["exhausted"]


def test_given_back_keeps_the_order_of_its_key_and_lets_others_go_on():
    app = app_failing_for(b"a1", RetryPolicy(first=GiveBack(3, EVEN)), times=2)
    with Simulation(app) as sim:
        send(sim, "a1", "a2", "b1", "a3", "b2")
        sim.run_until_empty()
        assert [call for call in calls(sim) if call[0][0] == "a"] == [
            ("a1", "0s"),
            ("a1", "1s"),
            ("a1", "3s"),
            ("a2", "3s"),
            ("a3", "3s"),
        ]
        assert [call for call in calls(sim) if call[0][0] == "b"] == [("b1", "0s"), ("b2", "0s")]
        assert (sim.lag, sim.dead) == (0, [])


def test_given_back_keeps_the_order_of_its_partition():
    app = app_failing_for(b"a1", RetryPolicy(first=GiveBack(3, EVEN)), 2, ordering="partition")
    with Simulation(app) as sim:
        send(sim, "a1", "b1", "a2")
        sim.run_until_empty()
        assert calls(sim) == [
            ("a1", "0s"),
            ("a1", "1s"),
            ("a1", "3s"),
            ("b1", "3s"),
            ("a2", "3s"),
        ]


def test_counts_of_given_back_records_are_forgotten_in_a_crash():
    with Simulation(app_failing_for(b"a1", RetryPolicy(first=GiveBack(3, EVEN)))) as sim:
        send(sim, "a1")
        sim.advance("2s")
        assert [each.tries for each in sim.attempts] == [1, 2]
        sim.crash()
        sim.run_until_empty()
        assert [each.tries for each in sim.attempts] == [1, 2, 1, 2, 3]
        assert [dead.reason for dead in sim.dead] == ["exhausted"]


def test_one_given_back_twice_does_not_repeat_those_that_are_done():
    app = app_failing_for(b"a1", RetryPolicy(first=GiveBack(5, EVEN)), times=3)
    with Simulation(app) as sim:
        send(sim, "a1", *(f"b{number}" for number in range(50)))
        sim.run_until_empty()
        done = [value for value, _ in calls(sim) if value != "a1"]
        assert done == [f"b{number}" for number in range(50)]
        assert len(sim.attempts) == 54


def test_nobody_overtakes_a_given_back_record_however_many_wait_behind_it():
    app = app_failing_for(b"a0", RetryPolicy(first=GiveBack(3, EVEN)), times=2)
    with Simulation(app) as sim:
        send(sim, *(f"a{number}" for number in range(200)))  # more than are handed out at once
        sim.run_until_empty()
        assert [value for value, _ in calls(sim)] == [
            "a0",
            "a0",
            *(f"a{number}" for number in range(200)),
        ]


def test_a_rate_limit_uses_up_no_try_whether_in_place_or_given_back():
    for first in (InPlace(2, EVEN), GiveBack(2, EVEN)):
        app = App("items")
        left = [5]

        @app.handler("orders", retry=RetryPolicy(first=first, max_duration="1h"))
        def handle(record, ctx, left=left):
            left[0] -= 1
            if left[0]:
                raise Retry.after_header("60")

        with Simulation(app) as sim:
            send(sim, "a1")
            sim.run_until_empty()
            assert calls(sim) == [("a1", each) for each in ("0s", "1m", "2m", "3m", "4m")]
            assert {each.tries for each in sim.attempts} == {1}
            assert not sim.dead
