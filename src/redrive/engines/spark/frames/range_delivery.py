"""Delivery: the rows of one range, from what their outcome says to what is written for them."""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import closing
from itertools import takewhile
from time import monotonic
from typing import TYPE_CHECKING, Any

from redrive import signals
from redrive.delivery.refusing_topics import RefusingTopics
from redrive.engines.spark import marks
from redrive.engines.spark.frames import row_audit
from redrive.engines.spark.frames.chunks import Chunk
from redrive.engines.spark.frames.columns import KINDS
from redrive.engines.spark.frames.frame_report import RangeReport
from redrive.engines.spark.frames.judging import ForHandler, Judge, NotDue
from redrive.engines.spark.frames.refused_rows import RefusedRows
from redrive.engines.spark.frames.row_audit import Gap, RowAudit, RowsError
from redrive.engines.spark.frames.texts import listed
from redrive.engines.spark.frames.writers import FlushWriter, TransactionWriter, Writer
from redrive.engines.spark.ranges import Range
from redrive.engines.spark.runtime import Clients
from redrive.engines.spark.spec import Spec
from redrive.engines.spark.task_report import refuse
from redrive.envelope import user_headers
from redrive.errors import PublishError, RedriveError
from redrive.handler import undeclared
from redrive.messages import Columns, weight
from redrive.ports import Position
from redrive.processing.outcomes.causes import Seen, Tally, merged
from redrive.processing.outcomes.report import Outcome
from redrive.processing.progress.done_beyond import METADATA_LIMIT, includes, still_at
from redrive.processing.progress.notes import ROOM
from redrive.record import NO_TIMESTAMP, Record, TopicPartition, Write
from redrive.tuning import FRAME_LATENESS_KEPT

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]  # -- it has no types


