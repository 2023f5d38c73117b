"""Calls that are let out during an outage: whatever becomes of them, its end is noticed."""

from __future__ import annotations

import gc

import pytest

from redrive import App, Bury, Guard, InPlace, Outage, Retry, RetryPolicy
from redrive.backoff import Backoff
from redrive.parked_rules import Match
from redrive.processing.calls.scope import Scope
from redrive.processing.dispatcher import Dispatcher
from redrive.processing.execution.executors import InlineExecutor
from redrive.processing.execution.resources import Resources
from redrive.processing.processor import PartitionProcessor
from redrive.processing.progress.acks import AckTracker
from redrive.processing.work import Work
from redrive.record import Record, TopicPartition
from redrive.testing import Simulation
from redrive.testing.runner import Runner
from redrive.testing.virtual_clock import VirtualClock

HOUR = 3600


class Process:
    """One whose calls a test takes and ends by itself."""

    def __init__(self, app, concurrency):
        self.clock = VirtualClock()
        self.reports = []
        self.scope = Scope(
            app,
            dict.fromkeys(app.handlers, "id"),
            clock=self.clock,
            guarded=True,
            timer=lambda: self.clock.now() / 1000,
        )
        self.dispatcher = Dispatcher(
            self.clock, concurrency, lambda *report: self.reports.append(report), self.scope.guards
        )
        self.executor = InlineExecutor(self.scope, Resources(app))
        self.executor.start(self.dispatcher)
        self.scope.threads = concurrency

    def take_up(self, topic, number, records):
        processor = PartitionProcessor(self.scope, TopicPartition(topic, number), AckTracker())
        self.dispatcher.add(processor)
        self.offer(processor, range(records))
        return processor

    def offer(self, processor, offsets):
        topic, number = processor.partition
        records = [Record(topic, number, each, b"%d" % each, b"%d" % each, ()) for each in offsets]
        self.dispatcher.offer(processor, records)

    def take(self):
        return self.dispatcher.take()

    def end(self, lot):
        lot.run()
        self.dispatcher.report(lot)

    def seconds(self, count, *, run=True):
        for _ in range(count):
            self.clock.set(self.clock.now() + 1000)
            self.dispatcher.tick()
            if run:
                self.executor.run()

    def state(self, topic="orders"):
        return self.scope.guards.breakers[topic].state


class Service:
    """Something that handlers depend on."""

    def __init__(self):
        self.away = True
        self.called = []

    def ask(self, record):
        self.called.append((record.topic, record.offset))
        if self.away:
            raise Outage("away")


def test_a_probe_that_waits_for_a_thread_is_not_lost_when_another_guard_opens():
    service = Service()
    app = App("shop", guard=Guard(), retry=RetryPolicy("1m"), concurrency=2)
    for topic in ("a", "b"):
        app.handler(topic)(lambda record, ctx: service.ask(record))
    process = Process(app, 2)
    process.take_up("a", 0, 5)
    process.end(process.take())
    process.take_up("b", 0, 5)
    process.take_up("b", 1, 5)
    busy = [process.take(), process.take()]
    process.seconds(1, run=False)
    for lot in busy:
        process.end(lot)
    assert (process.state("a"), process.state("b")) == ("open", "open")
    probe = process.take()
    assert (probe.handler.topic, len(probe.works)) == ("a", 1)
    process.end(probe)
    service.away = False
    process.seconds(60)
    assert (process.state("a"), process.state("b")) == ("closed", "closed")


def test_guards_that_open_together_close_together():
    service = Service()
    app = App("shop", guard=Guard(), retry=RetryPolicy("1m"), concurrency=4)
    for topic in ("a", "b"):
        app.handler(topic)(lambda record, ctx: service.ask(record))
    with Simulation(app) as sim:
        for number in range(60):
            sim.send("ab"[number % 2], f"{number}", key=f"{number}")
        sim.advance("5m")
        service.away = False
        sim.run_until_empty()
        assert sim.lag == 0
        assert not sim.outcomes


