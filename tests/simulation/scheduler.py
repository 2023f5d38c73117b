"""Scheduler: one thread runs at a time, and a seed decides which, and how time passes.

The code under test keeps its threads. Each of them hands a baton on at every point at which it
waits for, or tells something to, another one (`primitives.py`): there the seed decides who goes on.
"""

from __future__ import annotations

import heapq
import random
import sys
import threading
from collections import Counter, deque
from collections.abc import Callable
from math import inf
from typing import Any, Final, NamedTuple

STEP: Final = (0.000_002, 0.000_02)
"""Virtual seconds that pass between two points at which threads can change."""


class Killed(BaseException):
    """The process was killed: whoever is in it ends where it is."""


class Process:
    """Threads that die together, and whether they run at present."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.dead = False
        self.suspended_until = -inf
        self.clock_ahead = 0
        """By how many milliseconds its clock differs from the brokers'."""


class Death(NamedTuple):
    """A thread that ended by an error that nobody caught."""

    process: Process
    thread: str
    error: BaseException


class Task:
    """One thread."""

    def __init__(self, process: Process, name: str, number: int) -> None:
        self.process = process
        self.name = name
        self.number = number
        self.baton = threading.Lock()
        self.baton.acquire()
        self.ident = 0
        self.ended = False
        self.joining: deque[Waiter] = deque()
        self.waits: int = 0
        """Which of its waits is under way: timers of older ones are void."""
        self.is_waiting = False
        self.woken = False
        """Whether its last wait ended because somebody has woken it, not by its time."""


class Waiter(NamedTuple):
    """A thread in one of its waits: whoever wakes it later than that wakes nobody."""

    task: Task
    number: int


class Chances(NamedTuple):
    """How the seed plays with threads and time."""

    sticky: float = 0.5
    """How often a thread goes on where it could hand over."""
    stall: float = 0.0
    """How often the operating system forgets a thread for a while."""
    stall_longest: float = 1.0
    lines: float = 0.0
    """How often a thread hands over between two lines."""
    late: float = 2.0
    """Up to how many times as long short waits may take."""


