"""The flow of records, from two looks at offsets."""

from __future__ import annotations

from redrive.console.flow import Flow, Look, Spot, nodes
from redrive.console.picture import picture
from redrive.console.trends import Point, Trends, chart
from redrive.engines.ahead import Place
from redrive.record import TopicPartition

ORDERS, WAIT, DEAD = (TopicPartition(name, 0) for name in ("orders", "a.retry.5s", "a.dead"))
KINDS = {"orders": "source", "a.retry.5s": "delay", "a.dead": "dead", "gone": "outbound"}


def look(at, orders, wait=(0, 0, None), dead=(0, 0, None)):
    return Look(at, {ORDERS: Spot(*orders), WAIT: Spot(*wait), DEAD: Spot(*dead)})


def test_lag_counts_from_the_committed_offset_or_from_the_first_there_is():
    assert Spot(10, 30, 25).lag == 5
    assert Spot(10, 30, None).lag == 20
    assert Spot(10, 30, 2).lag == 20
    assert Spot(40, 40, 50).lag == 0


def test_rates_are_what_was_written_and_handled_between_two_looks():
    before, now = look(0.0, (0, 100, 50)), look(2.0, (0, 120, 90), (0, 6, 2), (3, 9, None))
    flow = Flow(nodes(KINDS, now, before, delays={"a.retry.5s": 5000}))
    orders, wait, dead, gone = flow.nodes
    assert (orders.written, orders.handled, orders.lag) == (10.0, 20.0, 30)
    assert (wait.lag, wait.delay, dead.records, dead.handled) == (4, 5000, 6, None)
    assert gone.missing
    assert (flow.lag(), flow.parked(), flow.dead(), flow.handled()) == (30, 4, 6, 21.0)


def test_the_first_look_knows_no_rates_and_a_recreated_topic_has_not_shrunk():
    now = look(2.0, (0, 3, 1))
    assert nodes(KINDS, now, None)[0].written is None
    assert nodes(KINDS, now, look(1.0, (0, 900, 900)))[0].written == 0


def test_what_is_due_is_summed_up():
    dues = {WAIT: Place(5, 2, due_since=7, next_due=9)}
    node = nodes(KINDS, look(0.0, (0, 0)), None, dues=dues)[1]
    assert (node.due, node.due_since, node.next_due) == (2, 7, 9)


def test_the_oldest_of_a_delay_topic_is_known_by_when_it_is_due():
    for place, oldest in (
        (Place(5, 2, due_since=7000, next_due=9000), 2000),
        (Place(5, 0, next_due=9000), 4000),
        (Place(0), None),
    ):
        delays, dues = {"a.retry.5s": 5000}, {WAIT: place}
        found = nodes(KINDS, look(0.0, (0, 0)), None, delays=delays, dues=dues)
        assert found[1].oldest == oldest


def test_every_topic_is_in_the_picture_and_has_its_way():
    seen = picture(Flow(nodes(KINDS, look(0.0, (0, 0)), None)))
    assert len(seen.boxes) == len(seen.lines) == 4
    assert seen.hidden == 0
    assert all(0 <= box.y <= seen.height - box.height for box in seen.boxes)


def test_a_picture_of_many_topics_says_how_many_it_leaves_out():
    kinds = {f"t{number}": "source" for number in range(40)}
    assert picture(Flow(nodes(kinds, look(0.0, (0, 0)), None))).hidden == 28


def test_trends_have_points_at_even_distances_and_forget_the_oldest():
    trends = Trends()
    for second in range(60_000):
        trends.add(Point(second * 1000, handled=float(second), lateness=None))
    series = trends.series("handled")
    assert len(series) == 2160
    assert series[1][0] - series[0][0] == 10_000
    assert series[-1] == (59_990_000, 59_990.0)
    assert trends.series("lateness") == []


def test_what_was_before_is_put_before_what_is_known():
    trends = Trends()
    trends.add(Point(20_000, dead=5.0))
    trends.begin_with([Point(0, dead=1.0), Point(10_000, dead=3.0), Point(20_000, dead=4.0)])
    assert trends.series("dead") == [(0, 1.0), (10_000, 3.0), (20_000, 5.0)]


def test_a_chart_needs_two_points():
    assert chart([], 10, 10) == chart([(0, 1.0)], 10, 10) == ""
    assert chart([(0, 0.0), (10, 4.0)], 100, 10) == "0.0,9.0 100.0,1.0"
