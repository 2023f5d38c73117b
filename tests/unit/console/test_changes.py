"""What is confirmed on the page is what was planned, and it is done once."""

from __future__ import annotations

from threading import Event
from types import SimpleNamespace

import pytest
from operating import World

from redrive.console import ruling
from redrive.console.changes import do_parked, do_plan, plan, plan_parked, steer
from redrive.console.jobs import Jobs
from redrive.console.letters_index import LettersIndex
from redrive.console.plans import Plans
from redrive.console.ruling import Ruling
from redrive.dead import Filter, Operation, ReplayOptions, ReplayPlan
from redrive.dead.desk import UnderWayError
from redrive.dead.scan import Planned, Scanned
from redrive.dead.trying import Trials
from redrive.errors import ConfigurationError, RedriveError
from redrive.local.waiting import wait_until
from redrive.parked_rules import Match
from redrive.tuning import CONSOLE_PARKED


class Clerk:
    """Notes what it is asked to do."""

    def __init__(self):
        self.asked = []
        self.busy = False

    def replay(self, wanted, options, *, progress, **how):
        return self._do("replay", progress, how["planned"])

    def discard(self, wanted, why, *, progress, **how):
        return self._do("discard", progress, how["planned"])

    def _do(self, kind, progress, planned):
        if self.busy:
            raise UnderWayError("bob is at work")
        self.asked.append((kind, planned))
        operation = Operation(id=f"{kind}-{len(self.asked)}", kind=kind, by="alice", at=0)
        progress(operation, None)
        return operation


class Page:
    def __init__(self, action, plan):
        self.clerk = Clerk()
        watched = SimpleNamespace(operator=lambda _by: self.clerk)
        self.board = SimpleNamespace(name="shop", plans=Plans(), jobs=Jobs(), watched=watched)
        self.asked = self.board.plans.begin(
            action, lambda: plan, wanted=Filter(), options=ReplayOptions(), by="alice", fields={}
        )
        self.asked.end.result(60)

    def confirm(self):
        request = SimpleNamespace(path_params={"plan": self.asked.id})
        answer = do_plan(
            SimpleNamespace(
                board=self.board,
                request=request,
                fields={"reason": ["test data"]},
                visitor=SimpleNamespace(name="alice"),
            )
        )
        self.board.jobs.close(60)
        return answer.headers["location"]


SCANNED = Scanned("shop.dead", bounds={0: (2, 5), 1: (0, 9)})
PLAN = ReplayPlan(letters=3, scanned=SCANNED, topic_id="T1")


@pytest.mark.parametrize("action", ["replay", "discard"])
def test_a_confirmed_plan_does_no_more_than_it_has_shown_and_once(action):
    page = Page(action, PLAN)
    assert page.confirm() == page.confirm() == f"/apps/shop/jobs/{action}-1"
    assert page.clerk.asked == [(action, Planned("T1", {0: (2, 5), 1: (0, 9)}))]


def test_a_plan_that_was_refused_can_be_confirmed_again():
    page = Page("replay", PLAN)
    page.clerk.busy = True
    with pytest.raises(UnderWayError):
        page.confirm()
    page.clerk.busy = False
    assert page.confirm() == "/apps/shop/jobs/replay-1"


def test_a_trial_is_nothing_to_be_confirmed():
    with pytest.raises(ConfigurationError, match="not known any more"):
        Page("try", Trials(Scanned("shop.dead"), [])).confirm()


@pytest.mark.parametrize("before", [["worse"], ["another"], []])
def test_an_edit_is_for_the_letter_that_was_edited_and_no_other(before):
    world = World(values=["worse"])
    index = LettersIndex(world.letters)
    watched = SimpleNamespace(
        letters=world.letters, operator=world.operator, has_code=True, app=world.app
    )
    board = SimpleNamespace(name="shop", watched=watched, index=index, plans=Plans())
    fields = {"action": ["replay"], "at": ["shop.dead[0]@0"], "edited": ["better"]}
    asking = SimpleNamespace(
        board=board,
        fields=fields | ({"before_edit": before} if before else {}),
        console=SimpleNamespace(fixes=()),
        visitor=SimpleNamespace(name="alice"),
    )
    if before == ["another"]:
        with pytest.raises(ConfigurationError, match="another letter than the one that was edited"):
            plan(asking)
        return
    name = plan(asking).headers["location"].rpartition("/")[2]
    assert board.plans.get(name).end.result(60).changed == 1


class Desk:
    """A job under way on the page, and whoever steers it."""

    def __init__(self, known=None):
        self.under_way, self.asked = Event(), []
        self.operation = Operation(id="replay-1", kind="replay", by="alice", at=0)
        operator = SimpleNamespace(pause=self.asked.append, resume=self.resume)
        index = SimpleNamespace(catch_up=lambda: None, operation=lambda _name: known)
        letters = SimpleNamespace(named="shop:app")
        watched = SimpleNamespace(operator=lambda _by: operator, letters=letters)
        self.board = SimpleNamespace(name="shop", jobs=Jobs(), watched=watched, index=index)
        self.stopped = []

    def run(self, show, stopping):
        show(self.operation, None)
        while not stopping():
            pass
        self.stopped.append(stopping())
        return self.operation

    def resume(self, name, *, progress, stopping):
        self.asked.append(name)
        return self.operation

    def steer(self, verb):
        request = SimpleNamespace(path_params={"job": "replay-1", "verb": verb})
        console = SimpleNamespace(fixes=("shop:mend",))
        bob = SimpleNamespace(name="bob")
        return steer(
            SimpleNamespace(board=self.board, request=request, visitor=bob, console=console)
        )


