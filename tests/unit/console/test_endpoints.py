"""What the console hears from runs and from Prometheus, and what it makes of odd answers."""

from __future__ import annotations

import json
import socket
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Thread
from time import monotonic

import pytest

from redrive import App
from redrive.config import Settings
from redrive.console import endpoints as endpoints_module
from redrive.console import fetching, open_console
from redrive.console.endpoints import Endpoints, Health, Seen
from redrive.console.fetching import checked, fetch
from redrive.console.prometheus import QUERIES, past
from redrive.console.watched import Watched
from redrive.errors import ConfigurationError
from redrive.kafka.errors import BrokerError
from redrive.kafka.log import KafkaLog

METRICS = """\
# TYPE redrive_refused_writes gauge
redrive_refused_writes{app="shop"} 2.0
# TYPE redrive_trouble gauge
redrive_trouble{app="shop",lane="main"} 0.0
# TYPE redrive_in_flight_records gauge
redrive_in_flight_records{app="shop",lane="main"} 3.0
redrive_in_flight_records{app="shop",lane="retry"} 4.0
# TYPE redrive_lateness_seconds histogram
redrive_lateness_seconds_bucket{app="shop",le="0.01"} %d
redrive_lateness_seconds_bucket{app="shop",le="1.0"} 10
redrive_lateness_seconds_bucket{app="shop",le="+Inf"} 10
redrive_lateness_seconds_count{app="shop"} 10
redrive_lateness_seconds_sum{app="shop"} 1
"""

WEB = "http://"


@pytest.fixture
def run():
    """A run that serves what it is told."""
    answers = {"/live": (200, "ok"), "/ready": (200, "ok"), "/metrics": (200, METRICS % 9)}

    class Answers(BaseHTTPRequestHandler):
        def do_GET(self):
            code, text = answers[self.path]
            self.send_response(code)
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}", answers
    server.shutdown()
    server.server_close()


def test_a_run_says_how_it_is_and_what_it_counts(run):
    address, _ = run
    [seen] = Endpoints([address + "/"]).look()
    assert (seen.live.good, seen.ready.good, seen.address) == (True, True, address)
    assert seen.figures == {
        "redrive_refused_writes": 2.0,
        "redrive_trouble": 0.0,
        "redrive_in_flight_records": 7.0,
    }
    assert (seen.runs("shop"), seen.runs("billing")) == (True, False)
    assert (seen.lateness_p50, seen.lateness_p99) == (0.01, 1.0)


def test_a_figure_without_samples_is_known_to_be_nothing(run):
    """As that of an empty outbox, which has no topics to say it of."""
    address, answers = run
    answers["/metrics"] = 200, "# TYPE redrive_relay_backlog_rows gauge\n"
    [seen] = Endpoints([address]).look()
    assert [each.said for each in seen.facts()] == ["0 rows wait in the outbox"]


def test_figures_are_said_in_words_and_those_that_are_as_they_should_be_are_not():
    fine = Health(good=True, said="ok")

    def said(**figures):
        named = {f"redrive_{name}": value for name, value in figures.items()}
        return [tuple(each) for each in Seen("http://localhost:1", fine, fine, named).facts()]

    good = {"trouble": 0.0, "refused_writes": 0.0, "data_losses_total": 0.0}
    assert said(**good, in_flight_records=0.0) == [("0 in flight", False)]
    assert said(relay_backlog_rows=1234.0, relay_trouble=1.0) == [
        ("1,234 rows wait in the outbox", False),
        ("the relay cannot publish", True),
    ]
    assert said(trouble=1.0, data_losses_total=2.0, oldest_handler_seconds=31.4) == [
        ("a handler runs for 31 s", False),
        ("data was lost 2 times", True),
        ("a lane cannot go on", True),
    ]


LANES = """\
# TYPE redrive_lag_records gauge
redrive_lag_records{app="shop",lane="main",topic="orders"} 1200.0
redrive_lag_records{app="shop",lane="main",topic="returns"} 34.0
redrive_lag_records{app="shop",lane="retry",topic="shop.retry.5s"} 2.0
# TYPE redrive_in_flight_records gauge
redrive_in_flight_records{app="shop",lane="main"} 3.0
# TYPE redrive_trouble gauge
redrive_trouble{app="shop",lane="main"} 0.0
redrive_trouble{app="shop",lane="retry"} 1.0
# TYPE redrive_guard_state gauge
redrive_guard_state{app="shop",topic="orders"} 2.0
redrive_guard_state{app="shop",topic="returns"} 1.0
redrive_guard_state{app="shop",topic="refunds"} 0.0
"""


