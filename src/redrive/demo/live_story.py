"""What happens in the live shop: healthy records all the time, and a few that come too early."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Final

from redrive.record import Write

EARLY: Final = 10
"""Updates that come before their creates."""
SECONDS: Final = 14
"""How long healthy records are sent."""
PER_SECOND: Final = 60
_CREATED_AT: Final = 5
"""Seconds after which the early ones' creates come."""
_UPDATED_AFTER: Final = 6
"""Seconds after its create at which a healthy item is updated."""
GHOST: Final = "ghost"
BROKEN: Final = "desk"


def _create(item: str) -> Write:
    return Write("item.create", item.encode(), json.dumps({"id": item}).encode())


def _update(item: str) -> Write:
    value = json.dumps({"id": item, "status": "SOLD"}).encode()
    return Write("item.update", item.encode(), value)


def _healthy(second: int) -> list[str]:
    return [f"item-{second * PER_SECOND + number}" for number in range(PER_SECOND)]


def _early() -> list[str]:
    return [f"lamp-{number}" for number in range(EARLY)]


FIRST: Final = [_create(f"item-first-{number}") for number in range(12)]
"""Sent before the story begins: workers start with them, and are warm for the others."""


def second(number: int) -> Iterator[Write]:
    """What is sent in that second of the story."""
    if number == 0:
        yield from (_update(item) for item in _early())
        yield _update(GHOST)
        yield Write("item.update", BROKEN.encode(), b'{"id": "desk", "stat')
    if number == _CREATED_AT:
        yield from (_create(item) for item in _early())
    yield from (_create(item) for item in _healthy(number))
    if number >= _UPDATED_AFTER:
        yield from (_update(item) for item in _healthy(number - _UPDATED_AFTER))