def test_whoever_pauses_a_job_on_the_page_is_named():
    desk = Desk()
    desk.board.jobs.start(desk.run)
    desk.steer("pause")
    desk.board.jobs.close(60)
    assert desk.stopped == ["bob"]
    assert desk.asked == []


@pytest.mark.parametrize(
    ("known", "words"),
    [
        (None, "there is no operation"),
        (
            Operation(id="replay-1", kind="replay", by="eve", at=0, options={"fix": "os:system"}),
            "which the console was not started with",
        ),
    ],
)
def test_a_job_whose_fix_is_not_known_is_not_resumed(known, words):
    desk = Desk(known)
    with pytest.raises(ConfigurationError, match=words):
        desk.steer("resume")
    assert desk.asked == []


class Parked:
    """The page of parked records, and what was said on it."""

    def __init__(self, steering):
        self.counts = []
        watched = SimpleNamespace(steering=lambda _by: steering)
        parked = SimpleNamespace(outdated=lambda: self.counts.append("outdated"))
        self.board = SimpleNamespace(name="shop", watched=watched, parked=parked, ruling=Ruling())

    def send(self, do=do_parked, **fields):
        page = lambda _name, **values: values  # noqa: E731 -- instead of a template
        asking = SimpleNamespace(
            board=self.board,
            visitor=SimpleNamespace(name="alice"),
            fields={name: [value] for name, value in fields.items()},
            page=page,
        )
        return do(asking)


def test_whoever_says_something_about_parked_records_says_why_also_to_end_it():
    page = Parked(SimpleNamespace())
    for fields in ({"action": "hold", "topic": "x"}, {"rule": "hold-1"}):
        with pytest.raises(ConfigurationError, match="say why"):
            page.send(**fields)
    assert page.counts == []


def test_only_one_at_a_time_says_something_about_parked_records():
    page, hold = Parked(slow := Slow()), {"action": "hold", "topic": "x", "reason": "no prices"}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ruling, "CONSOLE_SCAN_SECONDS", 0.0)
        page.send(**hold)
    with pytest.raises(UnderWayError, match="another rule"):
        page.send(**hold)
    slow.go_on.set()
    assert slow.over.wait(60)
    assert wait_until(lambda: not page.board.ruling.under_way, 60)
    page.send(**hold)
    assert slow.said == ["no prices"] * 2
    assert page.counts == ["outdated"] * 2


class Slow:
    """Somebody who steers parked records, and takes long: all of them are read."""

    def __init__(self):
        self.go_on, self.over, self.said = Event(), Event(), []

    def hold(self, _match, why):
        assert self.go_on.wait(60)
        self.said.append(why)
        self.over.set()

    def run_now(self, _match, why):
        assert self.go_on.wait(60)
        raise RedriveError("no broker answers")


def test_no_request_waits_until_all_parked_records_are_read(monkeypatch):
    monkeypatch.setattr(ruling, "CONSOLE_SCAN_SECONDS", 0.01)
    page = Parked(slow := Slow())
    answer = page.send(action="run-now", topic="x", reason="they are there")
    assert answer.headers["location"] == "/apps/shop/parked"
    assert (page.board.ruling.under_way, page.board.ruling.problem) == (True, "")
    slow.go_on.set()
    # The page says how it went.
    assert wait_until(lambda: page.board.ruling.problem == "no broker answers", 60)
    assert not page.board.ruling.under_way


def test_whoever_waits_hears_what_refuses_a_rule_and_nobody_else_does():
    page = Parked(slow := Slow())
    slow.go_on.set()
    with pytest.raises(RedriveError, match="no broker answers"):
        page.send(action="run-now", topic="x", reason="they are there")
    assert page.board.ruling.problem == ""


@pytest.mark.parametrize("more", [{}, {"run_now": "yes"}])
def test_what_was_held_runs_when_it_is_due_or_at_once(more):
    said = []
    page = Parked(
        SimpleNamespace(
            chosen=lambda _match, rules: rules,
            release=lambda rules, why, run_now: said.append((rules, why, run_now)),
        )
    )
    page.send(rule="hold-1", reason="the prices are there", **more)
    assert said == [(["hold-1"], "the prices are there", bool(more))]


def test_one_record_can_be_meant_by_its_id():
    asked = []
    page = Parked(SimpleNamespace(plan=lambda *given: asked.append(given[:2])))
    page.send(plan_parked, action="hold", id="order-17")
    assert asked == [("hold", Match(ids=("order-17",)))]


def test_a_plan_about_parked_records_reads_a_bounded_number_of_them():
    asked = []
    page = Parked(SimpleNamespace(plan=lambda *given: asked.append(given[-1])))
    page.send(plan_parked, action="hold", topic="x")
    assert asked == [CONSOLE_PARKED]


@pytest.mark.parametrize(
    ("ask", "match"),
    [
        ("hold shop.retry.5s ", Match(topics=("shop.retry.5s",))),
        ("hold shop.retry.5s 1492", Match(topics=("shop.retry.5s",), groups=("1492",))),
        ("hold", Match()),
    ],
)
def test_a_button_says_what_is_to_be_done_and_with_which_records(ask, match):
    asked = []
    page = Parked(SimpleNamespace(plan=lambda *given: asked.append(given[:2])))
    page.send(plan_parked, ask=ask)
    assert asked == [("hold", match)]
    with pytest.raises(ConfigurationError, match="choose an action"):
        page.send(plan_parked, ask="")
