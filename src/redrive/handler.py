"""Handler: a user's function for one source topic, with what was chosen for it."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import wraps
from typing import Any

from redrive.choices import Ack
from redrive.guard import Guard
from redrive.ids import IdOf
from redrive.policy import RetryPolicy
from redrive.record import Record


@dataclass(frozen=True, slots=True, kw_only=True)
class Handler:
    """A user's function for one source topic, with what was chosen for it."""

    topic: str
    call: Callable[..., Any]
    is_async: bool
    retry: RetryPolicy
    batch: int | None = None
    """The most records per call, for a batch handler; None: one record per call."""
    ack: Ack = "auto"
    decode: Callable[[bytes | None], Any] | None = None
    id: IdOf | None = None
    id_scope: str = ""
    """The scope in which an id is unique; by default the source topic."""
    payload: Callable[[Record], Any] | None = None
    """What has to be the same if two records share an id; None: the value, byte for byte."""
    timeout: int | None = None
    recover: Callable[..., Any] | None = None
    recover_is_async: bool = False
    sends: tuple[str, ...] | None = None
    """The topics it may send to; None: nothing was declared, so any."""
    recover_sends: tuple[str, ...] | None = None
    """The same for its recovery."""
    guard: Guard | None = None
    """What is done when what it depends on is away; None: nothing, each failure is its record's."""
    is_frame: bool = False
    """Whether it takes and returns a DataFrame: Spark only."""

    def __post_init__(self) -> None:
        if not self.id_scope:
            object.__setattr__(self, "id_scope", self.topic)

    def replace(self, **changes: Any) -> Handler:
        """A copy with some fields changed."""
        return replace(self, **changes)

    @property
    def is_uninterruptible(self) -> bool:
        """Whether only the handler itself can end one of its calls in time."""
        return self.timeout is not None and self.ack != "manual" and not self.is_async


def is_async(function: Callable[..., Any]) -> bool:
    """Whether calling it returns something to await; of a wrapped function: whether it may."""
    return is_async_itself(function) or inspect.iscoroutinefunction(inspect.unwrap(function))


def yields(function: Callable[..., Any]) -> bool:
    """Whether calling it returns a generator, without running anything."""
    asked = (function, _when_called(function))
    return any(map(inspect.isgeneratorfunction, asked)) or any(
        map(inspect.isasyncgenfunction, asked)
    )


def as_called(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function to call: the same, except for a plain wrapper of an async function.

    Such a wrapper may return the coroutine, or run it itself and return when it has finished. So it
    is called on a thread, where it may use its own event loop; if it returns an awaitable, that is
    awaited.
    """
    if is_async_itself(function) or not is_async(function):
        return function

    @wraps(function)
    async def call(*arguments: object) -> object:
        returned = await asyncio.to_thread(function, *arguments)
        return await returned if isinstance(returned, Awaitable) else returned

    return call


def is_async_itself(function: Callable[..., Any]) -> bool:
    """Whether calling it returns something to await, whatever it wraps."""
    return any(map(inspect.iscoroutinefunction, (function, _when_called(function))))


def _when_called(function: Callable[..., Any]) -> object:
    return getattr(function, "__call__", None)  # noqa: B004 -- an object says by it what it is


def name_of(function: Callable[..., Any]) -> str:
    """Its name, for messages."""
    return getattr(function, "__qualname__", None) or repr(function)


def topics_named(given: str | Iterable[str] | None) -> tuple[str, ...] | None:
    """Normalise what `sends=` may be: one topic, several, or None for not declared."""
    if given is None:
        return None
    if isinstance(given, str) or not isinstance(given, Iterable):
        return (given,)  # also what is not a string: `mistakes` reports it
    return tuple(dict.fromkeys(given))


def undeclared(topic: object, sends: Sequence[str]) -> str:
    """What is wrong with sending there, if `sends=` declares only these topics."""
    close = get_close_matches(str(topic), sends, n=1)
    hint = f'; did you mean "{close[0]}"?' if close else ""
    listed = ", ".join(f'"{each}"' for each in sends) or "none"
    return (
        f"sends= does not declare it ({listed}){hint}; add it there, then run `redrive topics"
        " module:app --apply`"
    )


def accepts(function: Callable[..., Any], arguments: int) -> bool:
    """Whether it can be called with that many arguments."""
    try:
        inspect.signature(function).bind(*range(arguments))
    except TypeError:
        return False
    except ValueError:  # a built-in without a signature
        return True
    return True
