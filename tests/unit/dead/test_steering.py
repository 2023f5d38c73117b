"""Holds and run-nows: what they do to parked records, and what they leave alone."""

from __future__ import annotations

from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from redrive import App, Retry, RetryPolicy
from redrive.dead import Match, Steering
from redrive.dead.desk import UnderWayError
from redrive.durations import milliseconds
from redrive.errors import ConfigurationError, NotReadyError
from redrive.testing import Simulation

HOUR = milliseconds("1h")


class Price(Exception):
    pass


class Stock(Exception):
    pass


def by_key(record):
    return record.key.decode()


def shop(retry=None, **options):
    """The first attempt fails for one of two causes, by the value; the second is done."""
    app = App("shop", **options)

    @app.handler("orders", retry=retry or RetryPolicy("1h", extra_delays="1m"), id=by_key)
    def handle(record, ctx):
        if ctx.attempt == 1:
            raise (Price if record.value == b"price" else Stock)(record.value)

    return app


def send(sim, *causes):
    for number, cause in enumerate(causes):
        sim.send("orders", cause, key=str(number))
    sim.run()


def group(sim, error):
    named = {each.envelope.error_type: each.envelope.error_group for each in sim.parked}
    (found,) = [cause for name, cause in named.items() if name.endswith(error)]
    return Match(groups=(found,))


def second(sim):
    """What ran again: its key and when."""
    return [(each.record.key.decode(), each.after) for each in sim.attempts if each.attempt > 1]


def test_a_run_now_of_a_cause_runs_exactly_its_records_and_the_others_when_they_are_due():
    with Simulation(shop()) as sim:
        send(sim, "price", "stock", "price", "stock")
        sim.advance("10m")
        plan = sim.steering.plan("run-now", price := group(sim, "Price"))
        assert (plan.count, plan.moved) == (2, 1)
        rule = sim.steering.run_now(price, "fixed")
        assert sim.steering.under_way(rule)
        sim.run()
        assert second(sim) == [("0", "10m"), ("2", "10m")]
        assert len(sim.parked) == 2
        assert not sim.steering.under_way(rule)
        sim.run_until_empty()
        assert second(sim)[2:] == [("1", "1h"), ("3", "1h")]
        assert not sim.dead


def test_what_makes_way_is_late_by_the_smallest_delay_at_most_and_never_early():
    with Simulation(shop(RetryPolicy("1h", extra_delays="7m"))) as sim:
        send(sim, "stock", "price")
        sim.advance("10m")
        sim.steering.run_now(group(sim, "Price"))
        sim.run_until_empty()
        # 50 minutes are left: eight hops of seven.
        assert second(sim) == [("1", "10m"), ("0", "1h6m")]


def test_a_run_now_of_a_topic_or_of_an_id():
    with Simulation(shop(RetryPolicy("1h 2h"))) as sim:
        send(sim, "price", "stock", "price")
        sim.steering.run_now(Match(ids=("1",)))
        sim.run()
        assert second(sim) == [("1", "0s")]
        assert [each.envelope.attempt for each in sim.parked] == [2, 2]
        sim.steering.run_now(Match(topics=("shop.retry.1h",)))
        sim.run()
        assert sorted(key for key, _ in second(sim)) == ["0", "1", "2"]
        assert not sim.parked


def test_no_record_moves_that_does_not_stand_before_one_that_is_meant():
    with Simulation(shop()) as sim:
        send(sim, "price", "stock", "stock")
        assert sim.steering.plan("run-now", group(sim, "Price")).moved == 0
        sim.steering.run_now(group(sim, "Price"))
        sim.run()
        assert [each.topic for each in sim.parked] == ["shop.retry.1h"] * 2
        assert not [each for each in sim.outcomes if each.kind == "hop"]


def test_what_is_parked_after_a_run_now_is_not_part_of_it():
    app = App("shop")

    @app.handler("orders", retry=RetryPolicy("1h 1h 1h"))
    def handle(record, ctx):
        raise Price

    with Simulation(app) as sim:
        send(sim, "price")
        sim.steering.run_now(group(sim, "Price"))
        sim.run()
        assert [each.attempt for each in sim.attempts] == [1, 2]
        send(sim, "price")
        sim.advance("30m")
        assert len(sim.attempts) == 3


