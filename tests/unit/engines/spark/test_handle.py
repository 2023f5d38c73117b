"""The handle to a run, with queries that are none: stopping, ending, errors, what is logged."""

from __future__ import annotations

import json
import threading
from dataclasses import replace
from pathlib import Path
from time import time
from types import SimpleNamespace

import pytest
from pyspark.errors import IllegalArgumentException

from redrive import App, RetryPolicy
from redrive.cli.view import summary
from redrive.config import load_settings
from redrive.engines.ahead import Ahead
from redrive.engines.spark.handle import Handle, RunError
from redrive.engines.spark.health import not_live
from redrive.engines.spark.planner import Status
from redrive.engines.spark.planner_ends import PlannerEnds
from redrive.engines.spark.spec import Spec
from redrive.tuning import BATCH_GRACE, PLANNER_DEATHS_WITHIN, PLANNER_START_PATIENCE

REPORT = {"counts": {}, "lateness": [], "trouble": "", "fatal": ""}
LATER = 10**15
"""When a planner has looked after whatever happened before."""


class Query:
    """A streaming query between two batches.

    One that fails has its error before it is over, and its name until it is stopped or forgotten.
    """

    def __init__(self):
        self.isActive = True
        self.status = {"isTriggerActive": False}
        self.error = None
        self.stops = 0

    def stop(self):
        self.isActive = False
        self.stops += 1

    def exception(self):
        return self.error

    def fail(self, text):
        self.error = Exception(text)
        self.isActive = False


class FailsUnseen(Query):
    """Its planner did not start, which became so just after it was asked whether it runs."""

    @property
    def isActive(self):  # noqa: N802 -- Spark's name
        was_active = self.active
        if self.error is None:
            self.fail(NEVER_CAME)
        return was_active

    @isActive.setter
    def isActive(self, active):  # noqa: N802 -- likewise
        self.active = active


class Stream:
    """What makes a query of a session, whatever else it is told."""

    def __init__(self, session):
        self.session = session
        self.writeStream = self

    def told(self, *_, **__):
        return self

    format = load = option = trigger = told

    def queryName(self, name):  # noqa: N802 -- Spark's name
        self.name = name
        return self

    def foreachBatch(self, run):  # noqa: N802 -- likewise
        self.run = run
        return self

    def start(self):
        before = self.session.queries.get(self.name)
        if before is not None and not before.stops:
            raise IllegalArgumentException(f"Cannot start query {self.name}: already active")
        made = self.session.queries[self.name] = self.session.made()
        made.run = self.run
        return made


class Session:
    """A session of Spark, whose queries do nothing by themselves."""

    def __init__(self):
        self.made = Query
        """What is made of the next lane."""
        self.queries = {}
        self.jobs = []
        self.dataSource = SimpleNamespace(register=lambda _: None)
        self.sparkContext = SimpleNamespace(setJobDescription=self.jobs.append)

    @property
    def readStream(self):  # noqa: N802 -- Spark's name
        return Stream(self)


@pytest.fixture
def session():
    return Session()


@pytest.fixture
def spec(tmp_path):
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    return Spec(
        target="shop:app",
        folder="",
        settings=load_settings(environ={}),
        run="r",
        scratch=str(scratch),
        slots=4,
    )


@pytest.fixture
def sees(spec):
    """Lets a planner say what it saw."""
    return lambda lane, **status: Status(lane, **status).write(spec.status_file(lane))


@pytest.fixture
def make(session, spec):
    """Makes a run that ends in that way."""
    handles = []

    def make(until, **changes):
        app = App("shop", retry=RetryPolicy("5s"))
        app.handler("orders")(lambda record, ctx: None)
        # With a trigger, nobody waits for one more look of the planners that do not exist here.
        lanes, mine = ("main", "retry"), replace(spec, **changes)
        handle = Handle(app, mine, session, lanes=lanes, until=until, trigger=1000)
        handles.append(handle)
        return handle

    yield make
    for handle in handles:
        handle.stop(0)


@pytest.fixture
def handle(make):
    handle = make("empty")
    handle.start_lane("main")
    handle.start_lane("retry")
    return handle


@pytest.fixture
def once(make):
    """A run with --once, which begins with the main lane."""
    handle = make("once")
    handle.start_lane("main")
    return handle


def test_stopping_stops_both_queries_and_removes_the_scratch_folder(handle, spec):
    handle.stop()
    assert not any(query.isActive for query in handle.queries.values())
    assert not Path(spec.scratch).exists()
    assert handle.await_termination(0)