def test_a_probe_that_operators_hold_is_followed_by_another(monkeypatch):
    runners = []

    def make(*given, **named):
        runners.append(Runner(*given, **named))
        return runners[-1]

    monkeypatch.setattr("redrive.testing.simulation.Runner", make)
    service = Service()
    service.away = False
    app = App("shop", guard=Guard(), retry=RetryPolicy("1m 1m 1m"))
    bad = True

    @app.handler("orders")
    def handle(record, ctx):
        service.ask(record)
        if bad:
            raise ValueError("once")

    with Simulation(app) as sim:
        sim.send("orders", "0", key="k0")
        sim.run()
        bad, service.away = False, True
        sim.advance("60s500ms")
        sim.clock.set(sim.clock.now() + 2500)
        runners[-1].next_due()  # the probe is let out, and does not run yet
        sim.steering.hold(Match(topics=("shop.retry.1m",)), "operator")
        sim.run()
        service.away = False
        for number in range(100):
            sim.send("orders", f"n{number}", key=f"n{number}")
        sim.advance("1m")
        assert sim.lag == 0


def test_a_probe_that_ends_without_a_question_to_its_guard_is_followed_by_another():
    service = Service()
    app = App("shop", guard=Guard(), retry=RetryPolicy("1m"), concurrency=4)
    contexts = []

    def name(record):
        if record.value == b"1":
            raise KeyError("no id")
        return record.value.decode()

    @app.handler("orders", ack="manual", id=name)
    def handle(record, ctx):
        service.ask(record)
        contexts.append((record, ctx))

    process = Process(app, 4)
    process.take_up("orders", 0, 30)
    process.end(process.take())
    service.away = False
    for _ in range(30):
        process.seconds(1)
        while contexts:
            record, ctx = contexts.pop()
            if record.value == b"1":
                ctx.fail(ValueError("bad"))
                begun = process.scope.guards.breakers["orders"].begun()
                assert all(work.record.value != b"1" for work in begun)
            else:
                ctx.ack()
    assert process.state() == "closed"


def test_a_probe_that_never_ends_is_followed_by_another():
    service = Service()
    app = App("shop", guard=Guard(), retry=RetryPolicy("1m"), concurrency=8)
    app.handler("orders")(lambda record, ctx: service.ask(record))
    process = Process(app, 8)
    process.take_up("orders", 0, 100)
    process.end(process.take())
    process.seconds(1, run=False)
    hangs = process.take()
    service.away = False
    process.seconds(29)
    assert len(service.called) == 1
    process.seconds(5)
    assert process.state() == "closed"
    assert len(service.called) == 100
    process.end(hangs)


def test_a_handler_that_acknowledges_ten_at_once_gets_ten():
    service = Service()
    app = App("shop", guard=Guard(), retry=RetryPolicy("1m 1m"), concurrency=4)
    kept = []

    @app.handler("orders", ack="manual")
    def handle(record, ctx):
        service.ask(record)
        kept.append(ctx)
        if len(kept) >= 10:
            for each in kept:
                each.ack()
            kept.clear()

    with Simulation(app) as sim:
        for number in range(100):
            sim.send("orders", f"{number}", key=f"k{number}")
        sim.advance("1s")
        service.away = False
        sim.advance("1h")
        assert sim.lag == 0


def test_a_probe_whose_partition_was_withdrawn_is_followed_by_another():
    service = Service()
    app = App("shop", guard=Guard(), retry=RetryPolicy("1m"), concurrency=2)
    app.handler("orders")(lambda record, ctx: service.ask(record))
    process = Process(app, 2)
    first = process.take_up("orders", 0, 5)
    process.end(process.take())
    process.seconds(1, run=False)  # one of it is let out
    process.take_up("orders", 1, 5)
    process.dispatcher.withdraw(first)
    service.away = False
    process.seconds(10)
    assert process.state() == "closed"


