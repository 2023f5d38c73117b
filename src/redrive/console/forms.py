"""Forms: filters and options as a page sends them, in the words of the commands. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final
from urllib.parse import parse_qsl, urlencode

from redrive.dead import Filter, ReplayOptions
from redrive.dead.pace import ramp_of, rate_of, share_of
from redrive.durations import milliseconds
from redrive.errors import ConfigurationError

Fields = Mapping[str, list[str]]
_LISTS: Final = {
    "at": "places",
    "group": "groups",
    "dead_reason": "reasons",
    "error": "errors",
    "key": "keys",
    "id": "ids",
    "header": "headers",
    "origin": "origins",
    "state": "states",
    "operation": "operations",
}
FILTERS: Final = (*_LISTS, "text", "newer", "older", "attempts")
"""The fields that say which letters are meant."""
AS_THEY_ARE: Final = ("edited", "before_edit")
"""Fields that hold a value: what is around it belongs to it, and it may be empty."""
_MOST_FIELDS: Final = 2000
DIGITS: Final = 19
"""Of a number, at most: no offset has more."""


def fields_of(body: str) -> dict[str, list[str]]:
    """The fields of a form or a query; those that were left empty are left out."""
    try:
        pairs = parse_qsl(
            body, keep_blank_values=True, max_num_fields=_MOST_FIELDS, errors="replace"
        )
    except ValueError:
        raise ConfigurationError("too many fields: select fewer letters, or use a filter") from None
    found: dict[str, list[str]] = {}
    for name, value in pairs:
        if name in AS_THEY_ARE:
            found.setdefault(name, []).append(value)
        elif value.strip():
            found.setdefault(name, []).append(value.strip())
    return found


def filter_of(fields: Fields, now: int, *, as_seen: bool = False) -> Filter:
    """Which letters are meant; `now` in milliseconds, as ages are relative."""
    lists: dict[str, Any] = {name: tuple(fields.get(field, ())) for field, name in _LISTS.items()}
    newer, older = _one(fields, "newer"), _one(fields, "older")
    return Filter(
        **lists,
        text=_one(fields, "text"),
        since=None if newer is None else now - milliseconds(newer),
        until=None if older is None else now - milliseconds(older),
        attempts=_number(fields, "attempts"),
        as_seen=as_seen,
    )


def options_of(fields: Fields, fixes: Iterable[str], edited: bytes | None = None) -> ReplayOptions:
    """How letters are replayed; a fix is one of those that the console was started with."""
    fix = _one(fields, "fix")
    if fix is not None and fix not in fixes:
        raise ConfigurationError(f"{fix} is not among the fixes that the console was started with")
    return ReplayOptions(
        fix=fix,
        edited=edited,
        again="again" in fields,
        rate=rate_of(_one(fields, "rate")),
        ramp=ramp_of(_one(fields, "ramp")),
        stop_above=share_of(_one(fields, "stop_above")),
    )


def query_of(fields: Fields, **more: str) -> str:
    """The filter among the fields, as a query."""
    pairs = [(name, value) for name in FILTERS for value in fields.get(name, ())]
    return urlencode([*pairs, *more.items()])


def _one(fields: Fields, name: str) -> str | None:
    return fields[name][0] if fields.get(name) else None


def _number(fields: Fields, name: str) -> int | None:
    given = _one(fields, name)
    if given is None:
        return None
    if not given.isdecimal() or len(given) > DIGITS:
        raise ConfigurationError(f"{name}: {given[:100]!r} is not a number")
    return int(given)
