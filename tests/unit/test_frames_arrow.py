"""Columns of Arrow's as lists: what pyarrow itself would give, only sooner."""

from __future__ import annotations

import pyarrow as pa
import pytest

from redrive.engines.spark.frames.arrow import as_bytes, as_numbers


@pytest.mark.parametrize("given", [[b"", b"a", b"\x00" * 300], [b"a", None, b""], [None], []])
@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary()])
def test_bytes_of_a_column_are_those_that_pyarrow_gives(given, kind):
    whole = pa.array([b"before", *given, b"after"], kind)
    assert as_bytes(whole) == [b"before", *given, b"after"]
    part = whole.slice(1, len(given))
    assert as_bytes(part) == given
    assert all(type(one) is bytes for one in as_bytes(part) if one is not None)


def test_bytes_of_structs_in_lists():
    """As sends come: parts of a batch, flattened."""
    made = [[{"key": b"%d" % n, "value": b"v" * n}] * (n % 3) for n in range(20)]
    kind = pa.list_(pa.struct([("key", pa.binary()), ("value", pa.binary())]))
    for start, count in ((0, 20), (5, 10), (19, 1), (3, 0)):
        found = pa.array(made, kind).slice(start, count).flatten()
        wanted = [one for each in made[start : start + count] for one in each]
        assert as_bytes(found.field(0)) == [one["key"] for one in wanted]
        assert as_bytes(found.field(1)) == [one["value"] for one in wanted]


def test_numbers_of_a_part():
    whole = pa.array([1, -2, 1 << 62, 4], pa.int64())
    assert as_numbers(whole) == [1, -2, 1 << 62, 4]
    assert as_numbers(whole.slice(1, 2)) == [-2, 1 << 62]
