"""What goes wrong with a real Kafka in the middle of a job: one sentence, and nothing lost."""

from __future__ import annotations

from typing import ClassVar

import pytest
from confluent_kafka import Producer
from confluent_kafka import TopicPartition as KafkasPlace

from redrive.cli import dead_replay
from redrive.dead import Filter, open_letters, open_operator
from redrive.dead.desk import UnderWayError
from redrive.dead.operator import ReplayOptions
from redrive.dead.watching import Fate, Watch
from redrive.kafka.admin import Admin
from redrive.kafka.progress import KafkaProgress
from redrive.kafka.topic_admin import KafkaTopics
from redrive.ports import Position
from redrive.record import partitions_of

SLOWLY = ReplayOptions(rate=10)
"""So that there is a middle."""


def once(act):
    """Do it after the first transaction of a job."""
    done = []

    def progress(operation, fate):
        if operation.done and not done:
            done.append(operation)
            act(operation)

    return progress


def test_whoever_takes_a_job_over_ends_it_and_nobody_does_it_twice(shop):
    made = shop()
    made.bury([f"bad {number}" for number in range(40)])
    said = []

    def take_over(operation):
        with pytest.raises(UnderWayError) as caught:
            made.operator("bob").replay(Filter())
        said.append(str(caught.value))
        said.append(made.operator("bob").resume(operation.id).status)

    found = made.operator("alice").replay(Filter(), SLOWLY, progress=once(take_over))
    assert "of alice is under way, or was killed" in said[0]
    assert said[1] == "done"
    assert (found.status, found.counts) == ("done", {"sent": 40})  # as bob has left it
    copies = made.copies()
    assert (len(copies), {*copies.values()}) == (40, {1})


@pytest.mark.parametrize("act", ["cancel", "pause"])
def test_operators_fence_each_other_however_they_name_the_letters(shop, act):
    made = shop()
    made.bury([f"bad {number}" for number in range(40)])
    others = open_letters(None, made.settings, topic=made.app.dead_topic)
    bob = open_operator(others, made.settings, "bob")
    found = made.operator("alice").replay(
        Filter(), SLOWLY, progress=once(lambda operation: getattr(bob, act)(operation.id))
    )
    assert found.said == f"{found.status} by bob"
    assert 0 < found.done == len(made.copies()) < 40


def test_a_letter_that_dies_while_another_is_edited_keeps_its_value(shop, redrive, monkeypatch):
    made = shop()
    made.bury(["bad 0"])

    def edited(letter, app):
        made.bury(["bad 1", "bad 2"])
        return b"mended"

    monkeypatch.setattr(dead_replay, "edited", edited)
    options = ("--error", "Bury", "--edit", "--yes", "--bootstrap", made.bootstrap)
    answer = redrive("dead", "replay", made.target, *options)
    assert answer.exit_code == 0, answer.output
    (delay,) = made.app.delay_topics
    assert [record.value for record in made.read(delay)] == [b"mended"]


def test_a_dead_topic_that_is_recreated_in_the_middle_of_a_job(shop):
    made = shop(partitions=1)
    topic, topics = made.app.dead_topic, KafkaTopics(made.settings)
    made.bury([f"bad {number}" for number in range(40)])

    def make_again(operation):
        count = made.log.partitions(topic)
        topics.delete(topic)
        topics.create(topic, count, {})
        made.bury([f"other {number}" for number in range(80)])

    with pytest.raises(UnderWayError, match="has been recreated since: cancel it"):
        made.operator().replay(Filter(), SLOWLY, progress=once(make_again))
    (delay,) = made.app.delay_topics
    assert {record.value.split()[0] for record in made.read(delay)} == {b"bad"}
    [job] = made.operator().operations()
    made.operator().cancel(job.id)
    assert made.letters.stats()[0].states == {"open": 80}
    assert made.operator().replay(Filter()).counts == {"sent": 80}


def test_a_plan_is_not_for_what_has_the_places_of_its_letters_since(shop):
    made = shop(partitions=1)
    topic, topics = made.app.dead_topic, KafkaTopics(made.settings)
    made.bury(["bad 1", "bad 2"])
    operator, one = made.operator(), Filter(places=(f"{topic}[0]@1",))
    plan = operator.plan(one)
    topics.delete(topic)
    topics.create(topic, 1, {})
    made.bury(["other 1", "other 2"])
    with pytest.raises(UnderWayError, match="recreated since somebody looked at these letters"):
        operator.replay(one, planned=plan.planned)
    assert made.copies() == {}
    assert made.letters.stats()[0].states == {"open": 2}


def test_a_copy_that_died_in_a_transaction_that_cannot_be_read_yet_is_waited_for(shop):
    made = shop(partitions=1, delivery="transaction")
    made.bury(["bad 1"])
    operation = made.operator().replay(Filter())
    (delay,) = made.app.delay_topics
    [copy] = [each for each in made.read(delay) if each.value == b"bad 1"]
    producer = Producer(
        {"bootstrap.servers": made.settings.servers(), "transactional.id": made.name + "-late"}
    )
    producer.init_transactions(60)
    producer.begin_transaction()
    headers = [*copy.headers, ("redrive-dead-reason", b"rejected")]
    producer.produce(made.app.dead_topic, b"bad 1", headers=headers)
    producer.flush(60)
    places = partitions_of({delay: made.log.partitions(delay)})
    progress = KafkaProgress(made.settings, made.name)
    progress.commit({place: Position(made.log.bounds(place)[1]) for place in places})

    class Settled:
        """A transaction that ends only once somebody waits for it."""

        ends: ClassVar = [producer.commit_transaction]

        def __getattr__(self, name):
            return getattr(made.log, name)

        def settle(self, place):
            if place.topic == made.app.dead_topic and self.ends:
                self.ends.pop()(60)
            made.log.settle(place)

    letters = made.letters
    letters.log = Settled()
    assert Watch(letters, operation, progress).look() == Fate(dead=1, parked=0, waiting=0)
    progress.close()


def test_letters_that_retention_deletes_while_a_job_is_paused(shop):
    made = shop()
    made.bury([f"bad {number}" for number in range(40)], keys=1)
    paused = made.operator().replay(Filter(), stopping=lambda: True)
    (place,) = {(record.topic, record.partition) for record in made.read(made.app.dead_topic)}
    admin = Admin(made.settings)
    for future in admin.client.delete_records([KafkasPlace(*place, 15)]).values():
        future.result(30)
    assert made.operator().plan(Filter()).letters == 25
    done = made.operator().resume(paused.id)
    assert (done.status, done.counts) == ("done", {"sent": 25, "deleted": 15})


def test_letters_whose_origin_is_gone_stay_open(shop):
    made = shop(redeliver="origin")
    made.bury([f"bad {number}" for number in range(6)])
    KafkaTopics(made.settings).delete(f"{made.name}.orders")
    assert made.operator().replay(Filter()).counts == {"no-topic": 6}
    assert made.letters.stats()[0].states == {"open": 6}
