"""Records that were given back to be read again."""

from __future__ import annotations

from typing import Final

_MOST: Final = 10_000


class GivenBack:
    """How often records were tried, by offset, while they are not here.

    Bounded: when it is full the oldest count is forgotten, and that record starts at one again.
    """

    def __init__(self, most: int = _MOST) -> None:
        self.goes_back = False
        """Whether reading has to go back before anything more is taken in."""
        self._most = most
        self._counts: dict[int, tuple[int, int]] = {}

    def __bool__(self) -> bool:
        return bool(self._counts)

    def add(self, offset: int, tries: int, until: int) -> None:
        """Note that a record goes back: its next try has that number, and may not begin before."""
        if len(self._counts) >= self._most:
            del self._counts[next(iter(self._counts))]
        self._counts[offset] = (tries, until)
        self.goes_back = True

    def taken_up(self, offset: int) -> tuple[int, int | None]:
        """The number of the next try of a record that was read, and when it may begin."""
        return self._counts.pop(offset, (1, None))
