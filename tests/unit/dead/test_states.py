"""Marks: shared by the threads of a console, and carried to the tasks of Spark."""

from __future__ import annotations

import pickle
from threading import Thread

from redrive.dead import states
from redrive.dead.states import Mark, Marks

MARK = Mark("replayed", ("a",))


def test_a_mark_that_is_added_while_another_thread_sorts_them_is_kept(monkeypatch):
    marks = Marks()
    marks.add(0, 5, MARK)
    marks.add(0, 3, MARK)
    adding = Thread(target=marks.add, args=(0, 4, MARK))

    def sort(found, **how):
        order = sorted(found, **how)
        adding.start()
        adding.join(0.2)  # it is over by then, or waits until all is sorted
        return order

    monkeypatch.setattr(states, "sorted", sort, raising=False)
    assert marks.get(0, 5) == MARK
    monkeypatch.undo()
    adding.join()
    assert [*marks.before(0)] == [3, 4, 5]
    assert len(marks) == 3


def test_marks_travel_to_other_processes_and_can_be_added_to_there():
    marks = Marks()
    marks.add(0, 5, MARK)
    marks.add(0, 3, MARK)
    there = pickle.loads(pickle.dumps(marks))  # noqa: S301 -- made here
    there.add(0, 4, Mark("discarded", ("b",)))
    assert [*there.before(0)] == [3, 4, 5]
    assert there.get(0, 5) == MARK
    assert len(marks) == 2
