"""Houses: planned whole, by one lane, and not again as they were left."""

from __future__ import annotations

from itertools import pairwise

import pytest
from memory_engine import MiniSpark

from redrive import App, RetryPolicy
from redrive.engines.spark.houses import Houses, claims
from redrive.engines.spark.poison_pill import PoisonSearch
from redrive.engines.spark.queries import lanes_of
from redrive.engines.spark.ranges import House, Range, pack
from redrive.ports import Position
from redrive.processing.progress.notes import CLAIM, noted
from redrive.record import TopicPartition, Write

TOPICS = {"in": ("i", 2), "app.retry.5m": ("d", 2), "app.retry.behind": ("b", 2)}
ENDS = {TopicPartition(topic, n): 9 for topic, (_, count) in TOPICS.items() for n in range(count)}


def strict_app() -> App:
    app = App("app", ordering="strict", retry=RetryPolicy("5m"))
    app.handler("in")(lambda record, ctx: None)
    return app


def of_house(topic: str, number: int, start: int = 0, end: int = 9) -> Range:
    ids = tuple((TopicPartition(name, number), id_) for name, (id_, _) in TOPICS.items())
    return Range(topic, number, start, end, house=House("claim", ids))


def test_a_range_knows_its_house_source_first_with_the_ids_of_topics():
    found = [Range("app.retry.behind", 1, 0, 3), Range("in", 0, 0, 3), Range("in", 1, 0, 3)]
    planned = Houses(strict_app()).planned(0, found, TOPICS, ENDS)
    assert [(each.place, each.unit.partition) for each in planned] == [
        (TopicPartition("in", 0), 0),
        (TopicPartition("app.retry.behind", 1), 1),
        (TopicPartition("in", 1), 1),
    ]
    (house,) = {each.house for each in planned[1:]}
    assert house is not None
    assert house.places == (
        (TopicPartition("in", 1), "i"),
        (TopicPartition("app.retry.5m", 1), "d"),
        (TopicPartition("app.retry.behind", 1), "b"),
    )


def test_a_house_that_is_not_whole_is_not_planned_and_the_others_are():
    found = [Range("in", 0, 0, 3), Range("in", 1, 0, 3)]
    without_leader = {place: end for place, end in ENDS.items() if place != ("app.retry.5m", 1)}
    houses = Houses(strict_app())
    assert [each.place.partition for each in houses.planned(0, found, TOPICS, without_leader)] == [
        0
    ]
    assert not houses.not_ready
    too_few = {**TOPICS, "app.retry.behind": ("b", 1)}
    houses = Houses(strict_app())
    assert [each.place.partition for each in houses.planned(0, found, too_few, ENDS)] == [0]
    assert "app.retry.behind has only 1 partition" in houses.not_ready[0]


def test_a_house_that_is_as_it_was_left_is_looked_at_less_and_less_often():
    houses, found = Houses(strict_app()), [Range("app.retry.behind", 0, 0, 3)]
    times = [now for now in range(5000) if houses.planned(now, found, TOPICS, ENDS)]
    waits = [after - before for before, after in pairwise(times)]
    assert waits == sorted(waits)
    assert (times[0], waits[0], waits[-1]) == (0, 51, 1001)


@pytest.mark.parametrize(
    ("found", "ends"),
    [
        ([Range("app.retry.behind", 0, 1, 3)], ENDS),
        ([Range("app.retry.behind", 0, 0, 4)], ENDS),
        ([Range("app.retry.behind", 0, 0, 3), Range("app.retry.5m", 0, 0, 1)], ENDS),
        ([Range("app.retry.behind", 0, 0, 3)], {**ENDS, TopicPartition("app.retry.5m", 0): 10}),
        ([Range("app.retry.behind", 0, 0, 3, metadata="r1:1")], ENDS),
    ],
)
def test_a_house_with_news_is_planned_at_once(found, ends):
    houses = Houses(strict_app())
    before = [Range("app.retry.behind", 0, 0, 3)]
    assert houses.planned(0, before, TOPICS, ENDS)
    assert not houses.planned(0, before, TOPICS, ENDS)
    assert houses.planned(0, found, TOPICS, ends)


def test_ranges_of_a_house_are_in_one_task():
    ranges = [of_house(topic, number) for topic in TOPICS for number in range(2)]
    packed = pack(ranges, 8)
    assert sorted(len(task) for task in packed) == [3, 3]
    assert all(len({each.unit for each in task}) == 1 for task in packed)


def test_of_a_house_one_suspect_at_a_time_is_tried_and_the_rest_has_its_turn():
    search = PoisonSearch()
    ranges = [of_house(topic, 0) for topic in TOPICS]
    suspects = [["in", 0, 0, 9], ["app.retry.5m", 0, 0, 9]]
    search.note({}, [{"ranges": suspects, "begun": False}])
    seen = []
    for _ in range(3):
        (task,) = search.tasks(ranges, 8)
        seen.append([(each.topic, each.search) for each in task])
    assert seen == [
        [("in", "alone")],
        [("app.retry.5m", "alone")],
        [("app.retry.behind", "")],
    ]


def test_a_part_that_waits_for_what_stands_behind_it_is_tried_with_more():
    search = PoisonSearch()
    whole = of_house("in", 0, 0, 400)
    starts = {whole.place: Position(0)}
    search.note({}, [{"ranges": [["in", 0, 0, 400]], "begun": False}])
    sizes = []
    for _ in range(3):
        ((tried,),) = search.tasks([whole], 8)
        sizes.append((tried.size, tried.search))
        search.note(starts, [])
        if sizes[-1][1] == "alone" and len(sizes) == 1:
            search.note({}, [{"ranges": [["in", 0, 0, 200]], "begun": False}])
    assert sizes == [(200, "alone"), (100, "alone"), (400, "")]


def test_a_plan_claims_its_houses_before_anything_of_them_runs():
    spark = MiniSpark(strict_app())
    planner = spark.planner()
    planner.plan()
    spark.broker.publish([Write("in", b"a", b"1", (), 0)])
    plan = planner.plan()
    source = TopicPartition("in", 0)
    assert claims(plan) == {source: noted(spark.progress.committed([source])[source], CLAIM)}
    assert plan[0][0].house is not None
    spark.broker.publish([Write("in", b"a", b"1", (), 0)])
    assert claims(planner.plan()) != claims(plan)


def test_rooms_are_planned_whole_however_few_records_a_batch_may_have():
    spark = MiniSpark(strict_app(), max_records=2)
    planner = spark.planner()
    planner.plan()
    spark.broker.publish([Write("in", b"a", b"1", (), 0)] * 5)
    spark.broker.publish([Write("app.retry.behind", b"a", b"1", (), 0)] * 5)
    (task,) = planner.plan()
    assert {each.topic: each.size for each in task} == {"in": 2, "app.retry.behind": 5}


def test_one_lane_alone_plans_houses_with_sources_and_rooms():
    assert lanes_of(strict_app(), ("main", "retry"), lambda: True) == ("main",)
    by_key = App("app", retry=RetryPolicy("5m"))
    assert lanes_of(by_key, ("main", "retry"), lambda: True) == ("main", "retry")
    assert lanes_of(by_key, ("main", "retry"), lambda: False) == ("main",)
