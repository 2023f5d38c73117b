"""Envelopes: a record's id, and what redrive knows of the record, made when first asked for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, TypeVar

from redrive import envelope as headers
from redrive import ids
from redrive.envelope import Envelope
from redrive.errors import RedriveError
from redrive.handler import name_of
from redrive.processing.work import Work
from redrive.record import Record
from redrive.threads import raise_ctrl_c

if TYPE_CHECKING:
    from redrive.app import App

_T = TypeVar("_T")


class Envelopes:
    """The envelopes of an app's records; the ids of their topics are part of their own ids."""

    def __init__(self, app: App, topic_ids: Mapping[str, str]) -> None:
        self._app = app
        self._topic_ids = topic_ids

    def of(self, work: Work) -> Envelope:
        """The envelope of a record; made when first asked for: most records never need one."""
        if work.envelope is None:
            work.envelope = headers.fresh(
                work.record,
                app=self._app.name,
                message_id=self.message_id(work),
                now=work.received,
                id_scope=work.handler.id_scope,
            )
        return work.envelope

    def for_report(self, work: Work) -> Envelope:
        """The same for log lines: where the record's id cannot be had, with the id of its place."""
        try:
            return self.of(work)
        except Exception:  # noqa: BLE001 -- the user's id function may raise anything
            return self.at_origin(work.record, work.received)

    def at_origin(self, record: Record, now: int) -> Envelope:
        """The envelope of a record whose own says nothing, or cannot be read."""
        return headers.fresh(
            record, app=self._app.name, message_id=self._origin_id(record), now=now
        )

    def message_id(self, work: Work) -> str:
        """The record's id: the application's, or derived from its origin where none was chosen."""
        chosen = work.handler.id
        if chosen is None:
            return self._origin_id(work.record)
        what = f"id= of the handler of {work.record.topic!r}"
        given = ids.as_text(asked(what, chosen, work.record))
        if given is not None:
            return given
        if work.record.value is None or ids.is_optional(chosen):  # a tombstone has no fields
            return self._origin_id(work.record)
        raise ValueError(
            f"{work.record.place} has no id: {name_of(chosen)} returned nothing for it. Is the name"
            " right? If records may come without an id, write id=optional(...)"
        )

    def _origin_id(self, record: Record) -> str:
        topic_id = self._topic_ids.get(record.topic, record.topic)
        return ids.from_origin(topic_id, record.partition, record.offset)


def asked(what: str, function: Callable[..., _T], record: Record, *more: object) -> _T:
    """What a user's function says of a record.

    Where it raises what is no Exception, an error that is one says so: nothing that `what` is asked
    for may end a thread.
    """
    try:
        return function(record, *more)
    except Exception:
        raise
    except BaseException as error:
        raise_ctrl_c(error)
        raise RedriveError(
            f"{what} raised {type(error).__name__} for {record.place}: {headers.text_of(error)}"
        ) from error
