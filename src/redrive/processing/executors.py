"""Executors: where handlers run. Each takes lots from the dispatcher until it is closed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from math import inf
from threading import Thread
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from redrive.processing import calling, hanging
from redrive.processing.dispatcher import Dispatcher
from redrive.processing.resources import Resources, without_loop
from redrive.processing.scope import Scope, Units
from redrive.processing.work import Lot, Result

if TYPE_CHECKING:
    from redrive.app import App

_T = TypeVar("_T")
_JOIN: Final = 0.1


class Executor(Protocol):
    """Where handlers run."""

    def start(self, dispatcher: Dispatcher) -> None:
        """Open the resources, then begin to take lots."""
        ...

    def give_up_hung(self) -> int:
        """Give up handlers whose time-out is over; gives how many threads are lost by it."""
        ...

    def close(self, within: float = inf) -> bool:
        """Take nothing new, wait for what runs, then close the resources.

        Gives whether all ended within that time (in seconds); what did not is left behind.
        """
        ...


def executor_for(app: App, scope: Scope, resources: Resources) -> Executor:
    """Threads, or an event loop if any of the app's functions is async."""
    handlers = app.handlers.values()
    if resources.is_async or any(each.is_async or each.recover_is_async for each in handlers):
        return AsyncExecutor(scope, resources, app.concurrency)
    return ThreadExecutor(scope, resources, app.concurrency)


class InlineExecutor:
    """Runs handlers in the caller's thread, when `run` is called."""

    def __init__(self, scope: Scope, resources: Resources) -> None:
        self._scope = scope
        self._resources = resources
        self._loop = asyncio.Runner()

    def start(self, dispatcher: Dispatcher) -> None:
        """Open the resources."""
        self._dispatcher = dispatcher
        self._scope.acknowledge = dispatcher.acknowledge
        try:
            self._scope.resources = self._with_resources(self._resources.open())
        except BaseException:
            self.abandon()
            raise

    def run(self, until: float = inf) -> int:
        """Run what may run now, also what becomes ready by it; gives the number of lots.

        With `until` no record begins after that time of the monotonic clock.
        """
        lots = 0
        while monotonic() < until and (lot := self._dispatcher.take()) is not None:
            lots += 1
            if self._scope.units is not None:
                self._run_unit(self._scope.units, lot, until)
                continue
            tell = _teller(self._dispatcher, lot)
            if lot.is_async:
                results = self._wait(calling.run_async(lot, self._scope, tell))
            else:
                results = calling.run(lot, self._scope, tell, until)
            self._dispatcher.report(lot, results)
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
        return self._wait(coroutine) if self._resources.is_async else without_loop(coroutine)

    def _wait(self, coroutine: Coroutine[Any, Any, _T]) -> _T:
        return self._loop.run(coroutine)


class ThreadExecutor:
    """Runs sync handlers on threads."""

    def __init__(self, scope: Scope, resources: Resources, concurrency: int) -> None:
        self._scope = scope
        self._resources = resources
        self._concurrency = concurrency
        self._closing = False
        self._threads: list[Thread] = []

    def start(self, dispatcher: Dispatcher) -> None:
        """Open the resources, then begin to take lots."""
        self._dispatcher = dispatcher
        self._scope.acknowledge = dispatcher.acknowledge
        self._scope.many_threads = self._concurrency > 1
        self._scope.resources = without_loop(self._resources.open())
        for _ in range(self._concurrency):
            self._start_thread()

    def give_up_hung(self) -> int:
        """Give up handlers whose time-out is over, and put a new thread in each one's place."""
        given_up = hanging.give_up_hung(self._scope, self._dispatcher)
        for each in given_up:
            self._start_thread(each)
        return len(given_up)

    def _start_thread(self, instead: hanging.GivenUp | None = None) -> None:
        name = f"redrive-{self._scope.app.name}-{len(self._threads)}"
        thread = Thread(target=self._work, args=(instead,), name=name, daemon=True)
        self._threads.append(thread)
        thread.start()

    def close(self, within: float = inf) -> bool:
        """Take nothing new, wait for what runs, then close the resources."""
        self._closing = True
        self._dispatcher.wake_all()
        until = monotonic() + within
        for thread in self._threads:
            while thread.is_alive() and not self._is_lost(thread) and monotonic() < until:
                thread.join(_JOIN)
        without_loop(self._resources.close())
        return not any(thread.is_alive() for thread in self._threads)

    def _work(self, instead: hanging.GivenUp | None) -> None:
        dispatcher, scope = self._dispatcher, self._scope
        scope.begin_thread()
        if instead is not None:
            _end_unit(scope, instead, dispatcher)
        while (lot := dispatcher.wait_and_take(self._is_closing)) is not None:
            if scope.units is not None:
                scope.units.run(lot, dispatcher)
                if lot.abandoned:
                    return  # another thread has its place by now
                continue
            while lot is not None:
                results = calling.run(lot, scope, _teller(dispatcher, lot))
                if lot.abandoned:
                    return  # another thread has its place by now
                if self._closing:
                    dispatcher.report(lot, results)
                    return
                if dispatcher.goes_on(lot):
                    continue
                lot = dispatcher.report_and_take(lot, results)

    def _is_closing(self) -> bool:
        return self._closing

    def _is_lost(self, thread: Thread) -> bool:
        call = self._scope.under_way.get(thread.ident or 0)
        return call is not None and call.lot.abandoned


