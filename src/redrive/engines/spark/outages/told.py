"""Told: what a task has seen of a handler's calls, on its way to the driver.

Times are ages, in milliseconds: the clocks of two machines are never the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, TypeAlias

from redrive.breaker import Why
from redrive.record import TopicPartition

Token: TypeAlias = tuple[str, int, int]
"""A record: the topic that it was read from, partition, offset."""


class Held(NamedTuple):
    """A failure of which the task could not decide whose it is."""

    token: Token
    key: str
    cause: str
    """Its fingerprint."""
    age: int
    passed: int
    """How many calls had succeeded before it."""


class LetOut(NamedTuple):
    """What came of a call during an outage."""

    token: Token
    result: str
    """passed; failed; answered: it has failed by itself."""
    key: str = ""
    cause: str = ""
    outage: bool = False
    """Whether the handler itself has said that there is an outage."""
    after: int | None = None
    """When the next probe should be, if it has said so."""


class Looked(NamedTuple):
    """A range of which nothing is left but what waits for the end of an outage."""

    place: TopicPartition
    end: int
    held: int


@dataclass
class Told:
    """What a task has seen of one handler."""

    topic: str
    """The handler's source topic."""
    held: list[Held] = field(default_factory=list)
    passed: int = 0
    """How many calls have succeeded in all while something was held."""
    took: float = 0.0
    """Milliseconds that calls take which fail."""
    lanes: int | None = None
    """How many lanes have failed at their heads, if order keeps others from being tried."""
    passing: list[tuple[int, int]] = field(default_factory=list)
    """How many calls have succeeded, where the task has ended because another has seen an outage,
    by how long before that."""
    why: Why | None = None
    """The task itself has seen an outage."""
    failed: list[Token] = field(default_factory=list)
    """Whose failures it was seen by."""
    probe_in: int | None = None
    """When its first probe should be."""
    said: str = ""
    """What failed, in words."""
    let_out: list[LetOut] = field(default_factory=list)
    looked: list[Looked] = field(default_factory=list)

    @property
    def is_news(self) -> bool:
        """Whether anything follows from it alone."""
        return bool(self.held or self.why or self.let_out or self.looked)

    def __bool__(self) -> bool:
        return bool(self.is_news or self.passing)

    @classmethod
    def of(cls, told: Mapping[str, Any]) -> Told:
        """As it was before it travelled as JSON."""
        kept = {name: value for name, value in told.items() if name not in _NESTED}
        why = told["why"]
        return cls(
            **kept,
            held=[Held(_token(token), *rest) for token, *rest in told["held"]],
            let_out=[LetOut(_token(token), *rest) for token, *rest in told["let_out"]],
            looked=[Looked(TopicPartition(*place), *rest) for place, *rest in told["looked"]],
            passing=[(age, count) for age, count in told["passing"]],
            failed=[_token(token) for token in told["failed"]],
            why=None if why is None else Why(**why),
        )


_NESTED: Final = ("held", "let_out", "looked", "passing", "failed", "why")


def _token(token: Sequence[Any]) -> Token:
    topic, number, offset = token
    return topic, number, offset
