"""Limits: what every request has to keep to, before anything looks at it. ASGI.

Its name, its size, how long it takes to arrive, and how many come from one visitor; and what every
answer says to the browser.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from time import monotonic
from typing import Final

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from redrive.console.access import Access
from redrive.console.forms import DIGITS
from redrive.console.refusals import Refusals
from redrive.tuning import (
    CONSOLE_BODY,
    CONSOLE_BODY_SECONDS,
    CONSOLE_BURST,
    CONSOLE_REQUESTS,
)

ANSWERS: Final = {
    # Nothing from elsewhere, no script and no style within a page, no frame around it.
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:;"
        " connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "same-origin",  # without one, browsers would hide where forms come from
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
    "cache-control": "no-store",
}
_ADDRESSES: Final = 10_000


class TooLargeError(Exception):
    """A request that is larger than it may be."""


class Buckets:
    """How many requests each visitor may still make: so many per second, some at once."""

    def __init__(self, timer: Callable[[], float] = monotonic) -> None:
        self._timer = timer
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, address: str) -> bool:
        """Whether one more is allowed."""
        now = self._timer()
        left, at = self._left.pop(address, (float(CONSOLE_BURST), now))
        left = min(CONSOLE_BURST, left + (now - at) * CONSOLE_REQUESTS)
        allowed = left >= 1
        self._left[address] = (left - 1 if allowed else left, now)
        if len(self._left) > _ADDRESSES:
            self._left.popitem(last=False)
        return allowed


class Limits:
    """Refuses what does not keep to the limits, and adds what every answer has."""

    def __init__(self, app: ASGIApp, access: Access, refusals: Refusals) -> None:
        self._app = app
        self._access = access
        self._refusals = refusals
        self._buckets = Buckets()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self._app(scope, receive, send)
            return
        started = False

        async def sending(message: Message) -> None:
            nonlocal started
            started = started or message["type"] == "http.response.start"
            self._note(scope, message)
            await send(_with_headers(message))

        code, why = self._refusal(scope)
        if not why:
            try:
                await self._app(scope, _bounded(receive), sending)
            except TooLargeError:
                code, why = 413, f"the request is larger than {CONSOLE_BODY:,} bytes"
            except TimeoutError:
                code, why = 408, "the request did not arrive in time"
        if why:
            self._refusals.add(scope, code, why)
            if not started:
                await PlainTextResponse(why + "\n", code)(scope, receive, sending)

    def _note(self, scope: Scope, message: Message) -> None:
        """Whoever refuses says why; where nobody has, it is on the audit page by its number."""
        if message["type"] == "http.response.start" and message["status"] >= 400:
            self._refusals.add_unless_noted(scope, message["status"])

    def _refusal(self, scope: Scope) -> tuple[int, str]:
        headers = Headers(scope=scope)
        client = scope.get("client")
        address = client[0] if client else ""
        if not self._buckets.take(self._access.asks(headers, address)):
            return 429, "too many requests: wait a moment"
        proxy = self._access.proxy
        if proxy and proxy.vouches(address) and len(headers.getlist(proxy.header)) > 1:
            return 400, f"more than one header {proxy.header}: the proxy must replace it"
        if not self._access.is_named(headers.get("host", "")):
            return 421, "the console is not known under that name: --allow-host adds one"
        size = headers.get("content-length", "0")
        if not size.isdecimal() or len(size) > DIGITS or int(size) > CONSOLE_BODY:
            return 413, f"the request is larger than {CONSOLE_BODY:,} bytes"
        return 0, ""


def _with_headers(message: Message) -> Message:
    """The message, with what every answer has."""
    if message["type"] == "http.response.start":
        headers = MutableHeaders(scope=message)
        for name, value in ANSWERS.items():
            headers.setdefault(name, value)
    return message


def _bounded(receive: Receive) -> Receive:
    """The same request; its body is cut off when it is too large, or too slow."""
    size, until, whole = 0, monotonic() + CONSOLE_BODY_SECONDS, False

    async def receiving() -> Message:
        nonlocal size, whole
        if whole:  # what is left to hear is that the visitor has gone
            return await receive()
        message = await asyncio.wait_for(receive(), max(0.01, until - monotonic()))
        size += len(message.get("body", b""))
        if size > CONSOLE_BODY:
            raise TooLargeError
        whole = not message.get("more_body", False)
        return message

    return receiving
