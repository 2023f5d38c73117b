"""Fingerprints: what failures with the same cause have in common, whatever their records.

A fingerprint holds nothing that differs from record to record, or from one release of the code to
the next: no messages, no line numbers. Its id is in log lines and, as `redrive-error-group`, in
headers. Messages tell apart what one fingerprint holds: by their pattern. Pure.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2s
from types import TracebackType
from typing import Final

_VERSION: Final = "1"
"""The first digit of an id: another one says that ids are made in another way since then."""
_DEEPEST: Final = 20
"""How many frames are kept: the innermost."""
_SHOWN: Final = 3
_OF_OTHERS: Final = frozenset(("redrive", "pyspark", "py4j"))
"""Packages that are never the user's own, wherever they are: spark-submit ships Spark in zips."""
_INSTALLED: Final = ("site-packages", "dist-packages")


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """Why records fail: the same for all records with one cause."""

    reason: str
    """Why the record is dead, such as `exhausted`; empty if it is not."""
    error: str
    """The class of the error; for a group, also those of its members."""
    frames: tuple[str, ...] = ()
    """Where it was raised: `module:function` of the user's own code, outermost first."""
    known: str = ""
    """Its id, if that is all there is: the header of a record that failed in another process."""

    @property
    def id(self) -> str:
        """16 hexadecimal digits, the same in all processes and forever."""
        return self.known or grouped(_digest("\n".join((self.error, *self.frames))), self.reason)

    @property
    def where(self) -> str:
        """Where it was raised, innermost first, for a log line; empty: not in the user's code."""
        return " < ".join(reversed(self.frames[-_SHOWN:]))


def fingerprint(
    error: BaseException, reason: str = "", own: frozenset[str] = frozenset()
) -> Fingerprint:
    """The fingerprint of a failure.

    `own` are modules that are the user's own even if they are installed like libraries: those of
    the app's handlers, with all modules of their packages.
    """
    return Fingerprint(reason, error_name(error), _frames(error, own))


def grouped(cause: str, reason: str) -> str:
    """The id of a fingerprint with a reason, given that of the same without one."""
    return _digest(f"{reason}\n{cause}") if reason else cause


def _digest(text: str) -> str:
    data = text.encode(errors="backslashreplace")
    return _VERSION + blake2s(data, digest_size=8).hexdigest()[1:]


def pattern(message: str) -> str:
    """What messages of one kind have in common: without numbers, ids and quoted text."""
    plain = _TOKENS.sub(_taken_out, _QUOTED.sub("<text>", message))
    return " ".join(plain.split())


_QUOTED: Final = re.compile(r"""(?<!\w)'[^']*'(?!\w)|"[^"]*"|`[^`]*`""")
_TOKENS: Final = re.compile(r"[+-]?\w*\d\w*(?:[-.,:/]\w*\d\w*|-\w+)*|(?:\w+-)+\w*\d\w*")
"""Words with a digit in them: numbers, times, addresses, hexadecimal, UUIDs, `order-4711`."""


def _taken_out(found: re.Match[str]) -> str:
    return "<n>" if not re.search(r"[^\W\d_]", found[0]) else "<id>"


def error_name(error: BaseException) -> str:
    """The class of an error; a group is named by its members, each class once."""
    try:
        return _name(error)
    except BaseException:  # noqa: BLE001 -- groups in groups, too deep; a failure is logged all the same
        return class_name(type(error))


def _name(error: BaseException) -> str:
    if not isinstance(error, BaseExceptionGroup):
        return class_name(type(error))
    members = sorted({_name(each) for each in error.exceptions})
    return members[0] if len(members) == 1 else f"{class_name(type(error))}({', '.join(members)})"


def class_name(cls: type) -> str:
    """A class by name: with its module, unless it is a built-in."""
    name = cls.__qualname__
    return name if cls.__module__ == "builtins" else f"{cls.__module__}.{name}"


def _frames(error: BaseException, own: frozenset[str]) -> tuple[str, ...]:
    try:
        return _found_frames(error, own)
    except BaseException:  # noqa: BLE001 -- likewise
        return ()


def _found_frames(error: BaseException, own: frozenset[str]) -> tuple[str, ...]:
    # Errors that redrive raises about a user's function have the function's error as their cause.
    seen: set[int] = set()
    current: BaseException | None = error
    while current is not None and id(current) not in seen:
        seen.add(id(current))
        found = [*_own_frames(current, own)]
        if found:
            # Each once: a recursion is as deep as its data.
            return tuple(dict.fromkeys(found))[-_DEEPEST:]
        current = current.__cause__
    return ()


def _own_frames(error: BaseException, own: frozenset[str]) -> Iterator[str]:
    for frame in _walk(error.__traceback__):
        name = _own_name(*frame, own)
        if name is not None:
            yield name
    if isinstance(error, BaseExceptionGroup):
        for member in error.exceptions:
            yield from _own_frames(member, own)


def _walk(trace: TracebackType | None) -> Iterable[tuple[str, str, str]]:
    while trace is not None:
        code = trace.tb_frame.f_code
        module = trace.tb_frame.f_globals.get("__name__")
        yield str(module), code.co_filename, code.co_qualname
        trace = trace.tb_next


@lru_cache(maxsize=4096)
def _own_name(module: str, file: str, function: str, own: frozenset[str]) -> str | None:
    package = module.partition(".")[0]
    if package in _OF_OTHERS:
        mine = module in own  # an app that comes with redrive: only itself
    else:
        mine = package in {each.partition(".")[0] for each in own} or not (
            package in sys.stdlib_module_names or any(part in file for part in _INSTALLED)
        )
    return f"{module}:{function}" if mine else None
