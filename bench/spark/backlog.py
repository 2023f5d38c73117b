"""Backlogs that become visible at once, before pipelines that run already."""

from __future__ import annotations

from time import time
from typing import NamedTuple

from confluent_kafka import Producer
from spark.world import PARTITIONS, World

RECORDS = 400_000


class Drained(NamedTuple):
    """What draining one backlog took, in records per second."""

    whole: float
    """From the backlog's commit to the last record's arrival: what a user waits for."""
    within: float
    """From the first record's arrival to the last one's: without what is around a batch."""


def drain(world: World, topic: str, out: str, rounds: int) -> list[Drained]:
    """Write backlogs to a topic, each once the one before is drained to another topic."""
    found = []
    for _ in range(rounds):
        before = world.all_ends(out)
        wanted = sum(before.values()) + RECORDS
        visible = appear(world, topic)
        world.wait_for(lambda: world.ends(out) >= wanted, 120)  # noqa: B023 -- called here and now
        last = world.last_arrival(out)
        first = min(world.arrival(place, start) for place, start in before.items())
        found.append(Drained(_rate(visible, last), _rate(first, last)))
    return found


def best(found: list[Drained]) -> Drained:
    """The best of each, but for the first round, which warms everybody up."""
    warm = found[1:]
    return Drained(max(each.whole for each in warm), max(each.within for each in warm))


def _rate(start: float, end: float) -> float:
    return RECORDS / (end - start) * 1000


def appear(world: World, topic: str) -> float:
    """Write a backlog in one transaction; gives the time at which it is committed."""
    producer = Producer(
        {
            "bootstrap.servers": world.settings.servers(),
            "transactional.id": "bench-backlog",
            "queue.buffering.max.messages": RECORDS,
            "queue.buffering.max.kbytes": 1_000_000,
        }
    )
    producer.init_transactions()
    producer.begin_transaction()
    value = b"x" * 200
    for number in range(RECORDS):
        producer.produce(topic, value, b"%d" % number, number % PARTITIONS)
    producer.flush()
    visible = time() * 1000
    producer.commit_transaction()
    return visible
