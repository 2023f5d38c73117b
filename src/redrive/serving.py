"""The web server for those who watch a process: `/metrics`, and how it is (`/live`, `/ready`).

One for both engines and the relay. What they are asked is read when it is asked for, in a thread of
its own for each question: a slow answer keeps nobody else waiting.
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
"""What is in the way; empty when nothing is."""
_IDLE_SECONDS: Final = 30
"""After which a connection is closed that asks nothing."""
_TEXT: Final = "text/plain; charset=utf-8"


@contextmanager
def served(
    port: int | None, collector: Collector, checks: Mapping[str, Health]
) -> Iterator[int | None]:
    """Serve within the block, on all interfaces; yields the port. 0 is any, None serves nothing.

    `checks` are how health is asked for: by path, such as `/live`.
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
            f"figures cannot be served on port {port} ({error}): choose another --metrics-port"
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
                    self._answer(404, _line(f"here are {' '.join(['/metrics', *checks])}"))
            except ConnectionError:
                pass  # whoever asked did not wait for the answer
            except Exception as error:
                # Whoever cannot be asked how it is, is not well.
                log.exception("%s cannot be answered", path)
                self._answer(503 if path in checks else 500, _line(f"cannot be told: {error!r}"))

        def _answer(self, code: int, body: bytes, kind: str = _TEXT) -> None:
            self.send_response(code)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Nobody wants a line per question."""

    return Answers


def _line(text: str) -> bytes:
    return f"{text}\n".encode(errors="backslashreplace")