def test_a_hold_keeps_records_past_their_time_and_a_release_lets_them_go():
    with Simulation(shop(RetryPolicy("1h", max_duration="90m"))) as sim:
        send(sim, "price", "stock")
        sim.steering.hold(held := group(sim, "Price"), "the price service is down")
        assert [each.held for each in sim.steering.parked()] == [1]
        sim.advance("5h30m")
        assert second(sim) == [("1", "1h")]
        assert [each.envelope.attempt for each in sim.parked] == [2]
        assert {each.reason for each in sim.outcomes if each.kind == "hop"} == {"held"}
        (ended,) = sim.steering.release(sim.steering.chosen(held), "up again")
        assert (ended.status, ended.said) == ("ended", "ended by test: up again")
        sim.run_until_empty()
        assert second(sim) == [("1", "1h"), ("0", "6h")]
        assert not sim.dead


def test_a_release_with_run_now_lets_them_go_at_once():
    with Simulation(shop()) as sim:
        send(sim, "price", "stock")
        sim.steering.hold(group(sim, "Price"))
        sim.steering.hold(group(sim, "Stock"))
        sim.advance("90m")
        assert sim.steering.plan_release(sim.steering.chosen(Match())).count == 2
        sim.steering.release(sim.steering.chosen(Match()), run_now=True)
        sim.run()
        assert sorted(second(sim)) == [("0", "1h30m"), ("1", "1h30m")]


def test_a_release_counts_what_no_other_hold_has():
    with Simulation(shop()) as sim:
        send(sim, "price", "stock", "price")
        every = sim.steering.hold(Match(topics=("shop.retry.1h",)))
        some = sim.steering.hold(group(sim, "Price"))
        counts = [
            sim.steering.plan_release(rules, run_now=run_now).count
            for run_now in (False, True)
            for rules in ([every], [some], [every, some])
        ]
        assert counts == [1, 0, 3, 3, 2, 3]
        # What runs now is not held any more, so that no release of its hold lets it go.
        sim.steering.run_now(Match(ids=("0",)))
        assert sim.steering.plan_release([every, some]).count == 2


def test_holds_of_the_old_name_are_said_while_they_are_open():
    with Simulation(shop()) as sim:
        send(sim, "price")
        assert sim.steering.left_behind() == ""
        hold = sim.steering.hold(Match(ids=("0",)))
        renamed = App("store", was="shop")
        steering = Steering(
            renamed,
            log=sim.broker,
            progress=sim.broker.progress("store"),
            publisher=sim.broker,
            clock=sim.clock,
            by="me",
        )
        assert 'under the old name "shop" do not count for "store" (id 0)' in steering.left_behind()
        sim.steering.release([hold])
        assert steering.left_behind() == ""


def test_where_fields_are_masked_rules_are_told_without_ids_and_work_by_them():
    for masked, told in ((), "group x, id 0"), (("name",), "group x, id ***"):
        with Simulation(shop(masked=masked)) as sim:
            send(sim, "price")
            rule = sim.steering.hold(Match(ids=("0",), groups=("x",)))
            assert str(sim.steering.told(rule).match) == told
            assert [each.match.ids for each in sim.steering.rules()] == [("0",)]
            with pytest.raises(UnderWayError) as error:
                sim.steering.chosen(Match(), ["y"])
            assert f"({told})" in str(error.value)
            assert sim.steering.chosen(Match(ids=("0",), groups=("x",))) == [rule]


def test_a_hold_that_comes_later_stops_a_run_now_and_one_record_of_it_can_be_tried():
    with Simulation(shop(ordering="unordered")) as sim:
        send(sim, "price", "price", "price")
        sim.steering.run_now(price := group(sim, "Price"))
        sim.steering.hold(price)
        sim.advance("2h")
        assert second(sim) == []
        sim.steering.run_now(Match(ids=("1",)), "does the fix work?")
        sim.run()
        assert second(sim) == [("1", "2h")]
        assert sum(each.held for each in sim.steering.parked()) == len(sim.parked) == 2


def test_what_is_held_with_its_topic_stays_there_when_it_makes_way():
    with Simulation(shop()) as sim:
        send(sim, "price", "stock", "price")
        sim.steering.hold(Match(topics=("shop.retry.1h",)))
        sim.advance("10m")
        sim.steering.run_now(Match(ids=("2",)))
        sim.advance("3h")
        assert second(sim) == [("2", "10m")]
        assert [each.topic for each in sim.parked] == ["shop.retry.1h"] * 2
        assert {each.envelope.attempt for each in sim.parked} == {2}


@pytest.mark.parametrize("held", [True, False])
def test_age_does_not_bury_what_is_held_or_let_go(held):
    retry = RetryPolicy("1h", redeliver="origin", max_duration="61m")
    with Simulation(shop(retry)) as sim:
        send(sim, "price")
        sim.steering.hold(price := group(sim, "Price"))
        sim.advance("3h")
        assert (len(sim.parked), sim.dead) == (1, [])
        if not held:
            sim.steering.release(sim.steering.chosen(price), run_now=True)
            sim.run()
            assert second(sim) == [("0", "3h")]
            assert not sim.dead