def test_lanes_and_guards_are_told_apart(run):
    address, answers = run
    answers["/metrics"] = (200, LANES)
    [seen] = Endpoints([address]).look()
    assert [tuple(each) for each in seen.facts()] == [
        ("1,234 behind (main)", False),
        ("2 behind (retry)", False),
        ("3 in flight", False),
        ("a lane cannot go on (retry)", True),
        ("the guard of orders is open", True),
        ("the guard of returns lets records through again", False),
    ]


def test_lateness_is_that_since_the_look_before(run):
    address, _ = run
    endpoints = Endpoints([address])
    endpoints.look()
    [seen] = endpoints.look()
    assert seen.lateness_p99 is None


def test_a_run_that_is_not_ready_says_why(run):
    address, answers = run
    answers["/ready"] = (503, "Kafka is away: no broker answers\n")
    [seen] = Endpoints([address]).look()
    assert seen.ready == (False, "Kafka is away: no broker answers")


@pytest.mark.parametrize("text", ["nonsense {{{", "\x00\xff", 'redrive_x{a="} 1'])
def test_metrics_that_cannot_be_read_are_left_out(run, text):
    address, answers = run
    answers["/metrics"] = (200, text)
    [seen] = Endpoints([address]).look()
    assert (seen.live.good, seen.lateness_p99) == (True, None)


def test_a_run_that_does_not_answer_is_not_live():
    [seen] = Endpoints(["http://127.0.0.1:1"]).look()
    assert not seen.live.good
    assert "does not answer" in seen.live.said


@pytest.mark.parametrize(
    "address",
    [
        "",
        "localhost:9400",
        "file:///etc/passwd",
        "ftp://x",
        "http://",
        "http://localhost:y",
        "http://localhost:99999",
    ],
)
def test_only_addresses_of_the_web_are_asked(address):
    with pytest.raises(ConfigurationError, match="is not an address"):
        checked("--watch", address)


def answer(values):
    result = [{"metric": {}, "values": values}] if values else []
    return 200, json.dumps(
        {"status": "success", "data": {"resultType": "matrix", "result": result}}
    )


def test_the_hours_before_come_from_prometheus():
    asked = []

    def get(url):
        asked.append(url)
        return answer([[1000, "1.5"], [1010.0, "NaN"]] if "parked" in url else [[1000, "3"]])

    [point] = past("http://localhost:9090", "shop", 2_000_000, 7, get)
    assert (point.at, point.parked, point.handled, point.lag) == (1_000_000, 1.5, 3.0, 3.0)
    assert len(asked) == len(QUERIES)
    assert all("app%3D%22shop%22" in url for url in asked)


def test_how_many_were_dead_is_counted_back_from_how_many_there_are():
    def get(url):
        return answer([[980, "0"], [990, "0.5"], [1000, "0.2"]] if "dead" in url else [])

    found = past("http://localhost:9090", "shop", 1_000_000, 9, get)
    assert [(each.at, each.dead) for each in found] == [
        (980_000, 2.0),
        (990_000, 7.0),
        (1_000_000, 9.0),
    ]


@pytest.mark.parametrize(
    "given",
    [
        (500, "no"),
        (200, "[]"),
        (200, '{"status": "error", "error": "bad query"}'),
        (200, '{"status": "success", "data": {"result": [{}]}}'),
        answer([]),
    ],
)
def test_odd_answers_of_prometheus_leave_the_charts_empty(given):
    assert past("http://localhost:9090", "shop", 2_000_000, 7, lambda _url: given) == []


def test_queries_name_metrics_that_exist():
    from redrive.engines.spark.metrics import SparkCollector
    from redrive.engines.worker.metrics import WorkerCollector

    names = {figure.name for figure in (*SparkCollector.FIGURES, *WorkerCollector.FIGURES)}
    for query in QUERIES.values():
        words = {
            word.removesuffix("_bucket")
            for word in query.replace("{", " ").replace("(", " ").split()
        }
        assert words & names, query


@pytest.mark.parametrize("said", [b"SSH-2.0-OpenSSH_9.6\r\n", b"", b"HTTP/1.1 200 OK\r\n\r\n"])
def test_an_address_that_is_no_run_is_said_to_be_none(said):
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def answer_all():
            while True:
                try:
                    connection, _ = listening.accept()
                except OSError:
                    return
                with connection:
                    connection.recv(1000)
                    connection.sendall(said)

        Thread(target=answer_all, daemon=True).start()
        [seen] = Endpoints([f"http://127.0.0.1:{listening.getsockname()[1]}"]).look()
        assert seen.figures == {}
        assert seen.live.good is said.startswith(b"HTTP")
        listening.shutdown(socket.SHUT_RDWR)


