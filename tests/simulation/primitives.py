"""What the code under test has of Python to run threads and tell the time, simulated."""

from __future__ import annotations

import asyncio
import concurrent.futures
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from types import SimpleNamespace
from typing import Any

from simulation.scheduler import Killed, Task, Waiter, World


class Running:
    """The world that runs at present: the code under test makes its locks without being asked."""

    world: World


def world() -> World:
    return Running.world


class Lock:
    """`threading.Lock`."""

    def __init__(self) -> None:
        self._owner: Task | None = None
        self._waiting: deque[Waiter] = deque()

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        here = world()
        here.point()
        if self._owner is None:
            self._owner = here.current
            return True
        if not blocking:
            return False
        until = None if timeout < 0 else here.now + timeout
        while self._owner is not None:
            self._waiting.append(here.waiter())
            here.wait(None if until is None else until - here.now)
            if until is not None and here.now >= until and self._owner is not None:
                return False
        self._owner = here.current
        return True

    def release(self) -> None:
        here = world()
        self._owner = None
        here.wake_one(self._waiting)
        if not here.current.process.dead:
            here.point()

    def locked(self) -> bool:
        return self._owner is not None

    __enter__ = acquire

    def __exit__(self, *_: object) -> None:
        self.release()


class RLock:
    """`threading.RLock`."""

    def __init__(self) -> None:
        self.owner: Task | None = None
        self.depth = 0
        self._waiting: deque[Waiter] = deque()

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        del timeout  # nobody uses it
        here = world()
        if self.owner is here.current:
            self.depth += 1
            return True
        here.point()
        while self.owner is not None:
            if not blocking:
                return False
            self._waiting.append(here.waiter())
            here.wait()
        self.owner, self.depth = here.current, 1
        return True

    def release(self) -> None:
        here = world()
        if self.owner is not here.current:
            if here.current.process.dead:
                return
            raise RuntimeError("cannot release un-acquired lock")
        self.depth -= 1
        if not self.depth:
            self.give_up()
            if not here.current.process.dead:
                here.point()

    def give_up(self) -> int:
        depth, self.depth, self.owner = self.depth, 0, None
        world().wake_one(self._waiting)
        return depth

    __enter__ = acquire

    def __exit__(self, *_: object) -> None:
        self.release()


class Condition:
    """`threading.Condition`."""

    def __init__(self, lock: Any = None) -> None:
        self._lock = RLock() if lock is None else lock
        self.acquire = self._lock.acquire
        self.release = self._lock.release
        self._waiting: deque[Waiter] = deque()

    def __enter__(self) -> bool:
        return bool(self._lock.acquire())

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    def wait(self, timeout: float | None = None) -> bool:
        here = world()
        me = here.waiter()
        self._waiting.append(me)
        depth = self._lock.give_up()
        woken = here.wait(timeout)
        if not woken and me in self._waiting:
            self._waiting.remove(me)
        self._lock.acquire()
        self._lock.depth = depth
        return woken

    def wait_for(self, predicate: Callable[[], Any], timeout: float | None = None) -> Any:
        until = None if timeout is None else world().now + timeout
        while not (found := predicate()):
            left = None if until is None else until - world().now
            if left is not None and left <= 0:
                break
            self.wait(left)
        return found

    def notify(self, n: int = 1) -> None:
        for _ in range(min(n, len(self._waiting))):
            world().wake_one(self._waiting)

    def notify_all(self) -> None:
        self.notify(len(self._waiting))


class Event:
    """`threading.Event`."""

    def __init__(self) -> None:
        self._set = False
        self._waiting: list[Waiter] = []

    def is_set(self) -> bool:
        return self._set

    def set(self) -> None:
        here = world()
        self._set = True
        waiting, self._waiting = self._waiting, []
        for task in waiting:
            here.wake(task)
        if not here.current.process.dead:
            here.point()

    def clear(self) -> None:
        self._set = False

    def wait(self, timeout: float | None = None) -> bool:
        here = world()
        here.point()
        if not self._set:
            me = here.waiter()
            self._waiting.append(me)
            here.wait(timeout)
            if me in self._waiting:
                self._waiting.remove(me)
        return self._set


