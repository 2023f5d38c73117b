"""What runs beside something: its errors are seen, and hide no other."""

from __future__ import annotations

import threading

import pytest

from redrive.threads import Looking, attending


def looking_fails(looked: threading.Event) -> None:
    looked.set()
    raise KeyError("look")


def test_an_error_of_looking_is_raised_at_the_end_of_the_block():
    looked = threading.Event()
    with (
        pytest.raises(KeyError, match="look"),
        attending(lambda: looking_fails(looked), every=0, name="test"),
    ):
        looked.wait(60)


def test_an_error_of_the_block_is_not_hidden_by_one_of_looking():
    looked = threading.Event()

    def block() -> None:
        with attending(lambda: looking_fails(looked), every=0, name="test"):
            looked.wait(60)
            raise ValueError("block")

    with pytest.raises(ValueError, match="block"):
        block()


def test_the_longer_a_look_takes_the_more_seldom_there_is_one():
    now, took = [0.0], [0.0]

    def look() -> None:
        now[0] += took[0]

    looking = Looking(look, 0.005, clock=lambda: now[0])
    found = []
    for took[0] in (0.0001, 0.01, 3.0, 0.0001):
        looking()
        found.append(round(looking.seconds, 6))
    assert found == [0.005, 0.1, 0.5, 0.005]
