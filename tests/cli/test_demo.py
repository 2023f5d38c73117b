"""`redrive demo`: exits 0, and its output tells the whole story; in memory, and for real."""

from __future__ import annotations

import http.client
import os
import re
import signal
import subprocess
import sys
from dataclasses import replace
from types import SimpleNamespace
from urllib.parse import urlencode

import pytest
from rich.console import Console
from typer.testing import CliRunner

from redrive.cli import demo_live
from redrive.cli import demo_simulated as verb
from redrive.cli.commands import app as cli
from redrive.demo import live
from redrive.demo.simulated import simulate
from redrive.demo.story import EVENTS
from redrive.durations import text
from redrive.local.waiting import wait_until
from redrive.record import Write


@pytest.fixture(scope="module")
def telling():
    return simulate()


@pytest.fixture(scope="module")
def output():
    result = CliRunner().invoke(cli, ["demo", "--simulated"])
    assert result.exit_code == 0, result.output
    return result.output


def steps(telling, record):
    return [
        (text(step.at), step.kind, step.topic) for step in telling.steps if step.record == record
    ]


def test_an_update_without_its_create_goes_through_all_delays_and_is_buried(telling):
    assert steps(telling, "update ghost") == [
        ("0s", "parked", "items.retry.5m"),
        ("5m", "parked", "items.retry.5m"),
        ("10m", "parked", "items.retry.30m"),
        ("40m", "parked", "items.retry.30m"),
        ("1h10m", "parked", "items.retry.30m"),
        ("1h40m", "parked", "items.retry.1h"),
        ("2h40m", "buried", "items.dead"),
    ]


def test_an_update_whose_create_is_late_is_handled_at_its_next_attempt(telling):
    assert steps(telling, "update lamp") == [
        ("1m", "parked", "items.retry.5m"),
        ("6m", "handled", ""),
    ]


def test_an_undecodable_record_is_dead_at_once_with_its_bytes(telling):
    assert steps(telling, "update desk") == [("2m", "buried", "items.dead")]
    record, envelope = telling.dead[0]
    assert (record.key, record.value) == (b"desk", b'{"id": "desk", "stat')
    assert envelope.dead_reason == "undecodable"
    assert telling.intact


def test_all_others_are_handled_when_they_arrive(telling):
    healthy = [event for event in EVENTS if event.item not in ("ghost", "desk")]
    at_once = [step for step in telling.steps if step.kind == "handled" and step.attempt == 1]
    assert len(at_once) == len(healthy) - 1  # the update of lamp waits
    assert {text(step.at) for step in at_once} == {"0s", "1m", "3m", "4m", "45m", "2h"}


def test_every_record_is_somewhere(telling):
    assert telling.lost == 0
    assert telling.parked == 0
    assert telling.handled + len(telling.dead) == len(EVENTS)


def test_the_output_tells_all_of_it(output):
    for part in (
        "Nobody promises that the create arrives first",
        'sends="item.updated",',
        "   10m  update ghost        3  parked in items.retry.30m, due 40m",
        " 2h40m  update ghost        7  no delay is left: buried in items.dead",
        "x -5m-> x -5m-> x -30m-> x -30m-> x -30m-> x -1h-> x  dead, exhausted, at 2h40m",
        "x -5m-> ok  handled at 6m",
        "item.update     7 --+",
        "+--> items.retry.30m     3",
        '  value                   {"id": "desk", "stat',
        "   0  lost",
        "2h40m went by in the story",
        "redrive local up",
    ):
        assert part in output


