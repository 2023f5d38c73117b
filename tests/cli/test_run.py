"""`redrive run` as its users have it: a process of its own, with Spark, against a real Kafka."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from redrive.cli import worker_process
from redrive.config import Settings, load_settings
from redrive.engines.worker.options import Options
from redrive.kafka.log import KafkaLog
from redrive.kafka.progress import KafkaProgress
from redrive.kafka.publisher import KafkaPublisher
from redrive.kafka.topic_admin import KafkaTopics
from redrive.local.waiting import wait_until
from redrive.ports import Position
from redrive.record import TopicPartition, Write

SHOP = """
import logging
import time

from redrive import App, Retry, RetryPolicy

app = App("{name}", retry=RetryPolicy("1h"))

@app.resource
def notebook():
    with open("opened", "a") as file:
        yield file
    open("closed", "a").close()

@app.handler("{name}.in")
def handle(record, ctx):
    time.sleep({seconds})
    if record.value.startswith(b"early"):
        ctx.log.warning("too early")
        logging.getLogger("shop.own").info("a word of the shop's")
        raise Retry("not yet")
    ctx.send("{name}.out", record.value, key=record.key)
"""
LATE = re.compile(
    r"^\S+ WARNING \S+ \w+ lane: its planner did not start.*?(?=^\d{4}-|\Z)",
    re.MULTILINE | re.DOTALL,
)
"""What a run warns of on a busy machine, where Spark gives up on a Python process after a while."""
PARTITIONS = 3
FEW_WORKERS = ("--master", "local[3, 4]", "--spark-conf", "spark.ui.enabled=false")


class Process:
    """A run in a process of its own."""

    def __init__(self, folder: Path, bootstrap: str, *arguments: str) -> None:
        self._errors = folder / "stderr"
        self.said = ""
        environment = {
            name: value for name, value in os.environ.items() if not name.startswith("REDRIVE_")
        }
        sparks = () if "worker" in arguments else FEW_WORKERS
        with self._errors.open("w") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "redrive", "run", *sparks, *arguments],
                cwd=folder,
                env={**environment, "REDRIVE_BOOTSTRAP": bootstrap},
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )

    @property
    def errors(self) -> str:
        return self._errors.read_text()

    def read_until(self, pattern: str) -> None:
        for line in self._process.stdout or ():
            self.said += line
            if re.search(pattern, line):
                return
        pytest.fail(f"it never said {pattern}: {self.said}\n{self.errors}")

    def signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def end(self) -> int:
        rest, _ = self._process.communicate()
        self.said += rest
        return self._process.returncode

    def kill(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self._process.communicate()


class Shop:
    """An app, its topics, and what goes in and out."""

    target = "shop:app"

    def __init__(self, folder: Path, settings: Settings, name: str) -> None:
        self.name = name
        self.settings = settings
        self.folder = folder
        self.write()

    def write(self, seconds: float = 0) -> None:
        text = SHOP.format(name=self.name, seconds=seconds)
        (self.folder / "shop.py").write_text(text)

    def make_topics(self) -> None:
        port = KafkaTopics(self.settings)
        for topic in ("in", "out", "dead"):
            port.create(f"{self.name}.{topic}", PARTITIONS, {})
        stamped = {"message.timestamp.type": "LogAppendTime"}
        port.create(f"{self.name}.retry.1h", PARTITIONS, stamped)

    def send(self, *values: bytes) -> None:
        publisher = KafkaPublisher(self.settings)
        publisher.publish([Write(f"{self.name}.in", value, value) for value in values])
        publisher.close()

    def outbound(self) -> list[bytes]:
        """What the handler has sent, sorted."""
        log = KafkaLog(self.settings, self.name)
        places = [TopicPartition(f"{self.name}.out", number) for number in range(PARTITIONS)]
        found = [record.value for p in places for record in log.read(p, *log.bounds(p))]
        log.close()
        return sorted(value for value in found if value is not None)


@pytest.fixture
def own_shop(tmp_path, redrive_stack, redrive_prefix) -> Shop:
    settings = load_settings({"bootstrap": redrive_stack.bootstrap}, environ={})
    return Shop(tmp_path, settings, redrive_prefix)


@pytest.fixture
def run(tmp_path, redrive_stack) -> Iterator[Callable[..., Process]]:
    started: list[Process] = []

    def start(*arguments: str) -> Process:
        started.append(Process(tmp_path, redrive_stack.bootstrap, *arguments))
        return started[-1]

    yield start
    for process in started:
        process.kill()


def ask(port: int, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}") as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def test_once_ends_with_what_is_there_and_says_what_stays_parked(run, own_shop):
    missing = run(own_shop.target, "--once")
    assert missing.end() == 1
    assert missing.errors.startswith(f'redrive: topics "{own_shop.name}.in", ')
    assert f"run `redrive topics {own_shop.target} --apply --create-sources`" in missing.errors
    assert missing.errors.count("\n") == 1

    own_shop.make_topics()
    healthy = [b"healthy %d" % number for number in range(20)]
    own_shop.send(*healthy, b"early 1", b"early 2", b"early 3")
    once = run(own_shop.target, "--once", "--log-format", "json")
    assert once.end() == 0, once.errors
    assert own_shop.outbound() == sorted(healthy)
    assert not once.said, "it is all in the log"
    lines = [json.loads(line) for line in once.errors.splitlines()]
    said = "\n".join(line["message"] for line in lines)
    assert "main  lane: 20 done, 3 parked\n" in said
    parked = rf"^3 parked in {own_shop.name}\.retry\.1h, next due in 59m\d+s$"
    assert re.search(parked, said, re.MULTILINE), said
    assert not [line for line in lines if line["logger"] == "spark"], "its noise"
    check_why_they_were_parked(lines, own_shop)
    # Each worker closes what it has opened, as soon as Spark tells it to end.
    assert wait_until((own_shop.folder / "closed").exists, timeout=10)


@pytest.mark.chaos
def test_once_goes_on_when_its_planner_does_not_start_in_time(run, own_shop, monkeypatch):
    """As on a busy machine: of its first Python process for planning, Spark hears nothing."""
    own_shop.make_topics()
    own_shop.send(b"1", b"2")
    python = own_shop.folder / "python"
    python.write_text(
        "#!/bin/sh\n"
        'case "$*" in *python_streaming_source_runner*)\n'
        f"  mkdir {own_shop.folder}/late 2>/dev/null && exit;;\n"
        "esac\n"
        f'exec {sys.executable} "$@"\n'
    )
    python.chmod(0o755)
    monkeypatch.setenv("PYSPARK_PYTHON", str(python))
    once = run(own_shop.target, "--once")
    assert once.end() == 0, once.errors
    assert "main lane: its planner did not start within Spark's ten seconds" in once.errors
    assert own_shop.outbound() == [b"1", b"2"]
    assert "main  lane: 2 done\n" in once.said


def check_why_they_were_parked(lines: list[dict[str, Any]], shop: Shop) -> None:
    first, *others = [line for line in lines if line["logger"] == "redrive.causes"]
    assert "parked: redrive.signals.Retry: not yet in shop:handle (" in first["message"]
    assert first["trace"].startswith("Traceback")
    assert 'raise Retry("not yet")' in first["trace"]
    assert (first["level"], first["outcome"], first["frames"]) == ("info", "park", ["shop:handle"])
    assert (others[-1] if others else first)["total"] == 3
    assert not any("trace" in line for line in others), "it was shown before"
    # Those of the Python processes in which handlers run.
    early = [line for line in lines if line["message"] == "too early"]
    assert {(line["app"], line["topic"], line["attempt"]) for line in early} == {
        (shop.name, f"{shop.name}.in", 1)
    }
    assert len(early) == len([line for line in lines if line["logger"] == "shop.own"]) == 3


def test_a_signal_ends_it_at_the_next_commit_and_the_next_run_finishes(run, own_shop):
    own_shop.make_topics()
    own_shop.write(seconds=0.01)
    values = [b"%d" % number for number in range(1500)]
    own_shop.send(*values)
    first = run(own_shop.target, "--batch-deadline", "1s", "--metrics-port", "0")
    first.read_until(r"^metrics: port")
    port = int(re.search(r"metrics: port (\d+), /metrics /live /ready", first.said)[1])
    first.read_until(r"^main  batch \d+: .* done")
    assert ask(port, "/live") == ask(port, "/ready") == (200, "ok\n")
    assert ask(port, "/else")[0] == 404
    assert f'redrive_records_total{{app="{own_shop.name}",lane="main"' in ask(port, "/metrics")[1]
    first.signal(signal.SIGTERM)
    assert first.end() == 0, first.errors
    assert not LATE.sub("", first.errors)
    done = own_shop.outbound()
    assert 0 < len(done) < len(values)
    assert f"main  lane: {len(done):,} done\n" in first.said

    # On the other engine, which starts sooner: progress is the same for both.
    second = run(own_shop.target, "--engine", "worker", "--until-empty")
    assert second.end() == 0, second.errors
    assert own_shop.outbound() == sorted(values), "all of them, each once"


def test_a_lane_that_must_not_go_on_ends_the_run_with_its_sentence(run, own_shop):
    own_shop.make_topics()
    own_shop.send(b"one")
    taken_over = run(own_shop.target, "--trigger", "200ms")
    taken_over.read_until(r"^main  batch \d+: 1 done")
    mark = TopicPartition(f"{own_shop.name}.dead", 0)  # as older versions leave it
    rival = Position(0, "redrive-run:another")
    KafkaProgress(own_shop.settings, own_shop.name).commit({mark: rival})
    assert taken_over.end() == 1
    assert taken_over.errors.startswith(f"redrive: another run of the app {own_shop.name}")
    assert "Traceback" not in taken_over.errors
    assert taken_over.errors.count("\n") == 1


def test_once_ends_with_exit_code_1_where_writes_are_refused(run, own_shop):
    own_shop.make_topics()
    KafkaTopics(own_shop.settings).delete(f"{own_shop.name}.out")
    own_shop.send(b"healthy")
    once = run("--engine", "worker", own_shop.target, "--once")
    assert once.end() == 1
    assert f"{own_shop.name}.out" in once.errors
    assert "Traceback" not in once.errors


def test_a_worker_gets_its_options(redrive, shop, monkeypatch):
    given = []
    monkeypatch.setattr(worker_process, "run_worker", lambda *arguments: given.append(arguments[1]))
    result = redrive(
        "run", shop(), "--engine", "worker", "--max-in-flight", "7", "--max-bytes-in-flight", "8",
        "--drain", "9ms", "--revoke-wait", "2m", "--instance", "me", "--group-protocol", "consumer",
        "--one-core",
    )  # fmt: skip
    assert result.exit_code == 0, result.exception
    assert given == [
        Options(
            max_in_flight=7,
            max_bytes_in_flight=8,
            drain="9ms",
            revoke_wait="2m",
            instance="me",
            protocol="consumer",
            one_core=True,
        )
    ]


def around_spark(monkeypatch, module):
    """Has a run do nothing but start its queries."""
    spark = SimpleNamespace(sparkContext=SimpleNamespace(uiWebUrl=None))
    monkeypatch.setattr("redrive.engines.preflight.check", lambda *_, **__: None)
    monkeypatch.setattr(module, "start_spark", lambda *_, **__: spark)
    monkeypatch.setattr(module, "ended", nullcontext)
    monkeypatch.setattr(module, "follow", lambda *_: None)
    monkeypatch.setattr(module, "summary", lambda *_: ())


@pytest.mark.parametrize("engine", ["spark", "worker"])
def test_both_engines_log_as_they_are_asked_to(redrive, shop, monkeypatch, engine):
    asked = []
    module = sys.modules["redrive.cli.run"]  # whose function has its name
    monkeypatch.setattr(module, "log_to_stderr", lambda **how: asked.append(how))
    monkeypatch.setattr(worker_process, "run_worker", lambda *_: None)
    around_spark(monkeypatch, module)
    monkeypatch.setattr(
        "redrive.engines.spark.queries.start",
        lambda *_, log_level, log_format, **__: asked.append(
            {"log_level": log_level, "log_format": log_format}
        ),
    )
    how = {"log_level": "debug", "log_format": "json"}
    run = ("run", shop(), "--engine", engine, "--bootstrap", "127.0.0.1:9")
    redrive(*run, "--log-level", "debug", "--log-format", "json")
    redrive(*run)
    usual = {"log_level": "info", "log_format": "text"}
    # On Spark also the Python processes in which handlers run.
    assert asked == ([how, how, usual, usual] if engine == "spark" else [how, usual])


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--engine", "worker", "--drain", "soon"], "'soon' is not a duration"),
        (["--engine", "worker", "--revoke-wait", "never"], "'never' is not a duration"),
        (["--engine", "worker", "--dynamic", "--instance", "me"], "has no name"),
        (["--engine", "worker"], "no Kafka address"),
        (["--once", "--until-empty"], "--once and --until-empty cannot be combined"),
        (["--drain", "5s"], "--drain: only with --engine worker; drop it"),
        (["--one-core", "--max-in-flight", "7"], "--one-core: only with --engine worker"),
        (["--engine", "worker", "--master", "local"], "--master: only with --engine spark"),
        (["--engine", "worker", "--spark-conf", "a=b"], "--spark-conf: only with --engine spark"),
        (["--engine", "worker", "--batch-deadline", "5s"], "--batch-deadline: only with"),
        (["--spark-conf", "spark.ui.port"], "write name=value"),
        (["--batch-deadline", "soon"], "'soon' is not a duration"),
        ([], "no Kafka address"),
    ],
)
def test_mistakes_are_reported_before_anything_starts(redrive, shop, arguments, sentence):
    result = redrive("run", shop(), *arguments)
    assert sentence in str(result.exception)


@pytest.mark.parametrize("engine", ["worker", "spark"])
@pytest.mark.parametrize(
    "given", [["nosuch:app"], ["theshop:app"], ["theshop:app", "--master", "local[8]"]]
)
def test_what_is_wrong_without_a_broker_is_said_before_one_is_asked(
    redrive, tmp_path, monkeypatch, engine, given
):
    (tmp_path / "theshop.py").write_text(SHOP.format(name="theshop", seconds=0))
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("REDRIVE_BOOTSTRAP", raising=False)
    result = redrive("run", *given, "--engine", engine)
    assert result.exit_code != 0
    assert "checking Kafka" not in result.output
