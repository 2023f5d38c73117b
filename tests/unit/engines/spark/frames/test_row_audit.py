from __future__ import annotations

import pytest

from redrive.engines.spark.frames.row_audit import Gap, RowAudit, RowsError
from redrive.record import TopicPartition

PLACE = TopicPartition("orders", 2)


def test_rows_in_their_order_have_no_gap_also_where_offsets_have():
    audit = RowAudit(PLACE, 10)
    assert audit.check([0, 1, 2], [10, 14, 15]) == []
    assert audit.check([3], [90]) == []
    assert audit.next_offset == 91


def test_a_row_that_is_missing_is_a_gap_between_its_neighbours():
    audit = RowAudit(PLACE, 10)
    assert audit.check([1, 2, 5], [12, 13, 17]) == [Gap(0, 10, 12), Gap(2, 14, 17)]
    assert audit.check([7], [20]) == [Gap(0, 18, 20)]


@pytest.mark.parametrize("numbers", [[0, 0, 1], [1, 0, 2], [0, 2, 1]])
def test_a_row_that_comes_twice_or_too_late_is_named(numbers):
    audit = RowAudit(PLACE, 10)
    with pytest.raises(RowsError, match=r"returned orders\[2\]@1[01] twice"):
        audit.check(numbers, [10 + number for number in numbers])


def test_a_row_that_comes_again_in_the_next_lot_is_named():
    audit = RowAudit(PLACE, 0)
    audit.check([0, 1], [0, 1])
    with pytest.raises(RowsError, match=r"orders\[2\]@1 "):
        audit.check([1, 2], [1, 2])
