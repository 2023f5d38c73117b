"""Manual acknowledgements on a worker."""

from __future__ import annotations

import threading

import pytest

from redrive.engines.worker.counting import Times
from redrive.record import Write

COUNT = 300


@pytest.fixture
def loses_the_processor(monkeypatch):
    """Threads get no further for a while after they have counted how long handlers took."""
    add_all = Times.add_all

    def add_and_wait(times, seconds):
        add_all(times, seconds)
        threading.Event().wait(0.01)

    monkeypatch.setattr(Times, "add_all", add_and_wait)


@pytest.mark.usefixtures("loses_the_processor")
def test_of_a_key_one_record_is_under_way_whenever_acknowledgements_come(world, start):
    """Here they come after a handler has returned, and before its thread has said so."""
    target = world.app(
        """
        import threading
        from concurrent.futures import ThreadPoolExecutor

        app = App(NAME, ordering="key", concurrency=8)
        beside = ThreadPoolExecutor(8)
        under_way, lock = set(), threading.Lock()

        @app.handler(topic("in"), ack="manual")
        def handle(record, ctx):
            with lock:
                note(overlaps=record.key in under_way)
                under_way.add(record.key)
            time.sleep(0.002)
            beside.submit(acknowledge, record, ctx)

        def acknowledge(record, ctx):
            time.sleep(0.005)
            with lock:
                under_way.discard(record.key)
            ctx.ack()
        """,
        partitions=1,
    )
    run = start(target)
    topic = world.topic("in")
    world.publisher.publish([Write(topic, b"%d" % (n % 10), b"") for n in range(COUNT)])
    world.wait(run, "all", lambda: world.lag("in") == 0)
    run.stop()
    assert [note["overlaps"] for note in world.notes()] == [False] * COUNT
