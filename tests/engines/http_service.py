"""An HTTP service that handlers depend on, and that goes away in all the ways there are."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Literal

Mode = Literal["well", "hanging", "unavailable"]
_WARM = 1000


class HttpService:
    """Listens on one port of this machine, as long as it is there.

    It is cold when it comes back: it can take one call more at a time than it has answered since.
    Whoever calls it more often at once makes it fall over.
    """

    def __init__(self) -> None:
        self.mode: Mode = "well"
        self.calls = 0
        """How many it was sent."""
        self.fallen = 0
        """How often it has fallen over."""
        self._answered = _WARM
        self._running = 0
        self._lock = threading.Lock()
        self._released = threading.Event()
        self._server: ThreadingHTTPServer | None = None
        self.port = 0
        self._listen("well")

    def go_away(self) -> None:
        """Refuse connections from now on."""
        server, self._server = self._server, None
        if server is not None:
            server.shutdown()
            server.server_close()
        self._released.set()

    def come_back(self, mode: Mode = "well") -> None:
        """Listen again, cold; what it does with calls is said by the mode."""
        self._answered = 0
        self._listen(mode)

    def _listen(self, mode: Mode) -> None:
        self.go_away()
        self.mode = mode
        self._released.clear()
        service = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                self.send_response(service.answer())
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                pass

        self._server = _Server(("127.0.0.1", self.port), Handler)
        self.port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()

    def answer(self) -> int:
        with self._lock:
            self.calls += 1
            self._running += 1
            mode, running = self.mode, self._running
            too_many = mode == "well" and running > 1 + self._answered
            self.fallen += too_many
        if mode == "hanging":
            self._released.wait(60)
        elif mode == "well":
            threading.Event().wait(0.002)  # a call takes a moment
        with self._lock:
            self._running -= 1
            self._answered += mode == "well" and not too_many
        return 200 if mode == "well" and not too_many else 503


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 128

    def handle_error(self, *_: Any) -> None:
        """Callers that time out hang up."""


CALLING = """
    import http.client

    from redrive import Guard

    app = App(NAME, concurrency=16, guard=Guard(), retry=RetryPolicy("1s 1s"), {options})

    def ask(record):
        if record.value.startswith(b"poison"):
            raise ConnectionError("the service does not like it")
        connection = http.client.HTTPConnection("127.0.0.1", {port}, timeout={timeout})
        try:
            connection.request("POST", "/", record.value)
            if connection.getresponse().status == 503:
                raise ConnectionError("the service is unavailable")
        finally:
            connection.close()

    @app.handler(topic("in"))
    def handle(record, ctx):
        if ctx.attempt > 1:
            note(again=record.value.decode())
        ask(record)
        ctx.send(topic("out"), record.value)
"""
"""An app whose handler calls it."""
