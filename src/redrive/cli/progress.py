"""How far a command is: a bar on a terminal, elsewhere a line now and then."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from time import monotonic
from typing import Any, Protocol

from rich.console import Console
from rich.progress import Progress, TextColumn

from redrive.cli.output import terminal
from redrive.numbers import counted
from redrive.tuning import DEAD_TOLD_EVERY


class Show(Protocol):
    """Is shown how far it is."""

    def __call__(self, done: int, left: int, said: str, *, name: str = "") -> None:
        """So many are done, so many offsets left to look at; `name`: of what is under way."""
        ...


def progress(*, as_json: bool) -> AbstractContextManager[Show]:
    """What shows it, where nothing is printed that was asked for."""
    console = terminal(stderr=as_json)
    if not console.is_terminal:
        return nullcontext(Lines(terminal(stderr=True)))
    return Bar(console)


class Lines:
    """Where there is no terminal: a line now and then, so that a job's log shows that it lives."""

    def __init__(self, console: Console, clock: Callable[[], float] = monotonic) -> None:
        self._console = console
        self._clock = clock
        self._said_at = clock()

    def __call__(self, done: int, left: int, said: str, *, name: str = "") -> None:
        """Say how it stands, if it is time."""
        del done
        now = self._clock()
        if now - self._said_at < DEAD_TOLD_EVERY:
            return
        self._said_at = now
        told = f"{name}: {said}" if name else said
        line = f"{told}, {counted(left, 'offset')} to look at"
        self._console.print(line, markup=False, soft_wrap=True)


class Bar(AbstractContextManager[Any]):
    """A progress bar over what there is to look at; it goes when the command is done."""

    def __init__(self, console: Console) -> None:
        columns = (*Progress.get_default_columns(), TextColumn("{task.fields[said]}", markup=False))
        self._progress = Progress(*columns, console=console, transient=True)
        self._task = self._progress.add_task("under way", total=None, said="")

    def __enter__(self) -> Show:
        self._progress.start()
        return self._show

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def _show(self, done: int, left: int, said: str, *, name: str = "") -> None:
        del name
        self._progress.update(self._task, total=done + left, completed=done, said=said)
