"""Manual acknowledgements on a worker."""

from __future__ import annotations

import threading

from redrive.record import Write

COUNT = 300


class LosesTheProcessor:
    """Counts how long handlers take, in threads that get no further for a while after that."""

    def __init__(self, times):
        self._times = times

    def add(self, seconds, count=1):
        self._times.add(seconds, count)

    def add_all(self, seconds):
        self._times.add_all(seconds)
        threading.Event().wait(0.01)


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
    run.worker._scope.times = LosesTheProcessor(run.worker._scope.times)
    topic = world.topic("in")
    world.publisher.publish([Write(topic, b"%d" % (n % 10), b"") for n in range(COUNT)])
    world.wait(run, "all", lambda: world.lag("in") == 0)
    run.stop()
    assert [note["overlaps"] for note in world.notes()] == [False] * COUNT
