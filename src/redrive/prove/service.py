"""A real HTTP service for the POST; it counts the requests."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock, Thread


class Service:
    """Counts POSTs by their body; honouring keys, the same key counts once."""

    def __init__(self, *, honours_keys: bool) -> None:
        self._honours_keys = honours_keys
        self._keys: set[str] = set()
        self._lock = Lock()
        self.posts: Counter[str] = Counter()
        self.address = ""

    def charge(self, body: str, key: str) -> None:
        """Count a POST."""
        with self._lock:
            if self._honours_keys and key in self._keys:
                return
            self._keys.add(key)
            self.posts[body] += 1


@contextmanager
def service(*, honours_keys: bool = False) -> Iterator[Service]:
    """Run it during the block, on a free port of this machine."""
    running = Service(honours_keys=honours_keys)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"])).decode()
            running.charge(body, self.headers["Idempotency-Key"])
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Nobody wants a line per request."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    running.address = f"http://127.0.0.1:{server.server_port}/"
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield running
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