@pytest.mark.parametrize("ack", ["auto", "manual"])
def test_nothing_is_kept_of_records_that_were_held(ack):
    gc.collect()
    before = {id(each) for each in gc.get_objects() if isinstance(each, Work)}  # other tests'
    service = Service()
    app = App("shop", guard=Guard(), retry=RetryPolicy("1m"), concurrency=1)

    @app.handler("orders", ack=ack)
    def handle(record, ctx):
        if service.away:
            raise ConnectionRefusedError("down")
        service.called.append(record.offset)
        if ack == "manual":
            ctx.ack()

    process = Process(app, 1)
    process.take_up("orders", 0, 300)
    while (lot := process.take()) is not None:
        process.end(lot)
    process.seconds(60)
    assert process.state() == "open"
    service.away = False
    process.seconds(120)
    assert process.state() == "closed"
    assert sorted(service.called) == list(range(300))
    del lot
    process.reports.clear()
    gc.collect()
    works = [each for each in gc.get_objects() if isinstance(each, Work)]
    assert [each for each in works if id(each) not in before] == []


def test_a_record_that_fails_alone_after_an_outage_is_called_ever_more_rarely():
    service = Service()
    app = App("shop", guard=Guard(), retry=RetryPolicy("1m"), concurrency=4)
    app.handler("orders")(lambda record, ctx: service.ask(record))
    process = Process(app, 4)
    processor = process.take_up("orders", 0, 4)
    process.end(process.take())
    service.away = False
    process.seconds(1)  # three probes pass, and the last record after them
    assert process.state() == "ramp"
    service.away = True
    before = len(service.called)
    process.offer(processor, [4])
    for _ in range(5):
        process.dispatcher.tick()
        process.executor.run()
    assert len(service.called) - before == 2
    process.seconds(31)
    assert len(service.called) - before == 2 + 5  # after 1, 2, 4, 8 and 16 s
    assert process.state() == "ramp"


def test_a_service_that_is_back_for_a_few_calls_costs_no_attempt():
    app = App("shop", guard=Guard(), retry=RetryPolicy("1m"))
    budget = 0

    @app.handler("orders")
    def handle(record, ctx):
        nonlocal budget
        if budget == 0:
            raise ConnectionRefusedError("away")
        budget -= 1

    with Simulation(app) as sim:
        for number in range(40):
            sim.send("orders", f"{number}", key=f"k{number}")
        for _ in range(5):
            sim.advance("5m")
            budget = 5
        sim.advance("5m")
        assert not sim.outcomes
        assert {each.attempt for each in sim.attempts} == {1}
        assert sim.lag == 40 - 5 * 5


def test_a_service_that_answers_one_call_in_twenty_costs_no_attempt():
    app = App("shop", guard=Guard(), retry=RetryPolicy("1m"))
    calls = 0

    @app.handler("orders")
    def handle(record, ctx):
        nonlocal calls
        calls += 1
        if calls % 20:
            raise ConnectionRefusedError("away")

    with Simulation(app) as sim:
        for number in range(200):
            sim.send("orders", f"{number}", key=f"k{number}")
        sim.advance("12h")
        assert not sim.outcomes
        assert sim.lag < 200


@pytest.mark.parametrize(
    "error",
    [ValueError("no such item"), Bury("never"), Retry("429", after="10s", counts=False)],
    ids=type,
)
def test_answers_end_an_outage_too(error):
    service = Service()
    app = App("shop", guard=Guard(), retry=RetryPolicy("1h", max_duration="1d"), concurrency=4)

    @app.handler("orders")
    def handle(record, ctx):
        service.ask(record)
        raise error

    process = Process(app, 4)
    process.take_up("orders", 0, 60)
    process.end(process.take())
    process.seconds(10)
    assert process.state() == "open"
    service.away = False
    process.seconds(30)
    assert process.state() == "closed"
    assert len(service.called) > 60


