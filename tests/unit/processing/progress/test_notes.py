"""Notes beside a committed offset, and the marks of runs that are made of them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive.engines.spark import marks
from redrive.engines.spark.marks import RivalError
from redrive.ports import Position
from redrive.processing.progress import done_beyond
from redrive.processing.progress.notes import ROOM, RUN, TOPIC, noted, with_note, without_notes

BEYOND = done_beyond.encode(5, [(7, 9)])


def test_notes_stand_beside_what_is_done_beyond_and_beside_each_other():
    position = with_note(with_note(Position(5, BEYOND), RUN, "1-a"), TOPIC, "id")
    assert position == Position(5, f"t1:id s1:1-a {BEYOND}")
    assert (noted(position, TOPIC), noted(position, RUN)) == ("id", "1-a")
    assert done_beyond.decode(position) == [(7, 9)]
    assert without_notes(position) == Position(5, BEYOND)


def test_a_note_replaces_the_one_before_and_an_empty_one_removes_it():
    position = with_note(with_note(Position(5, BEYOND), RUN, "1-a"), RUN, "2-b")
    assert position == Position(5, f"s1:2-b {BEYOND}")
    assert with_note(position, RUN, "") == Position(5, BEYOND)
    assert noted(Position(5), RUN) == ""


@pytest.mark.parametrize("metadata", ["of another program", "redrive-run:abc", "p1:5:0", "s1", ""])
def test_text_that_nobody_knows_holds_no_note(metadata):
    assert noted(Position(5, metadata), RUN) == ""
    assert without_notes(Position(5, metadata)) == Position(5)


def test_there_is_room_for_all_notes():
    run = marks.new_run(10**13, [])
    labelled = marks.labelled(Position(5), topic_id="x" * 22, run=run)
    assert len(with_note(labelled, "b1", "123456.123456").metadata) < ROOM


@given(st.integers(0, 10**13), st.lists(st.integers(0, 10**13)))
def test_a_run_is_newer_than_all_before_it_whatever_the_clock_says(now, before):
    found = [with_note(Position(0), RUN, f"{began}-abc") for began in before]
    run = marks.new_run(now, found)
    marks.check("shop", run, found)
    for older in before:
        with pytest.raises(RivalError):
            marks.check("shop", f"{older}-abc", [with_note(Position(0), RUN, run)])


def test_of_two_that_began_at_the_same_time_one_stops():
    ours, theirs = (with_note(Position(0), RUN, f"5-{name}") for name in ("a", "b"))
    marks.check("shop", "5-b", [ours, theirs])
    with pytest.raises(RivalError, match="another run of the app shop on Spark has begun"):
        marks.check("shop", "5-a", [ours, theirs])


def test_positions_that_nobody_marked_stop_nobody():
    marks.check("shop", "5-a", [Position(3), Position(4, BEYOND)])
    marks.check("shop", "5-a", [])
