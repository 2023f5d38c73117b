"""`redrive demo --simulated`: the update-before-create story, in virtual time."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator, Mapping
from itertools import zip_longest
from types import ModuleType
from typing import Final

from rich.console import Console
from rich.markup import escape
from rich.syntax import Syntax

from redrive.app import App
from redrive.demo import shop
from redrive.demo.simulated import simulate
from redrive.demo.story import EVENTS, Step, Telling
from redrive.durations import text
from redrive.envelope import Envelope
from redrive.record import Record

# Plain ASCII, and lines of at most 100: it looks the same in a terminal, a log and an email.

STORY: Final = """\
A shop's items come through Kafka: a record in [bold]item.create[/] makes an item, one in
[bold]item.update[/] changes it. Nobody promises that the create arrives first. An update
without its item cannot be handled [italic]yet[/]: to drop it would lose it, to wait for it would
hold up all those behind it.

redrive parks such a record in a delay topic and goes on with the others. When it is due it is
tried again. When all its delays are used up it goes to the dead topic, where somebody can look
at it."""
_POLICY: Final = """\
The shop says so in one line: [bold]RetryPolicy("5m 5m 30m 30m 30m 1h")[/]."""

_NEXT: Final = """\
redrive demo                            the same for real: Spark, Kafka, PostgreSQL, a minute
redrive local up                        start a real Kafka and PostgreSQL, and say where they are
redrive topics redrive.demo.shop:app    which topics this app needs there
    --apply --create-sources            ... and make them
redrive local down                      end both again
docs/how-to/test.md                     test your own handlers like this, in milliseconds
docs/reference/retry.md                 every way to retry, and what happens when
[dim]In a clone of the repository, redrive is .venv/bin/redrive.[/]"""

_WIDE: Final = 5
_COLOURS: Final = {"handled": "green", "parked": "yellow", "buried": "red"}
_SHORT: Final = {"handled": "ok", "parked": "x", "buried": "x"}


def tell(console: Console) -> bool:
    """Show the story on an in-memory broker; returns whether it went as it should."""
    section(console, "The story", [STORY, _POLICY])
    section(console, "The shop's code (redrive/demo/shop.py)", [])
    code(console, shop)
    telling = simulate()
    section(console, "What happened, in the time of the story", _time_line(telling))
    section(console, "The way of each record that failed", _ways(telling))
    section(console, "The topics, and how many records were written to each", _topics(telling))
    section(console, "What the dead topic holds", _letters(telling))
    section(console, "In the end", _summary(telling))
    section(console, "What to try next", [_NEXT])
    return telling.intact and not telling.lost


def section(console: Console, title: str, lines: Iterable[str]) -> None:
    """A title, and what is below it."""
    console.print(f"\n[bold cyan]{title}[/]\n[cyan]{'-' * len(title)}[/]")
    for line in lines:
        console.print(line)


def code(console: Console, module: ModuleType) -> None:
    """Show the app in a module, as its author sees it."""
    source = inspect.getsource(module)
    shown = source[source.index("app = App") :].strip().replace("\n\n\n", "\n\n")
    if console.is_terminal:
        console.print(Syntax(shown, "python", theme="ansi_dark", background_color="default"))
    else:
        console.print(shown, markup=False)


def _time_line(telling: Telling) -> Iterator[str]:
    notes = {f"{event.verb} {event.item}": f"({event.note})" for event in EVENTS if event.note}
    yield "[dim]  time  record        attempt  what became of it[/]"
    for step in telling.steps:
        note = notes.get(step.record, "") if step.attempt == 1 else ""
        what = f"[{_COLOURS[step.kind]}]{escape(_what(step))}[/]" + (note and f"  [dim]{note}[/]")
        yield f"{text(step.at):>6}  {step.record:<12}  {step.attempt:>7}  {what}"


def _what(step: Step) -> str:
    if step.kind == "handled":
        return "handled"
    if step.kind == "parked":
        return f"parked in {step.topic}, due {text(step.due)}"
    if step.reason == "exhausted":
        return f"no delay is left: buried in {step.topic}"
    return f"{step.reason}: buried in {step.topic} at once"


def _ways(telling: Telling) -> Iterator[str]:
    failed = dict.fromkeys(step.record for step in telling.steps if step.kind != "handled")
    for name in failed:
        way = [step for step in telling.steps if step.record == name]
        legs = "".join(
            f"[{_COLOURS[step.kind]}]{_SHORT[step.kind]}[/]"
            + (f" -{text(step.due - step.at)}-> " if step.kind == "parked" else "")
            for step in way
        )
        last = way[-1]
        yield (
            f"{name:<12}  {text(way[0].at):>3}  {legs}"
            f"  [{_COLOURS[last.kind]}]{_end(last)} at {text(last.at)}[/]"
        )
    first_time = sum(step.kind == "handled" and step.attempt == 1 for step in telling.steps)
    yield f"[dim]The other {first_time} records were handled at once: nobody was held up.[/]"


def _end(last: Step) -> str:
    return "handled" if last.kind == "handled" else f"dead, {last.reason},"


def _topics(telling: Telling) -> Iterator[str]:
    delays = shop.app.delay_topics.items()
    waits = {topic: f"waited {text(delay)}" for topic, delay in delays}
    return topics(shop.app, telling.counts, waits)


def topics(app: App, count: Mapping[str, int], waits: Mapping[str, str]) -> Iterator[str]:
    """A picture of the shop's topics, and how many records were written to each."""
    wrote = {"item.updated": "sent by the handler", **waits, app.dead_topic: "wait for somebody"}
    first = True
    for source, (topic, what) in zip_longest(app.handlers, wrote.items()):
        left = f"{source:<12}{count[source]:>{_WIDE}} --+" if source else " " * (16 + _WIDE)
        middle = f"--> {app.name} --" if first else " " * (len(app.name) + 7)
        yield f"  {left}{middle}+--> {topic:<16}{count[topic]:>{_WIDE}}  [dim]{what}[/]"
        first = False