class AsyncExecutor:
    """Runs async handlers on one event loop in a thread of its own; sync ones on threads beside."""

    def __init__(self, scope: Scope, resources: Resources, concurrency: int) -> None:
        self._scope = scope
        self._resources = resources
        self._concurrency = concurrency
        self._closing = False
        self._busy = 0
        self._told = False
        self._lost = False
        self._tasks: set[asyncio.Task[None]] = set()
        self._waiting: dict[Lot, asyncio.Future[Any]] = {}

    def start(self, dispatcher: Dispatcher) -> None:
        """Open the resources, then begin to take lots."""
        self._dispatcher = dispatcher
        self._scope.acknowledge = dispatcher.acknowledge
        self._loop = asyncio.new_event_loop()
        self._beside = self._make_threads()
        self._thread = Thread(target=self._loop.run_forever, name="redrive-loop", daemon=True)
        self._thread.start()
        try:
            self._scope.resources = self._submit(self._resources.open()).result()
        except BaseException:
            self._stop_loop()
            raise
        self._idle = self._submit(_event()).result()
        dispatcher.listen(self._tell_loop)
        self._tell_loop()

    def close(self, within: float = inf) -> bool:
        """Take nothing new, wait for what runs, then close the resources."""
        self._closing = True
        self._dispatcher.wake_all()
        ended = self._submit(self._wait_until_idle(within)).result()
        try:
            self._submit(self._resources.close()).result()
        finally:
            self._stop_loop(wait=ended)
        return ended and not self._lost

    def give_up_hung(self) -> int:
        """Give up sync handlers whose time-out is over; async ones end by themselves."""
        given_up = hanging.give_up_hung(self._scope, self._dispatcher)
        if given_up:
            self._lost = True
            self._loop.call_soon_threadsafe(self._let_go, given_up)
        return len(given_up)

    def _let_go(self, given_up: list[hanging.GivenUp]) -> None:
        # On the loop, as everything that asks for threads: it never asks those that are lost.
        lost, self._beside = self._beside, self._make_threads()
        lost.shutdown(wait=False)
        for each in given_up:
            self._beside.submit(_end_unit, self._scope, each, self._dispatcher)
            waiting = self._waiting.pop(each.call.lot, None)
            if waiting is not None:
                waiting.cancel()

    def _make_threads(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(
            self._concurrency, "redrive-beside", initializer=self._scope.begin_thread
        )

    def _stop_loop(self, *, wait: bool = True) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(None if wait else _JOIN)
        if not self._thread.is_alive():  # else a handler holds it up: it ends with the process
            self._loop.close()
        self._beside.shutdown(wait=wait, cancel_futures=not wait)

    def _tell_loop(self) -> None:
        """Called by the dispatcher, from any thread, when there may be something to take."""
        if not self._told:
            self._told = True
            self._loop.call_soon_threadsafe(self._fill)

    def _fill(self) -> None:
        """Give every free place on the loop a lot, as long as there are any."""
        self._told = False
        while not self._closing and self._busy < self._concurrency:
            lot = self._dispatcher.take()
            if lot is None:
                break
            self._busy += 1
            task = self._loop.create_task(self._work(lot))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _work(self, lot: Lot) -> None:
        taken: Lot | None = lot
        if self._scope.units is not None:
            await self._run_units(self._scope.units, lot)
            taken = None
        while taken is not None:
            results = await self._run(taken)
            if self._closing:
                self._dispatcher.report(taken, results)
                break
            taken = self._dispatcher.report_and_take(taken, results)
        self._busy -= 1
        if not self._busy:
            self._idle.set()

    async def _run_units(self, units: Units, lot: Lot) -> None:
        taken: Lot | None = lot
        while taken is not None:
            if taken.is_async:
                await units.run_async(taken, self._dispatcher)
            else:
                await self._run_beside(taken, partial(units.run, taken, self._dispatcher))
            taken = None if self._closing else self._dispatcher.take()

    async def _wait_until_idle(self, within: float) -> bool:
        until = monotonic() + within
        while self._busy:
            self._idle.clear()
            left = None if until == inf else max(0.0, until - monotonic())
            try:
                await asyncio.wait_for(self._idle.wait(), left)
            except TimeoutError:
                break
        if not self._busy:
            return True
        for task in self._tasks:
            task.cancel()
        await asyncio.wait(self._tasks, timeout=_JOIN)
        return False

    async def _run(self, lot: Lot) -> list[Result]:
        tell = _teller(self._dispatcher, lot)
        if lot.is_async:
            return await calling.run_async(lot, self._scope, tell)
        return await self._run_beside(lot, partial(calling.run, lot, self._scope, tell)) or []

    async def _run_beside(self, lot: Lot, run: Callable[[], _T]) -> _T | None:
        """What it gives; None: it was given up."""
        call = self._loop.run_in_executor(self._beside, run)
        self._waiting[lot] = call
        try:
            return await call
        except asyncio.CancelledError:
            if not lot.abandoned:
                raise
            return None
        finally:
            self._waiting.pop(lot, None)

    def _submit(self, coroutine: Coroutine[Any, Any, _T]) -> Future[_T]:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop)


def _end_unit(scope: Scope, given_up: hanging.GivenUp, dispatcher: Dispatcher) -> None:
    """End a call that was given up, where it is part of a unit of work."""
    if scope.units is not None:
        call, error = given_up
        scope.units.give_up(call.lot, call.works, error, dispatcher)


async def _event() -> asyncio.Event:
    return asyncio.Event()


def _teller(dispatcher: Dispatcher, lot: Lot) -> calling.Tell:
    return lambda results: dispatcher.tell(lot, results)