def test_what_goes_back_to_its_origin_is_not_held_up_there():
    with Simulation(shop(RetryPolicy("1h", redeliver="origin"))) as sim:
        send(sim, "price")
        sim.steering.run_now(group(sim, "Price"))
        sim.run()
        assert second(sim) == [("0", "0s")]


@pytest.mark.parametrize(("redeliver", "dead"), [("handler", []), ("origin", ["expired"])])
def test_what_makes_way_may_be_too_old_when_it_comes_back(redeliver, dead):
    """As the manual says: `max_duration` counts for what goes back to its origin."""
    policy = RetryPolicy("1h", max_duration="90m", redeliver=redeliver)
    with Simulation(shop(policy), partitions=1) as sim:
        send(sim, "price", "stock")
        sim.advance("59m")
        sim.steering.run_now(group(sim, "Stock"))
        sim.run_until_empty()
        assert [each.envelope.dead_reason for each in sim.dead] == dead


def test_what_asked_for_a_later_time_keeps_it_when_it_makes_way():
    app = App("shop")

    @app.handler("orders", retry=RetryPolicy("1h", extra_delays="10m"), id=by_key)
    def handle(record, ctx):
        if ctx.attempt == 1:
            raise Retry("later", after="3h") if record.value == b"later" else Price

    with Simulation(app) as sim:
        send(sim, "later", "price")
        sim.advance("10m")
        sim.steering.run_now(group(sim, "Price"))
        sim.run_until_empty()
        assert second(sim) == [("1", "10m"), ("0", "3h")]


def test_what_no_handler_is_there_for_is_held_too_and_makes_way():
    with Simulation(shop(unhandled="5m")) as sim:
        send(sim, "price", "stock")
        newer = App("shop", unhandled="5m")

        @newer.handler("others", retry=RetryPolicy("1h"))
        def handle(record, ctx):
            pass

        with Simulation(newer, broker=sim.broker, clock=sim.clock) as after:
            after.steering.hold(group(sim, "Price"))
            after.steering.run_now(group(sim, "Stock"))
            after.advance("4h")
            assert [each.record.key for each in after.dead] == [b"1"]
            assert [each.record.key for each in after.parked] == [b"0"]


def test_a_rule_about_a_topic_that_was_recreated_says_nothing():
    with Simulation(shop()) as sim:
        send(sim, "price", "price")
        rule = sim.steering.run_now(group(sim, "Price"))
        sim.broker.delete("shop.retry.1h")
        sim.broker.forget_progress("shop")
    with Simulation(shop(), broker=sim.broker, clock=sim.clock) as sim:
        sim.run()
        assert len(sim.parked) == 2
        assert second(sim) == []
        assert not sim.steering.under_way(rule)


def test_a_second_run_now_waits_for_the_first():
    with Simulation(shop()) as sim:
        send(sim, "price", "stock")
        price, stock = group(sim, "Price"), group(sim, "Stock")
        first = sim.steering.run_now(price)
        with pytest.raises(UnderWayError, match=first.id):
            sim.steering.run_now(stock)
        sim.run()
        sim.steering.run_now(stock)
        statuses = {each.id: each.status for each in sim.steering.rules()}
        assert (statuses.pop(first.id), [*statuses.values()]) == ("ended", ["open"])


def test_a_crash_amid_a_run_now_loses_nothing():
    with Simulation(shop()) as sim:
        send(sim, *["price", "stock"] * 20)
        sim.steering.run_now(group(sim, "Price"))
        sim.crash()
        sim.run()
        sim.crash()
        sim.run_until_empty()
        assert sorted(int(key) for key, _ in second(sim)) == list(range(40))


def test_mistakes_of_operators_are_said():
    with Simulation(shop()) as sim:
        send(sim, "price")
        with pytest.raises(ConfigurationError, match="say which records"):
            sim.steering.hold(Match())
        for empty in (Match(groups=("",)), Match(ids=("0", "")), Match(topics=("",))):
            with pytest.raises(ConfigurationError, match="every record would match"):
                sim.steering.hold(empty)
        with pytest.raises(ConfigurationError, match="not a delay topic"):
            sim.steering.hold(Match(topics=("shop.retry.2h",)))
        with pytest.raises(ConfigurationError, match="no parked record matches"):
            sim.steering.run_now(Match(ids=("nobody",)))
        with pytest.raises(UnderWayError, match="no such hold"):
            sim.steering.chosen(Match(ids=("0",)))
        with pytest.raises(UnderWayError, match="no open rule x"):
            sim.steering.chosen(Match(), ["x"])
        sim.broker.delete("shop.retry.rules")
        with pytest.raises(NotReadyError, match="redrive topics"):
            sim.steering.hold(Match(ids=("0",)))


