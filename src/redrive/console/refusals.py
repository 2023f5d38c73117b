"""Refusals: requests that were refused, for the audit page and the log. Bounded."""

from __future__ import annotations

import logging
from collections import deque
from http import HTTPStatus
from time import time
from typing import Any, Final, NamedTuple

from redrive.dead.showing import printable
from redrive.tuning import CONSOLE_REFUSALS

log: Final = logging.getLogger("redrive.console")
_PATH: Final = 200
_WHY: Final = 300
_TOGETHER: Final = 10_000
"""Milliseconds in which connections that are closed are one and the same trouble."""
_CONNECTION: Final = "a connection"
_NOTED: Final = "redrive.refused"


class Refusal(NamedTuple):
    """One refused request. Not what was sent with it: that may be anything, a password included."""

    at: int
    """When, in milliseconds since 1970."""
    address: str
    request: str
    """Its method and path, without what follows a question mark."""
    code: int
    """Of the answer; 0: there was none."""
    why: str


class Refusals:
    """The last refused requests."""

    def __init__(self) -> None:
        self._last: deque[Refusal] = deque(maxlen=CONSOLE_REFUSALS)

    def add(self, scope: Any, code: int, why: str) -> None:
        """Note one, by the scope of its request."""
        scope[_NOTED] = True
        client = scope.get("client")
        path = printable(f"{scope['method'][:10]} {scope['path'][:_PATH]}")
        found = Refusal(
            int(time() * 1000), client[0] if client else "-", path, code, printable(why[:_WHY])
        )
        self._last.append(found)
        log.warning("refused %s from %s: %s", found.request, found.address, found.why)

    def add_unless_noted(self, scope: Any, code: int) -> None:
        """Note one of which only the answer is known, unless whoever refused it has noted it."""
        if not scope.get(_NOTED):
            self.add(scope, code, HTTPStatus(code).phrase.lower())

    def closed(self, address: str, why: str) -> None:
        """Note a connection that was closed; many of one address, for the same reason, once."""
        at = int(time() * 1000)
        before = next((each for each in reversed(self._last) if each.address == address), None)
        if before is not None and before.why == why and at - before.at < _TOGETHER:
            return
        self._last.append(Refusal(at, address, _CONNECTION, 0, why))
        log.warning("closed a connection from %s: %s", address, why)

    def newest_first(self) -> list[Refusal]:
        """All that are remembered."""
        return [*reversed(self._last)]
