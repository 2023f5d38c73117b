"""What operators say about parked records, on a real Kafka and on every engine."""

from __future__ import annotations

from collections import Counter

from steered import APP, COUNT, group_of, of, parked_by_cause, records, steering, waiting

from redrive.dead import Match
from redrive.durations import milliseconds


def test_a_run_now_of_a_cause_runs_its_records_once_and_the_others_keep_their_time(world, start):
    target = world.app(APP.format(delays="10m", extra="1m", delivery="at-least-once"))
    records(world, 0, COUNT)
    run = start(target)
    world.wait(run, "the parking", lambda: len(world.records("retry.10m")) == COUNT, timeout=200)
    due = {each.id: each.due for each in waiting(world, "10m")}
    operator = steering(world, target)
    price = Match(groups=(group_of(world, "10m", "Price"),))
    assert operator.plan("run-now", price).count == COUNT // 2
    rule = operator.run_now(price, "the price service is back")
    world.wait(run, "the end of it", lambda: not operator.under_way(rule), timeout=200)
    run.stop()

    again = of(world.notes(), attempt=2)
    assert Counter(note["id"] for note in again) == {f"{n}": 1 for n in range(0, COUNT, 2)}
    assert all(note["due"] < due[note["id"]] for note in again), "let go before their time"
    left = parked_by_cause(operator)
    assert left == {"Stock": COUNT // 2}, "the others wait"
    for each in (*waiting(world, "1m"), *waiting(world, "10m")):
        if each.id in {note["id"] for note in again}:
            continue
        late = max(each.due, each.not_before or 0) - due[each.id]
        assert 0 <= late <= milliseconds("1m")
        assert each.attempt == 2
    assert world.count("dead") == 0


def test_one_record_runs_now_by_its_id_and_then_all_of_the_delay_topics(world, start):
    target = world.app(APP.format(delays="10m", extra="1m", delivery="at-least-once"))
    records(world, 0, 10)
    run = start(target)
    world.wait(run, "the parking", lambda: len(world.records("retry.10m")) == 10, timeout=200)
    operator = steering(world, target)
    one = operator.run_now(Match(ids=("3",)), "this customer waits")
    world.wait(run, "one of them", lambda: not operator.under_way(one), timeout=200)
    assert [note["id"] for note in of(world.notes(), attempt=2)] == ["3"]
    assert parked_by_cause(operator).total() == 9, "the others wait"
    topics = tuple(world.loaded(target).delay_topics)
    rest = operator.run_now(Match(topics=topics), "so do the others")
    world.wait(run, "all of them", lambda: not operator.under_way(rest), timeout=200)
    run.stop()
    again = Counter(note["id"] for note in of(world.notes(), attempt=2))
    assert again == {f"{n}": 1 for n in range(10)}
    assert world.count("dead") == 0


def test_a_hold_keeps_a_cause_past_its_time_while_others_run_until_it_is_released(world, start):
    target = world.app(APP.format(delays="4s", extra="2s", delivery="at-least-once"))
    records(world, 0, 2)
    run = start(target)
    world.wait(run, "the parking", lambda: len(world.records("retry.4s")) == 2, timeout=200)
    run.stop()
    operator = steering(world, target)
    held = Match(groups=(group_of(world, "4s", "Stock"),))
    operator.hold(held, "no stock before morning")
    records(world, 2, COUNT)
    run = start(target)
    stock = {f"{n}" for n in range(3, COUNT, 2)}

    def was_held() -> bool:
        """Each was due, and was parked again."""
        seen = Counter(each.id for each in waiting(world, "4s"))
        return all(seen[each] >= 2 for each in stock)

    def handled() -> set[str]:
        return {note["id"] for note in of(world.notes(), attempt=2)}

    price = {f"{n}" for n in range(2, COUNT, 2)}
    world.wait(run, "the hold", lambda: was_held() and price <= handled(), timeout=250)
    assert not stock & handled()
    operator.release(operator.chosen(held), "it is here")
    world.wait(run, "those that were held", lambda: stock <= handled(), timeout=250)
    run.stop()
    again = Counter(note["id"] for note in of(world.notes(), attempt=2))
    assert set(again.values()) == {1}
    assert not of(world.notes(), attempt=3)
    assert world.count("dead") == 0
