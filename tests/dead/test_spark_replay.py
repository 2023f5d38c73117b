"""A replay by the tasks of Spark, on a real Kafka: none left out, none twice, in order."""

from __future__ import annotations

import threading

import pytest
from confluent_kafka import Producer
from test_kills import check_once_and_in_order

from redrive.dead import Filter, ReplayOptions
from redrive.engines.spark.dead.replay import SparkShards
from redrive.kafka.config import transactional_config
from redrive.kafka.log import KafkaLog
from redrive.kafka.transactional_producer import TransactionalProducer, transactional_id
from redrive.record import TopicPartition
from redrive.threads import begin

LETTERS = 60


def test_tasks_drive_each_letter_once_and_fix_it(shop, spark_session):
    made = shop()
    made.bury([f"never {number}" for number in range(LETTERS)])
    shards = SparkShards(spark_session, made.letters, made.settings, made.target)
    ended = made.operator().replay(
        Filter(), ReplayOptions(fix=made.fix), why="x", run_shards=shards
    )
    assert (ended.status, ended.said) == ("done", "")
    assert (ended.counts, ended.run) == ({"sent": LETTERS}, "")
    check_once_and_in_order(made, LETTERS)
    (delay,) = made.app.delay_topics
    assert {record.value.split()[0] for record in made.read(delay)} == {b"now"}
    assert {each.state for each in made.letters.some(limit=LETTERS)[0]} == {"replayed"}


def test_a_command_that_is_killed_with_its_spark_is_resumed(shop):
    made = shop()
    letters = 2100
    made.bury([f"bad {number}" for number in range(letters)], keys=50)
    process = made.start("dead", "replay", made.target, "--engine", "spark", "--yes")
    made.wait_for_copies(1, seconds=240)
    process.kill()
    process.communicate()
    [job] = made.jobs()
    if job["status"] != "done":  # a test that was starved meanwhile kills too late
        made.run("dead", "jobs", made.target, "--resume", job["id"])
    [job] = made.jobs()
    assert (job["status"], job["counts"]) == ("done", {"sent": letters})
    check_once_and_in_order(made, letters)


def killed_in_the_middle(made, process, letters):
    """Kill a command and its Spark as soon as it has written more; gives the job."""
    before = sum(made.copies().values())
    made.wait_for_copies(before + 1, seconds=400)
    process.kill()
    process.communicate()
    [job] = made.jobs()
    assert job["status"] == "running", "it was killed too late"
    assert before < sum(made.copies().values()) < letters
    return job


@pytest.mark.chaos
@pytest.mark.timeout(3600)
def test_ten_thousand_letters_and_ten_kills_of_spark(shop):
    made = shop()
    letters = 10_000
    large = "x" * 20_000  # 200 of them are as much as one transaction takes
    for first in range(0, letters, 1000):
        values = [f"bad {number} {large}" for number in range(first, first + 1000)]
        made.bury(values, keys=50, first=first)
    on_spark = ("--engine", "spark")
    process = made.start("dead", "replay", made.target, "--fix", made.slowly, "--yes", *on_spark)
    for _ in range(10):
        job = killed_in_the_middle(made, process, letters)
        process = made.start("dead", "jobs", made.target, "--resume", job["id"], *on_spark)
    out, err = process.communicate(timeout=600)
    assert process.returncode == 0, (out, err)
    [job] = made.jobs()
    assert (job["status"], job["counts"]) == ("done", {"sent": letters})
    check_once_and_in_order(made, letters)


def test_what_is_behind_an_open_transaction_is_waited_for(shop, monkeypatch):
    made = shop()
    state = TopicPartition(made.app.state_topic, 0)
    config = transactional_config(made.settings, transactional_id(made.name, state))
    hanging = Producer(config)
    hanging.init_transactions(60)
    hanging.begin_transaction()
    hanging.produce(state.topic, b"{}", b"operation/none", partition=0)
    hanging.flush(60)
    log = KafkaLog(made.settings, made.name)
    bounds, looked = log.bounds, threading.Semaphore(0)

    def look(place):
        looked.release()
        return bounds(place)

    monkeypatch.setattr(log, "bounds", look)
    begun = begin(lambda: log.settle(state), name="settle")
    assert all(looked.acquire(timeout=60) for _ in range(3))
    assert bounds(state)[1] == 0
    assert not begun.done()
    TransactionalProducer(made.settings, made.name, state)  # takes it back
    begun.result(120)
    assert bounds(state)[1] > 0
    log.close()
