"""Columns of Arrow's as lists of Python's, from their memory: it is done for every row."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]  # -- it has no types


def as_bytes(column: pa.Array) -> list[bytes | None]:
    """A column of bytes as a list: cut out of its memory, where none is null."""
    _, where, buffer = column.buffers()
    usual = str(column.type) == "binary"  # a session may have Spark use the large type
    if not usual or column.null_count or where is None or buffer is None:
        return column.to_pylist()  # type: ignore[no-any-return]  # -- it has no types
    first, last = column.offset, column.offset + len(column) + 1
    ends = memoryview(where).cast("i")[first:last].tolist()
    # Only what is between the first and the last of them: it may be a part of a large one.
    begin = ends[0]
    data = memoryview(buffer)[begin : ends[-1]].tobytes()
    return [data[start - begin : end - begin] for start, end in pairwise(ends)]


def as_numbers(column: pa.Array) -> list[int]:
    """A column of 64-bit numbers without nulls as a list: from its memory, without numpy."""
    values = memoryview(column.buffers()[1]).cast("q")
    return values[column.offset : column.offset + len(column)].tolist()
