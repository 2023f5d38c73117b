"""Options: how a worker runs, apart from the app and from where Kafka is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from redrive.engines.weights import MAX_BYTES_IN_FLIGHT
from redrive.engines.words import From, Until
from redrive.errors import ConfigurationError

GroupProtocol = Literal["classic", "consumer"]
"""Kafka's group protocols: the one all brokers know, and the one of Kafka 4."""

MAX_IN_FLIGHT: Final = 10_000


@dataclass(frozen=True, kw_only=True)
class Options:
    """How a worker runs."""

    start_from: From = "earliest"
    until: Until = "stopped"
    protocol: GroupProtocol = "classic"
    instance: str | None = None
    """The static member's name; this machine's name and a number by default."""
    dynamic: bool = False
    """Whether it joins without a name: it leaves the group when it stops."""
    max_in_flight: int = MAX_IN_FLIGHT
    """The most records of one partition in flight: more are not read until some have ended."""
    max_bytes_in_flight: int = MAX_BYTES_IN_FLIGHT
    """The same, in bytes."""
    drain: int = 30_000
    """Milliseconds that running work has to end when the worker is stopped."""
    revoke_wait: int = 10_000
    """Milliseconds that running work has to end when its partition goes to another worker."""
    one_core: bool = False
    """Whether it keeps to one core: for handlers that wait, on many threads."""

    def __post_init__(self) -> None:
        if self.dynamic and self.instance is not None:
            raise ConfigurationError(
                "--instance and --dynamic exclude each other: a dynamic member has no name"
            )
