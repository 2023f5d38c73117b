"""Handler: a user's function for one source topic, with what was chosen for it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import Any

from redrive.choices import Ack
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
    """Among which records an id is one record's only; as it is made, its source topic."""
    payload: Callable[[Record], Any] | None = None
    """What has to be the same where two records have one id; None: the value, byte by byte."""
    timeout: int | None = None
    recover: Callable[..., Any] | None = None
    recover_is_async: bool = False
    sends: tuple[str, ...] | None = None
    """The topics it can send to; None: nothing was declared, and any can be."""
    recover_sends: tuple[str, ...] | None = None
    """The same for its recovery."""
    is_frame: bool = False
    """Whether it takes a DataFrame and gives one: on Spark only."""

    def __post_init__(self) -> None:
        if not self.id_scope:
            object.__setattr__(self, "id_scope", self.topic)

    def replace(self, **changes: Any) -> Handler:
        """The same with some of it changed."""
        return replace(self, **changes)

    @property
    def is_uninterruptible(self) -> bool:
        """Whether nothing but the handler itself can end a call of it in time."""
        return self.timeout is not None and self.ack != "manual" and not self.is_async


def is_async(function: Callable[..., Any]) -> bool:
    """Whether calling it gives something to await."""
    called = getattr(function, "__call__", None)  # noqa: B004 -- an object may be async in its __call__
    # A decorator may make a function async, or hand an async function's coroutine on.
    asked = (function, inspect.unwrap(function), called)
    return any(map(inspect.iscoroutinefunction, asked))


def name_of(function: Callable[..., Any]) -> str:
    """What to call it in a sentence."""
    return getattr(function, "__qualname__", None) or repr(function)


def topics_named(given: str | Iterable[str] | None) -> tuple[str, ...] | None:
    """Topics as they can be named: one, several or, with None, not at all."""
    if given is None:
        return None
    if isinstance(given, str) or not isinstance(given, Iterable):
        return (given,)  # also what is no text: `mistakes` names it
    return tuple(dict.fromkeys(given))


def undeclared(topic: object, sends: Sequence[str]) -> str:
    """What is wrong with sending there, where `sends=` declares these topics only."""
    close = get_close_matches(str(topic), sends, n=1)
    hint = f'; did you mean "{close[0]}"?' if close else ""
    listed = ", ".join(f'"{each}"' for each in sends) or "none"
    return (
        f"it is not among the topics that sends= declares ({listed}){hint}; add it there, then run"
        " `redrive topics module:app --apply`"
    )


def accepts(function: Callable[..., Any], arguments: int) -> bool:
    """Whether it can be called with so many arguments."""
    try:
        inspect.signature(function).bind(*range(arguments))
    except TypeError:
        return False
    except ValueError:  # a built-in that does not tell its signature
        return True
    return True
