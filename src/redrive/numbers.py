"""Numbers in sentences: `1 record`, `1,007 records`."""

from __future__ import annotations


def counted(number: int, one: str, many: str = "") -> str:
    """A number with its word: `counted(1, "record is", "records are")`; by default with an s."""
    return f"{number:,} {one if number == 1 else many or f'{one}s'}"
