from __future__ import annotations

import pytest

from redrive import App, RetryPolicy
from redrive.engines.waiting_rooms import beyond_source, gate_of, rooms_of, too_few
from redrive.kafka.errors import BrokerError
from redrive.ports import Position
from redrive.processing.progress import done_beyond
from redrive.record import TopicPartition
from redrive.testing import Simulation

SOURCE = TopicPartition("orders", 0)
DELAY = TopicPartition("items.retry.5m", 0)
BEHIND = TopicPartition("items.retry.behind", 0)


def strict_app():
    app = App("items", ordering="strict", retry=RetryPolicy("5m"))

    @app.handler("orders")
    def handle(record, ctx):
        raise ConnectionError

    return app


def test_the_rooms_of_a_partition_have_its_number():
    counts = {"orders": 4, "items.retry.5m": 4, "items.retry.behind": 4, "items.dead": 4, "x": 9}
    assert rooms_of(strict_app(), TopicPartition("orders", 3), counts) == [
        TopicPartition("items.retry.5m", 3),
        TopicPartition("items.retry.behind", 3),
    ]


def test_a_partition_that_was_added_is_not_read_before_its_rooms_are_there():
    counts = {"orders": 4, "items.retry.5m": 3, "items.retry.behind": 4}
    with pytest.raises(BrokerError, match="let those end, then run `redrive topics --apply`"):
        rooms_of(strict_app(), TopicPartition("orders", 3), counts)
    assert too_few(strict_app(), 4, counts) == {"items.retry.5m": 3}


def test_a_new_owner_finds_out_which_keys_wait_and_leaves_out_what_is_done():
    with Simulation(strict_app()) as sim:
        for key in ("a", "b", "a"):
            sim.send("orders", "1", key=key)
        sim.run()
        rooms = {DELAY: Position(0), BEHIND: Position(0)}
        keys = gate_of(sim.app, sim.broker, SOURCE, 3, rooms).keys
        assert (keys.behind(b"a"), keys.behind(b"b")) == (2, 1)
        done = Position(0, done_beyond.encode_offsets(0, [1]))
        keys = gate_of(sim.app, sim.broker, SOURCE, 3, {**rooms, DELAY: done}).keys
        assert (keys.behind(b"a"), keys.behind(b"b")) == (2, 0)


def test_what_is_of_another_partition_blocks_nobody_here():
    with Simulation(strict_app()) as sim:
        sim.send("orders", "1", key="a")
        sim.run()
        elsewhere = TopicPartition("orders", 1)
        sim.broker.grow("orders", 2)
        keys = gate_of(sim.app, sim.broker, elsewhere, 0, {DELAY: Position(0)}).keys
        assert not keys


def test_partitions_of_rooms_beyond_those_of_the_source_are_nobodys():
    counts = {"orders": 2, "items.retry.5m": 3, "items.retry.behind": 2, "x.retry.5m": 9}
    assert beyond_source(strict_app(), 2, counts) == [TopicPartition("items.retry.5m", 2)]
