"""Threads that end while the worker runs: contained, or the worker ends with the cause."""

from __future__ import annotations

import pytest

from redrive.delivery.flush import FlushDelivery
from redrive.delivery.transaction_buffer import TransactionBuffer
from redrive.engines.worker.commits import Commits
from redrive.engines.worker.fate import WorkerError
from redrive.engines.worker.lag import LagMonitor
from redrive.engines.worker.start_offsets import StartOffsets
from redrive.processing.processor import PartitionProcessor

COPY = """
    app = App(NAME, concurrency=2, {choices})

    @app.handler(topic("in"))
    def handle(record, ctx):
        ctx.send(topic("out"), record.value)
        note(value=record.value.decode())
"""
EXITS = """
    import asyncio, sys

    app = App(NAME, concurrency=4)

    async def child(value):
        if value == b"bad":
            sys.exit(3)

    @app.handler(topic("in"))
    async def handle(record, ctx):
        await asyncio.gather(child(record.value))
        note(value=record.value.decode())
"""


def test_an_exit_in_a_task_of_a_handler_is_its_records_alone(world, start):
    target = world.app(EXITS, partitions=1)
    world.send("in", b"0", b"bad", b"2", b"3")
    run = start(target)
    world.wait(run, "all of them", lambda: world.lag("in") == 0)
    world.send("in", b"4")
    world.wait(run, "one more", lambda: world.lag("in") == 0)
    assert not run.worker.not_live()
    assert sorted(note["value"] for note in world.notes()) == ["0", "2", "3", "4"]
    assert [dead.value for dead in world.records("dead")] == [b"bad"]


BROKEN = {
    "handlers": (PartitionProcessor, "end"),
    "delivery": (FlushDelivery, "pump"),
    "transactions": (TransactionBuffer, "cut"),
    "looking": (LagMonitor, "look"),
    "assignment": (StartOffsets, "find"),
    "commits": (Commits, "on_commit"),
}


@pytest.mark.parametrize("where", list(BROKEN))
def test_a_mistake_of_ours_in_any_thread_ends_the_worker_with_its_cause(
    world, start, monkeypatch, where
):
    def mistaken(*_, **__):
        raise IndexError("a mistake of ours")

    delivery = "transaction" if where == "transactions" else "at-least-once"
    target = world.app(COPY.format(choices=f"delivery={delivery!r}"), partitions=1)
    world.create(world.topic("out"), 1)
    monkeypatch.setattr(*BROKEN[where], mistaken)
    until = "once" if where == "looking" else "stopped"
    run = start(target, revoke_wait=0, drain=0, until=until)
    world.send("in", b"0", b"1", b"2")
    with pytest.raises(WorkerError, match="a mistake of ours"):
        run.worker.await_termination(60)
    assert "it has ended" in run.worker.not_live()
