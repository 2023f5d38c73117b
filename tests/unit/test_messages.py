"""Messages that stay columns are the same as the writes they stand for."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from redrive.messages import Columns, Messages
from redrive.record import Write

_BYTES = st.none() | st.binary(max_size=3)
_WRITES = st.lists(st.builds(Write, st.sampled_from("ab"), _BYTES, _BYTES), max_size=4)
_COLUMNS = st.lists(st.tuples(_BYTES, _BYTES), max_size=4)


_SEVERAL = st.sets(st.integers(0, 2))
"""Of which each stands for some writes and some columns, added as messages."""


@given(st.lists(_WRITES | _COLUMNS.map(tuple) | _SEVERAL))
def test_they_are_a_sequence_of_all_that_was_added(added):
    messages, plain = Messages(), []
    for each in added:
        match each:
            case list():
                messages.extend(each)
                plain += each
            case tuple():
                columns = Columns("c", [key for key, _ in each], [value for _, value in each])
                messages.extend_by(columns)
                plain += [Write("c", key, value) for key, value in each]
            case _:
                several = Messages()
                for count in each:
                    writes = [Write("a", None, b"v")] * count
                    several.extend(writes)
                    several.extend_by(Columns("d", [b"k"], [None]))
                    plain += [*writes, Write("d", b"k", None)]
                messages.extend(several)
        assert len(messages) == len(plain)
        assert list(messages) == messages[:] == plain
    # One is told from its like by being itself: so it must be the same at every look.
    assert [id(one) for one in messages] == [id(messages[n]) for n in range(len(plain))]


def test_what_is_added_later_is_not_in_those_it_was_taken_from():
    first = Messages([Write("a", None, b"1")])
    second = Messages()
    second.extend(first)
    second.extend([Write("a", None, b"2")])
    assert len(first) == 1
    assert len(second) == 2
