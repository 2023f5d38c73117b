"""Executors: where handlers run. Each takes lots from the dispatcher until it is closed."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from functools import partial
from math import inf
from threading import Thread
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from redrive.coroutines import run_sync
from redrive.processing.calls.lots import Lot
from redrive.processing.calls.scope import Scope
from redrive.processing.dispatcher import Dispatcher
from redrive.processing.execution import hanging
from redrive.processing.execution.event_loop import AsyncExecutor
from redrive.processing.execution.resources import Resources
from redrive.processing.execution.units import Units
from redrive.threads import run_within, start_thread
from redrive.tuning import JOIN_STEP, RESOURCES_TO_CLOSE

if TYPE_CHECKING:
    from redrive.app import App

_T = TypeVar("_T")


class Executor(Protocol):
    """Where handlers run."""

    def start(self, dispatcher: Dispatcher) -> None:
        """Open the resources, then begin to take lots."""
        ...

    def give_up_hung(self) -> int:
        """Give up handlers whose time-out is over; returns how many threads are lost by it."""
        ...

    def close(self, within: float = inf) -> bool:
        """Take nothing new, wait for what runs, then close the resources.

        Returns whether all ended within that time (in seconds); what did not is left behind.
        """
        ...


def executor_for(
    app: App, scope: Scope, resources: Resources, units: Units | None = None
) -> Executor:
    """Threads, or an event loop if any of the app's functions is async."""
    handlers = app.handlers.values()
    if resources.is_async or any(each.is_async or each.recover_is_async for each in handlers):
        return AsyncExecutor(scope, resources, app.concurrency, units)
    return ThreadExecutor(scope, resources, app.concurrency, units)


class InlineExecutor:
    """Runs handlers in the caller's thread, when `run` is called."""

    def __init__(self, scope: Scope, resources: Resources, units: Units | None = None) -> None:
        self._scope = scope
        self._resources = resources
        self._units = units
        self._loop = asyncio.Runner()

    def start(self, dispatcher: Dispatcher) -> None:
        """Open the resources."""
        self._dispatcher = dispatcher
        self._scope.threads = 1
        self._scope.acknowledge = dispatcher.acknowledge
        try:
            self._scope.resources = self._with_resources(self._resources.open())
        except BaseException:
            self.abandon()
            raise

    def run(self, until: float = inf) -> int:
        """Run what may run now, also what becomes ready by it; returns the number of lots.

        With `until` no record begins after that time of the monotonic clock.
        """
        timer, lots = self._scope.timer, 0
        while timer() < until and (lot := self._dispatcher.take()) is not None:
            lots += 1
            if self._units is not None:
                self._run_unit(self._units, lot, until)
                continue
            if lot.is_async:
                self._wait(lot.run_async())
            else:
                lot.run(until)
            self._dispatcher.report(lot)
        return lots

    def _run_unit(self, units: Units, lot: Lot, until: float) -> None:
        if lot.is_async:
            self._wait(units.run_async(lot, self._dispatcher, until))
        else:
            units.run(lot, self._dispatcher, until)

    def give_up_hung(self) -> int:
        """Nobody is there to notice: the caller's own thread runs the handlers."""
        return 0

    def close(self, within: float = inf) -> bool:  # noqa: ARG002 -- nothing runs besides the caller
        """Close the resources."""
        try:
            self._with_resources(self._resources.close())
        finally:
            self.abandon()
        return True

    def abandon(self) -> None:
        """End as a crash does: the resources are not closed."""
        self._loop.close()

    def _with_resources(self, coroutine: Coroutine[Any, Any, _T]) -> _T:
        # Without async resources there is no need of a loop: tests that have their own can use it.
        return self._wait(coroutine) if self._resources.is_async else run_sync(coroutine)

    def _wait(self, coroutine: Coroutine[Any, Any, _T]) -> _T:
        return self._loop.run(coroutine)


class ThreadExecutor:
    """Runs sync handlers on threads."""

    def __init__(
        self, scope: Scope, resources: Resources, concurrency: int, units: Units | None = None
    ) -> None:
        self._scope = scope
        self._resources = resources
        self._concurrency = concurrency
        self._units = units
        self._closing = False
        self._threads: list[Thread] = []
        self._lost: set[int | None] = set()
        """Threads whose handlers were given up."""

    def start(self, dispatcher: Dispatcher) -> None:
        """Open the resources, then begin to take lots."""
        self._dispatcher = dispatcher
        self._scope.acknowledge = dispatcher.acknowledge
        self._scope.threads = self._concurrency
        self._scope.resources = run_sync(self._resources.open())
        for _ in range(self._concurrency):
            self._start_thread()

    def give_up_hung(self) -> int:
        """Give up handlers whose time-out is over, and put a new thread in each one's place."""
        given_up = hanging.give_up_hung(self._scope, self._dispatcher, self._units)
        for each in given_up:
            self._lost.add(each.lot.thread)
            self._start_thread(each)
        return len(given_up)

    def _start_thread(self, instead: hanging.GivenUp | None = None) -> None:
        name = f"redrive-{self._scope.app.name}-{len(self._threads)}"
        work = partial(self._work, instead)
        self._threads.append(start_thread(work, name=name, on_death=self._scope.on_death))

    def close(self, within: float = inf) -> bool:
        """Take nothing new, wait for what runs, then close the resources."""
        self._closing = True
        self._dispatcher.wake_all()
        timer = self._scope.timer
        until = timer() + within
        for thread in self._threads:
            while thread.is_alive() and thread.ident not in self._lost and timer() < until:
                thread.join(JOIN_STEP)
        return self._close_resources() and not any(thread.is_alive() for thread in self._threads)

    def _close_resources(self) -> bool:
        close = partial(_close_now, self._resources)
        try:
            run_within(RESOURCES_TO_CLOSE, close, name="redrive-closing")
        except TimeoutError:
            self._resources.leave_behind(RESOURCES_TO_CLOSE)
            return False
        return True

    def _work(self, instead: hanging.GivenUp | None) -> None:
        dispatcher, units = self._dispatcher, self._units
        self._scope.begin_thread()
        if instead is not None and units is not None:
            units.give_up(*instead, dispatcher)
        while (lot := dispatcher.wait_and_take(self._is_closing)) is not None:
            if units is not None:
                units.run(lot, dispatcher)
                if lot.abandoned:
                    return  # another thread has its place by now
                continue
            while lot is not None:
                lot.run()
                if lot.abandoned:
                    return  # another thread has its place by now
                if self._closing:
                    dispatcher.report(lot)
                    return
                if lot.may_go_on and not dispatcher.has_others(lot):
                    continue
                lot = dispatcher.report_and_take(lot)

    def _is_closing(self) -> bool:
        return self._closing


def _close_now(resources: Resources) -> None:
    run_sync(resources.close())
