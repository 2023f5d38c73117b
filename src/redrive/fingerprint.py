"""Fingerprints: what failures with the same cause have in common, whatever their records.

A fingerprint holds nothing that differs from record to record, or from one release of the code to
the next: no messages, no line numbers. Pure: it only looks at the exception.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2s
from types import TracebackType
from typing import Final

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

    @property
    def id(self) -> str:
        """A short id, the same in all processes and forever."""
        told = "\n".join((self.reason, self.error, *self.frames))
        return blake2s(told.encode(errors="backslashreplace"), digest_size=6).hexdigest()

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


def error_name(error: BaseException) -> str:
    """The class of an error; a group is named by its members, each class once."""
    if not isinstance(error, BaseExceptionGroup):
        return class_name(type(error))
    members = sorted({error_name(each) for each in error.exceptions})
    return members[0] if len(members) == 1 else f"{class_name(type(error))}({', '.join(members)})"


def class_name(cls: type) -> str:
    """A class by name: with its module, unless it is a built-in."""
    name = cls.__qualname__
    return name if cls.__module__ == "builtins" else f"{cls.__module__}.{name}"


def _frames(error: BaseException, own: frozenset[str]) -> tuple[str, ...]:
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