def test_stopping_twice_is_stopping_once(handle, spec):
    handle.stop()
    handle.stop()
    assert not Path(spec.scratch).exists()


def test_a_lane_is_not_started_once_the_run_is_being_stopped(handle):
    handle.stop()
    del handle.queries["retry"]
    handle.start_lane("retry")
    assert "retry" not in handle.queries


def test_a_busy_lane_is_waited_for_as_long_as_was_said(handle):
    handle.queries["main"].status = {"isTriggerActive": True}
    handle.stop(0.3)
    assert handle.queries["main"].stops == 1


def test_a_lane_whose_planner_has_stopped_is_not_waited_for(handle, sees):
    handle.queries["main"].status = {"isTriggerActive": True}
    sees("main", stopped=True)
    handle.stop(1000)


def test_a_batch_that_is_far_over_its_deadline_is_said_while_it_is_waited_for(make, caplog):
    handle = make("empty", batch_deadline=int(-1000 * BATCH_GRACE))  # as if it were over at once
    handle.start_lane("main")
    ended = []

    class Long(Frame):
        def collect(self):
            ended.append(handle.await_termination(0))
            return super().collect()

    handle.queries["main"].run(Long(), 7)
    assert ended == [False]
    assert "main lane: batch 7 has been under way for" in caplog.text


def test_what_the_planners_saw_last_is_known_after_the_end(handle, sees):
    sees("retry", ahead=Ahead({"shop.retry.5s": 3}))
    handle.check()
    handle.stop()
    assert handle.share("retry") == Ahead({"shop.retry.5s": 3})


def test_a_planner_that_cannot_go_on_ends_the_run_with_its_sentence(handle, sees):
    sees("retry", fatal="another run has begun")
    with pytest.raises(RunError, match=r"^another run has begun$"):
        handle.await_termination()
    assert not any(query.isActive for query in handle.queries.values())
    with pytest.raises(RunError, match="another run"):
        handle.await_termination()


def test_a_query_that_died_ends_the_run_with_the_last_line_of_its_error(handle):
    handle.queries["main"].fail("Traceback:\n  somewhere\nValueError: no\n")
    with pytest.raises(RunError, match=r"^the main lane ended: ValueError: no$"):
        handle.check()


def test_the_line_that_says_why_a_query_died_is_pythons_and_not_an_sql_state(handle):
    told = (
        "Traceback:\n  somewhere\nModuleNotFoundError: No module named 'redrive'\n SQLSTATE: 38000"
    )
    handle.queries["main"].fail(told)
    with pytest.raises(RunError, match=r"lane ended: ModuleNotFoundError: No module named 'redr"):
        handle.check()


DIED = """\
[STREAM_FAILED] Query [id = a, runId = b] terminated with exception:  SQLSTATE: XXKST \
(no cause message)
=== Streaming Query ===
Identifier: ...
"""
RAISED = """\
[STREAM_FAILED] Query [id = a, runId = b] terminated with exception: [PYTHON_ERROR] Failed when it
planned: Traceback (most recent call last):
  File "planner.py", line 1
KeyError: 'x' SQLSTATE: XXKST
=== Streaming Query ===
Logical Plan: ...
"""


NEVER_CAME = """\
Python worker failed to connect back.
=== Streaming Query ===
Current State: INITIALIZING
Thread State: RUNNABLE
"""
REFUSED = NEVER_CAME.replace("Python worker failed to connect back.", "No space left on device")


def test_a_planner_that_died_is_started_again_but_not_for_ever(handle, caplog):
    for _ in range(5):
        died = handle.queries["main"]
        died.fail(DIED)
        handle.check()
        assert handle.queries["main"] is not died
    assert caplog.messages == ["main lane: its planner died; started again"] * 5
    handle.queries["main"].fail(DIED)
    with pytest.raises(RunError, match="its planner dies again and again"):
        handle.check()


def test_planners_that_start_too_slowly_on_a_busy_driver_do_not_end_the_run(handle, caplog):
    for lane in ("main", "retry") * 10:
        handle.queries[lane].fail(NEVER_CAME)
        handle.check()
    late = "main lane: its planner did not start within Spark's ten seconds"
    assert caplog.messages.count(late) == 10


def test_a_driver_that_never_starts_a_planner_in_time_is_reported_in_the_end():
    ends = PlannerEnds()
    times = [0.0, 100.0, PLANNER_START_PATIENCE - 1]
    assert [ends.was_late("main", now, heard=-1) for now in times] == ["", "", ""]
    assert "short of CPU" in ends.was_late("main", PLANNER_START_PATIENCE, heard=-1)


