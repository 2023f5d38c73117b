"""Messages: writes in order; those that came as columns stay columns until accessed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Final, overload

from redrive.record import Write, payload

_KEY: Final = Write._fields.index("key")
_FRAME: Final = 70
"""Overhead of a message: its lengths, and the batch's own if it is alone in it."""


def weight(writes: Sequence[Write]) -> int:
    """Roughly the bytes that writes take in batches."""
    return _FRAME * len(writes) + payload(writes, _KEY)


@dataclass(frozen=True, eq=False)
class Columns:
    """Messages for one topic that have only keys and values."""

    topic: str
    keys: Sequence[bytes | None]
    values: Sequence[bytes | None]

    def __len__(self) -> int:
        return len(self.keys)

    @cached_property
    def writes(self) -> list[Write]:
        """The same as writes: created once, since equal writes are distinguished by identity."""
        pairs = zip(self.keys, self.values, strict=True)
        return [Write(self.topic, key, value) for key, value in pairs]


class Messages(Sequence[Write]):
    """Writes that are created on access: for most, only the bytes are ever needed."""

    def __init__(self, writes: Iterable[Write] = ()) -> None:
        self.parts: list[Columns | list[Write]] = []
        self._all: list[Write] | None = None
        self.extend(writes)

    def extend(self, writes: Iterable[Write]) -> None:
        """Add these after the others."""
        for part in writes.parts if isinstance(writes, Messages) else (writes,):
            self._add(part)

    def extend_by(self, columns: Columns) -> None:
        """Add these after the others."""
        self._add(columns)

    def __len__(self) -> int:
        return sum(map(len, self.parts))

    def __iter__(self) -> Iterator[Write]:
        return iter(self._made)

    @overload
    def __getitem__(self, index: int) -> Write: ...

    @overload
    def __getitem__(self, index: slice) -> list[Write]: ...

    def __getitem__(self, index: int | slice) -> Write | list[Write]:
        return self._made[index]

    def _add(self, part: Columns | Iterable[Write]) -> None:
        self._all = None
        if isinstance(part, Columns):
            self.parts.append(part)
        elif self.parts and isinstance(self.parts[-1], list):
            self.parts[-1] += part
        else:
            self.parts.append([*part])

    @property
    def _made(self) -> list[Write]:
        if self._all is None:
            parts = (each.writes if isinstance(each, Columns) else each for each in self.parts)
            self._all = list(chain.from_iterable(parts))
        return self._all
