"""Jobs and plans of the page: begun once, told at once, and never in the way of a request."""

from __future__ import annotations

from concurrent.futures import Future
from threading import Event

import pytest

from redrive.console import jobs as jobs_module
from redrive.console.jobs import Jobs
from redrive.console.plans import Plans
from redrive.dead import Filter, Operation, ReplayOptions, ReplayPlan
from redrive.dead.desk import UnderWayError
from redrive.dead.watching import Fate
from redrive.errors import NotReadyError, RedriveError

BEGUN = Operation(id="replay-1", kind="replay", by="alice", at=0)
DONE = BEGUN.change(status="done", counts={"sent": 3})


def test_a_job_is_told_as_soon_as_kafka_knows_of_it_and_goes_on():
    jobs, go_on, over = Jobs(), Event(), Event()

    def run(show, stopping):
        show(BEGUN, None)
        go_on.wait(60)
        show(BEGUN, Fate(0, 0, 2))
        over.set()
        return DONE

    assert jobs.start(run) == BEGUN
    go_on.set()
    assert over.wait(60)
    jobs.close(60)
    assert jobs.standing == (DONE, Fate(0, 0, 2))


def test_a_second_job_has_to_wait_and_the_first_can_be_paused():
    jobs = Jobs()
    paused = BEGUN.change(status="paused")

    def run(show, stopping):
        show(BEGUN, None)
        while not stopping():
            pass
        assert stopping() == "bob"
        return paused

    jobs.start(run)
    with pytest.raises(UnderWayError, match="another job"):
        jobs.start(run)
    assert not jobs.pause("replay-2", "bob")
    assert jobs.pause("replay-1", "bob")
    jobs.close(60)
    assert jobs.standing.operation == paused
    assert not jobs.pause("replay-1", "bob")


def test_a_job_that_is_refused_says_so_to_whoever_has_asked():
    jobs = Jobs()

    def run(show, stopping):
        raise UnderWayError("bob is at work")

    with pytest.raises(UnderWayError, match="bob"):
        jobs.start(run)
    assert jobs.said == "bob is at work"
    assert jobs.said_of("replay-1") == ""


def test_a_job_that_fails_on_its_way_says_so_on_the_page():
    jobs = Jobs()

    def run(show, stopping):
        show(BEGUN, None)
        raise RedriveError("the broker is away")

    assert jobs.start(run) == BEGUN
    jobs.close(60)
    assert jobs.said_of("replay-1") == "the broker is away"
    assert jobs.said_of("replay-2") == ""


def test_a_job_for_which_no_thread_could_be_had_is_not_in_the_way_of_others(monkeypatch):
    jobs = Jobs()
    with monkeypatch.context() as patched:

        def refuse(*_, **__):
            raise RuntimeError("can't start new thread")

        patched.setattr(jobs_module, "begin", refuse)
        with pytest.raises(RuntimeError, match="thread"):
            jobs.start(lambda _show, _stopping: DONE)
    assert jobs.start(lambda _show, _stopping: DONE) == DONE


def test_no_page_waits_for_ever_for_a_job_and_one_that_begins_late_pauses(monkeypatch):
    monkeypatch.setattr(jobs_module, "CONSOLE_JOB_SECONDS", 0.01)
    jobs, answers, said = Jobs(), Event(), []

    def run(show, stopping):
        assert answers.wait(60)
        said.append(stopping())
        return BEGUN.change(status="paused")

    with pytest.raises(NotReadyError, match="did not begin within"):
        jobs.start(run)
    answers.set()
    jobs.close(60)
    assert said == ["the console, as it took long to begin"]


def begun(plans, run, action="replay"):
    return plans.begin(
        action, run, wanted=Filter(), options=ReplayOptions(), by="alice", fields={"group": ["14"]}
    )


def test_a_plan_is_there_when_it_is_made_or_says_why_not():
    plans, wait = Plans(), Event()
    asked = begun(plans, lambda: wait.wait(60) and ReplayPlan(letters=3))
    assert (asked.plan, asked.problem, asked.query) == (None, "", "group=14")
    wait.set()
    assert asked.end.result(60).letters == asked.plan.letters == 3
    assert plans.get(asked.id) is asked

    def fail():
        raise RedriveError("no such topic")

    failed = begun(plans, fail)
    assert isinstance(failed.end, Future)
    assert failed.end.exception(60) is not None
    assert (failed.plan, failed.problem) == (None, "no such topic")


def test_no_more_than_a_few_plans_are_made_at_once_and_old_ones_are_forgotten():
    plans, wait = Plans(), Event()
    for _ in range(4):
        begun(plans, lambda: wait.wait(60) and ReplayPlan())
    with pytest.raises(RedriveError, match="being made already"):
        begun(plans, ReplayPlan)
    wait.set()
    first = begin_all(plans, 60)
    assert plans.get(first) is None


def test_trials_that_hang_are_not_in_the_way_of_plans():
    plans, wait = Plans(), Event()
    for _ in range(4):
        begun(plans, lambda: wait.wait(60) and ReplayPlan(), "try")
    with pytest.raises(RedriveError, match="being made already"):
        begun(plans, ReplayPlan, "try")
    assert begun(plans, lambda: ReplayPlan(letters=3), "discard").end.result(60).letters == 3
    wait.set()


def begin_all(plans, count):
    ids = []
    for _ in range(count):
        while True:
            try:
                asked = begun(plans, ReplayPlan)
            except RedriveError:
                continue
            break
        asked.end.result(60)
        ids.append(asked.id)
    return ids[0]
