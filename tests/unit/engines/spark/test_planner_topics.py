"""Topics that go or are made again while a run on Spark has an end in sight."""

from __future__ import annotations

from memory_engine import make_spec
from planner_worlds import InMemory, app_maker, complete, first_place, planner, recreate

from redrive.engines.spark.news import News
from redrive.engines.spark.planner import TOPICS_EVERY
from redrive.record import TopicPartition


def test_a_run_to_the_end_of_what_was_there_ends_if_a_topic_is_recreated_with_fewer_records():
    world = InMemory("p")
    place = first_place(world)
    world.send(place, 100)
    app = app_maker(world)("in", on_data_loss="continue")
    one = planner(world, app, until="once", max_records=10)
    complete(world, app, one.plan())
    recreate(world, place, 5)
    for _ in range(5):
        complete(world, app, one.plan())
        world.clock.advance(TOPICS_EVERY)
    assert one.status.reached


def test_a_refused_record_of_a_delay_topic_that_is_deleted_is_waited_for_no_more(tmp_path):
    world = InMemory("p")
    first_place(world)
    app = app_maker(world)("in", delays="1s", on_data_loss="continue")
    old = TopicPartition("p.retry.5s", 0)  # no policy has it any more
    world.create(old.topic, delay=True)
    world.send(old, 1)
    world.clock.advance(60_000)
    one = planner(world, app, "retry", until="empty", scratch=str(tmp_path))
    assert [each.place for task in one.plan() for each in task] == [old]
    refused = {old: (1, [("out", "topic", "out does not exist")])}
    News((), {old: 0}, 0, refused).write(make_spec(scratch=str(tmp_path)).batch_file("retry"))
    one.plan()
    assert one.status.refused == 1
    world.delete(old.topic)
    world.clock.advance(TOPICS_EVERY)
    one.plan()
    assert (one.status.empty, one.status.refused) == (True, 0)
