"""Options: how a worker runs, apart from the app and from where Kafka is."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, get_args

from redrive.durations import Duration, milliseconds
from redrive.engines.words import From, Until
from redrive.errors import ConfigurationError
from redrive.tuning import MAX_BYTES_IN_FLIGHT, MAX_IN_FLIGHT

if TYPE_CHECKING:
    from redrive.config import Settings

_POLL_INTERVAL: Final = "max.poll.interval.ms"
_POLL_INTERVAL_DEFAULT: Final = 300_000
"""librdkafka's own."""
GroupProtocol = Literal["classic", "consumer"]
"""Kafka's group protocols: the one all brokers know, and the one of Kafka 4."""


@dataclass(frozen=True, kw_only=True)
class Options:
    """How a worker runs: the options of `redrive run --engine worker`, for programs."""

    start_from: From = "earliest"
    """Where to start reading source topics without committed offsets: `"earliest"`, `"latest"`."""
    until: Until = "stopped"
    """When it ends by itself. `"stopped"`: never; `"once"`: when what is there and due is handled;
    `"empty"`: when there is no lag and nothing is parked."""
    protocol: GroupProtocol = "classic"
    """Kafka's group protocol: `"classic"`, or `"consumer"`, which needs Kafka 4."""
    instance: str | None = None
    """The static member's name; this machine's name and a number by default."""
    dynamic: bool = False
    """Whether it joins without a name: it leaves the group when it stops."""
    max_in_flight: int = MAX_IN_FLIGHT
    """The most records of one partition in flight: more are not read until some have ended."""
    max_bytes_in_flight: int = MAX_BYTES_IN_FLIGHT
    """The same, in bytes."""
    drain: Duration = "30s"
    """How long running work has to end when the worker is stopped."""
    revoke_wait: Duration = "10s"
    """How long running work has to end when its partition goes to another worker: shorter than
    `max.poll.interval.ms`, since the worker does not poll meanwhile."""
    new_app: bool = False
    """Confirms that this is a new app, not a renamed one."""
    one_core: bool = False
    """Whether it keeps to one core: faster if many handler threads mostly wait."""

    def __post_init__(self) -> None:
        if problems := list(_mistakes(self)):
            raise ConfigurationError(problems)

    @property
    def drain_seconds(self) -> float:
        """`drain` as a number."""
        return milliseconds(self.drain) / 1000

    @property
    def revoke_seconds(self) -> float:
        """`revoke_wait` as a number."""
        return milliseconds(self.revoke_wait) / 1000


def check_revoke_wait(options: Options, settings: Settings) -> None:
    """Refuse a wait in which the group takes the worker for dead: the poll thread does it."""
    given = settings.librdkafka.get(_POLL_INTERVAL, _POLL_INTERVAL_DEFAULT)
    try:
        most = int(str(given))
    except ValueError:
        raise ConfigurationError(
            f"{_POLL_INTERVAL} under librdkafka is {given!r}; it must be a number of milliseconds"
        ) from None
    if options.revoke_seconds * 1000 >= most:
        raise ConfigurationError(
            f"revoke_wait is {options.revoke_wait}, but {_POLL_INTERVAL} is {most}: the worker"
            " does not poll while it waits for revoked partitions, and would drop out of its group;"
            f" make revoke_wait shorter, or set {_POLL_INTERVAL} under librdkafka"
        )


def _mistakes(options: Options) -> Iterator[str]:
    """What is wrong with them: a program's are not checked by a command line."""
    for name, words in (("start_from", From), ("until", Until), ("protocol", GroupProtocol)):
        if (word := getattr(options, name)) not in get_args(words):
            yield f"{name} is {word!r}; it must be {' or '.join(map(repr, get_args(words)))}"
    for name in ("max_in_flight", "max_bytes_in_flight"):
        if (most := getattr(options, name)) < 1:
            yield f"{name} is {most}; it must be at least 1, or nothing is read"
    for name in ("drain", "revoke_wait"):
        try:
            milliseconds(getattr(options, name))
        except ConfigurationError as error:
            yield f"{name}: {error}"
    if options.dynamic and options.instance is not None:
        yield "instance and dynamic exclude each other: a dynamic member has no name"
