"""How a dead topic is cut into the parts that tasks read."""

from __future__ import annotations

import pickle

from redrive.dead import Filter
from redrive.dead.states import Mark, Marks
from redrive.engines.spark.dead.parts import cut


def ranges(bounds, wanted=None, size=10):
    return [each[:4] for each in cut("t", bounds, wanted or Filter(), Marks(), size)]


def test_parts_cover_every_offset_once_in_order():
    assert ranges({1: (5, 8), 0: (3, 25), 2: (4, 4)}) == [
        (0, 0, 3, 13),
        (1, 0, 13, 23),
        (2, 0, 23, 25),
        (3, 1, 5, 8),
    ]


def test_what_a_filter_rules_out_is_not_read():
    bounds = {0: (0, 100), 1: (0, 100)}
    assert ranges(bounds, Filter(places=("t[1]@17", "t[1]@30"))) == [
        (0, 1, 17, 27),
        (1, 1, 27, 31),
    ]


def test_an_empty_topic_has_one_empty_part():
    assert ranges({0: (7, 7)}) == [(0, 0, 0, 0)]


def test_a_part_has_its_own_marks_of_12_bytes_each():
    marks = Marks()
    for offset in range(100_000):
        marks.add(0, offset, Mark("replayed", ("replay-20250701-120816-3f2a",)))
    parts = cut("t", {0: (0, 100_000)}, Filter(), marks)
    assert [len(each.marks) for each in parts] == [50_000, 50_000]
    assert all(len(pickle.dumps(each)) < 12 * 50_000 + 1000 for each in parts)
