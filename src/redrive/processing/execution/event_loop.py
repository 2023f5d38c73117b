"""The event loop: runs async handlers in a thread of its own, and sync ones on threads beside."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from concurrent import futures
from functools import partial
from math import inf
from typing import Any, Final, TypeVar

from redrive.processing.calls.lots import Lot
from redrive.processing.calls.scope import Scope
from redrive.processing.dispatcher import Dispatcher
from redrive.processing.execution import hanging
from redrive.processing.execution.resources import Resources
from redrive.processing.execution.units import Units
from redrive.threads import run_within, start_thread, watched
from redrive.tuning import JOIN_STEP, LOOP_ANSWERS_WITHIN, RESOURCES_TO_CLOSE

log: Final = logging.getLogger("redrive.processing")

_T = TypeVar("_T")


class AsyncExecutor:
    """Runs async handlers on one event loop in a thread of its own; sync ones on threads beside."""

    def __init__(
        self, scope: Scope, resources: Resources, concurrency: int, units: Units | None = None
    ) -> None:
        self._scope = scope
        self._resources = resources
        self._concurrency = concurrency
        self._units = units
        self._closing = False
        self._stopped = False
        self._busy = 0
        self._told = False
        self._lost = False
        self._tasks: set[asyncio.Task[None]] = set()
        self._lots: set[Lot] = set()
        """Those that are under way."""
        self._waiting: dict[Lot, asyncio.Future[Any]] = {}

    def start(self, dispatcher: Dispatcher) -> None:
        """Open the resources, then begin to take lots."""
        self._dispatcher = dispatcher
        self._scope.acknowledge = dispatcher.acknowledge
        self._loop = asyncio.new_event_loop()
        self._beside = self._make_threads()
        self._thread = start_thread(
            self._run_loop, name="redrive-loop", on_death=self._scope.on_death
        )
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
        idle = self._submit(self._wait_until_idle(within))
        if not self._is_answered(idle, within + LOOP_ANSWERS_WITHIN):
            log.error(
                "the event loop does not answer: a handler blocks it. It is left behind, and"
                " resources are not closed. It is here:\n%s",
                hanging.stack_of(self._thread.ident or 0),
            )
            self._stop_loop(wait=False)
            return False
        closed = self._submit(self._resources.close())
        if not self._is_answered(closed, RESOURCES_TO_CLOSE):
            self._resources.leave_behind(RESOURCES_TO_CLOSE)
            self._stop_loop(wait=False)
            return False
        ended = self._stop_loop(wait=idle.result())
        closed.result()
        return ended and not self._lost

    def _is_answered(self, word: futures.Future[Any], within: float) -> bool:
        """Whether the loop has answered; it does not while it is blocked, or when it has died."""
        timer = self._scope.timer
        until = timer() + within
        while not word.done() and self._thread.is_alive() and timer() < until:
            futures.wait([word], JOIN_STEP)
        return word.done()

    def give_up_hung(self) -> int:
        """Give up sync handlers whose time-out is over; async ones end by themselves."""
        given_up = hanging.give_up_hung(self._scope, self._dispatcher, self._units)
        if given_up:
            self._lost = True
            # Watched: the loop would only log what it raises, and their keys would wait for ever.
            let_go = watched(self._let_go, self._scope.on_death)
            self._loop.call_soon_threadsafe(let_go, given_up)
        return len(given_up)

    def _let_go(self, given_up: list[hanging.GivenUp]) -> None:
        # On the loop, as everything that asks for threads: it never asks those that are lost.
        lost, self._beside = self._beside, self._make_threads()
        lost.shutdown(wait=False)
        for each in given_up:
            if self._units is not None:
                end_unit = watched(self._units.give_up, self._scope.on_death)
                self._beside.submit(end_unit, *each, self._dispatcher)
            waiting = self._waiting.pop(each.lot, None)
            if waiting is not None:
                waiting.cancel()

    def _make_threads(self) -> futures.ThreadPoolExecutor:
        threads = futures.ThreadPoolExecutor(
            self._concurrency, "redrive-beside", initializer=self._scope.begin_thread
        )
        self._loop.set_default_executor(threads)
        return threads

    def _run_loop(self) -> None:
        """Run the loop until it is stopped by the executor, whoever else would end it."""
        while not self._stopped:
            try:
                self._loop.run_forever()
            except (KeyboardInterrupt, SystemExit) as error:
                # asyncio ends the loop for these in any task: also in one that a handler has made.
                # Whoever awaits that task gets the error as well.
                log.warning("a task on the event loop raised %r: the loop goes on", error)
        left = asyncio.all_tasks(self._loop)
        for task in left:
            task.cancel()
        if left:
            self._loop.run_until_complete(asyncio.wait(left, timeout=JOIN_STEP))
        self._loop.close()

    def _stop_loop(self, *, wait: bool = True) -> bool:
        """Whether it ended, with the threads beside: a function in one of them may hang."""
        self._stopped = True
        self._loop.call_soon_threadsafe(self._loop.stop)
        # While a handler blocks it, it goes on.
        self._thread.join(LOOP_ANSWERS_WITHIN if wait else JOIN_STEP)
        if not wait or self._thread.is_alive():
            self._beside.shutdown(wait=False, cancel_futures=True)
            return False
        try:
            run_within(LOOP_ANSWERS_WITHIN, self._beside.shutdown, name="redrive-closing")
        except TimeoutError:
            log.warning("a function that was given to asyncio.to_thread hangs: it is left behind")
            return False
        return True

    def _tell_loop(self) -> None:
        """Called by the dispatcher, from any thread, when there may be something to take."""
        if not self._told and not self._closing:
            self._told = True
            self._loop.call_soon_threadsafe(self._fill)

    def _fill(self) -> None:
        """Give every free place on the loop a lot, as long as there are any."""
        self._told = False
        try:
            self._fill_places()
        except BaseException as error:  # noqa: BLE001 -- the loop would only log it
            self._scope.on_death(error)

    def _fill_places(self) -> None:
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
        try:
            while taken is not None:
                self._lots.add(taken)
                following = await self._run_and_take(taken)
                self._lots.discard(taken)
                taken = following
        except asyncio.CancelledError as error:
            if not self._closing:
                self._scope.on_death(error)
        except BaseException as error:  # noqa: BLE001 -- nobody awaits this task
            self._scope.on_death(error)
        finally:
            self._busy -= 1
            if not self._busy:
                self._idle.set()

    async def _run_and_take(self, lot: Lot) -> Lot | None:
        if self._units is not None:
            await self._run_unit(self._units, lot)
            return None if self._closing else self._dispatcher.take()
        if lot.is_async:
            await lot.run_async()
        else:
            await self._run_beside(lot, lot.run)
        if self._closing:
            self._dispatcher.report(lot)
            return None
        return self._dispatcher.report_and_take(lot)

    async def _run_unit(self, units: Units, lot: Lot) -> None:
        if lot.is_async:
            await units.run_async(lot, self._dispatcher)
        else:
            await self._run_beside(lot, partial(units.run, lot, self._dispatcher))

    async def _wait_until_idle(self, within: float) -> bool:
        timer = self._scope.timer
        until = timer() + within
        while self._busy:
            self._idle.clear()
            left = None if until == inf else max(0.0, until - timer())
            try:
                await asyncio.wait_for(self._idle.wait(), left)
            except TimeoutError:
                break
        if not self._busy:
            return True
        for lot in self._lots:
            lot.abandoned = True  # that they are ended now is nothing against their records
        for task in self._tasks:
            task.cancel()
        await asyncio.wait(self._tasks, timeout=JOIN_STEP)
        return False

    async def _run_beside(self, lot: Lot, run: Callable[[], None]) -> None:
        """Run a lot on a thread; it comes back at once when the lot is given up."""
        call = self._loop.run_in_executor(self._beside, run)
        self._waiting[lot] = call
        try:
            await call
        except asyncio.CancelledError:
            if not lot.abandoned:
                raise
        finally:
            self._waiting.pop(lot, None)

    def _submit(self, coroutine: Coroutine[Any, Any, _T]) -> futures.Future[_T]:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop)


async def _event() -> asyncio.Event:
    return asyncio.Event()