class Thread:
    """`threading.Thread`."""

    def __init__(
        self,
        group: None = None,
        target: Callable[..., object] | None = None,
        name: str | None = None,
        args: Iterable[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        *,
        daemon: bool | None = None,
    ) -> None:
        del group
        self.name = name or "thread"
        self.daemon = daemon
        self._call = (target, tuple(args), dict(kwargs or {}))
        self._task: Task | None = None

    def start(self) -> None:
        here = world()
        self._task = here.spawn(self.run, self.name)
        here.point()

    def run(self) -> None:
        target, args, kwargs = self._call
        if target is not None:
            target(*args, **kwargs)

    def join(self, timeout: float | None = None) -> None:
        if self._task is not None:
            world().join(self._task, timeout)

    def is_alive(self) -> bool:
        return self._task is not None and not self._task.ended

    @property
    def ident(self) -> int | None:
        return None if self._task is None else self._task.ident


class Timer(Thread):
    """`threading.Timer`."""

    def __init__(
        self, interval: float, function: Callable[..., object], args: Any = (), kwargs: Any = None
    ) -> None:
        super().__init__(target=function, name="timer", args=args, kwargs=kwargs)
        self._interval = interval
        self._cancelled = False

    def cancel(self) -> None:
        self._cancelled = True

    def run(self) -> None:
        world().sleep(self._interval)
        if not self._cancelled:
            super().run()


class SimpleQueue:
    """`queue.SimpleQueue`."""

    def __init__(self) -> None:
        self._items: deque[Any] = deque()
        self._waiting: deque[Waiter] = deque()

    def put(self, item: Any) -> None:
        here = world()
        self._items.append(item)
        here.wake_one(self._waiting)
        here.point()

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        here = world()
        here.point()
        until = None if timeout is None else here.now + timeout
        while not self._items:
            if not block or (until is not None and here.now >= until):
                raise queue.Empty
            self._waiting.append(here.waiter())
            here.wait(None if until is None else until - here.now)
        return self._items.popleft()

    def get_nowait(self) -> Any:
        return self.get(block=False)

    def empty(self) -> bool:
        return not self._items

    def qsize(self) -> int:
        return len(self._items)


class ThreadPoolExecutor(concurrent.futures.ThreadPoolExecutor):
    """`concurrent.futures.ThreadPoolExecutor`, whose threads and queue are simulated."""

    def __init__(
        self,
        max_workers: int | None = None,
        thread_name_prefix: str = "",
        initializer: Callable[..., object] | None = None,
        initargs: tuple[Any, ...] = (),
    ) -> None:
        self._most = max_workers or 8
        self._prefix = thread_name_prefix or "pool"
        self._begin = (initializer, initargs)
        self._work = SimpleQueue()
        self._threads_made: list[Thread] = []
        self._idle = 0
        self._over = False

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Any:
        if self._over:
            raise RuntimeError("cannot schedule new futures after shutdown")
        end: Any = concurrent.futures.Future()
        if self._idle <= self._work.qsize() and len(self._threads_made) < self._most:
            name = f"{self._prefix}_{len(self._threads_made)}"
            self._threads_made.append(Thread(target=self._run, name=name))
            self._threads_made[-1].start()
        self._work.put((end, fn, args, kwargs))
        return end

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        self._over = True
        while cancel_futures and not self._work.empty():
            item = self._work.get()
            if item is not None:
                item[0].cancel()
        for _ in self._threads_made:
            self._work.put(None)
        for thread in self._threads_made if wait else ():
            thread.join()

    def _run(self) -> None:
        initializer, initargs = self._begin
        if initializer is not None:
            initializer(*initargs)
        while True:
            self._idle += 1
            item = self._work.get()
            self._idle -= 1
            if item is None:
                return
            end, run, args, kwargs = item
            if not end.set_running_or_notify_cancel():
                continue
            try:
                result = run(*args, **kwargs)
            except Killed:
                raise
            except BaseException as error:
                end.set_exception(error)
            else:
                end.set_result(result)


class _Selector:
    """Lets the event loop wait for its next timer, or for whoever wakes it."""

    def __init__(self) -> None:
        self.news = Event()

    def select(self, timeout: float | None) -> list[Any]:
        self.news.wait(timeout)
        self.news.clear()
        return []


class EventLoop(asyncio.BaseEventLoop):
    """An event loop in virtual time."""

    def __init__(self) -> None:
        super().__init__()
        self._selector = _Selector()

    def time(self) -> float:
        return world().now

    def _write_to_self(self) -> None:
        self._selector.news.set()

    def _process_events(self, event_list: list[Any]) -> None:
        pass


class _Asyncio:
    """asyncio, but for the loops that it makes."""

    new_event_loop = EventLoop

    def __getattr__(self, name: str) -> Any:
        return getattr(asyncio, name)


class _Futures:
    """concurrent.futures, but for the pools."""

    ThreadPoolExecutor = ThreadPoolExecutor

    def __getattr__(self, name: str) -> Any:
        return getattr(concurrent.futures, name)


def monotonic() -> float:
    return world().now


def time_ns() -> int:
    here = world()
    return int(1_700_000_000_000 + here.now * 1000 + here.current.process.clock_ahead) * 1_000_000


def sleep(seconds: float) -> None:
    world().sleep(seconds)


def nothing_passes() -> float:
    return 0.0


THREADING = SimpleNamespace(
    Lock=Lock,
    RLock=RLock,
    Condition=Condition,
    Event=Event,
    Thread=Thread,
    Timer=Timer,
    local=threading.local,
    current_thread=threading.current_thread,
    main_thread=threading.main_thread,
    get_ident=threading.get_ident,
)
QUEUE = SimpleNamespace(SimpleQueue=SimpleQueue, Empty=queue.Empty)
TIME = SimpleNamespace(
    monotonic=monotonic,
    monotonic_ns=lambda: int(monotonic() * 1e9),
    time=lambda: time_ns() / 1e9,
    time_ns=time_ns,
    sleep=sleep,
    thread_time=nothing_passes,
    perf_counter=monotonic,
    strftime=time.strftime,
    gmtime=time.gmtime,
    localtime=time.localtime,
)

REPLACED: list[tuple[object, object]] = [
    (threading, THREADING),
    (threading.Lock, Lock),
    (threading.RLock, RLock),
    (threading.Condition, Condition),
    (threading.Event, Event),
    (threading.Thread, Thread),
    (threading.Timer, Timer),
    (queue, QUEUE),
    (queue.SimpleQueue, SimpleQueue),
    (time, TIME),
    (time.monotonic, monotonic),
    (time.thread_time, nothing_passes),
    (time.perf_counter, monotonic),
    (time.sleep, sleep),
    (asyncio, _Asyncio()),
    (concurrent.futures, _Futures()),
    (concurrent.futures.ThreadPoolExecutor, ThreadPoolExecutor),
]
"""What is replaced, wherever a module of redrive has it under any name; and by what."""
