"""What a Python worker keeps from task to task, and when it lets go of it."""

from __future__ import annotations

import signal
import threading

from memory_engine import make_spec

from redrive.engines.spark import process_cache, runtime
from redrive.engines.spark.process_cache import ProcessCache


class Thing:
    def __init__(self, spec) -> None:
        self.name = f"{spec.target} {spec.run}"
        self.closed = 0

    def close(self) -> None:
        self.closed += 1


def test_it_is_made_once_for_a_run():
    cache = ProcessCache()
    one = cache.get(make_spec(), Thing)
    assert cache.get(make_spec(), Thing) is one
    assert cache.pop_all() == [one]
    assert cache.pop_all() == []
    assert one.closed == 0


def test_that_of_an_earlier_run_of_the_app_is_closed_before_the_next_is_made():
    cache = ProcessCache()
    one = cache.get(make_spec(run="1-a"), Thing)

    def make(spec) -> Thing:
        assert one.closed == 1
        return Thing(spec)

    other = cache.get(make_spec(run="2-b"), make)
    assert cache.pop_all() == [other]


def test_that_of_another_app_is_kept_while_it_is_used(monkeypatch):
    now = 0.0
    monkeypatch.setattr(process_cache, "monotonic", lambda: now)
    cache = ProcessCache()
    one = cache.get(make_spec(target="a:app"), Thing)
    now = 500
    cache.get(make_spec(target="b:app"), Thing)
    cache.get(make_spec(target="a:app"), Thing)
    now = 1000
    cache.get(make_spec(target="c:app"), Thing)
    assert one.closed == 0
    now = 2000
    cache.get(make_spec(target="d:app"), Thing)
    assert one.closed == 1


def test_what_another_process_made_before_it_forked_is_not_closed(monkeypatch):
    cache = ProcessCache()
    theirs = cache.get(make_spec(run="1-a"), Thing)
    monkeypatch.setattr(process_cache.os, "getpid", lambda: -1)
    mine = cache.get(make_spec(run="2-b"), Thing)
    assert theirs.closed == 0
    assert cache.pop_all() == [mine]


def test_what_does_not_close_holds_up_nobody(monkeypatch, caplog):
    monkeypatch.setattr(process_cache, "KEPT_TO_CLOSE", 0.1)
    going_on = threading.Event()

    class Hanging(Thing):
        def close(self) -> None:
            going_on.wait()

    class Raising(Thing):
        def close(self) -> None:
            raise ConnectionError("the warehouse does not answer")

    cache = ProcessCache()
    cache.get(make_spec(run="1-a"), Raising)
    cache.get(make_spec(run="2-b"), Hanging)
    assert "the warehouse does not answer" in caplog.text
    assert isinstance(cache.get(make_spec(run="3-c"), Thing), Thing)
    going_on.set()


def test_closing_everything_ends_no_process():
    """Only a worker of Spark's that ends anyway has an alarm set: others would die of it."""
    runtime.close_all()
    assert signal.alarm(0) == 0