def test_a_bucket_without_a_bound_is_left_out_with_its_metrics(run):
    address, answers = run
    answers["/metrics"] = (200, 'redrive_lateness_seconds_bucket{app="shop"} 1\n')
    [seen] = Endpoints([address]).look()
    assert (seen.live.good, seen.lateness_p99) == (True, None)


@contextmanager
def answering(speak):
    """A server that says what it likes to whoever connects."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve(connection):
            with connection:
                try:
                    connection.recv(1000)
                    speak(connection)
                except OSError:
                    pass

        def accept():
            while True:
                try:
                    connection, _ = listening.accept()
                except OSError:
                    return
                Thread(target=serve, args=(connection,), daemon=True).start()

        Thread(target=accept, daemon=True).start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        listening.shutdown(socket.SHUT_RDWR)


@pytest.mark.parametrize("first", [b"", b"HTTP/1.0 200 OK\r\n\r\n"])
def test_an_answer_that_trickles_in_is_cut_off(monkeypatch, first):
    monkeypatch.setattr(fetching, "CONSOLE_ENDPOINT_SECONDS", 0.2)
    over = Event()

    def trickle(connection):
        connection.sendall(first)
        while not over.wait(0.02):
            connection.sendall(b"x")

    with answering(trickle) as address:
        try:
            with pytest.raises(TimeoutError):
                fetch(f"{address}/live")
        finally:
            over.set()


def test_silent_runs_are_asked_side_by_side_and_keep_nobody_waiting(monkeypatch):
    for module in (fetching, endpoints_module):
        monkeypatch.setattr(module, "CONSOLE_ENDPOINT_SECONDS", 0.5)
    over = Event()
    with answering(lambda _connection: over.wait(60)) as address:
        began = monotonic()
        seen = Endpoints([f"{address}/{number}" for number in range(20)]).look()
        took = monotonic() - began
        over.set()
    assert all("does not answer" in each.live.said for each in seen)
    assert took < 20 * 0.5


def test_a_run_that_is_asked_still_is_not_asked_once_more(monkeypatch):
    monkeypatch.setattr(endpoints_module, "CONSOLE_ENDPOINT_SECONDS", 0.01)
    asked, go_on = [], Event()

    def hang(url):
        asked.append(url)
        assert go_on.wait(60)
        return 200, "ok"

    monkeypatch.setattr(endpoints_module, "fetch", hang)
    endpoints = Endpoints(["http://localhost:1"])
    for _ in range(3):
        [seen] = endpoints.look()
        assert seen.live == (False, "does not answer in time")
    assert asked == ["http://localhost:1/live"]
    go_on.set()


def test_whoever_points_elsewhere_is_not_followed():
    asked = []
    with answering(asked.append) as elsewhere:
        said = f"HTTP/1.0 302 Found\r\nLocation: {elsewhere}/latest/meta-data\r\n\r\n"
        with answering(lambda connection: connection.sendall(said.encode())) as address:
            [seen] = Endpoints([address]).look()
    assert (seen.live.good, "redirect (302)" in seen.live.said) == (False, True)
    assert asked == []


@pytest.mark.parametrize(
    "address", [f"{WEB}user:hunter2@127.0.0.1:9", "user:hunter2@localhost", "ftp://u:hunter2@x"]
)
def test_a_password_in_an_address_is_refused_and_not_quoted(address):
    with pytest.raises(ConfigurationError, match="without a user and a password") as refused:
        checked("--watch", address)
    assert "hunter2" not in str(refused.value)


def test_lateness_is_that_since_the_own_last_look_of_each_app(run, monkeypatch):
    def away(*_):
        raise BrokerError("no broker answers")

    monkeypatch.setattr(KafkaLog, "names", away)
    address, _ = run
    apps = [Watched(App(name), Settings(bootstrap="127.0.0.1:1")) for name in ("shop", "bank")]
    shown = open_console(apps, watch=[address])
    for board in shown.boards.values():
        board.sampler.look()
    seen = [board.sampler.seen for board in shown.boards.values()]
    assert [each.lateness_p99 for [each] in seen] == [1.0, 1.0]
