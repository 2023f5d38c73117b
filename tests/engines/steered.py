"""An app whose records fail once, for one of two causes; and what operators say about them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

from running import World

from redrive.dead import Steering, open_steering
from redrive.envelope import Envelope, parse
from redrive.record import Write

COUNT = 200
APP = """
    from redrive.ids import header

    class Price(Exception): pass
    class Stock(Exception): pass

    app = App(NAME, delivery="{delivery}")
    policy = RetryPolicy("{delays}", extra_delays="{extra}")

    @app.handler(topic("in"), retry=policy, id=header("id"))
    def handle(record, ctx):
        note(id=ctx.envelope.id, attempt=ctx.attempt, due=ctx.envelope.due)
        if ctx.attempt == 1:
            raise (Price if record.value == b"price" else Stock)(ctx.envelope.id)
"""

SLOWLY = (
    APP.format(delays="10m", extra="1m", delivery="transaction")
    + """
        time.sleep(0.05)
        ctx.send(topic("out"), ctx.envelope.id)
"""
)
"""The same in Kafka transactions, with what is done as messages."""


def records(world: World, start: int, end: int) -> None:
    """Write records, each with its own key and id: the even ones fail for their price."""
    world.publisher.publish([
        Write(
            world.topic("in"),
            b"%d" % number,
            b"stock" if number % 2 else b"price",
            (("id", b"%d" % number),),
        )
        for number in range(start, end)
    ])  # fmt: skip


def steering(world: World, target: str) -> Steering:
    """Who says something about parked records."""
    return open_steering(world.loaded(target), world.settings, "the night shift")


def waiting(world: World, delay: str) -> list[Envelope]:
    """All that ever waited in a delay topic."""
    return [parse(record.headers) for record in world.records(f"retry.{delay}")]


def group_of(world: World, delay: str, error: str) -> str:
    """The cause by the class of its error."""
    (group,) = {
        each.error_group or ""
        for each in waiting(world, delay)
        if (each.error_type or "").endswith(error)
    }
    return group


def parked_by_cause(operator: Steering) -> Counter[str]:
    """How many wait now, by the class of their error."""
    found: Counter[str] = Counter()
    for each in operator.parked():
        for (_, error), count in each.groups.items():
            found[error.rpartition(".")[2]] += count
    return found


def of(notes: Iterable[dict[str, Any]], *, attempt: int) -> list[dict[str, Any]]:
    """The calls of one attempt."""
    return [note for note in notes if note["attempt"] == attempt]
