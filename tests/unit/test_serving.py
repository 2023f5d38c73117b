"""The web server: figures and health, of whichever process; nothing unless a port is given."""

from __future__ import annotations

import socket
import urllib.error
import urllib.request

import pytest
from prometheus_client.core import GaugeMetricFamily

from redrive import ConfigurationError
from redrive.serving import served


class Figures:
    def collect(self):
        found = GaugeMetricFamily("redrive_something", "A figure.")
        found.add_metric([], 7)
        yield found


class Broken:
    def describe(self):
        return ()

    def collect(self):
        raise ValueError("no figures")


def ask(port, path, **headers):
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", headers=headers)
    try:
        with urllib.request.urlopen(request) as answer:  # noqa: S310 -- our own server, by http
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def test_figures_and_health_have_their_paths_and_nothing_else_has():
    trouble = ["", "Kafka is away"]
    checks = {"/live": lambda: "", "/ready": trouble.pop}
    with served(0, Figures(), checks) as port:
        assert "redrive_something 7.0" in ask(port, "/metrics")[1]
        assert ask(port, "/metrics?name[]=redrive_something")[0] == 200
        assert ask(port, "/live") == (200, "ok\n")
        assert ask(port, "/ready") == (503, "Kafka is away\n")
        assert ask(port, "/ready") == (200, "ok\n")
        for path in ("/", "/health", "/metrics/", "/live/x"):
            assert ask(port, path) == (404, "not found; this server has /metrics /live /ready\n")


def test_figures_come_in_the_format_that_is_asked_for():
    with served(0, Figures(), {}) as port:
        code, body = ask(port, "/metrics", Accept="application/openmetrics-text; version=1.0.0")
        assert code == 200
        assert body.endswith("# EOF\n")


def test_what_cannot_be_asked_is_not_well(caplog):
    def broken():
        raise ValueError("nobody is there")

    with served(0, Broken(), {"/live": broken}) as port:
        assert ask(port, "/live") == (503, "failed: ValueError('nobody is there')\n")
        assert ask(port, "/metrics")[0] == 500
    assert "cannot answer /live" in caplog.text


def test_nothing_is_served_after_the_block_or_without_a_port():
    with served(0, Figures(), {}) as port:
        assert ask(port, "/metrics")[0] == 200
    with pytest.raises(ConnectionRefusedError), socket.create_connection(("127.0.0.1", port)):
        pass
    with served(None, Figures(), {}) as none:
        assert none is None


def test_a_port_that_is_taken_is_one_sentence():
    with (
        served(0, Figures(), {}) as port,
        pytest.raises(ConfigurationError, match=f"port {port}.*--metrics-port"),
        served(port, Figures(), {}),
    ):
        pass
