"""Old records: those of the spans, each with what the app's inbox would do with it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import TYPE_CHECKING, NamedTuple

from redrive import envelope as envelopes
from redrive.dead.filters import fits_key
from redrive.dead.scan import read_range
from redrive.dead.standing import NEW, Standings, Stands, lots
from redrive.processing.intake.classification import Broken, Foreign, judge
from redrive.processing.work import Assigned, Work
from redrive.rewind.targets import Covered, Span

if TYPE_CHECKING:
    from redrive.app import App
    from redrive.delivery.store import KnownIds
    from redrive.ports import Log
    from redrive.record import Record


class Old(NamedTuple):
    """A record that the app has handled before."""

    record: Record
    work: Work | None
    """As its handler sees it; None: its redrive headers cannot be read."""
    written_back: bool = False
    """Whether it is another attempt, which redrive wrote to the topic itself."""
    stands: Stands = NEW


class OldRecords:
    """Reads the records of spans."""

    def __init__(self, app: App, log: Log, ids: KnownIds | None) -> None:
        self._app = app
        self._log = log
        self.standings = Standings(app, log, ids)
        self.deleted = 0
        """Offsets that retention has deleted before they were read."""

    def of(
        self,
        span: Span,
        keys: Collection[str] = (),
        *,
        start: int | None = None,
        stopping: Callable[[], object] = lambda: False,
    ) -> Iterator[Old]:
        """The records of a span that have one of these keys, in their order.

        StoppedReadingError, if it is to stop meanwhile.
        """
        found = self._read(span, span.start if start is None else start, keys, stopping)
        for some in lots(found, lambda old: old.record):
            stands = self.standings.of([old.work for old in some])
            for old, each in zip(some, stands, strict=True):
                yield old._replace(stands=each)

    def _read(
        self, span: Span, start: int, keys: Collection[str], stopping: Callable[[], object]
    ) -> Iterator[Old]:
        assigned, app, covered = Assigned(span.place), self._app, Covered(span)
        for record in read_range(
            self._log, span.place, start, span.end, self._lost, stopping=stopping
        ):
            if not covered(record.offset) or not fits_key(record, keys):
                continue
            match judge(record, app.name, in_delay_topic=False, was=app.was):
                case Foreign():
                    continue  # it is another app's: this one passed it over, and would again
                case Broken():
                    yield Old(record, None)
                case ours:
                    yield self._ours(record, assigned, ours.envelope)

    def _ours(self, record: Record, assigned: Assigned, envelope: envelopes.Envelope | None) -> Old:
        seen = record if envelope is None else envelopes.at_origin(record, envelope)
        handler = self._app.handlers[record.topic]
        work = Work(assigned, seen, handler, record.offset, 0, envelope)
        return Old(record, work, written_back=envelope is not None)

    def _lost(self, offsets: int) -> None:
        self.deleted += offsets
