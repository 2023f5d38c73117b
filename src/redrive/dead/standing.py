"""Standing: what an app's inbox would do with a record that comes again."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeVar

from redrive.coroutines import run_sync
from redrive.delivery import claims
from redrive.processing.calls import invoke
from redrive.processing.calls.scope import Scope
from redrive.processing.work import DUPLICATE
from redrive.tuning import DEAD_BYTES, IDS_AT_ONCE

if TYPE_CHECKING:
    from redrive.app import App
    from redrive.delivery.store import Claim, Found, InboxId, KnownIds
    from redrive.ports import Log
    from redrive.processing.work import Work
    from redrive.record import Record

Standing = Literal["new", "done", "duplicate", "waiting", "conflict"]
"""`new`: it is handled; `done`: it is dropped, as it was handled itself; `duplicate`: it is
dropped, as another record with its id was handled; `waiting`: it is dropped, as it waits in a delay
topic and is handled from there; `conflict`: it is buried, as its id was handled with another
payload."""
_T = TypeVar("_T")


class Stands(NamedTuple):
    """How a record stands with the inbox."""

    standing: Standing
    own: Claim | None = None
    """What it was done under, if the very record was handled: only this may be forgotten."""


NEW = Stands("new")


class Standings:
    """Asks the inbox of one app."""

    def __init__(self, app: App, log: Log, ids: KnownIds | None) -> None:
        """Without `ids` the app has no inbox, or it cannot be asked: all records are new."""
        there = [topic for topic in app.handlers if log.partitions(topic)]
        self.scope = Scope(app, {topic: log.topic_id(topic) for topic in there})
        """What ids and envelopes are made with."""
        self._ids = ids

    def of(self, works: Sequence[Work | None]) -> list[Stands]:
        """How these records stand, in their order; None: a record that has no id."""
        if self._ids is None:
            return [NEW] * len(works)
        wanted = [None if work is None else self._claim(work) for work in works]
        known = run_sync(self._ids.known({claim.id for claim in wanted if claim is not None}))
        return [NEW if claim is None else _stands(claim, known) for claim in wanted]

    def forget(self, done: Iterable[Claim]) -> int:
        """Have the inbox forget what records were done under; returns how many ids it forgot."""
        wanted = {claim.id: claim.source for claim in done}
        return run_sync(self._ids.forget_done(wanted)) if self._ids is not None and wanted else 0

    def _claim(self, work: Work) -> Claim | None:
        """What a record is claimed under; None: it cannot be decoded, or has no id."""
        if invoke.decode(work) is not None:
            return None
        try:
            return claims.claim_of(work, self.scope)
        except Exception:  # noqa: BLE001 -- the user's id function may raise anything
            return None


def _stands(claim: Claim, known: Mapping[InboxId, Found]) -> Stands:
    found = known.get(claim.id)
    if found is None:
        return NEW
    itself = found.state == "done" and found.source == claim.source
    own = claim if itself else None
    verdict = claims.verdict(claim, found)
    if verdict is None:
        return Stands("new", own)
    if verdict is not DUPLICATE:
        return Stands("conflict", own)
    if found.state == "parked":
        return Stands("waiting")
    return Stands("done" if itself else "duplicate", own)


def lots(found: Iterable[_T], record_of: Callable[[_T], Record]) -> Iterator[list[_T]]:
    """Several at a time, where a question to the database, or a lock, for each would be slow.

    No more than fit into memory: records may be large.
    """
    some: list[_T] = []
    size = 0
    for each in found:
        some.append(each)
        size += record_of(each).weight
        if len(some) >= IDS_AT_ONCE or size >= DEAD_BYTES:
            yield some
            some, size = [], 0
    if some:
        yield some
