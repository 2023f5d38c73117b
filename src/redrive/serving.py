"""The web server for monitoring a process: `/metrics`, and its health (`/live`, `/ready`).

One for both engines and the relay. Values are read on each request, each in its own thread: a slow
answer keeps nobody else waiting.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Final

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from redrive.errors import ConfigurationError

log: Final = logging.getLogger("redrive.serving")

Health = Callable[[], str]
"""What is in the way; empty if nothing is."""
_IDLE_SECONDS: Final = 30
"""Seconds after which an idle connection is closed."""
_TEXT: Final = "text/plain; charset=utf-8"


@contextmanager
def served(
    port: int | None, collector: Collector, checks: Mapping[str, Health]
) -> Iterator[int | None]:
    """Serve during the block, on all interfaces; yields the port. 0 is any, None serves nothing.

    `checks` are the health checks by path, such as `/live`.
    """
    if port is None:
        yield None
        return
    registry = CollectorRegistry()
    registry.register(collector)
    try:
        server = ThreadingHTTPServer(("", port), _answers(registry, checks))
    except (OSError, OverflowError) as error:
        raise ConfigurationError(
            f"cannot serve metrics on port {port} ({error}): choose another --metrics-port"
        ) from None
    server.daemon_threads = True
    thread = Thread(target=server.serve_forever, name="redrive-serving", daemon=True)
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _answers(
    registry: CollectorRegistry, checks: Mapping[str, Health]
) -> type[BaseHTTPRequestHandler]:
    class Answers(BaseHTTPRequestHandler):
        timeout = _IDLE_SECONDS

        def do_GET(self) -> None:
            path = self.path.partition("?")[0]
            try:
                if path == "/metrics":
                    encode, kind = choose_encoder(self.headers.get("Accept", ""))
                    self._answer(200, encode(registry), kind)
                elif path in checks:
                    trouble = checks[path]()
                    self._answer(503 if trouble else 200, _line(trouble or "ok"))
                else:
                    self._answer(
                        404, _line(f"not found; this server has {' '.join(['/metrics', *checks])}")
                    )
            except ConnectionError:
                pass  # the client did not wait for the answer
            except Exception as error:
                # A process whose check fails is not healthy.
                log.exception("cannot answer %s", path)
                self._answer(503 if path in checks else 500, _line(f"failed: {error!r}"))

        def _answer(self, code: int, body: bytes, kind: str = _TEXT) -> None:
            self.send_response(code)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Nobody wants a line per request."""

    return Answers


def _line(text: str) -> bytes:
    return f"{text}\n".encode(errors="backslashreplace")
