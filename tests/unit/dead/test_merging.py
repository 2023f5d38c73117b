"""What several processes have counted is, put together, what one would have counted."""

from __future__ import annotations

import json

import letters
from hypothesis import given
from hypothesis import strategies as st

from redrive.dead import DeadLetters, Filter
from redrive.dead.groups import OTHERS, Group, Groups
from redrive.dead.letter import Letter
from redrive.dead.scan import Scanned
from redrive.dead.showing import Seen
from redrive.dead.states import Mark, Marks
from redrive.dead.stats import Stats
from redrive.record import Record
from redrive.tuning import DEAD_GROUPS

WORDS = ("KeyError", "OSError", "shop.NoPrice")


def letter(number: int, word: int, died: int | None) -> Letter:
    headers = (
        ("dead-letter-reason", b"order %d has no price" % (number % 3)),
        ("dead-letter-exception-class-name", WORDS[word].encode()),
        ("dead-letter-topic", b"orders%d" % (number % 2)),
    )
    return Letter(Record("t", 0, number, b"k", b"v" * word, headers, died))


several = st.lists(
    st.tuples(
        st.integers(0, 2),
        st.one_of(st.none(), st.integers(0, 3), st.just(7_200_000)),
        st.sampled_from(("open", "replayed")),
    ),
    max_size=12,
)


@given(several, st.integers(1, 5))
def test_parts_that_are_merged_are_the_whole(made, size):
    all_ = [(letter(number, word, died), state) for number, (word, died, state) in enumerate(made)]
    whole, stats = Groups(Seen), Stats()
    merged, merged_stats = Groups(Seen), Stats()
    for each in all_:
        whole.add(*each)
        stats.add(Seen(each[0]), each[1])
    for start in range(0, len(all_), size):
        part, part_stats = Groups(Seen), Stats()
        for each in all_[start : start + size]:
            part.add(*each)
            part_stats.add(Seen(each[0]), each[1])
        sent = json.dumps([each.as_data() for each in part.largest_first()])
        merged.merge(map(Group.of, json.loads(sent)))
        merged_stats.merge([Stats.of(json.loads(json.dumps(part_stats.as_data())))])
    assert [each.as_data() for each in merged.largest_first()] == [
        each.as_data() for each in whole.largest_first()
    ]
    assert merged_stats.as_data() == stats.as_data()


def test_what_many_have_told_apart_stays_bounded():
    stats = Stats()
    for part in range(3):
        made = Stats(letters=DEAD_GROUPS)
        made.errors.update({f"Error{part}x{number}": 1 for number in range(DEAD_GROUPS)})
        stats.merge([made])
    assert len(stats.errors) == DEAD_GROUPS + 1
    assert (stats.errors[OTHERS], sum(stats.errors.values())) == (2 * DEAD_GROUPS, 3 * DEAD_GROUPS)


def test_scans_that_are_added_are_complete_if_all_of_them_are():
    whole = Scanned("t", complete=True)
    for complete in (True, False, True):
        whole.add(Scanned("t", 3, 2, complete, 1).as_data())
    assert whole.as_data() == {
        "topic": "t", "scanned": 9, "matched": 6, "complete": False, "deleted": 3, "places": [],
    }  # fmt: skip


def test_marks_of_a_range_are_those_of_its_letters():
    marks = Marks()
    one, other = Mark("replayed", ("a",)), Mark("discarded", ("b",))
    for offset in (9, 3, 5, 7):
        marks.add(0, offset, one)
    marks.add(0, 5, other)
    marks.add(1, 5, one)
    found = marks.within(0, 5, 9)
    assert [*found.before(0, 100)] == [5, 7]
    assert (found.get(0, 5), found.get(0, 7), found.get(1, 5)) == (other, one, None)
    assert len(marks.within(2, 0, 100)) == 0


def test_a_scan_in_ranges_finds_what_a_whole_one_does():
    app = letters.shop()
    with letters.buried(app, *(f"bad {n}" for n in range(9)), "missing x") as sim:
        log = sim.broker
        dead = DeadLetters(log, app=app)
        found = [each.letter.place for each in dead.scan(Filter())]
        ranges = [(0, 4), (4, 8), (8, 20)]
        parts = [dead.scan(Filter(), bounds={0: (start, min(end, 10))}) for start, end in ranges]
        assert [each.letter.place for part in parts for each in part] == found