def _letters(telling: Telling) -> Iterator[str]:
    return letters(telling.dead)


def letters(dead: Iterable[tuple[Record, Envelope]]) -> Iterator[str]:
    """The dead records, as any Kafka tool shows them."""
    for record, envelope in dead:
        yield f"[bold]{escape(_letter_title(record))}[/]"
        for name, value in _letter(record, envelope):
            yield f"  {name:<22}  {escape(value)}"


def _letter_title(record: Record) -> str:
    return f"{record.place}, key {(record.key or b'').decode()}"


def _letter(record: Record, envelope: Envelope) -> Iterator[tuple[str, str]]:
    yield "value", (record.value or b"").decode(errors="replace")
    yield "redrive-dead-reason", str(envelope.dead_reason)
    yield "redrive-attempt", str(envelope.attempt)
    yield "redrive-error-type", str(envelope.error_type)
    yield "redrive-error-message", str(envelope.error_message)


def _summary(telling: Telling) -> Iterator[str]:
    retried = sum(step.kind == "handled" and step.attempt > 1 for step in telling.steps)
    yield f"{len(EVENTS):>4}  records came in"
    yield f"{telling.handled:>4}  handled, {retried} of them after a retry"
    bytes_are = (
        "the bytes that were sent" if telling.intact else "[red]other bytes than were sent[/]"
    )
    yield f"{len(telling.dead):>4}  dead, with the reason and {bytes_are}"
    yield f"{telling.parked:>4}  still waiting"
    yield f"[bold]{telling.lost:>4}  lost[/]"
    yield (
        f"\n{text(telling.lasted)} went by in the story, {telling.took * 1000:.0f} ms on this"
        " machine: the time was virtual, and the broker in memory."
    )
