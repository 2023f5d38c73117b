"""A small web server for those who watch a process: `/metrics`, and how it is (`/health`)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.registry import Collector

from redrive.errors import ConfigurationError

Health = Callable[[], str]
"""What is in the way; empty when all is well."""


@contextmanager
def served(
    port: int | None, collector: Collector, health: Health | Mapping[str, Health]
) -> Iterator[int | None]:
    """Serve within the block; port 0 is any, without a port nothing is served.

    Health may be asked in several ways, each with its path.
    """
    checks = health if isinstance(health, Mapping) else {"/health": health}
    if port is None:
        yield None
        return
    registry = CollectorRegistry()
    registry.register(collector)
    try:
        server = ThreadingHTTPServer(("", port), _answers(registry, checks))
    except (OSError, OverflowError) as error:
        raise ConfigurationError(
            f"figures cannot be served on port {port} ({error}): give another --metrics-port"
        ) from None
    server.daemon_threads = True
    thread = Thread(target=server.serve_forever, name="serving", daemon=True)
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
        def do_GET(self) -> None:
            path = self.path.partition("?")[0]
            if path == "/metrics":
                self._answer(200, generate_latest(registry), CONTENT_TYPE_LATEST)
            elif path in checks:
                trouble = checks[path]()
                self._answer(503 if trouble else 200, f"{trouble or 'ok'}\n".encode())
            else:
                self._answer(404, f"{' '.join(['/metrics', *checks])}\n".encode())

        def _answer(self, code: int, body: bytes, kind: str = "text/plain; charset=utf-8") -> None:
            self.send_response(code)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Nobody wants a line per question."""

    return Answers