@settings(max_examples=60, deadline=None)
@given(
    causes=st.lists(st.sampled_from(["price", "stock", "other"]), min_size=1, max_size=12),
    commands=st.lists(
        st.tuples(
            st.sampled_from(["hold", "run-now", "release", "crash"]),
            st.sampled_from(["Price", "Stock", "id", "topic"]),
            st.integers(0, 90),
        ),
        max_size=6,
    ),
)
def test_whatever_operators_say_nothing_is_lost_early_or_counted(causes, commands):
    with Simulation(shop()) as sim:
        send(sim, *causes)
        groups = {each.envelope.error_type.rpartition(".")[2]: each for each in sim.parked}
        asked = 0
        for kind, what, minutes in commands:
            if what in groups:
                match = Match(groups=(groups[what].envelope.error_group or "",))
            else:
                match = Match(ids=("0",)) if what == "id" else Match(topics=("shop.retry.1h",))
            try:
                if kind == "hold":
                    sim.steering.hold(match)
                elif kind == "run-now":
                    sim.steering.run_now(match)
                    asked += 1
                elif kind == "release":
                    sim.steering.release(sim.steering.chosen(Match()))
                else:
                    sim.crash()
            except (ConfigurationError, UnderWayError):
                pass
            sim.advance(f"{minutes}m")
        handled = [key for key, _ in second(sim)]
        waiting = [each.record.key.decode() for each in sim.parked]
        assert sorted([*handled, *waiting]) == sorted(str(n) for n in range(len(causes)))
        if not asked:
            assert all(milliseconds(after) >= HOUR for _, after in second(sim))
        assert {each.envelope.attempt for each in sim.parked} <= {2}
        if any(rule.status == "open" for rule in sim.steering.rules()):
            sim.steering.release([each for each in sim.steering.rules() if each.status == "open"])
        sim.run_until_empty()
        assert sorted(key for key, _ in second(sim)) == sorted(str(n) for n in range(len(causes)))
        assert {each.attempt for each in sim.attempts} == {1, 2}
        assert not sim.dead


def test_the_same_hold_twice_is_refused_unless_some_of_it_runs_now():
    with Simulation(shop()) as sim:
        send(sim, "price", "stock")
        match = Match(topics=("shop.retry.1h",))
        rule = sim.steering.hold(match, "no prices")
        with pytest.raises(UnderWayError, match=f"{rule.id} of test holds the same"):
            sim.steering.hold(match, "a double click")
        assert len(sim.steering.rules()) == 1
        sim.clock.advance(1)
        sim.steering.run_now(match)
        sim.clock.advance(1)
        assert sim.steering.hold(match, "not after all").status == "open"


def test_no_more_records_are_counted_than_whoever_asks_wants_to_be_read():
    with Simulation(shop()) as sim:
        send(sim, "price", "price", "price")
        topic = "shop.retry.1h"

        def counted(most):
            return [
                (each.count, each.whole)
                for each in sim.steering.parked(most)
                if each.topic == topic
            ]

        assert counted(2) == [(2, False)]
        assert counted(3) == counted(None) == [(3, True)]
        match = Match(topics=(topic,))
        some, all_of_them = (sim.steering.plan("hold", match, most) for most in (2, 3))
        assert (some.count, some.whole) == (2, False)
        assert (all_of_them.count, all_of_them.whole) == (3, True)


@pytest.mark.parametrize("how", ["run-now", "release"])
def test_of_two_who_let_records_go_at_once_the_second_is_refused(how):
    with Simulation(shop()) as sim:
        send(sim, "price", "stock", "price")
        prices, stocks = group(sim, "Price"), group(sim, "Stock")
        hold = sim.steering.hold(prices)
        rivals = [lambda: sim.steering.run_now(stocks)]

        class Late:
            """A rival is quicker."""

            def publish(self, writes):
                if writes and rivals:
                    rivals.pop()()
                sim.broker.publish(writes)

        late = Steering(
            sim.app,
            log=sim.broker,
            progress=sim.broker.progress(sim.app.name),
            publisher=Late(),
            clock=sim.clock,
            by="bob",
        )
        act = late.run_now if how == "run-now" else partial(late.release, run_now=True)
        with pytest.raises(UnderWayError, match="of test is under way: records that make way"):
            act(prices if how == "run-now" else [hold])
        stands = {(rule.by, rule.kind): rule.status for rule in sim.steering.rules()}
        assert stands["test", "run-now"] == "open"
        assert stands["bob", "run-now"] == "ended"
        sim.run()
        assert [key for key, _ in second(sim)] == ["1"]
