"""How dead letters look on a terminal, and in a pipe."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from time import time
from typing import TYPE_CHECKING, Final

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from redrive.cli.output import terminal
from redrive.dead import fixing
from redrive.dead.copies import WHY
from redrive.dead.filters import age
from redrive.dead.groups import Group
from redrive.dead.letters import Detail
from redrive.dead.operations import Operation
from redrive.dead.scan import Found, Scanned
from redrive.dead.selection import ReplayPlan
from redrive.dead.showing import Seen, printable, time_text
from redrive.dead.stats import Stats
from redrive.dead.trying import GroupTrial, Trials
from redrive.dead.watching import Fate
from redrive.numbers import counted

if TYPE_CHECKING:
    from redrive.app import App
    from redrive.dead.letter import Letter

_MESSAGE: Final = 100
_PATTERNS: Final = 3


def groups(found: Sequence[Group], scanned: Scanned) -> None:
    """A table of groups, each with the patterns of its messages."""
    console = _console()
    shown = _table("group", "letters", "open", "why", "last died", "from")
    for each in found:
        patterns = [
            f"\n  {count:,} x {_short(text)}"
            for text, count in each.patterns.most_common(_PATTERNS)
            if text
        ]
        shown.add_row(
            _cell(each.id),
            f"{each.count:,}",
            f"{each.states['open'] + each.states['failed-again']:,}",
            _cell(f"{_why(each.reason, each.error_type)}{''.join(patterns)}"),
            _ago(each.last),
            _cell(", ".join(each.topics)),
        )
    _print(console, shown, scanned, has_rows=bool(found))


def letters(found: Sequence[Found], scanned: Scanned, app: App | None) -> None:
    """A table of letters."""
    console = _console()
    shown = _table("letter", "state", "died", "group", "key", "from", "error")
    for letter, state, _ in found:
        seen = Seen(letter, app)
        why = seen.error_type or seen.reason or "-"
        shown.add_row(
            _cell(letter.place),
            state,
            time_text(letter.died),
            _cell(letter.group),
            _cell(_short(seen.key or "-")),
            _cell(letter.origin or "-"),
            _cell(_short(f"{why}: {seen.message or ''}")),
        )
    _print(console, shown, scanned, has_rows=bool(found))


def letter(detail: Detail) -> None:
    """One letter, line by line."""
    console = _console()
    each, seen = detail.found.letter, detail.seen
    lines = [
        ("letter", f"{each.place} ({detail.found.state})"),
        ("died", f"{time_text(each.died)} UTC, {_ago(each.died)} ago"),
        ("group", each.group),
        ("reason", seen.reason or "-"),
        ("error", f"{seen.error_type or '-'}: {seen.message or ''}"),
        ("from", each.origin or "-"),
        ("app", each.app or "-"),
        ("id", seen.id or "-"),
        ("key", seen.key or "-"),
        ("attempts", "-" if each.attempt is None else str(each.attempt)),
    ]
    for name, value in lines:
        _say(console, f"{name:<10}{value}")
    for tried in seen.history:
        _say(console, f"  {tried.attempt:>3}. {time_text(tried.at)}  {tried.error}")
    for operation in detail.operations:
        why = f": {operation.why}" if operation.why else ""
        at = time_text(operation.at)
        _say(console, f"  {operation.kind} {at} by {operation.by}{why} ({operation.id})")
    for name, text in seen.headers:
        _say(console, f"header    {name} = {text}")
    if seen.trace:
        _say(console, f"trace\n{seen.trace.rstrip()}")
    if detail.value.problem:
        _say(console, f"decoder   cannot read it: {detail.value.problem}")
    _say(console, f"value     {detail.value.how}\n{detail.value.text}")


def stats(found: Stats, scanned: Scanned) -> None:
    """Counters, one after the other."""
    console = _console()
    _say(
        console,
        f"{counted(found.letters, 'letter')}, {counted(found.bytes, 'byte')} of keys and values",
    )
    if found.letters:
        _say(console, f"died from {time_text(found.first)} to {time_text(found.last)} UTC")
    for name in ("states", "reasons", "errors", "topics", "dialects"):
        counter: Counter[str] = getattr(found, name)
        words = ", ".join(f"{word} {count:,}" for word, count in counter.most_common(10))
        _say(console, f"{name:<10}{words or '-'}")
    for hour, count in sorted(found.hours.items())[-24:]:
        _say(console, f"  {time_text(hour)}  {count:,}")
    _say(console, str(scanned))


def _console(*, stderr: bool = False) -> Console:
    return terminal(stderr=stderr)


def _say(console: Console, text: str) -> None:
    """Whatever is in it, of records or of others: a terminal gets text."""
    console.print(printable(text), markup=False, soft_wrap=True)


def _cell(text: str) -> Text:
    """The same for a cell of a table."""
    return Text(printable(text))


def _table(*columns: str) -> Table:
    shown = Table(box=None, pad_edge=False)
    for column in columns:
        right = column in ("letters", "open")
        shown.add_column(column, justify="right" if right else "left", overflow="fold")
    return shown


def _print(console: Console, shown: Table, scanned: Scanned, *, has_rows: bool) -> None:
    if has_rows:
        _fold(console, shown)
    _say(console, str(scanned))


def _why(reason: str | None, error: str | None) -> str:
    return ": ".join(each for each in (reason, error) if each) or "-"


def _short(text: str) -> str:
    line = " ".join(printable(text).split())  # first, as what it takes for a space may be obeyed
    return line if len(line) <= _MESSAGE else line[: _MESSAGE - 3] + "..."


def _ago(milliseconds: int | None) -> str:
    return "-" if milliseconds is None else age(int(time() * 1000) - milliseconds)


def difference(letter: Letter, value: bytes, app: App | None, *, as_json: bool) -> None:
    """What a new value changes."""
    _difference(_console(stderr=as_json), letter.place, [*fixing.difference(letter, value, app)])


def _difference(console: Console, place: str, lines: Sequence[str]) -> None:
    _say(console, place)
    for line in lines:
        _say(console, f"    {line}")


def plan(found: ReplayPlan, verb: str = "replayed", *, asks: bool = False) -> None:
    """What would be done; `asks`: whoever reads it is asked next whether to do it."""
    console = _console()
    for place, lines in found.differences:
        _difference(console, place, lines)
    for each in found.groups:
        _say(console, f"  {each.count:,} of group {each.id}: {_why(each.reason, each.error_type)}")
    for topic, count in found.targets.most_common():
        _say(console, f"  {count:,} to {topic}")
    if found.changed:
        _say(console, f"  {found.changed:,} changed by the fix")
    _left_out(console, found.left_out, found.examples)
    if found.unknown:
        _say(console, found.unknown)
    _say(console, str(found.scanned))
    letters = counted(found.letters, "letter")
    rest = "" if asks else "; nothing was written: add --yes to do it"
    _say(console, f"{letters} would be {verb}{rest}")


def trials(found: Trials) -> None:
    """Which letters would pass now, by group."""
    console = _console()
    for said in found.limits:
        _say(console, f"only decoded: {said}")
    shown = _table("group", "died of", "now", "would fail with", "would send")
    for each in found.groups.values():
        now = ", ".join(f"{count:,} {_NOW[word]}" for word, count in each.verdicts.items())
        errors = "\n".join(_failures(each))
        sends = ", ".join(f"{count:,} to {topic}" for topic, count in each.sends.most_common(5))
        shown.add_row(
            _cell(each.group),
            _cell(each.error_type or "-"),
            now,
            _cell(errors),
            _cell(sends),
        )
    if found.groups:
        _fold(console, shown)
    for each in found.groups.values():
        for message in each.sent:
            key = "" if message.key is None else f", key {message.key}"
            _say(console, f"{message.place} would send to {message.topic}{key}:\n{message.value}")
    if found.stopped:
        _say(console, f"stopped: {found.stopped}")
    _say(console, str(found.scanned))


def _failures(group: GroupTrial) -> Iterator[str]:
    for name, count in group.errors.most_common(5):
        example = group.examples[name]
        yield f"{count:,} x {name}: {example._replace(message=_short(example.message))}"


_NOW: Final = {
    "pass": "would pass",
    "fail": "would fail",
    "decoded": "can be decoded",
    "no-handler": "have no handler",
    "fix-failed": "could not be fixed",
    "not-acknowledged": "were not acknowledged",
    "not-ended": "did not end",
    "not-rolled-back": "NOT ROLLED BACK",
}


def fate(sent: int, found: Fate) -> str:
    """What became of copies, in words."""
    handled = sent - found.dead - found.parked - found.waiting
    parts = {"handled": handled, "waiting": found.waiting, "died again": found.dead}
    parts["parked again"] = found.parked
    return ", ".join(f"{count:,} {word}" for word, count in parts.items() if count)


def operation(found: Operation, named: str, *, as_json: bool) -> None:
    """How an operation stands."""
    if as_json:
        typer.echo(json.dumps(found.as_data(), indent=2))
        return
    console = _console()
    said = f" ({found.said})" if found.said else ""
    _say(console, f"{found.id}: {found.status}{said}, {found.done:,} {found.outcome}")
    _left_out(console, found.left_out, {})
    if forgotten := found.counts.get("forgotten"):
        _say(console, f"  {counted(forgotten, 'id was', 'ids were')} forgotten by the inbox first")
    if deleted := found.counts.get("deleted"):
        _say(
            console,
            f"  {counted(deleted, 'offset was', 'offsets were')} deleted by retention, unread",
        )
    written = found.kind == "replay" and found.status == "done" and found.done
    if written and "stop_above" not in found.options:
        _say(console, "  written, not yet known to be handled:")
        if not named.startswith("-"):
            _say(console, f"  `redrive parked {named.split(maxsplit=1)[0]}` shows what waits")
        _say(console, f"  `redrive dead list {named} --state failed-again` shows what died again")
    if found.unfinished:
        _say(console, f"continue with: {found.resumed_by(named)}")


def operations(found: Sequence[Operation], *, as_json: bool) -> None:
    """All operations."""
    if as_json:
        typer.echo(json.dumps({"operations": [each.as_data() for each in found]}, indent=2))
        return
    console = _console()
    shown = _table("operation", "status", "letters", "by", "began", "which", "why")
    for each in found:
        status = f"{each.status}: {each.said}" if each.said else each.status
        shown.add_row(
            _cell(each.id),
            _cell(status),
            f"{each.done:,}",
            _cell(each.by),
            time_text(each.at),
            _cell(str(each.letters)),
            _cell(each.why),
        )
    if found:
        _fold(console, shown)
    else:
        _say(console, "nothing was done about these letters yet")


def _left_out(console: Console, counts: Mapping[str, int], examples: Mapping[str, str]) -> None:
    for why, count in counts.items():
        example = f": {examples[why]}" if examples.get(why) else ""
        _say(console, f"  {count:,} left out, as they {WHY.get(why, why)}{example}")


def _fold(console: Console, shown: Table) -> None:
    if not console.is_terminal:
        console.width = 1000  # a pipe has no edge at which to fold
    console.print(shown, soft_wrap=not console.is_terminal)
