"""Since when the first letter of each group waits for a decision."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from redrive.console.first_waiting import FirstWaiting

LETTERS = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2), st.booleans()), max_size=40)


@given(LETTERS, st.data())
def test_it_is_the_first_that_was_not_settled_however_they_are_settled(letters, data):
    first, numbers, died, settled = FirstWaiting(), Counter(), {}, set()
    for at, (group, partition, _) in enumerate(letters):
        place = partition, numbers[partition]
        numbers[partition] += 1
        died[place] = group, (at + 1) * 1000
        first.add(group, partition, (at + 1) * 1000)
        if data.draw(st.booleans()):
            settled.add(data.draw(st.sampled_from(sorted(died))))
        expected = {}
        for each, (own, time) in died.items():
            if each not in settled:
                expected[own] = min(time, expected.get(own, time))
        assert first.since(lambda *each: each not in settled) == expected


def test_letters_of_which_it_is_not_known_when_they_died_say_nothing():
    first = FirstWaiting()
    for died in (None, -5, 10**18):
        first.add(0, 0, died)
    assert first.since(lambda *_: True) == {}
    assert first.since(lambda _, at: at == 2) == {0: (2**32 - 1) * 1000}


def test_each_settled_letter_is_passed_once():
    first, asked = FirstWaiting(), []

    def waits(_partition, at):
        asked.append(at)
        return at >= 900

    for at in range(1000):
        first.add(0, 0, at * 1000)
    assert first.since(waits) == {0: 900_000}
    asked.clear()
    assert first.since(waits) == {0: 900_000}
    assert len(asked) < 5