class RangeDelivery:
    """One range of one batch."""

    def __init__(
        self,
        spec: Spec,
        process: Clients,
        each: Range,
        *,
        topic_id: str,
        now: int,
        again: bool = False,
    ) -> None:
        self._spec = spec
        self._process = process
        self._range = each
        self._done_before = each.done
        """What was complete beyond its start: no row comes of it, and nothing is read of it."""
        self._topic_id = topic_id
        self._now = now
        self._causes = Tally(process.app)
        self._seen: list[Seen] = []
        topics = RefusingTopics(
            process.publisher.refusing,
            process.clock,
            known=process.known_topics,
            quiet=True,  # the driver says it, once for all tasks
        )
        self._refused_rows = RefusedRows(topics, self._refused)
        self._writer, self._skip_to = self._begin(again=again)
        self._audit = RowAudit(each.place, each.start)
        self._judge = self._judge_from(each.start)
        self._lateness: deque[int] = deque(maxlen=FRAME_LATENESS_KEPT)
        self._heaviest = 0
        self._deadline = monotonic() + spec.batch_deadline / 1000
        self.cut = False
        """Whether it ends early: at the deadline, since the run stops, or at what has to wait."""

    def add(self, batch: pa.RecordBatch) -> None:
        """Take the next rows, in the order in which they were read."""
        numbers, offsets = (batch.column(name).to_pylist() for name in ("number", "offset"))
        self._heaviest = max(self._heaviest, batch.nbytes // len(offsets))
        self._check_places(batch, offsets)
        gaps = self._audit.check(numbers, offsets)
        begin = 0 if not gaps else self._take_with_gaps(batch, offsets, gaps)
        if self.cut:
            return
        self._put(batch.slice(begin) if begin else batch, offsets[begin:])
        self.cut = monotonic() >= self._deadline or self._spec.stop_file.exists()
        self.cut = self.cut or self._refused_rows.waiting.records > 0

    def _check_places(self, batch: pa.RecordBatch, offsets: list[int]) -> None:
        """See that all rows are of this range's partition: numbers are told apart by it."""
        topics, partitions = batch.column("topic"), batch.column("partition")
        ours = self._range.place
        if len(topics.unique()) == 1 and len(partitions.unique()) == 1:
            found = [TopicPartition(topics[0].as_py(), partitions[0].as_py())]
        else:
            pairs = zip(topics.to_pylist(), partitions.to_pylist(), strict=True)
            found = [TopicPartition(*each) for each in pairs]
        for other, offset in zip(found, offsets, strict=False):
            if other != ours:
                raise row_audit.stranger(ours, other, offset)

    def _take_with_gaps(
        self, batch: pa.RecordBatch, offsets: list[int], gaps: Sequence[Gap]
    ) -> int:
        """Take the rows up to the last gap; returns which row comes next."""
        begin = 0
        # In one read, however many there are: the rows between them are read with them.
        with closing(self._records(gaps[0].start, gaps[-1].end)) as records:
            for gap in gaps:
                if gap.at > begin:
                    self._put(batch.slice(begin, gap.at - begin), offsets[begin : gap.at])
                begin = gap.at
                self._pass_over(gap.start, gap.end, records)
                if self.cut:
                    break
        return begin

    def finish(self) -> None:
        """See that nothing is missing at the end; make all of it durable."""
        start, end = self._audit.next_offset, self._range.end
        if not self.cut and start < end:
            with closing(self._records(start, end)) as records:
                self._pass_over(start, end, records)
        self._writer.finish()

    def bury(self, reason: str, error: Exception) -> None:
        """Bury the records of the range, which were proven to be at fault."""
        self._end_each(lambda record: self._judge.proven(record, reason, error))

    def fail(self, error: Exception) -> None:
        """Let the policy decide about the records of the range, which have failed."""
        self._end_each(lambda record: self._judge.failed(record, error))

    def report(self) -> RangeReport:
        """What became of the range."""
        each = self._range
        self._seen += self._causes.take()
        report = RangeReport(
            each.topic,
            each.partition,
            each.start,
            self._writer.committed,
            each.delay,
            dict(self._writer.counts),
            lateness=list(self._lateness),
            row_bytes=self._heaviest,
            causes=[each.as_dict() for each in merged(self._seen)],
        )
        refuse(report, self._refused_rows.waiting)
        return report

    def close(self) -> None:
        """Let go of what it holds."""
        self._writer.close()

    def _begin(self, *, again: bool) -> tuple[Writer, int]:
        """The writer, and the offset from which on rows count: others are complete already."""
        each, kept, app = self._range, self._process, self._process.app
        if not app.guarantee.transactional:
            start = self._committed() if again else each.start
            every = self._spec.commit_every / 1000
            writer = FlushWriter(
                kept.publisher,
                kept.progress,
                each.place,
                start=start,
                every=every,
                refused_rows=self._refused_rows,
                tally=self._causes,
                at=self._at,
            )
            return writer, start
        producer = marks.producer(self._spec, app.name, each.place, kept.marks)
        # Only now that the others are fenced off: how far did they come?
        start = self._committed()
        transactions = TransactionWriter(
            producer,
            each.place,
            start=start,
            refused_rows=self._refused_rows,
            tally=self._causes,
            at=self._at,
        )
        return transactions, start

    def _at(self, offset: int) -> Position:
        topic_id, run = self._range.topic_id, self._spec.run
        position = still_at(offset, self._done_before, METADATA_LIMIT - ROOM)
        return marks.labelled(position, topic_id=topic_id, run=run)

    def _committed(self) -> int:
        each = self._range
        found = marks.reached(each.place, each.topic_id, self._process.progress)
        return each.start if found is None else max(found.offset, each.start)

    def _put(self, batch: pa.RecordBatch, offsets: list[int]) -> None:
        done = bisect_left(offsets, self._skip_to)
        if done:
            batch, offsets = batch.slice(done), offsets[done:]
        if offsets:
            self._note_lateness(batch)
            self._put_pieces(batch, offsets)

    def _put_pieces(self, batch: pa.RecordBatch, offsets: list[int]) -> None:
        """Put rows that one transaction takes, as nearly always; or else each half of them."""
        half = len(offsets) // 2
        messages = len(offsets) + len(batch.column("sends").flatten())
        if not half or self._writer.room.takes(messages, batch.nbytes):
            self._writer.put(self._chunk(batch, offsets))
        else:
            self._put_pieces(batch.slice(0, half), offsets[:half])
            self._put_pieces(batch.slice(half), offsets[half:])

    def _note_lateness(self, batch: pa.RecordBatch) -> None:
        if self._range.delay is not None:
            now = self._process.clock.now()
            dues = batch.column("due").drop_null().to_pylist()
            self._lateness.extend(now - due for due in dues)

    def _chunk(self, batch: pa.RecordBatch, offsets: list[int]) -> Chunk:
        chunk = Chunk(offsets[-1] + 1, weight=batch.nbytes)
        counted = batch.column("kind").value_counts().to_pylist()
        kinds = {each["values"]: each["counts"] for each in counted}
        for kind in kinds.keys() - set(KINDS):
            first = batch.column("kind").to_pylist().index(kind)
            raise row_audit.no_outcome(self._range.place, offsets[first], kind)
        self._add_sends(chunk, batch, offsets, only=kinds.keys() == {"send"})
        if "park" in kinds or "bury" in kinds:
            self._add_failures(chunk, batch, offsets)
        else:
            chunk.done.append(offsets)
        return chunk

    def _add_sends(
        self, chunk: Chunk, batch: pa.RecordBatch, offsets: list[int], *, only: bool
    ) -> None:
        sends = batch.column("sends")
        messages = sends.flatten()
        if not len(messages):
            return
        topics, keys, values, headers = (
            messages.field(number) for number in range(messages.type.num_fields)
        )
        if topics.null_count:
            raise RowsError(
                f"{self._range.place}: a row between {offsets[0]} and {offsets[-1]} sends to a"
                " topic that is null"
            )
        named = listed(topics.unique())
        self._check_declared(named)
        self._refused_rows.meet(named)
        if headers.null_count == len(headers) and len(named) == 1:
            columns = Columns(named[0], keys.to_pylist(), values.to_pylist())
            chunk.writes.extend_by(columns)
        else:
            found = zip(*map(listed, (topics, keys, values, headers)), strict=True)
            chunk.writes.extend(
                Write(topic, key, value, _headers(each)) for topic, key, value, each in found
            )
        if only and len(messages) == len(offsets):
            chunk.owners = list(offsets)
        else:
            lengths = sends.value_lengths().to_pylist()
            chunk.owners = [
                offset
                for offset, length in zip(offsets, lengths, strict=True)
                for _ in range(length or 0)
            ]

    def _check_declared(self, topics: list[str]) -> None:
        (handler,) = self._process.app.handlers.values()
        for topic in topics:
            if handler.sends is not None and topic not in handler.sends:
                raise RowsError(
                    f'frame handler of "{handler.topic}": send() to {topic!r}:'
                    f" {undeclared(topic, handler.sends)}"
                )

    def _add_failures(self, chunk: Chunk, batch: pa.RecordBatch, offsets: list[int]) -> None:
        columns = (listed(batch.column(name)) for name in ("kind", "failed"))
        done: list[int] = []
        for offset, kind, failed in zip(offsets, *columns, strict=True):
            if kind not in ("park", "bury"):
                done.append(offset)
            for one in failed or ():
                signal = _signal(kind, one["reason"], one["after"])
                chunk.add(self._judge.failed(_record(one["read"]), signal))
        chunk.done.append(done)

    def _add_alone(self, chunk: Chunk, outcome: Outcome) -> Chunk:
        """Add what became of a record that was not a row; returns the chunk to go on with."""
        size = weight(outcome.writes)
        messages = len(chunk.writes) + len(outcome.writes)
        if chunk.writes and not self._writer.room.takes(messages, chunk.weight + size):
            end, chunk.end = chunk.end, outcome.offset
            self._writer.put(chunk)
            chunk = Chunk(end)
        chunk.add(outcome)
        chunk.weight += size
        return chunk

    def _refused(self, offset: int, error: PublishError) -> Outcome:
        """What becomes of a row whose message its topic does not take."""
        with closing(self._records(offset, offset + 1)) as records:
            record = next(iter(records), None)
        if record is None:
            place = self._range.place
            raise RedriveError(
                f"{place}@{offset} is gone, though it was read a moment ago"
            ) from error
        return self._judge_from(offset).failed(record, error)

    def _judge_from(self, start: int) -> Judge:
        each = self._range
        return Judge(
            self._process.app,
            each.place,
            start=start,
            topic_id=self._topic_id,
            delay=each.delay,
            now=self._now,
            rules=each.rules,
            delay_topic_id=each.topic_id,
        )

    def _pass_over(self, start: int, end: int, records: Iterable[Record]) -> None:
        """Look at what did not come out: it must be nothing, or nothing for the handler."""
        chunk = Chunk(max(end, self._skip_to))
        # What ends it is not missed: at `end` is a row that came out.
        for record in takewhile(lambda one: one.offset < end, records):
            if record.offset < start:
                continue
            judged = self._judge.unseen(record)
            if isinstance(judged, ForHandler):
                raise row_audit.missing(self._range.place, record.offset)
            if isinstance(judged, NotDue):
                chunk.end = record.offset
                self.cut = True
                break
            chunk = self._add_alone(chunk, judged)
        if chunk.end > self._writer.committed:
            self._writer.put(chunk)

    def _records(self, start: int, end: int) -> Generator[Record]:
        start, done = max(start, self._skip_to), self._done_before
        batches = self._process.kafka_log.batches(self._range.place, start, end)
        try:
            for batch in batches:
                yield from (
                    [one for one in batch if not includes(done, one.offset)] if done else batch
                )
        finally:
            batches.close()  # it gives its consumer back

    def _end_each(self, ended: Callable[[Record], Outcome]) -> None:
        chunk = Chunk(self._range.end)
        for record in self._records(self._range.start, self._range.end):
            chunk = self._add_alone(chunk, ended(record))
        self._writer.put(chunk)
        self._writer.finish()


def _signal(kind: str, reason: str | None, after: int | None) -> signals.Signal:
    if kind == "bury":
        return signals.Bury(reason or "")
    asked = signals.Retry(reason or "")
    asked.after = after
    return asked


def _record(read: dict[str, Any]) -> Record:
    return Record(
        read["topic"],
        read["partition"],
        read["offset"],
        read["key"],
        read["value"],
        _pairs(read["headers"]),
        None if read["timestamp"] == NO_TIMESTAMP else read["timestamp"],
    )


def _pairs(headers: list[dict[str, Any]] | None) -> tuple[tuple[str, bytes | None], ...]:
    return tuple((one["key"], one["value"]) for one in headers or ())


def _headers(given: list[dict[str, Any]] | None) -> tuple[tuple[str, bytes | None], ...]:
    """A user's headers; never redrive's own, which belong to the record that was read."""
    return user_headers(_pairs(given)) if given else ()
