"""Manual acknowledgements on a worker."""

from __future__ import annotations

import random

from redrive.record import Write

COUNT = 12_000


def test_of_a_key_one_record_is_under_way_whenever_acknowledgements_come(world, start):
    """They come from other threads, about when the handlers return."""
    target = world.app(
        """
        import random, threading
        from concurrent.futures import ThreadPoolExecutor

        app = App(NAME, ordering="key", concurrency=64)
        beside = ThreadPoolExecutor(64)
        under_way, lock = set(), threading.Lock()

        @app.handler(topic("in"), ack="manual")
        def handle(record, ctx):
            with lock:
                if record.key in under_way:
                    note(overtaken=record.key.decode(), offset=record.offset)
                under_way.add(record.key)
            beside.submit(acknowledge, record, ctx)
            time.sleep(0.002)
            sum(range(3_000))

        def acknowledge(record, ctx):
            time.sleep(random.uniform(0.0018, 0.0028))
            with lock:
                under_way.discard(record.key)
            ctx.ack()
        """,
        partitions=1,
    )
    topic = world.topic("in")
    chosen = random.Random(1)
    world.publisher.publish(
        [Write(topic, b"%d" % chosen.randrange(200), b"") for _ in range(COUNT)]
    )
    run = start(target)
    world.wait(run, "all", lambda: world.lag("in") == 0)
    run.stop()
    assert world.notes() == []
