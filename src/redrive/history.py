"""The history of a record: when its last attempts failed, and with which class of error.

It travels as one header, and is replaced at each hop: it is bounded, however often a record is
tried. Text, so that any Kafka tool shows it: `1@1751371696789 KeyError, 2@1751371996790 OSError`.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from redrive.tuning import HISTORY_ATTEMPTS

ERROR_BYTES: Final = 64
"""Of the name of a class that are kept: its end, which is the class itself."""
_SEPARATOR: Final = ", "
_WRITTEN: Final = re.compile(r"([0-9]{1,10})@([0-9]{1,19}) ([^,]*)")


class Tried(NamedTuple):
    """An attempt that failed."""

    attempt: int
    at: int
    error: str

    def __str__(self) -> str:
        name = re.sub(r"[^\x21-\x7e]|,", "?", self.error)  # a class may have any name
        return f"{self.attempt}@{self.at} {name[-ERROR_BYTES:]}"


def added(before: str | None, tried: Tried) -> str:
    """The history with one more attempt; several calls within one attempt are one entry."""
    known = [each for each in attempts(before) if each.attempt != tried.attempt]
    return _SEPARATOR.join(map(str, [*known, tried][-HISTORY_ATTEMPTS:]))


def attempts(written: str | None) -> list[Tried]:
    """The attempts that were written, oldest first; what cannot be read is left out."""
    found = map(_WRITTEN.fullmatch, (written or "").split(_SEPARATOR))
    return [Tried(int(each[1]), int(each[2]), each[3]) for each in found if each is not None]
