"""Masking: values taken apart into fields, without the masked ones; and what was in those. Pure.

What cannot be taken apart could hold a masked field anywhere, so it is hidden. What a masked field
of the value, the key or a header held is remembered for as long as its letter is shown: an error,
or another one of them, may quote it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import fields, is_dataclass
from datetime import date, time, timedelta
from decimal import Decimal
from enum import Enum
from functools import lru_cache
from typing import Any, Final, NamedTuple
from urllib.parse import quote, quote_plus
from uuid import UUID

from redrive.tuning import MASKED_DEEPEST, MASKED_SECRETS

MASK: Final = "***"
_SHORT: Final = 4
"""Shorter ones are hidden as whole words only: a masked `1` is not every 1 in a sentence."""
_SCALARS: Final = (bool, int, float, Decimal, date, time, timedelta, UUID)
_MANY: Final = (list, tuple, set, frozenset)
_BINARY: Final = re.compile(r"[\x00-\x08\x0e-\x1a\x1c-\x1f]")
"""In no text, but in numbers and in records of Avro or Protobuf, short ones of which are UTF-8."""
_CUT: Final = "..."
"""How a message ends that was too long for its header."""


class Apart(NamedTuple):
    """A value that was taken apart."""

    data: Any
    """Data for JSON, with `***` for what is masked or could not be taken apart."""
    secrets: frozenset[str]
    """What the masked fields held, as text."""
    complete: bool
    """Whether all of it could be taken apart, so that no secret is missing."""


class OpaqueError(Exception):
    """A value that does not say what its fields are."""


def apart(value: Any, masked: Collection[str]) -> Apart:
    """The value without its masked fields; OpaqueError if it has no fields that it tells."""
    taking = _TakingApart(masked)
    data = taking.part(value, "", 0)
    secrets = frozenset(taking.secrets)
    if len(secrets) > MASKED_SECRETS:
        raise OpaqueError
    return Apart(leaves_without(data, secrets), secrets, taking.complete)


def readable(data: bytes) -> str | None:
    """Bytes as text; None if they are none, but data of another kind."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return None
    return None if _BINARY.search(text) else text


def bytes_apart(data: bytes, masked: Collection[str]) -> Apart:
    """Bytes that are in no field, such as a key: JSON in them is taken apart as well."""
    taking, text = _TakingApart(masked), readable(data)
    if text is None:
        return Apart(MASK, frozenset(), complete=False)
    return Apart(taking.text(text, ".", 0), frozenset(taking.secrets), taking.complete)


def masked_whole(data: bytes) -> Apart:
    """Bytes all of which are masked, such as a header whose name is."""
    taking = _TakingApart(())
    taking.remember(data)
    complete = taking.complete and readable(data) is not None
    return Apart(MASK, frozenset(taking.secrets), complete)


def secrets_as_written(data: bytes, masked: Collection[str]) -> frozenset[str]:
    """What masked fields hold of JSON, as it is written: an error may quote that.

    Numbers with all their digits, and whatever a field holds that is there twice.
    """
    taking = _TakingApart(masked, json_as_written)
    taking.part(json_as_written(data), ".", 0)
    return frozenset(taking.secrets)


def whole_as_written(data: bytes) -> frozenset[str]:
    """The same of bytes all of which are masked."""
    taking = _TakingApart((), json_as_written)
    taking.remember(json_as_written(data))
    return frozenset(taking.secrets)


def is_masked(path: str, masked: Collection[str]) -> bool:
    """Whether a field is masked: `card.number` wherever a `card` has one, `number` anywhere."""
    return f".{path}".endswith(tuple(f".{each}" for each in masked))


def leaves_without(data: Any, secrets: Collection[str]) -> Any:
    """Data for JSON in which fields that are not masked do not repeat those that are."""
    return _leaves_without(data, frozenset(each for each in secrets if len(each) >= _SHORT))


def without(text: str, secrets: Collection[str]) -> str:
    """A text without what masked fields held, in all the ways in which errors quote a value."""
    written, finder = _finder(frozenset(secrets))
    found = finder.sub(MASK, text) if written else text
    return _without_cut(found, written) if found.endswith(_CUT) else found


