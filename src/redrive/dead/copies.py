"""Copies: what is written when a letter is replayed. Pure.

To the app that failed and to nobody else: into its shortest delay topic, or to the origin, where
other redrive apps skip it. Its attempts begin again; its id and its origin stay. The letter itself
is never touched.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypeAlias

from redrive import envelope as envelopes
from redrive.errors import EnvelopeError
from redrive.record import Write

if TYPE_CHECKING:
    from redrive.app import App
    from redrive.dead.letter import Letter

Why = Literal[
    "replayed-before", "discarded-before", "no-handler", "no-origin", "not-allowed", "no-topic",
    "other-app", "not-dead", "broken-headers", "fix-failed", "refused", "done", "duplicate",
    "waiting", "conflict", "written-back", "done-meanwhile",
]  # fmt: skip
WHY: Final[Mapping[str, str]] = {
    "replayed-before": "were replayed before (--again)",
    "discarded-before": "were discarded before (--state discarded)",
    "no-handler": "come from topics for which the app has no handler",
    "no-origin": "do not say which topic they come from",
    "not-allowed": "come from topics that --to does not name",
    "no-topic": "would go to topics that do not exist",
    "other-app": "died in another app, which alone may get them again",
    "not-dead": "are not dead: nothing says why they would be",
    "broken-headers": "have redrive-* headers that cannot be read",
    "fix-failed": "could not be fixed",
    "refused": "were refused by the topic they would go to",
    "done-meanwhile": "were done meanwhile: the inbox has their ids",
    "done": "were handled and would be dropped as duplicates",
    "duplicate": "have the id of a record that was handled and would be dropped as duplicates",
    "waiting": "wait for another attempt in a delay topic and are handled from there",
    "conflict": "have the id of a record that was handled with another payload",
    "written-back": "are attempts that redrive wrote back, not records of their own",
}
"""Why letters are left out of a replay, in words: they stay as they are."""
NAMING: Final[Collection[Why]] = ("no-handler", "not-allowed", "no-topic", "other-app")
"""Reasons that name a topic or an app."""


class LeftOut(NamedTuple):
    """A letter that is not replayed, and why."""

    why: Why
    said: str = ""


Copy: TypeAlias = Write | LeftOut | None
"""What is written for a letter; None: nothing, it is only marked."""


@dataclass(frozen=True)
class Replay:
    """What all copies of one operation have in common."""

    operation: str
    app: App | None
    partitions: Mapping[str, int]
    """The topics that there are, with their partitions."""
    allowed: Collection[str] = ()
    """Where other consumers' letters may be written to."""

    def copy(self, letter: Letter, value: bytes | None, now: int) -> Write | LeftOut:
        """The copy of a letter, with that value."""
        if self.app is not None and letter.dialect.name == "redrive":
            return self._to_app(letter, self.app, value, now)
        return self._to_origin(letter, value)

    def _to_app(self, letter: Letter, app: App, value: bytes | None, now: int) -> Write | LeftOut:
        try:
            before = envelopes.parse(letter.record.headers)
        except EnvelopeError as error:
            return LeftOut("broken-headers", str(error))
        if (not_its := _not_of(app, before)) is not None:
            return not_its
        topic = target(app, before.origin_topic)
        if topic not in self.partitions:
            return LeftOut("no-topic", topic)
        at_origin = topic == before.origin_topic
        changes: dict[str, Any] = {
            "app": app.name,
            "first_received": now,  # its policy counts from now
            "attempt": 1,
            "due": None if at_origin else now,
            **self._marks(letter),
            **dict.fromkeys(_TAKEN_OFF),
        }
        envelope = replace(before, **changes)
        headers = envelope.headers(letter.headers)
        write = Write(topic, letter.record.key, value, headers)
        if not at_origin:
            return in_its_room(app, write, before.origin_partition)
        return write._replace(
            partition=self._partition(topic, before.origin_partition),
            timestamp=before.origin_timestamp,
        )

    def _to_origin(self, letter: Letter, value: bytes | None) -> Write | LeftOut:
        topic = letter.origin_topic
        if topic is None:
            return LeftOut("no-origin")
        if topic not in self.allowed:
            return LeftOut("not-allowed", topic)
        if topic not in self.partitions:
            return LeftOut("no-topic", topic)
        marks = [
            (envelopes.header_of(name), str(value).encode())
            for name, value in self._marks(letter).items()
        ]
        return Write(
            topic,
            letter.record.key,
            value,
            (*letter.headers, *marks),
            self._partition(topic, letter.origin_partition),
            letter.origin_timestamp,
        )

    def _marks(self, letter: Letter) -> dict[str, Any]:
        return {
            "replay_of": letter.place,
            "replay_count": min(max(letter.replay_count, 0), _MOST - 1) + 1,
            "operation": self.operation,
        }

    def _partition(self, topic: str, origin: int | None) -> int | None:
        """The partition that it came from, as its neighbours did: its producer chose it."""
        if origin is not None and 0 <= origin < self.partitions[topic]:
            return origin
        return None


def _not_of(app: App, envelope: envelopes.Envelope) -> LeftOut | None:
    """Why the app must not get it; None: it is a letter of its own."""
    if envelope.dead_reason is None:
        return LeftOut("not-dead")
    if envelope.app not in (app.name, app.was):
        return LeftOut("other-app", envelope.app)
    if envelope.origin_topic not in app.handlers:
        return LeftOut("no-handler", envelope.origin_topic)
    return None


def in_its_room(app: App, write: Write, origin: int) -> Write:
    """A copy in a delay topic: in strict order, in the partition where its key is decided about."""
    return write._replace(partition=origin) if app.ordering == "strict" else write


def target(app: App, origin: str) -> str:
    """The topic that copies for an app go to, given where the records come from."""
    handler = app.handlers[origin]
    # What waits for `redeliver="origin"` would be written there in any case.
    if not app.delay_topics or handler.retry.redeliver == "origin":
        return origin
    return next(iter(app.delay_topics))


_MOST: Final = (1 << 31) - 1
"""The largest count that redrive reads: a header may say anything, but what is written is read."""
_TAKEN_OFF: Final = (
    *("error_type", "error_message", "error_trace", "error_group", "history"),
    *("dead_reason", "not_before", "unhandled_since"),
)
"""What is known of the failure: the copy has not failed yet."""