class World:
    """All threads of all simulated processes, and their time."""

    def __init__(self, seed: int, chances: Chances) -> None:
        self.random = random.Random(seed)
        self.chances = chances
        self.now = 1000.0
        """Seconds that have passed, as a monotonic clock tells them."""
        self.steps = 0
        self.switches = 0
        self.faults: Counter[str] = Counter()
        self.deaths: list[Death] = []
        self.outside = Process("outside")
        """Whoever runs the simulation: nobody kills it."""
        self.machinery = Process("machinery")
        """What is neither a worker nor the driver: brokers, supervisors."""
        self.driver = Task(self.outside, "driver", 0)
        self.driver.ident = threading.get_ident()
        self.current = self.driver
        self._tasks: list[Task] = [self.driver]
        self._runnable: list[Task] = []
        self._timers: list[tuple[float, int, int, Task]] = []
        self._numbers = 0
        self._numbered: dict[int, tuple[int, object]] = {}

    # What threads do

    def spawn(self, run: Callable[[], object], name: str, process: Process | None = None) -> Task:
        """Begin another thread, of the same process unless told otherwise."""
        self._numbers += 1
        task = Task(process or self.current.process, name, self._numbers)
        thread = threading.Thread(target=self._run, args=(task, run), name=name, daemon=True)
        self._tasks.append(task)
        self._runnable.append(task)
        thread.start()
        return task

    def point(self) -> None:
        """Another thread may run here."""
        task = self.current
        if task.process.dead:
            raise Killed
        chances, chance = self.chances, self.random.random()
        if task is not self.driver and chance < chances.stall:
            self.faults["thread not scheduled"] += 1
            self.sleep(self.random.random() ** 3 * chances.stall_longest)
        elif chance >= chances.sticky or task.process.suspended_until > self.now:
            self._runnable.append(task)
            self._hand_over()
        else:
            self._pass(STEP)

    def wait(self, seconds: float | None = None) -> bool:
        """Wait to be woken; False: the time was over first."""
        task = self.current
        if task.process.dead:
            raise Killed
        task.waits += 1
        task.is_waiting, task.woken = True, False
        if seconds is not None and seconds != inf:
            if 0 < seconds < 0.1:
                seconds *= 1 + self.random.random() * self.chances.late
            entry = (self.now + max(0.0, seconds), self.random.getrandbits(20), task.waits, task)
            heapq.heappush(self._timers, entry)
        self._hand_over()
        return task.woken

    def sleep(self, seconds: float) -> None:
        """Let time pass."""
        self.wait(seconds)

    def waiter(self) -> Waiter:
        """Whoever runs, in the wait that it begins next."""
        return Waiter(self.current, self.current.waits + 1)

    def wake(self, waiter: Waiter) -> bool:
        """End somebody's wait, if that is still the one that is under way; whether it was."""
        return waiter.task.waits == waiter.number and self.rouse(waiter.task)

    def wake_one(self, waiters: deque[Waiter]) -> None:
        """End the wait of the first who still waits."""
        while waiters and not self.wake(waiters.popleft()):
            pass

    def rouse(self, task: Task) -> bool:
        """End whatever somebody waits for; whether somebody did."""
        waited = task.is_waiting
        if waited:
            task.is_waiting, task.woken = False, True
            self._runnable.append(task)
        return waited

    def join(self, task: Task, seconds: float | None) -> None:
        """Wait for the end of a thread."""
        self.point()
        until = inf if seconds is None else self.now + seconds
        while not task.ended and self.now < until:
            task.joining.append(self.waiter())
            self.wait(until - self.now)

    # What happens to processes

    def kill(self, process: Process) -> None:
        """End a process where it is."""
        process.dead = True
        process.suspended_until = -inf
        for task in self._tasks:
            if task.process is process and not task.ended:
                self.rouse(task)

    def end(self) -> None:
        """End all that is left, so that nothing of this run lives on."""
        for process in dict.fromkeys(task.process for task in self._tasks):
            if process is not self.outside:
                self.kill(process)
        while any(not task.ended for task in self._tasks if task is not self.driver):
            self._runnable.append(self.driver)
            self._hand_over()

    def number_of(self, thing: object) -> int:
        """The same in every run: where things are in memory is not."""
        return self._numbered.setdefault(id(thing), (len(self._numbered), thing))[0]

    # How it works

    def _run(self, task: Task, run: Callable[[], object]) -> None:
        task.baton.acquire()
        task.ident = threading.get_ident()
        if self.chances.lines:
            sys.settrace(self._traced)
        try:
            if not task.process.dead:
                run()
        except Killed:
            pass
        except BaseException as error:
            if not task.process.dead:
                self.deaths.append(Death(task.process, task.name, error))
        finally:
            sys.settrace(None)
            task.ended = True
            for each in task.joining:
                self.wake(each)
            self._tasks.remove(task)
            following = self._next()
            self.current = following
            following.baton.release()

    def _hand_over(self) -> None:
        task = self.current
        following = self._next()
        if following is not task:
            self.switches += 1
            self.current = following
            following.baton.release()
            task.baton.acquire()
        if task.process.dead:
            raise Killed

    def _next(self) -> Task:
        runnable, timers = self._runnable, self._timers
        while True:
            self._pass(STEP)
            while timers and timers[0][0] <= self.now:
                _, _, number, task = heapq.heappop(timers)
                if task.is_waiting and task.waits == number:
                    task.is_waiting = False
                    runnable.append(task)
            at = self._choose(runnable)
            if at is not None:
                runnable[at], runnable[-1] = runnable[-1], runnable[at]
                return runnable.pop()
            ends = [each.process.suspended_until for each in runnable]
            if timers:
                ends.append(timers[0][0])
            self.now = max(self.now, min(ends))

    def _choose(self, runnable: list[Task]) -> int | None:
        if not runnable:
            return None
        at = int(self.random.random() * len(runnable))
        if runnable[at].process.suspended_until <= self.now:
            return at
        awake = [n for n, task in enumerate(runnable) if task.process.suspended_until <= self.now]
        return self.random.choice(awake) if awake else None

    def _pass(self, step: tuple[float, float]) -> None:
        self.steps += 1
        self.now += step[0] + self.random.random() * (step[1] - step[0])

    def _traced(self, frame: Any, event: str, _: Any) -> Any:
        """In the code under test threads may change at any line, now and then."""
        if event == "call":
            return self._traced if _is_traced(frame.f_code.co_filename) else None
        if event == "line" and self.random.random() < self.chances.lines:
            self.point()
        return self._traced


_TRACED: Final = tuple(
    f"/redrive/{name}" for name in ("processing/", "delivery/", "engines/worker/")
)


def _is_traced(file: str) -> bool:
    return any(part in file for part in _TRACED)
