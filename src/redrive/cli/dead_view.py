"""How dead letters look on a terminal, and in a pipe."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from time import time
from typing import Final

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from redrive.dead.copies import WHY
from redrive.dead.filters import age
from redrive.dead.groups import Group
from redrive.dead.letters import Detail
from redrive.dead.operations import Operation
from redrive.dead.scan import Found, Scanned
from redrive.dead.selection import Plan
from redrive.dead.showing import bytes_text, printable, time_text
from redrive.dead.stats import Stats
from redrive.dead.trying import Trials
from redrive.dead.watching import Fate

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
        _fold(console, shown)
    _say(console, str(scanned))


def _why(reason: str | None, error: str | None) -> str:
    return ": ".join(printable(each) for each in (reason, error) if each) or "-"


def _short(text: str) -> str:
    line = " ".join(printable(text).split())
    return line if len(line) <= _MESSAGE else line[: _MESSAGE - 3] + "..."


def _ago(milliseconds: int | None) -> str:
    return "-" if milliseconds is None else age(int(time() * 1000) - milliseconds)


def plan(found: Plan, verb: str = "replayed") -> None:
    """What would be done."""
    console = _console()
    for place, lines in found.differences:
        _say(console, place)
        for line in lines:
            _say(console, f"    {printable(line)}")
    for each in found.groups:
        _say(console, f"  {each.count:,} of group {each.id}: {_why(each.reason, each.error_type)}")
    for topic, count in found.targets.most_common():
        _say(console, f"  {count:,} to {topic}")
    if found.changed:
        _say(console, f"  {found.changed:,} changed by the fix")
    _left_out(console, found.left_out, found.examples)
    _say(console, str(found.scanned))
    _say(console, f"{found.letters:,} letters would be {verb}; nothing was written. --yes does it")


def trials(found: Trials) -> None:
    """Which letters would pass now, by group."""
    console = _console()
    for said in found.limits:
        _say(console, f"only decoded: {said}")
    shown = _table("group", "died of", "now", "would fail with", "would send")
    for each in found.groups.values():
        now = ", ".join(f"{count:,} {_NOW[word]}" for word, count in each.verdicts.items())
        errors = ", ".join(f"{name} {count:,}" for name, count in each.errors.most_common(5))
        sends = ", ".join(f"{count:,} to {topic}" for topic, count in each.sends.most_common(5))
        shown.add_row(
            each.group,
            escape(printable(each.error_type or "-")),
            now,
            escape(errors),
            escape(sends),
        )
    if found.groups:
        _fold(console, shown)
    _say(console, str(found.scanned))


_NOW: Final = {
    "pass": "would pass",
    "fail": "would fail",
    "decoded": "can be decoded",
    "no-handler": "have no handler",
    "fix-failed": "could not be fixed",
}


def fate(sent: int, found: Fate) -> str:
    """What became of copies, in words."""
    handled = sent - found.dead - found.parked - found.waiting
    parts = {"handled": handled, "waiting": found.waiting, "died again": found.dead}
    parts["parked again"] = found.parked
    return ", ".join(f"{count:,} {word}" for word, count in parts.items() if count)


def operation(found: Operation, *, as_json: bool) -> None:
    """How an operation stands."""
    if as_json:
        typer.echo(json.dumps(found.as_data(), indent=2))
        return
    console = _console()
    said = f" ({found.said})" if found.said else ""
    _say(console, f"{found.id}: {found.status}{said}, {found.done:,} {_DONE[found.kind]}")
    _left_out(console, found.left_out, {})
    if deleted := found.counts.get("deleted"):
        _say(console, f"  {deleted:,} offsets were deleted by retention before they were read")
    if found.unfinished:
        _say(console, f"continue with: redrive dead jobs ... --resume {found.id}")


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
            each.id,
            escape(status),
            f"{each.done:,}",
            escape(each.by),
            time_text(each.at),
            escape(str(each.letters)),
            escape(each.why),
        )
    if found:
        _fold(console, shown)
    else:
        _say(console, "nothing was done about these letters yet")


_DONE: Final = {"replay": "replayed", "discard": "discarded"}


def _left_out(console: Console, counts: Mapping[str, int], examples: Mapping[str, str]) -> None:
    for why, count in counts.items():
        example = f": {examples[why]}" if examples.get(why) else ""
        _say(console, f"  {count:,} left out, as they {WHY.get(why, why)}{printable(example)}")


def _fold(console: Console, shown: Table) -> None:
    if not console.is_terminal:
        console.width = 1000  # a pipe has no edge at which to fold
    console.print(shown, soft_wrap=not console.is_terminal)
