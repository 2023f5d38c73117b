"""Waiting rooms: the partitions in which records of one source partition wait, in strict order.

They belong to whoever owns the source partition. What of them is not committed says which of its
keys are blocked: a new owner reads it before anything of the partition runs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from redrive import envelope as envelopes
from redrive.errors import ConfigurationError, EnvelopeError
from redrive.kafka.errors import BrokerError
from redrive.numbers import counted
from redrive.processing.order.blocked_keys import BlockedKeys, Spot
from redrive.processing.order.key_gate import KeyGate, origin_of, stage_of
from redrive.processing.progress import done_beyond
from redrive.record import TopicPartition, partitions_of
from redrive.tuning import MAX_IN_FLIGHT

if TYPE_CHECKING:
    from redrive.app import App
    from redrive.engines.words import Until
    from redrive.ports import Log, Position


def check_end(app: App, until: Until) -> None:
    """Refuse an end that a run in strict order might never come to."""
    if until == "once" and app.ordering == "strict":
        raise ConfigurationError(
            f'app "{app.name}": a run that ends with what is due (--once) cannot keep strict order:'
            " records would have to run that wait behind one that is not due; use --until-empty"
        )


def rooms_of(app: App, source: TopicPartition, counts: Mapping[str, int]) -> list[TopicPartition]:
    """The rooms of a source partition, among topics that have so many partitions.

    BrokerError, if one is missing: partitions were added to the source, and keys have moved.
    """
    topics = [topic for topic in counts if app.delay_of(topic) is not None]
    for topic, count in too_few(app, source.partition + 1, counts).items():
        raise BrokerError(
            f"{source} is not read yet: its order is strict, and {topic} has only"
            f" {counted(count, 'partition')}. If partitions were added to {source.topic}, their"
            " keys may have records waiting elsewhere: let those end, then run"
            " `redrive topics --apply`"
        )
    return [
        TopicPartition(topic, source.partition)
        for topic in sorted(topics)
        if counts[topic] > source.partition
    ]


def too_few(app: App, partitions: int, counts: Mapping[str, int]) -> dict[str, int]:
    """The app's rooms that have fewer partitions than that, with how many they have."""
    needed = {topic: counts.get(topic, 0) for topic in (*app.delay_topics, app.behind_topic)}
    return {topic: count for topic, count in needed.items() if count < partitions}


def beyond_source(app: App, partitions: int, counts: Mapping[str, int]) -> list[TopicPartition]:
    """Partitions of rooms that have the number of no source partition: nobody reads them.

    They are none's rather than one's by some other rule: if the source topic grew, two workers
    would have them for a while.
    """
    waiting = {topic: counts[topic] for topic in app.waiting_topics(counts)}
    return [place for place in partitions_of(waiting) if place.partition >= partitions]


def gate_of(
    app: App,
    log: Log,
    source: TopicPartition,
    start: int,
    rooms: Mapping[TopicPartition, Position],
    *,
    max_in_flight: int = MAX_IN_FLIGHT,
) -> KeyGate:
    """The gate of a source partition that is read from `start` on, by what waits in its rooms."""
    keys = BlockedKeys(
        read_to=start,
        known_end=log.bounds(source)[1],
        max_behind=app.max_behind,
    )
    for room, position in rooms.items():
        for offset, key, envelope in _waiting(log, room, position):
            if (envelope.origin_topic, envelope.origin_partition) == source:
                keys.found(Spot(room, offset), key, origin_of(envelope), stage_of(envelope))
    return KeyGate(app, source, keys, max_in_flight=max_in_flight)


def _waiting(
    log: Log, room: TopicPartition, position: Position
) -> Iterator[tuple[int, bytes, envelopes.Envelope]]:
    """What of a room is not complete, with offset, key and envelope."""
    done = done_beyond.decode(position)
    _, end = log.bounds(room)
    for batch in log.batches(room, position.offset, end):
        for record in batch:
            if record.key is None or done_beyond.includes(done, record.offset):
                continue
            try:
                yield record.offset, record.key, envelopes.parse(record.headers)
            except EnvelopeError:
                continue  # it is buried when it is read: nobody knows what it was
