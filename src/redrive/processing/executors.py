"""Executors: where handlers run. Each takes lots from the dispatcher until it is closed."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from math import inf
from threading import Thread
from time import monotonic
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from redrive.processing import calling
from redrive.processing.dispatcher import Dispatcher
from redrive.processing.resources import Resources, without_loop
from redrive.processing.scope import Scope
from redrive.processing.work import Lot, Result

if TYPE_CHECKING:
    from redrive.app import App

_T = TypeVar("_T")


class Executor(Protocol):
    """Where handlers run."""

    def start(self, dispatcher: Dispatcher) -> None:
        """Open the resources, then begin to take lots."""
        ...

    def close(self) -> None:
        """Take nothing new, wait for what runs, then close the resources."""
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
            tell = _teller(self._dispatcher, lot)
            if lot.is_async:
                results = self._wait(calling.run_async(lot, self._scope, tell))
            else:
                results = calling.run(lot, self._scope, tell, until)
            self._dispatcher.report(lot, results)
        return lots

    def close(self) -> None:
        """Close the resources."""
        try:
            self._with_resources(self._resources.close())
        finally:
            self.abandon()

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
        self._scope.resources = without_loop(self._resources.open())
        for number in range(self._concurrency):
            name = f"redrive-{self._scope.app.name}-{number}"
            thread = Thread(target=self._work, name=name, daemon=True)
            thread.start()
            self._threads.append(thread)

    def close(self) -> None:
        """Take nothing new, wait for what runs, then close the resources."""
        self._closing = True
        self._dispatcher.wake_all()
        for thread in self._threads:
            thread.join()
        without_loop(self._resources.close())

    def _work(self) -> None:
        dispatcher, scope = self._dispatcher, self._scope
        while (lot := dispatcher.wait_and_take(self._is_closing)) is not None:
            while lot is not None:
                results = calling.run(lot, scope, _teller(dispatcher, lot))
                if self._closing:
                    dispatcher.report(lot, results)
                    return
                lot = dispatcher.report_and_take(lot, results)

    def _is_closing(self) -> bool:
        return self._closing


class AsyncExecutor:
    """Runs async handlers on one event loop in a thread of its own; sync ones on threads beside."""

    def __init__(self, scope: Scope, resources: Resources, concurrency: int) -> None:
        self._scope = scope
        self._resources = resources
        self._concurrency = concurrency
        self._closing = False
        self._busy = 0
        self._told = False
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, dispatcher: Dispatcher) -> None:
        """Open the resources, then begin to take lots."""
        self._dispatcher = dispatcher
        self._scope.acknowledge = dispatcher.acknowledge
        self._loop = asyncio.new_event_loop()
        self._beside = ThreadPoolExecutor(self._concurrency, thread_name_prefix="redrive-beside")
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

    def close(self) -> None:
        """Take nothing new, wait for what runs, then close the resources."""
        self._closing = True
        self._dispatcher.wake_all()
        self._submit(self._wait_until_idle()).result()
        try:
            self._submit(self._resources.close()).result()
        finally:
            self._stop_loop()

    def _stop_loop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        self._beside.shutdown()

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
        while taken is not None:
            results = await self._run(taken)
            if self._closing:
                self._dispatcher.report(taken, results)
                break
            taken = self._dispatcher.report_and_take(taken, results)
        self._busy -= 1
        if not self._busy:
            self._idle.set()

    async def _wait_until_idle(self) -> None:
        while self._busy:
            self._idle.clear()
            await self._idle.wait()

    async def _run(self, lot: Lot) -> list[Result]:
        tell = _teller(self._dispatcher, lot)
        if lot.is_async:
            return await calling.run_async(lot, self._scope, tell)
        return await self._loop.run_in_executor(self._beside, calling.run, lot, self._scope, tell)

    def _submit(self, coroutine: Coroutine[Any, Any, _T]) -> Future[_T]:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop)


async def _event() -> asyncio.Event:
    return asyncio.Event()


def _teller(dispatcher: Dispatcher, lot: Lot) -> calling.Tell:
    return lambda results: dispatcher.report(lot, results, finished=False)
