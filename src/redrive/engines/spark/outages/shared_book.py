"""SharedBook: the book of a run, in a file: its planners and its driver are three processes.

The file is nothing to come back to: it is made, and lost, with the run.
"""

from __future__ import annotations

import fcntl
import pickle
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from threading import Lock
from time import monotonic_ns
from typing import TYPE_CHECKING

from redrive.engines.spark.outages.book import Book
from redrive.guard import Guard

if TYPE_CHECKING:
    from redrive.app import App
    from redrive.engines.spark.spec import Spec


def steady() -> int:
    """Milliseconds, the same in all processes of a machine."""
    return monotonic_ns() // 1_000_000


class SharedBook:
    """One process's way to the book."""

    def __init__(
        self,
        path: Path,
        guards: Mapping[str, Guard],
        concurrency: int,
        steady: Callable[[], int] = steady,
    ) -> None:
        self._path = path
        self._lock_file = path.with_suffix(".lock")
        self._guards = guards
        self._concurrency = concurrency
        self._lock = Lock()
        self.steady = steady

    @contextmanager
    def opened(self) -> Iterator[Book]:
        """The book, which nobody else has meanwhile."""
        with self._lock, self._lock_file.open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            book = self._read()
            yield book
            beside = self._path.with_suffix(".new")
            beside.write_bytes(pickle.dumps(book.memory))
            beside.replace(self._path)

    def seen(self) -> Book:
        """The book as it was left last; to be read only."""
        return self._read()

    def _read(self) -> Book:
        book = Book(self._guards, self._concurrency)
        try:
            # Nobody but this user can write there: it is the run's own folder.
            book.recall(pickle.loads(self._path.read_bytes()))  # noqa: S301 -- what was written above
        except FileNotFoundError:
            pass
        return book


def guards_of(app: App) -> dict[str, Guard]:
    """Those of an app's handlers, by source topic."""
    return {topic: each.guard for topic, each in app.handlers.items() if each.guard is not None}


def book_of(app: App, spec: Spec, steady: Callable[[], int] = steady) -> SharedBook | None:
    """The book of a run; None: no handler has a guard."""
    guards = guards_of(app)
    calls = app.concurrency * (spec.tasks("main") + spec.tasks("retry"))
    return SharedBook(spec.book_file, guards, calls, steady) if guards else None
