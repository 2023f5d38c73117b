"""Numbers in sentences."""

from __future__ import annotations

from redrive.numbers import counted


def test_one_is_one_and_all_others_are_many():
    assert [counted(number, "record") for number in (0, 1, 2)] == [
        "0 records",
        "1 record",
        "2 records",
    ]
    assert counted(1_007, "record is", "records are") == "1,007 records are"
    assert counted(1, "record is", "records are") == "1 record is"