class _TakingApart:
    """Takes one value apart, and remembers what it has masked."""

    def __init__(
        self, masked: Collection[str], read: Callable[[str | bytes], Any] | None = None
    ) -> None:
        """`read`: how JSON in texts is read."""
        self._masked = masked
        self._read = read or json_of
        names = {re.escape(each.rpartition(".")[2]) for each in masked}
        self._mentions = re.compile(rf"(?<![^\W_])({'|'.join(names)})(?![^\W_])", re.IGNORECASE)
        self.secrets: set[str] = set()
        self.complete = True

    def part(self, value: Any, path: str, depth: int) -> Any:
        """One part, at a path such as `card.`, for JSON."""
        value = _unwrapped(value)
        if depth > MASKED_DEEPEST:
            return self._opaque(path)
        if (named := _fields_of(value)) is not None:
            return {name: self._field(name, each, path, depth) for name, each in named.items()}
        if isinstance(value, _MANY):
            return [self.part(each, path, depth + 1) for each in value]
        if isinstance(value, str):
            return self.text(value, path, depth)
        if path and (value is None or isinstance(value, _SCALARS)):
            return value
        return self._opaque(path)

    def text(self, text: str, path: str, depth: int) -> Any:
        """A text: JSON in it is taken apart as well, and what names a masked field is hidden."""
        inner = self._inner(text)
        if inner is not None and depth <= MASKED_DEEPEST:
            shown = self.part(inner, path, depth + 1)
            return as_json(shown) if path else shown
        if not path or self._mentions.search(text):
            return self._opaque(path)
        return text

    def _field(self, name: str, value: Any, path: str, depth: int) -> Any:
        if is_masked(f"{path}{name}", self._masked):
            self.remember(value, depth)
            return MASK
        return self.part(value, f"{path}{name}.", depth + 1)

    def remember(self, value: Any, depth: int = 0) -> None:
        """Remember all texts and numbers in a masked field."""
        value = _unwrapped(value)
        if depth > MASKED_DEEPEST:
            self.complete = False
        elif (named := _fields_of(value)) is not None or isinstance(value, _MANY):
            for each in value if named is None else named.values():
                self.remember(each, depth + 1)
            # `number` in a masked card is what anybody calls it; `4111-2222` is whose card it is.
            self.secrets.update(each for each in named or () if not each.isidentifier())
        elif value is None or isinstance(value, bool):
            pass  # it says too little to be looked for
        elif isinstance(value, (str, *_SCALARS)):
            self.secrets.add(str(value))
            inner = self._inner(value) if isinstance(value, str) else None
            if inner is not None:
                self.remember(inner, depth + 1)
        else:
            self.complete = False

    def _inner(self, text: str) -> Any:
        """What is in a text that is JSON and more than a number; None: it is none."""
        inner = self._read(text)
        return inner if isinstance(inner, dict | list | str) and inner != text else None

    def _opaque(self, path: str) -> str:
        if not path:
            raise OpaqueError
        self.complete = False
        return MASK


def as_json(data: Any, indent: int | None = None) -> str:
    """Data as JSON; dates, numbers of any kind and ids as text."""
    return json.dumps(data, indent=indent, ensure_ascii=False, default=str)


def json_of(text: str | bytes) -> Any:
    """What is in a JSON text; None if it is none."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def json_as_written(text: str | bytes) -> Any:
    """The same, with numbers as they are written, and all that fields hold which come twice."""
    try:
        return json.loads(text, parse_float=str, parse_int=str, object_pairs_hook=_all_of)
    except (ValueError, RecursionError):
        return None


def _all_of(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, list[Any]] = {}
    for name, value in pairs:
        found.setdefault(name, []).append(value)
    return {name: each[0] if len(each) == 1 else each for name, each in found.items()}


def _unwrapped(value: Any) -> Any:
    """What is in an enum, in a model that only wraps one value, or in bytes that are text."""
    if isinstance(value, Enum):
        return value.value
    if getattr(type(value), "__pydantic_root_model__", False):
        return value.root
    if isinstance(value, bytes | bytearray):
        with suppress(UnicodeDecodeError):
            return value.decode()
    return value


def _fields_of(value: Any) -> dict[str, Any] | None:
    """The fields of a mapping, dataclass, NamedTuple or pydantic model; None if it is none."""
    cls: Any = type(value)
    try:
        if isinstance(value, Mapping):
            return {_name(name): each for name, each in value.items()}
        if isinstance(value, tuple) and hasattr(cls, "_fields"):
            return dict(zip(cls._fields, value, strict=True))
        if is_dataclass(cls):
            return {each.name: getattr(value, each.name) for each in fields(cls)}
        if isinstance(getattr(cls, "model_fields", None), Mapping):
            known = {name: getattr(value, name) for name in cls.model_fields}
            return {**known, **(value.model_extra or {})}
    except Exception as error:  # it is somebody's object: it may do anything
        raise OpaqueError from error
    return None


def _name(name: Any) -> str:
    found = _unwrapped(name)
    return found if isinstance(found, str) else str(found)


def _leaves_without(data: Any, secrets: frozenset[str]) -> Any:
    if isinstance(data, dict):
        return {name: _leaves_without(each, secrets) for name, each in data.items()}
    if isinstance(data, list):
        return [_leaves_without(each, secrets) for each in data]
    if data is None or isinstance(data, bool):
        return data
    told = str(data)
    found = without(told, secrets)
    return data if found == told else found


@lru_cache(maxsize=16)
def _finder(secrets: frozenset[str]) -> tuple[list[str], re.Pattern[str]]:
    """What is to be hidden, the longest first, and what finds it."""
    written = {each for secret in secrets if secret.strip() for each in _written(secret)}
    longest_first = sorted(written, key=len, reverse=True)
    return longest_first, re.compile("|".join(map(_pattern, longest_first)), re.IGNORECASE)


def _written(secret: str) -> Iterable[str]:
    """The ways in which an error, a trace or an address writes a text."""
    in_json = json.dumps(secret), json.dumps(secret, ensure_ascii=False)
    quoted = (each[1:-1] for each in (repr(secret), *in_json))
    in_single_quotes = repr(f'{secret}"')[1:-2]
    escaped = secret.encode(errors="backslashreplace").decode()
    in_addresses = (write(secret, errors="replace") for write in (quote, quote_plus))
    return secret, escaped, in_single_quotes, *quoted, *in_addresses


def _pattern(text: str) -> str:
    found = re.escape(text)
    return found if len(text) >= _SHORT else rf"(?<!\w){found}(?!\w)"


def _without_cut(text: str, written: Iterable[str]) -> str:
    """A message that was cut within a secret still ends with the beginning of it."""
    end = text.removesuffix(_CUT)
    for each in written:
        for length in range(min(len(each) - 1, len(end)), _SHORT - 1, -1):
            if end.endswith(each[:length]):
                return end[:-length] + MASK + text[len(end) :]
    return text
