"""A worker that is killed in the middle of parallel work: what it costs."""

from __future__ import annotations

from typing import NamedTuple

from guarantees import repeated
from processing import Processing

from redrive.record import Write

SLOW = """
    import random

    app = App(NAME, concurrency=100)

    @app.handler(topic("in"))
    def handle(record, ctx):
        told = {"partition": record.partition, "offset": record.offset}
        note(what="start", pid=os.getpid(), **told)
        chance = random.Random(f"{record.partition}/{record.offset}")
        time.sleep(2 if chance.random() < 0.01 else chance.uniform(0, 0.02))
        note(what="end", pid=os.getpid(), **told)
"""
KEYS = 1000


class Crash(NamedTuple):
    """What one kill cost."""

    lost: int
    repeated: int
    works_again: float
    """Seconds from the start of the next process to its first handler."""


def send(suite: Processing, count: int) -> None:
    suite.sent = count
    suite.world.publisher.publish(
        [
            Write(suite.world.topic("in"), b"%d" % (number * 7919 % KEYS), b"%d" % number)
            for number in range(count)
        ]
    )


def crash(suite: Processing, count: int) -> Crash:
    """Send, kill at half, start again, and let it end."""
    send(suite, count)
    first = suite.start()
    suite.wait_for(count // 2, first)
    first.kill()
    killed = {note["pid"] for note in suite.world.notes()}
    second = suite.start()
    suite.wait_for_all()
    second.stop()
    notes = suite.world.notes()
    ended = {(n["partition"], n["offset"]) for n in notes if n["what"] == "end"}
    works = min(n["at"] for n in notes if n["what"] == "start" and n["pid"] not in killed)
    return Crash(count - len(ended), len(repeated(notes)), works / 1000 - second.started)
