"""A console in a process of its own, and what asks it."""

from __future__ import annotations

import http.client
import os
import re
import signal
import socket
import subprocess
import sys
from urllib.parse import urlencode

from redrive.console.fetching import fetch
from redrive.local.waiting import wait_until

SHOTS = os.environ.get("REDRIVE_SCREENSHOTS")
"""A folder: `make screenshots` keeps there what the pages look like, of an app called shop."""
CHANGE, READ = "change-token-of-the-test", "read-token-of-the-test"
_LINK = re.compile(r"http://[0-9.]+:(\d+)/login")


class Served:
    """`redrive console` on a real Kafka."""

    def __init__(self, shop, *arguments, tokens=True):
        """Without `tokens` it makes up its own."""
        self.shop = shop
        own = {"REDRIVE_CONSOLE_TOKEN": CHANGE, "REDRIVE_CONSOLE_READ_TOKEN": READ}
        environ = {**os.environ, **(own if tokens else {}), "PYTHONUNBUFFERED": "1"}
        self.log = (shop.folder / "console.log").open("w+")
        command = [sys.executable, "-m", "redrive", "console", *(arguments or (shop.target,))]
        self.process = subprocess.Popen(
            [*command, "--bootstrap", shop.bootstrap, "--port", "0"],
            cwd=shop.folder,
            env=environ,
            stdout=self.log,
            stderr=subprocess.STDOUT,
        )
        assert wait_until(lambda: self._port() or self.process.poll() is not None, 120)
        port = self._port()
        assert port is not None, self.said()
        self.port = port
        self.address = f"http://127.0.0.1:{port}"

    def said(self):
        self.log.flush()
        self.log.seek(0)
        return self.log.read()

    def _port(self):
        found = _LINK.search(self.said())
        return int(found[1]) if found else None

    def ask(
        self, path, *, token=CHANGE, method="GET", fields=None, headers=None, body=None, client=None
    ):
        """One request, as a program makes it, from an address; gives status, headers and text."""
        given = {} if token is None else {"Authorization": f"Bearer {token}"}
        if fields is not None:
            method, body = "POST", urlencode(fields, doseq=True)
        source = None if client is None else (client, 0)
        connection = http.client.HTTPConnection(
            "127.0.0.1", self.port, timeout=60, source_address=source
        )
        try:
            connection.request(method, path, body, {**given, **(headers or {})})
            answer = connection.getresponse()
            return answer.status, dict(answer.getheaders()), answer.read().decode()
        finally:
            connection.close()

    def counted(self, letters):
        """Wait until the page has counted so many letters."""
        words = f"{letters:,} of {letters:,} letters counted"
        there = wait_until(lambda: words in self.ask(self.path("/dead"))[2], 60)
        assert there, self.ask(self.path("/dead"))[2]

    def path(self, rest=""):
        return f"/apps/{self.shop.name}{rest}"

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(60)

    def stop(self):
        if self.process.poll() is None:
            self.process.terminate()
            self.process.wait(60)
        self.log.close()


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as there:
        return there.getsockname()[1]


class Run:
    """A run or a relay that serves its metrics, until the test is over."""

    def __init__(self, shop, *command):
        port = free_port()
        self.address = f"http://127.0.0.1:{port}"
        self.process = shop.start(*command, "--metrics-port", str(port))

    def ready(self):
        """What it answers, if it does: is it ready, and in which words."""
        try:
            code, text = fetch(f"{self.address}/ready")
        except OSError:
            return False, ""
        return code == 200, text.strip()

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.communicate(timeout=120)