def test_answers_do_not_make_failures_their_records_own():
    """A handler may have raised them before it asked what is away."""
    app = App("shop", guard=Guard(), retry=RetryPolicy("1m"))

    @app.handler("orders")
    def handle(record, ctx):
        if int(record.value) % 2:
            raise ValueError("not even")
        raise ConnectionRefusedError("away")

    with Simulation(app) as sim:
        for number in range(100):
            sim.send("orders", f"{number}", key=f"k{number}")
        sim.advance("1h")
        mine = [each for each in sim.attempts if int(each.record.value) % 2 == 0]
        assert {each.attempt for each in mine} == {1}


def test_an_outage_is_over_when_nothing_waits_any_more(caplog):
    service = Service()
    app = App("shop", guard=Guard(max_open="1h"), retry=RetryPolicy("1m"), concurrency=16)
    app.handler("orders")(lambda record, ctx: service.ask(record))
    process = Process(app, 16)
    process.take_up("orders", 0, 5)
    process.end(process.take())
    service.away = False
    process.seconds(1)
    assert process.state() == "ramp"
    process.seconds(2)
    assert process.state() == "closed"
    process.seconds(2 * HOUR)
    assert "max_open" not in caplog.text


@pytest.mark.parametrize("partitions", [4, 9])
def test_an_outage_is_seen_where_order_leaves_few_lanes(partitions):
    service = Service()
    app = App("shop", guard=Guard(), ordering="partition")

    @app.handler("orders")
    def handle(record, ctx):
        if service.away:
            raise ConnectionRefusedError("away")

    with Simulation(app, partitions=partitions) as sim:
        for number in range(100):
            sim.send("orders", f"{number}", key=f"k{number}", partition=number % partitions)
        for _ in range(3):
            sim.advance("10m")
            sim.crash()
        service.away = False
        sim.run_until_empty()
        assert sim.lag == 0
        assert not sim.outcomes


def test_a_poisoned_record_of_few_lanes_goes_its_normal_way():
    app = App("shop", guard=Guard(), ordering="partition")

    @app.handler("orders")
    def handle(record, ctx):
        if record.value == b"0":
            raise ConnectionRefusedError("no")

    with Simulation(app, partitions=4) as sim:
        for number in range(100):
            sim.send("orders", f"{number}", key=f"k{number}", partition=number % 4)
        sim.run_until_empty()
        assert [each.record.value for each in sim.dead] == [b"0"]


