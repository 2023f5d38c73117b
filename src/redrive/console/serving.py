"""Serving: the console on a port, until it is stopped."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from socket import socket
from typing import Any, Final

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from redrive.console.access import Proxy
from redrive.console.asking import Console
from redrive.console.refusals import Refusals
from redrive.console.server import server
from redrive.errors import ConfigurationError
from redrive.tuning import CONSOLE_BODY_SECONDS, CONSOLE_CONNECTIONS, CONSOLE_CONNECTIONS_EACH

_HEADER_BYTES: Final = 32_768
_STOP_SECONDS: Final = 5


class Patient(H11Protocol):
    """HTTP/1.1; a connection that does not say what it wants in time is closed."""

    proxy: Proxy | None = None
    """Asks for many, so it may have as many connections as there are."""
    refusals: Refusals = Refusals()
    """Where it is noted who was closed."""
    _patience: asyncio.TimerHandle | None = None
    _begun = False
    """Whether part of a request came: browsers open connections in advance, and say nothing."""

    def connection_made(self, transport: Any) -> None:
        """Begin to wait for the first request, unless the address has enough connections."""
        super().connection_made(transport)
        if self._has_enough():
            self.refusals.closed(self._address(), "too many connections from this address")
            self.transport.close()
        else:
            self._wait_for_request()

    def data_received(self, data: bytes) -> None:
        """Note that a request has begun."""
        self._begun = True
        super().data_received(data)

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait no longer."""
        super().connection_lost(exc)
        if self._patience is not None:
            self._patience.cancel()

    def on_response_complete(self) -> None:
        """Begin to wait for the next request: however it trickles in, it has no longer."""
        self._begun = False
        super().on_response_complete()
        self._wait_for_request()

    def _wait_for_request(self) -> None:
        if self._patience is not None:
            self._patience.cancel()
        self._patience = self.loop.call_later(CONSOLE_BODY_SECONDS, self._close_if_silent)

    def _close_if_silent(self) -> None:
        is_silent = self.cycle is None or self.cycle.response_complete
        if is_silent and not self.transport.is_closing():
            if self._begun:
                self.refusals.closed(self._address(), "a request did not arrive in time")
            self.transport.close()

    def _has_enough(self) -> bool:
        address = self._address()
        if self.proxy is not None and self.proxy.vouches(address):
            return False
        same = sum(each.client is not None and each.client[0] == address for each in self._others())
        return same >= CONSOLE_CONNECTIONS_EACH

    def _address(self) -> str:
        return self.client[0] if self.client else ""

    def _others(self) -> Iterator[H11Protocol]:
        return (
            each for each in self.connections if each is not self and isinstance(each, H11Protocol)
        )


class ConsoleServer(uvicorn.Server):
    """Says on which port it listens, once it does."""

    _say: Callable[[int], None] = staticmethod(lambda _port: None)

    async def serve_and_say(self, say: Callable[[int], None]) -> None:
        """Serve until a signal comes."""
        self._say = say
        await self.serve()

    async def startup(self, sockets: list[socket] | None = None) -> None:
        """Begin to listen."""
        await super().startup(sockets)
        if self.started:
            self._say(self.servers[0].sockets[0].getsockname()[1])


def serve(console: Console, host: str = "127.0.0.1", port: int = 8484, **options: Any) -> None:
    """Serve until a signal comes."""
    asyncio.run(prepared(console, host, port, **options).serve())


def prepared(console: Console, host: str, port: int, **options: Any) -> ConsoleServer:
    """The server, not started yet."""
    if not 0 <= port <= 65_535:
        raise ConfigurationError(f"--port {port} is not a port")
    return ConsoleServer(
        uvicorn.Config(
            server(console),
            host=host,
            port=port,
            http=type(
                "Patient",
                (Patient,),
                {"proxy": console.access.proxy, "refusals": console.refusals},
            ),
            ws="none",
            log_level="warning",
            access_log=False,
            server_header=False,
            proxy_headers=False,  # who asks is decided by Access, and by nobody before it
            limit_concurrency=CONSOLE_CONNECTIONS,
            h11_max_incomplete_event_size=_HEADER_BYTES,
            timeout_keep_alive=5,
            timeout_graceful_shutdown=_STOP_SECONDS,
            **options,
        )
    )