def test_a_planner_that_has_planned_since_is_not_late_for_what_was_before():
    ends = PlannerEnds()
    ends.was_late("main", 0.0, heard=-1)
    assert ends.was_late("main", PLANNER_START_PATIENCE, heard=10.0) == ""


def test_the_deaths_of_one_lanes_planners_are_not_the_other_lanes():
    ends = PlannerEnds()
    assert [ends.died(lane, 1.0) for lane in ("main", "retry") * 5] == [""] * 10
    assert ends.died("main", 2.0) == "its planner dies again and again"
    assert ends.died("retry", 2.0 + PLANNER_DEATHS_WITHIN) == ""


@pytest.mark.parametrize(
    ("end", "sentence"), [(RAISED, "KeyError: 'x'"), (REFUSED, "No space left on device")]
)
def test_a_planner_that_raised_ends_the_run(handle, end, sentence):
    handle.queries["main"].fail(end)
    with pytest.raises(RunError, match=f"^the main lane ended: {sentence}$"):
        handle.check()


def test_a_task_that_was_fenced_ends_the_run(handle, spec):
    handle.queries["main"].run(Frame(REPORT | {"fatal": "fenced off by another run"}), 3)
    assert spec.stop_file.exists()
    with pytest.raises(RunError, match="fenced off"):
        handle.check()


def test_batches_in_which_nothing_is_due_yet_do_not_follow_each_other_at_once(pauses, handle):
    """The planner goes by the broker's time, records by their writers' too."""
    report = REPORT | {"start": 5, "end": 5}

    def wait_after(lane, *reports):
        pauses.clear()
        handle.queries[lane].run(Frame(*reports), 3)
        (seconds,) = pauses
        return seconds

    waits = [wait_after("retry", report) for _ in range(20)]
    assert waits == sorted(waits)
    assert (0 < waits[0] < 0.2, waits[-1]) == (True, 1.0)
    for news in ({"end": 6}, {"counts": {"done": 1}}, {"died": {}}):
        assert wait_after("main", report | news, report) == 0
    assert wait_after("retry", report | {"end": 6}) == 0
    assert wait_after("retry", report) == waits[0]


def test_the_run_ends_when_its_ending_is_reached(handle, sees):
    for lane in ("main", "retry"):
        sees(lane, empty=True, at=LATER)
    assert handle.await_termination()
    assert not any(query.isActive for query in handle.queries.values())


def test_once_goes_on_when_its_planner_did_not_start(once, caplog):
    once.queries["main"].fail(NEVER_CAME)
    assert not once.await_termination(0)
    assert once.queries["main"].isActive
    assert caplog.messages == ["main lane: its planner did not start within Spark's ten seconds"]


@pytest.mark.parametrize("until", ["stopped", "once", "empty"])
def test_a_run_is_not_over_because_its_query_failed_after_it_was_looked_at(make, session, until):
    """As on a busy machine: it fails between two questions whether it runs."""
    run = make(until)
    session.made = FailsUnseen
    run.start_lane("main")
    first = run.queries["main"]
    assert not run.await_termination(0)
    assert first.error is not None
    assert run.queries["main"] is first
    assert not run.await_termination(0)
    assert run.queries["main"] is not first


def test_once_is_over_when_both_lanes_have_planned_and_reached_their_goal(once, sees):
    assert not once.await_termination(0)
    sees("main", reached=True)
    assert not once.await_termination(0)
    assert list(once.queries) == ["retry"]
    once.queries["retry"].fail(NEVER_CAME)
    assert not once.await_termination(0)
    sees("retry", reached=True)
    assert once.await_termination(0)


def test_once_ends_with_an_error_when_no_planner_ever_starts(once, monkeypatch):
    now = time()
    monkeypatch.setattr("redrive.engines.spark.handle.time", lambda: now)
    for _ in range(2):
        once.queries["main"].fail(NEVER_CAME)
        assert not once.await_termination(0)
    now += PLANNER_START_PATIENCE
    once.queries["main"].fail(NEVER_CAME)
    with pytest.raises(RunError, match=r"^the main lane ended: for 240 s no Python process"):
        once.await_termination(0)


def test_a_lane_that_has_an_error_is_started_again_when_it_is_over(handle):
    failing = handle.queries["main"]
    failing.error = Exception(DIED)
    handle.check()
    assert handle.queries["main"] is failing
    failing.isActive = False
    handle.check()
    assert handle.queries["main"] is not failing