@pytest.mark.parametrize(
    ("concurrency", "seconds"), [(1, 0.6), (1, 30), (4, 5), (16, 11), (16, 30)]
)
def test_a_service_that_hangs_is_seen_however_slow_its_calls_fail(
    monkeypatch, concurrency, seconds
):
    monkeypatch.setattr("redrive.processing.order.lanes.QUICK_RECORD", 0)  # nobody is quick
    app = App("shop", guard=Guard(), retry=RetryPolicy("1m"), concurrency=concurrency)

    @app.handler("orders")
    def handle(record, ctx):
        raise TimeoutError("no answer")

    process = Process(app, concurrency)
    process.scope.threads = 0  # one record after the other
    process.take_up("orders", 0, 200)
    running = []
    for _ in range(25 * (1 + 20 // concurrency) * 4):
        while (lot := process.take()) is not None:
            lot.todo = type(lot.todo)([*lot.todo][:1])
            running.append((process.clock.now() + 1000 * seconds, lot))
        process.clock.set(process.clock.now() + int(250 * seconds))
        process.dispatcher.tick()
        for each in [each for each in running if each[0] <= process.clock.now()]:
            running.remove(each)
            lot = each[1]
            lot.run()
            lot.since -= seconds
            process.dispatcher.report(lot)
        if process.state() == "open":
            break
    assert process.state() == "open"
    assert not any(report.outcomes for _, report in process.reports)


def test_it_is_seen_as_soon_where_threads_take_records_without_order():
    app = App("shop", guard=Guard(), retry=RetryPolicy("1m"), concurrency=4, ordering="unordered")

    @app.handler("orders")
    def handle(record, ctx):
        process.clock.set(process.clock.now() + 5000)
        raise TimeoutError("no answer")

    process = Process(app, 4)
    process.take_up("orders", 0, 20)
    process.end(process.take())
    assert process.scope.guards.breakers["orders"].window >= 20 * 5000


def test_what_waits_in_place_is_called_again_after_an_outage():
    service = Service()
    service.away = False
    retry = RetryPolicy(first=InPlace(3, Backoff("2s", jitter=0)))
    app = App("shop", guard=Guard(), retry=retry)

    @app.handler("orders")
    def handle(record, ctx):
        service.ask(record)
        if record.value == b"0" and ctx.tries < 3:
            raise ValueError("not yet")

    with Simulation(app) as sim:
        sim.send("orders", "0", key="k0")
        sim.run()
        service.away = True
        sim.send("orders", "1", key="k1")
        sim.advance("1m")
        service.away = False
        sim.run_until_empty()
        assert sim.lag == 0
        assert not sim.dead


@pytest.mark.parametrize("options", [{}, {"batch": 10}, {"ack": "manual"}], ids=str)
def test_async_handlers_wait_as_well(options):
    service = Service()
    app = App("shop", guard=Guard(), retry=RetryPolicy("1m"), concurrency=4)

    @app.handler("orders", **options)
    async def handle(record, ctx):
        if service.away:
            raise ConnectionRefusedError("away")
        if "ack" in options:
            ctx.ack()

    with Simulation(app) as sim:
        for number in range(100):
            sim.send("orders", f"{number}", key=f"{number}")
        sim.advance("5m")
        service.away = False
        sim.run_until_empty()
        assert sim.lag == 0
        assert not sim.outcomes
        assert {each.attempt for each in sim.attempts} == {1}


@pytest.mark.parametrize("retry", [RetryPolicy("1m 1m", max_duration="1h")])
def test_a_record_that_an_outage_has_held_is_tried_once_more_at_least(retry):
    service = Service()
    app = App("shop", guard=Guard(), retry=retry)
    seen = set()

    @app.handler("orders")
    def handle(record, ctx):
        service.ask(record)
        if record.value not in seen:
            seen.add(record.value)
            raise ValueError("once")

    with Simulation(app) as sim:
        for number in range(30):
            sim.send("orders", f"{number}", key=f"k{number}")
        sim.advance("2h")
        service.away = False
        sim.run_until_empty()
        assert not sim.dead
        assert sim.lag == 0


def test_time_before_and_after_an_outage_counts_as_ever():
    service = Service()
    app = App("shop", guard=Guard(), retry=RetryPolicy(first=InPlace(None), max_duration="10m"))

    @app.handler("orders")
    def handle(record, ctx):
        service.ask(record)
        raise ValueError("always")

    with Simulation(app) as sim:
        sim.send("orders", "0", key="k0")
        sim.advance("2h")
        assert not sim.dead
        service.away = False
        sim.advance("9m")
        assert not sim.dead
        sim.advance("2m")
        assert [each.reason for each in sim.dead] == ["expired"]


def test_nothing_is_written_back_to_its_origin_during_an_outage():
    service = Service()
    service.away = False
    policy = RetryPolicy("10m", repeat=True, max_duration="1h", redeliver="origin")
    app = App("shop", guard=Guard(), retry=policy)
    bad = True

    @app.handler("orders")
    def handle(record, ctx):
        service.ask(record)
        if bad:
            raise ValueError("once")

    with Simulation(app) as sim:
        for number in range(5):
            sim.send("orders", f"{number}", key=f"k{number}")
        sim.run()
        bad, service.away = False, True
        sim.send("orders", "x", key="x")
        sim.advance("2h")
        assert [each.kind for each in sim.outcomes] == ["park"] * 5
        service.away = False
        sim.run_until_empty()
        assert sim.lag == 0
        assert not sim.dead
