"""Fetching: answers of servers that the console was given when it was started, bounded."""

from __future__ import annotations

from contextlib import closing
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from io import BufferedReader, RawIOBase
from socket import socket
from time import monotonic
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from redrive.errors import ConfigurationError
from redrive.tuning import CONSOLE_ENDPOINT_BYTES, CONSOLE_ENDPOINT_SECONDS

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer


def checked(option: str, address: str) -> str:
    """The address without a slash at its end; a sentence if it is none."""
    if "@" in address:
        # Not quoted: what stands before it may be a password.
        raise ConfigurationError(
            f"{option} has an @: write the address without a user and a password, which the"
            " console does not send"
        )
    if not _is_address(address):
        raise ConfigurationError(
            f"{option} {address} is not an address: write it as http://127.0.0.1:9400"
        )
    return address.rstrip("/")


def fetch(url: str, accept: str = "text/plain") -> tuple[int, str]:
    """Status and text; OSError if nobody answers in time. No proxies, and redirects are refused."""
    until = monotonic() + CONSOLE_ENDPOINT_SECONDS
    parts = urlsplit(url)
    kind = HTTPSConnection if parts.scheme == "https" else HTTPConnection
    connection = kind(parts.hostname or "", parts.port, timeout=CONSOLE_ENDPOINT_SECONDS)
    connection.response_class = _response_until(until)
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    with closing(connection):
        try:
            connection.request("GET", target, headers={"Accept": accept})
            answer = connection.getresponse()
            text = answer.read(CONSOLE_ENDPOINT_BYTES).decode(errors="replace")
        except HTTPException as error:
            raise OSError(f"it does not speak HTTP: {error!r}") from error
    if 300 <= answer.status < 400:
        # Only what the console was started with is asked, whoever points elsewhere.
        text = f"answers with a redirect ({answer.status}), which is not followed"
    return answer.status, text


class _Until(RawIOBase):
    """What a socket receives until a time: a server that trickles has no longer than another."""

    def __init__(self, sock: socket, until: float) -> None:
        self._sock = sock
        self._raw = sock.makefile("rb", buffering=0)
        self._until = until

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer, /) -> int | None:
        left = self._until - monotonic()
        if left <= 0:
            raise TimeoutError("timed out")
        self._sock.settimeout(left)
        return self._raw.readinto(buffer)

    def close(self) -> None:
        self._raw.close()
        super().close()


def _response_until(until: float) -> type[HTTPResponse]:
    class Response(HTTPResponse):
        def __init__(self, sock: socket, *given: Any, **named: Any) -> None:
            super().__init__(sock, *given, **named)
            self.fp.close()
            self.fp = BufferedReader(_Until(sock, until))

    return Response


def _is_address(address: str) -> bool:
    try:
        parts = urlsplit(address)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # a port that is none
        return False