@pytest.mark.parametrize("until", ["stopped", "once", "empty"])
def test_a_query_that_somebody_else_stopped_is_no_orderly_end(make, until):
    run = make(until)
    run.start_lane("main")
    run.queries["main"].stop()
    with pytest.raises(RunError, match="the main lane ended: its query was stopped, and not by"):
        run.await_termination(0)


def test_a_lane_that_cannot_be_started_ends_the_run_with_a_sentence(once, session, sees):
    def refuse():
        raise IllegalArgumentException("no space left")

    session.made = refuse
    sees("main", reached=True)
    assert not once.await_termination(0)
    with pytest.raises(RunError, match=r"^the retry lane did not start: no space left$"):
        once.await_termination(0)


def test_what_the_last_batches_of_a_run_report_is_not_lost(handle, sees, monkeypatch):
    for lane in ("main", "retry"):
        sees(lane, empty=True, at=LATER)
    query = handle.queries["main"]
    stop = query.stop

    def report_and_stop():
        query.run(Frame(REPORT | {"fatal": "fenced off by another run"}), 3)
        stop()

    monkeypatch.setattr(query, "stop", report_and_stop)
    with pytest.raises(RunError, match="fenced off"):
        handle.await_termination()


def test_a_lane_that_has_done_its_part_is_neither_watched_nor_missed(once, sees):
    sees("main", reached=True, planned=1)
    assert not once.await_termination(0)
    assert not_live(once) == ""


def test_a_lane_that_has_not_planned_does_not_say_that_there_was_nothing_to_do(handle):
    handle.stop()
    assert list(summary(handle, 0.0)) == ["main  lane: nothing done", "retry lane: nothing done"]


def test_waiting_has_an_end(handle):
    assert not handle.await_termination(0)
    with pytest.raises(RunError, match="did not get that far"):
        handle.wait_until(lambda: False, 0)


def test_troubles_and_losses_are_logged_when_they_are_news(handle, caplog, sees):
    for trouble in ("", "no broker", "no broker", ""):
        sees("main", trouble=trouble, lost=["in[0]: gone"])
        handle.check()
    assert caplog.messages == [
        'main lane: DATA LOSS: in[0]: gone; continuing (on_data_loss="continue")',
        "main lane waits: no broker",
        "main lane continues",
    ]


class Frame:
    """A batch whose tasks report this, or die."""

    def __init__(self, *reports, error=None):
        self._reports = reports
        self._error = error

    def collect(self):
        if self._error:
            raise self._error
        return [[json.dumps(report)] for report in self._reports]


@pytest.fixture
def pauses(monkeypatch):
    """How long runs that are made from now on would pause, of which they do nothing."""
    asked = []

    class Pause(threading.Event):
        def wait(self, seconds=None):
            asked.append(seconds)
            return False

    mine = SimpleNamespace(Event=Pause, RLock=threading.RLock)
    monkeypatch.setattr("redrive.engines.spark.handle.threading", mine)
    return asked


@pytest.fixture
def run_batch(handle, session):
    def run(frame):
        handle.queries["main"].run(frame, 3)
        return session.jobs[-1]

    return run


@pytest.mark.usefixtures("pauses")
def test_a_trouble_that_lasts_is_not_said_with_every_batch(run_batch, caplog):
    for _ in range(3):
        run_batch(Frame(REPORT | {"trouble": "the database is away"}))
    run_batch(Frame(REPORT | {"trouble": "something else"}))
    assert caplog.text.count("the database is away; tried again") == 1
    assert "something else; tried again" in caplog.text


def test_a_batch_is_counted_and_its_job_says_whose_it_is(handle, run_batch):
    report = REPORT | {"counts": {"done": 2}}
    assert run_batch(Frame(report, report)) == "redrive shop: main lane, 3"
    assert handle.figures.counts("main") == {"done": 4}


def test_a_batch_in_which_workers_died_does_not_end_the_run(handle, run_batch):
    run_batch(Frame(error=Exception("... Python worker exited unexpectedly (crashed)")))
    assert handle.figures.lanes["main"].failed_batches == 1
    handle.check()


def test_a_batch_that_failed_in_any_other_way_ends_it(run_batch):
    with pytest.raises(RuntimeError, match="disk full"):
        run_batch(Frame(error=RuntimeError("disk full")))


def test_a_batch_that_was_cancelled_by_the_stop_is_no_error(handle, run_batch):
    handle.stop()
    run_batch(Frame(error=RuntimeError("cancelled")))
