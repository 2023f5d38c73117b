"""Handlers that do not come back in time: their own records fail, once, and nobody else's."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from time import monotonic
from typing import Any

import pytest
from executor_shop import Shop

from redrive import App, Record
from redrive.choices import Ordering
from redrive.processing.execution import hanging

PATIENCE = 60


class Hanging:
    """A handler that hangs at one offset until it is let go, and whom it was called with."""

    def __init__(
        self,
        form: str,
        *,
        at: int,
        alone: bool = False,
        ordering: Ordering = "partition",
        **options: Any,
    ) -> None:
        self.calls: list[list[int]] = []
        self.go = threading.Event()
        self.hung: list[threading.Thread] = []
        self._at, self._alone = at, alone
        self._hours = 0
        self.app = App("shop", ordering=ordering, concurrency=2)
        if "batch" in options:
            self.app.handler("t", timeout="1h", **options)(lambda all_, ctx: self.handle(all_))
        else:
            self.app.handler("t", timeout="1h")(lambda one, ctx: self.handle([one]))
        self.shop = Shop(form, self.app)

    def handle(self, records: list[Record]) -> None:
        offsets = [record.offset for record in records]
        self.calls.append(offsets)
        if self._alone and len(offsets) > 1:
            raise ValueError("it does not say which")
        if self._at in offsets:
            self.hung.append(threading.current_thread())
            assert self.go.wait(PATIENCE)
            if len(offsets) > 1:
                raise OSError("it comes back, too late, and has not said which")

    def offer(self, count: int) -> None:
        self.shop.dispatcher.offer(
            self.shop.processor, [Record("t", 0, number, b"k", b"v") for number in range(count)]
        )

    def run(self, count: int) -> None:
        """Until all have ended: one by being given up."""
        self.offer(count)
        wait_until(lambda: self.hung)
        assert self.look_in_an_hour() == 1
        wait_until(self.is_over)

    def look_in_an_hour(self) -> int:
        self._hours += 1
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(self.shop.scope, "timer", lambda: monotonic() + 3600 * self._hours)
            return self.shop.executor.give_up_hung()

    def is_over(self) -> bool:
        self.shop.dispatcher.tick()
        return not self.shop.tracker.in_flight

    def come_back(self) -> None:
        """Let it go, and wait for the end of the thread that was lost."""
        self.go.set()
        for thread in self.hung:
            thread.join(PATIENCE)
            assert not thread.is_alive()

    @property
    def failed(self) -> list[tuple[int, str]]:
        return [(each.offset, str(each.error)) for each in self.shop.outcomes]


def wait_until(condition: Callable[[], object]) -> None:
    for _ in range(200 * PATIENCE):
        if condition():
            return
        threading.Event().wait(0.005)
    raise AssertionError("not in time")


@pytest.fixture(params=["threads", "async"])
def hanging_at(request: pytest.FixtureRequest) -> Iterator[Callable[..., Hanging]]:
    opened: list[Hanging] = []

    def open_one(**options: Any) -> Hanging:
        opened.append(Hanging(request.param, **options))
        return opened[-1]

    yield open_one
    for each in opened:
        each.go.set()
        each.shop.executor.close(PATIENCE)


def test_the_rest_of_its_lot_runs_once_and_not_in_the_thread_that_was_lost(hanging_at):
    hung = hanging_at(at=2)
    hung.run(8)
    hung.come_back()
    assert hung.calls == [[number] for number in range(8)]
    assert hung.failed == [(2, "the handler of 't' did not end within 3600000 ms for t[0]@2")]


@pytest.mark.parametrize("ordering", ["partition", "key", "unordered"])
def test_of_a_batch_that_hangs_only_the_record_that_hangs_alone_has_failed(
    hanging_at, ordering, caplog
):
    hung = hanging_at(at=2, ordering=ordering, batch=5)
    hung.offer(5)
    wait_until(lambda: hung.hung)
    assert hung.look_in_an_hour() == 1
    wait_until(lambda: len(hung.hung) == 2)
    assert hung.look_in_an_hour() == 1
    wait_until(hung.is_over)
    hung.come_back()
    together, *alone = hung.calls
    assert together == [0, 1, 2, 3, 4]
    assert sorted(alone) == [[number] for number in range(5)]
    assert hung.failed == [(2, "the handler of 't' did not end within 3600000 ms for t[0]@2")]
    told = [each.getMessage() for each in caplog.records if "did not end within" in each.message]
    assert "5 records, t[0]@0 first; each is called alone next" in told[0]
    assert "t[0]@2; its policy decides about the record" in told[1]


def test_after_that_records_are_called_together_again(hanging_at):
    hung = hanging_at(at=2, batch=5)
    hung.offer(5)
    wait_until(lambda: hung.hung)
    assert hung.look_in_an_hour() == 1
    hung.go.set()
    wait_until(hung.is_over)
    hung.shop.run([Record("t", 0, number, b"k", b"v") for number in range(5, 10)])
    wait_until(lambda: [5, 6, 7, 8, 9] in hung.calls)
    assert hung.failed == []


def test_a_batch_is_not_called_again_by_the_thread_that_was_lost(hanging_at):
    hung = hanging_at(at=2, batch=5)
    hung.offer(5)
    wait_until(lambda: hung.hung)
    assert hung.look_in_an_hour() == 1
    lost = hung.hung[0]
    hung.go.set()
    lost.join(PATIENCE)
    assert not lost.is_alive()
    wait_until(hung.is_over)
    assert hung.calls == [[0, 1, 2, 3, 4], *([number] for number in range(5))]


def test_of_a_batch_that_is_called_one_by_one_only_the_one_that_hangs_fails(hanging_at):
    hung = hanging_at(at=2, batch=5, alone=True)
    hung.run(5)
    hung.come_back()
    assert [offset for offset, _ in hung.failed] == [2]
    assert [calls for calls in hung.calls if len(calls) == 1] == [[n] for n in range(5)]


def test_a_call_that_comes_back_while_it_is_looked_at_has_not_failed(hanging_at, monkeypatch):
    """Nor has the next record of its lot, which its thread is with by then."""
    hung = hanging_at(at=-1)
    begun, first, second = threading.Event(), threading.Event(), threading.Event()

    def handle(records: list[Record]) -> None:
        hung.calls.append([record.offset for record in records])
        if records[0].offset == 0:
            begun.set()
            assert first.wait(PATIENCE)
        if records[0].offset == 1:
            second.set()
            assert hung.go.wait(PATIENCE)

    def stack_of(_: int) -> str:
        first.set()
        assert second.wait(PATIENCE)
        return ""

    monkeypatch.setattr(hung, "handle", handle)
    monkeypatch.setattr(hanging, "stack_of", stack_of)
    hung.offer(3)
    assert begun.wait(PATIENCE)
    assert hung.look_in_an_hour() == 0
    hung.go.set()
    wait_until(hung.is_over)
    assert hung.failed == []
    assert hung.calls == [[0], [1], [2]]


def test_threads_that_are_in_no_call_are_not_looked_at(hanging_at):
    hung = hanging_at(at=-1)
    hung.shop.run([Record("t", 0, number, b"k", b"v") for number in range(8)])
    wait_until(lambda: not hung.shop.dispatcher.running)
    assert hung.shop.dispatcher.under_way() == []