def test_without_a_terminal_the_output_is_plain_text_in_any_encoding():
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    command = [sys.executable, "-m", "redrive", "demo", "--simulated"]
    done = subprocess.run(command, capture_output=True, env=environment, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.isascii()
    assert b"\x1b" not in done.stdout


def test_a_story_that_loses_a_record_fails(monkeypatch, telling):
    monkeypatch.setattr(verb, "simulate", lambda: replace(telling, dead=telling.dead[:1]))
    result = CliRunner().invoke(cli, ["demo", "--simulated"])
    assert result.exit_code == 1
    assert "   1  lost" in result.output


def test_a_story_that_changes_a_dead_record_fails(monkeypatch, telling):
    (record, envelope), *others = telling.dead
    changed = (record._replace(value=b"{}"), envelope)
    monkeypatch.setattr(verb, "simulate", lambda: replace(telling, dead=[changed, *others]))
    result = CliRunner().invoke(cli, ["demo", "--simulated"])
    assert result.exit_code == 1
    assert "other bytes than were sent" in result.output


# For real


@pytest.fixture(scope="module")
def real():
    """The demo as it is run by `make demo`, in a process of its own."""
    command = [sys.executable, "-m", "redrive", "demo"]
    environment = {**os.environ, "REDRIVE_BOOTSTRAP": "127.0.0.1:9"}  # which it must not use
    return subprocess.run(
        command, capture_output=True, text=True, env=environment, check=False, timeout=280
    )


def number(output, pattern):
    """The number before these words."""
    found = re.search(rf"^ *([\d,]+) +{pattern}", output, re.MULTILINE)
    assert found, output
    return int(found[1].replace(",", ""))


def test_the_real_demo_loses_nothing(real):
    assert real.returncode == 0, real.stdout + real.stderr
    assert not real.stderr
    sent = number(real.stdout, "records came in")
    assert sent > 1300
    assert number(real.stdout, "handled, ") == sent - 2
    assert number(real.stdout, "dead: undecodable, exhausted") == 2
    assert number(real.stdout, "lost") == 0


def test_the_real_demo_shows_healthy_records_while_early_ones_wait(real):
    # How many depends on how fast the machine is: a loaded one handles few before they are due.
    assert number(real.stdout, "healthy records were handled while the first of the 10") > 0
    assert re.search(r"handled +\d+ +parked +\d+ +early updates handled +\d+", real.stdout)
    assert re.search(r"\+--> items\.dead +2", real.stdout)


@pytest.mark.chaos
@pytest.mark.timeout(600)
def test_the_console_of_the_demo_shows_what_died_and_a_replay_is_handled(tmp_path):
    log = tmp_path / "demo.log"
    with log.open("w") as out:
        demo = subprocess.Popen(
            [sys.executable, "-u", "-m", "redrive", "demo", "--console"],
            stdout=out,
            stderr=subprocess.STDOUT,
        )
    try:
        link = re.compile(r"to change things: http://127.0.0.1:(\d+)/login\?token=(\S+)")
        assert wait_until(lambda: link.search(log.read_text()) or demo.poll() is not None, 250)
        port, token = link.search(log.read_text()).groups()

        def ask(path, **fields):
            connection = http.client.HTTPConnection("127.0.0.1", int(port), timeout=60)
            try:
                method, body = ("POST", urlencode(fields)) if fields else ("GET", None)
                connection.request(method, path, body, {"Authorization": f"Bearer {token}"})
                answer = connection.getresponse()
                return answer.getheader("location"), answer.read().decode()
            finally:
                connection.close()

        assert ask(f"/login?token={token}")[0] == "/"
        counted = "2 of 2 letters counted"
        assert wait_until(lambda: counted in ask("/apps/items/dead")[1], 60, pause=0.5)
        plan, _ = ask("/apps/items/dead/plan", action="replay", state="open")
        assert wait_until(lambda: 'id="reason"' in ask(plan)[1], 60, pause=0.5)
        job, _ = ask(f"{plan}/do", reason="as a test")
        # One cannot be decoded, the other's item never came: a worker sees to it that both die.
        assert wait_until(lambda: "2 died again" in ask(job)[1], 120, pause=0.5), ask(job)[1]
    finally:
        demo.send_signal(signal.SIGINT)
        demo.wait(60)
    assert demo.returncode == 0, log.read_text()
    assert "cannot listen" not in log.read_text()


@pytest.mark.parametrize(
    ("terminal", "answers", "wanted"),
    [(True, True, True), (True, False, False), (False, True, False)],
)
def test_whoever_is_at_a_terminal_is_asked_whether_to_look_at_a_page(
    monkeypatch, terminal, answers, wanted
):
    asked = []
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(isatty=lambda: terminal))
    confirm = lambda question, default: asked.append((question, default)) or answers  # noqa: E731 -- notes it
    monkeypatch.setattr(demo_live.typer, "confirm", confirm)
    assert demo_live.wants_page(Console(force_terminal=True)) is wanted
    assert len(asked) == terminal


def test_a_record_that_is_nowhere_is_lost():
    sent = [Write("item.create", b"a", b"1"), Write("item.update", b"a", b"2")]
    dead = Write("item.update", b"b", b"3")
    assert live.missing([*sent, dead], {b"a"}, {(b"a", b"2")}) == [dead]
    assert live.missing(sent, {b"a"}, set()) == sent[1:]
    assert live.missing(sent, set(), {(b"a", b"2")}) == sent[:1]
