"""Where handlers are quick, lots are large, of several keys, and run by few threads."""

from __future__ import annotations

from math import inf

from redrive import App, Bury
from redrive.processing import work
from redrive.processing.calls.scope import Scope
from redrive.processing.dispatcher import Dispatcher
from redrive.processing.processor import PartitionProcessor
from redrive.processing.progress.acks import AckTracker
from redrive.record import Record, TopicPartition
from redrive.testing.virtual_clock import VirtualClock
from redrive.tuning import QUICK_LOTS, QUICK_RECORD

KEYS = 40


def dispatching(*, recovers=False, **options):
    app = App("app", ordering="key", concurrency=4)

    @app.handler("t", **options)
    def handle(record, ctx):
        pass

    if recovers:
        app.recover(lambda record, error, ctx: None)
    tracker = AckTracker()
    processor = PartitionProcessor(Scope(app, {}), TopicPartition("t", 0), tracker)
    dispatcher = Dispatcher(VirtualClock(), app.concurrency, lambda processor, report: None)
    dispatcher.add(processor)
    records = [Record("t", 0, n, b"%d" % (n % KEYS), b"") for n in range(10 * KEYS)]
    dispatcher.offer(processor, records)
    return dispatcher, processor


def end(dispatcher, lot, seconds):
    lot.seconds, lot.calls = seconds * len(lot.works), len(lot.works)
    lot.results.extend([None] * len(lot.works))
    dispatcher.report(lot)


def test_a_lot_is_of_one_key_until_handlers_are_known_to_be_quick():
    dispatcher, _ = dispatching()
    first = dispatcher.take()
    assert {work.record.key for work in first.works} == {b"0"}
    end(dispatcher, first, QUICK_RECORD / 10)
    second = dispatcher.take()
    assert len({work.record.key for work in second.works}) == KEYS - 1
    assert [work.offset for work in second.works if work.record.key == b"1"] == [
        1 + KEYS * turn for turn in range(10)
    ]


def test_how_long_a_recovery_takes_says_nothing_of_the_handler():
    """Of async and batch handlers no pace is known: that of a recovery would count for good."""
    dispatcher, processor = dispatching(recovers=True, batch=10 * KEYS)
    failed = dispatcher.take()
    failed.results.extend([Bury("never")] * len(failed.works))
    dispatcher.report(failed)
    dispatcher.tick()
    recovery = dispatcher.take()
    assert recovery.recovering
    end(dispatcher, recovery, QUICK_RECORD / 10)
    assert not processor.quick


def test_few_threads_run_them_and_all_again_when_they_are_slow(monkeypatch):
    monkeypatch.setattr(work, "SLOW_RECORD", inf)  # a busy machine may be
    dispatcher, _ = dispatching()
    end(dispatcher, dispatcher.take(), QUICK_RECORD / 10)
    slow, _ = dispatching()
    end(slow, slow.take(), QUICK_RECORD * 10)
    taken = [slow.take() for _ in range(5)]
    assert [lot is not None for lot in taken] == [True] * 4 + [False]
    assert all(len(lot.lanes) == 1 for lot in taken if lot is not None)
    held, processor = dispatching(timeout="1m")  # whose records never run but by lanes
    end(held, held.take(), QUICK_RECORD / 10)
    held.take()
    held.offer(processor, [Record("t", 0, n, b"new %d" % n, b"") for n in range(900, 1900)])
    lots = [lot for lot in (held.take() for _ in range(5)) if lot is not None]
    assert len(lots) + 1 == QUICK_LOTS
