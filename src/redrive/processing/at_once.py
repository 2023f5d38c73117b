"""Records that run at once, in the thread that has read them: without lanes, lots and turns.

Most records of most apps are fresh, have a plain function for a handler, and do not fail. While
nothing waits in their partition, the order in which they were read is every order that an app can
have asked for. A record that fails goes the ordinary way, and so do those behind it while it waits.
"""

from __future__ import annotations

from collections.abc import Sequence
from time import monotonic
from typing import TYPE_CHECKING, NamedTuple

from redrive.envelope import addressee
from redrive.processing.calling import _decoded, _nothing_to_await, _raised
from redrive.processing.context import Context
from redrive.processing.outcomes import Report
from redrive.processing.work import Work

if TYPE_CHECKING:
    from redrive.app import Handler
    from redrive.processing.processor import PartitionProcessor
    from redrive.processing.scope import Scope
    from redrive.record import Record


class Ran(NamedTuple):
    """What came of the first of some records."""

    report: Report
    """Of those that are done."""
    turns: int
    """How many had theirs, with the one that failed."""
    failed: tuple[Work, BaseException] | None


class AtOnce:
    """One partition's records, as they were read at one time."""

    def __init__(self, processor: PartitionProcessor, handler: Handler, received: int) -> None:
        self._processor = processor
        self._handler = handler
        self._received = received

    def run(self, records: Sequence[Record], until: float) -> Ran:
        """Run them up to the first that fails or is not fresh; none begins after `until`."""
        report = Report()
        sent, done = report.sent, report.done
        scope = self._processor.scope
        call, decoded = self._handler.call, self._handler.decode is not None
        turns = 0
        for record in records:
            if record.headers and addressee(record.headers) is not None:
                break
            context = _FreshContext(self, record, scope)
            turns += 1
            try:
                if decoded:
                    record.data = _decoded(context._work)  # noqa: SLF001 -- ours
                returned = call(record, context)
                if returned is not None:
                    _nothing_to_await(returned)
            except BaseException as error:  # noqa: BLE001 -- whatever a handler raises is its record's
                raised = _raised(context, error)
                return Ran(report, turns, (context._work, raised))  # noqa: SLF001 -- ours
            context._open = False  # noqa: SLF001 -- as close() does, without the call
            sends = context._sends  # noqa: SLF001 -- likewise
            if sends is None:
                done.append(record.offset)
            else:
                sent.append((record.offset, sends))
            if monotonic() >= until:
                break
        return Ran(report, turns, None)

    def work(self, record: Record) -> Work:
        """The record as one that goes the ordinary way."""
        return Work(self._processor, record, self._handler, record.offset, self._received)


class _FreshContext(Context):
    """A context whose work is made when somebody asks for it: few handlers do."""

    __slots__ = ("_made", "_record", "_run")

    def __init__(self, run: AtOnce, record: Record, scope: Scope) -> None:
        self._scope = scope
        self._sends = None
        self._open = True
        self._run = run
        self._record = record

    @property
    def _work(self) -> Work:  # type: ignore[override]  # -- read only, as it is used
        try:
            return self._made
        except AttributeError:
            self._made: Work = self._run.work(self._record)
            return self._made
