"""Code of an app that hangs is not waited for, and keeps nothing else waiting."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from threading import Event
from time import monotonic

import pytest

from redrive.console.bounded_code import BoundedCode, page_time
from redrive.dead.user_code import NotAnsweredError


@pytest.fixture
def never():
    """What code waits for that hangs, until the test is over."""
    event = Event()
    yield event
    event.set()


def test_what_code_returns_or_raises_comes_back():
    calls = BoundedCode()
    assert calls(lambda: 17, "a") == 17
    for error in (TimeoutError("own"), ValueError("bad")):

        def fail(error=error):
            raise error

        with pytest.raises(type(error), match=str(error)):
            calls(fail, "a")


def test_code_that_hangs_is_not_waited_for(never):
    calls = BoundedCode(seconds=0.05)
    with pytest.raises(NotAnsweredError, match=r"did not answer within 0\.05 s"):
        calls(never.wait, "a")


def test_the_same_is_called_once_and_not_waited_for_again(never):
    called = []

    def hang():
        called.append(1)
        never.wait()

    calls = BoundedCode(seconds=0.2)
    with ThreadPoolExecutor(8) as pool:
        ends = [pool.submit(calls, hang, "a") for _ in range(8)]
        assert all(isinstance(end.exception(), NotAnsweredError) for end in ends)
    began = monotonic()
    with pytest.raises(NotAnsweredError):
        calls(hang, "a")
    assert monotonic() - began < 0.1
    assert called == [1]
    assert calls(lambda: "another", "b") == "another"


def test_when_all_threads_hang_nothing_waits_and_no_thread_is_added(never):
    calls = BoundedCode(threads=2, seconds=0.1)
    for key in "ab":
        with pytest.raises(NotAnsweredError):
            calls(never.wait, key)
    began = monotonic()
    for key in range(50):
        with pytest.raises(NotAnsweredError):
            calls(lambda: 1, key)
    assert monotonic() - began < 0.1
    never.set()
    calls = BoundedCode(threads=1)
    assert [calls(lambda: 1, key) for key in range(50)] == [1] * 50


def test_a_thread_that_hung_and_came_back_is_used_again(never):
    calls = BoundedCode(threads=1, seconds=0.1)
    with pytest.raises(NotAnsweredError):
        calls(never.wait, "a")
    never.set()
    until = monotonic() + 10
    answer = None
    while answer is None and monotonic() < until:
        with suppress(NotAnsweredError):
            answer = calls(lambda: 1, "b")
    assert answer == 1


def test_all_calls_of_a_page_have_one_deadline(never):
    calls = BoundedCode(threads=4, seconds=60)
    with page_time(0.1) as time:
        assert calls(lambda: 1, "a") == 1
        assert not time.is_over
        for key in "bcd":
            with pytest.raises(NotAnsweredError):
                calls(never.wait, key)
    assert time.is_over
    assert calls(lambda: 1, "e") == 1
