"""What a record's id, and what is known of it, mean: pure."""

from __future__ import annotations

import json
from dataclasses import replace
from hashlib import blake2b, sha256
from typing import TYPE_CHECKING, Final

from redrive import ids
from redrive.delivery.store import Claim, Found, InboxId
from redrive.errors import Conflict
from redrive.handler import name_of
from redrive.processing.outcomes.envelopes import asked
from redrive.processing.work import DUPLICATE, Duplicate

if TYPE_CHECKING:
    from redrive.app import App
    from redrive.envelope import Envelope
    from redrive.processing.calls.scope import Scope
    from redrive.processing.work import Work

_LONGEST_ID: Final = 1000
"""Bytes. An index takes no longer ones than about two and a half times that."""
_MOST_ATTEMPTS: Final = 2**31 - 1
_FINGERPRINT_BYTES: Final = 16


def claim_of(work: Work, scope: Scope) -> Claim:
    """What has to be claimed for a record, which was decoded; raises where its id cannot be had."""
    envelope = scope.envelopes.of(work)
    if work.handler.id is not None and ids.is_from_origin(envelope.id, work.record):
        # It was parked before it could be decoded: only now is its real id to be had.
        work.envelope = envelope = replace(envelope, id=scope.envelopes.message_id(work))
    attempt = min(envelope.attempt, _MOST_ATTEMPTS)
    known_by = InboxId(work.handler.id_scope, _stored(envelope.id))
    return Claim(known_by, attempt, fingerprint(work), work.record.place)


def inbox_id(envelope: Envelope, app: App) -> InboxId:
    """What a record is known by, also one whose handler is gone."""
    handler = app.handlers.get(envelope.origin_topic)
    if handler is not None:
        return InboxId(handler.id_scope, _stored(envelope.id))
    return InboxId(envelope.id_scope or envelope.origin_topic, _stored(envelope.id))


def _stored(message_id: str) -> str:
    """The id as databases take it: without zeros, and short enough for an index."""
    given = ids.as_text(message_id) or message_id
    if len(given) > _LONGEST_ID // 4 and len(given.encode()) > _LONGEST_ID:
        return f"sha256:{sha256(given.encode()).hexdigest()}"
    return given


def fingerprint(work: Work) -> bytes | None:
    """Tells one payload from another: by its bytes, or by what `payload=` returns."""
    choose = work.handler.payload
    value = work.record.value
    if choose is not None and value is not None:
        what = f"payload= of the handler of {work.record.topic!r}"
        value = _payload(asked(what, choose, work.record), name_of(choose))
    return None if value is None else blake2b(value, digest_size=_FINGERPRINT_BYTES).digest()


def _payload(chosen: object, by: str) -> bytes:
    if isinstance(chosen, bytes):
        return chosen
    if isinstance(chosen, str):
        return chosen.encode(errors="surrogatepass")
    try:
        # The same whatever order its keys came in.
        return json.dumps(chosen, sort_keys=True, separators=(",", ":")).encode()
    except (TypeError, ValueError) as mistake:
        raise TypeError(
            f"payload={by} returned a {type(chosen).__name__} that cannot be compared ({mistake});"
            " return text, bytes or what JSON can hold"
        ) from mistake


def verdict(claim: Claim, found: Found | None) -> Duplicate | Conflict | None:
    """Why a record must not be handled; None: it may be."""
    if found is None:
        return None
    if found.state == "parked":
        # A copy of a hop that was overtaken by the next one. The payload of one that waits may be
        # edited, so that it is not compared.
        return DUPLICATE if claim.attempt < found.attempt else None
    if claim.fingerprint == found.fingerprint:
        return DUPLICATE
    return Conflict(
        f"the id {claim.id} was handled before with another payload: fingerprint"
        f" {_shown(found.fingerprint)} of {found.source} then, {_shown(claim.fingerprint)} of"
        f" {claim.source} now"
    )


def _shown(given: bytes | None) -> str:
    return "none (no value)" if given is None else given.hex()
