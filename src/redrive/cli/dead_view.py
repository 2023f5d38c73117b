"""How dead letters look on a terminal, and in a pipe."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from time import time
from typing import Final

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from redrive.dead.filters import age
from redrive.dead.groups import Group
from redrive.dead.letters import Detail
from redrive.dead.scan import Found, Scanned
from redrive.dead.showing import bytes_text, printable, time_text
from redrive.dead.stats import Stats

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
            each.id,
            f"{each.count:,}",
            f"{each.states['open'] + each.states['failed-again']:,}",
            escape(f"{_why(each.reason, each.error_type)}{''.join(patterns)}"),
            _ago(each.last),
            escape(", ".join(each.topics)),
        )
    _print(console, shown, scanned, has_rows=bool(found))


def letters(found: Sequence[Found], scanned: Scanned) -> None:
    """A table of letters."""
    console = _console()
    shown = _table("letter", "state", "died", "group", "key", "from", "error")
    for letter, state, _ in found:
        error = f"{letter.error_type or letter.reason or '-'}: {letter.error_message or ''}"
        shown.add_row(
            escape(letter.place),
            state,
            time_text(letter.died),
            letter.group,
            escape(_short(bytes_text(letter.record.key) or "-")),
            escape(letter.origin or "-"),
            escape(_short(printable(error))),
        )
    _print(console, shown, scanned, has_rows=bool(found))


def letter(detail: Detail) -> None:
    """One letter, line by line."""
    console = _console()
    each = detail.found.letter
    lines = [
        ("letter", f"{each.place} ({detail.found.state})"),
        ("died", f"{time_text(each.died)} UTC, {_ago(each.died)} ago"),
        ("group", each.group),
        ("reason", each.reason or "-"),
        ("error", f"{each.error_type or '-'}: {printable(each.error_message or '')}"),
        ("from", each.origin or "-"),
        ("app", each.app or "-"),
        ("id", each.id or "-"),
        ("key", bytes_text(each.record.key) or "-"),
        ("attempts", "-" if each.attempt is None else str(each.attempt)),
    ]
    for name, value in lines:
        _say(console, f"{name:<10}{value}")
    for tried in each.history:
        _say(console, f"  {tried.attempt:>3}. {time_text(tried.at)}  {printable(tried.error)}")
    for operation in detail.operations:
        why = f": {operation.why}" if operation.why else ""
        at = time_text(operation.at)
        _say(console, f"  {operation.kind} {at} by {operation.by}{why} ({operation.id})")
    for name, data in each.headers:
        _say(console, f"header    {printable(name)} = {bytes_text(data)}")
    if each.error_trace:
        _say(console, f"trace\n{printable(each.error_trace).rstrip()}")
    if detail.value.problem:
        _say(console, f"decoder   cannot read it: {printable(detail.value.problem)}")
    _say(console, f"value     {detail.value.how}\n{detail.value.text}")


def stats(found: Stats, scanned: Scanned) -> None:
    """Counters, one after the other."""
    console = _console()
    _say(console, f"{found.letters:,} letters, {found.bytes:,} bytes of keys and values")
    if found.letters:
        _say(console, f"died from {time_text(found.first)} to {time_text(found.last)} UTC")
    for name in ("states", "reasons", "errors", "topics", "dialects"):
        counter: Counter[str] = getattr(found, name)
        counted = ", ".join(f"{word} {count:,}" for word, count in counter.most_common(10))
        _say(console, f"{name:<10}{printable(counted) or '-'}")
    for hour, count in sorted(found.hours.items())[-24:]:
        _say(console, f"  {time_text(hour)}  {count:,}")
    _say(console, str(scanned))


def _console() -> Console:
    return Console(highlight=False)


def _say(console: Console, text: str) -> None:
    console.print(text, markup=False, soft_wrap=True)


def _table(*columns: str) -> Table:
    shown = Table(box=None, pad_edge=False)
    for column in columns:
        right = column in ("letters", "open")
        shown.add_column(column, justify="right" if right else "left", overflow="fold")
    return shown


def _print(console: Console, shown: Table, scanned: Scanned, *, has_rows: bool) -> None:
    if has_rows:
        if not console.is_terminal:
            console.width = 1000  # a pipe has no edge at which to fold
        console.print(shown, soft_wrap=not console.is_terminal)
    _say(console, str(scanned))


def _why(reason: str | None, error: str | None) -> str:
    return ": ".join(printable(each) for each in (reason, error) if each) or "-"


def _short(text: str) -> str:
    line = " ".join(printable(text).split())
    return line if len(line) <= _MESSAGE else line[: _MESSAGE - 3] + "..."


def _ago(milliseconds: int | None) -> str:
    return "-" if milliseconds is None else age(int(time() * 1000) - milliseconds)
