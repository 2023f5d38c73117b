"""Scope: what all records of one process share while they are handled."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from redrive import envelope as envelopes
from redrive import ids
from redrive.envelope import Envelope
from redrive.errors import ContextError
from redrive.processing.work import Result, Work
from redrive.record import Record

if TYPE_CHECKING:
    from redrive.app import App
    from redrive.ports import Clock

Acknowledge = Callable[[Work, Result], None]


class Scope:
    """What all records of one process share while they are handled."""

    def __init__(
        self,
        app: App,
        topic_ids: Mapping[str, str],
        resources: SimpleNamespace | None = None,
        connection: Callable[[], Any] | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.app = app
        self._clock = clock
        self.topic_ids = topic_ids
        self.resources = resources or SimpleNamespace()
        self.log = logging.getLogger(f"redrive.{app.name}")
        self._connection = connection
        self.acknowledge: Acknowledge = _nobody_listens
        self.lateness: deque[int] = deque(maxlen=100_000)
        """Milliseconds between due time and handler start, of records that were parked."""

    def connection(self) -> Any:
        """The database connection of the unit of work under way."""
        if self._connection is None:
            raise ContextError(
                f"ctx.db: the app {self.app.name!r} has the delivery {self.app.delivery!r}, which"
                ' has no database transaction; choose "idempotent", "outbox" or'
                ' "idempotent+outbox", or open a connection of your own'
            )
        return self._connection()

    def starts(self, work: Work) -> None:
        """Take note that the handler of a record that was parked starts now."""
        if work.due is not None and self._clock is not None:
            self.lateness.append(self._clock.now() - work.due)

    def envelope(self, work: Work) -> Envelope:
        """The envelope of a work; made when first asked for."""
        if work.envelope is None:
            work.envelope = envelopes.fresh(
                work.record,
                app=self.app.name,
                message_id=self.message_id(work),
                now=work.received,
            )
        return work.envelope

    def message_id(self, work: Work) -> str:
        """The record's id: the application's, or else derived from its origin."""
        chosen = work.handler.id
        given = None if chosen is None else ids.as_text(chosen(work.record))
        return given or self.origin_id(work.record)

    def origin_id(self, record: Record) -> str:
        """The id of a record that brings none."""
        return ids.from_origin(
            self.topic_ids.get(record.topic, record.topic), record.partition, record.offset
        )


def _nobody_listens(work: Work, _: Result) -> None:
    raise ContextError(f"{work.record.place} was acknowledged before its app was running")
