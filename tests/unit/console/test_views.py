"""Pages of letters show nothing that the app masks, and what was done a moment ago."""

from __future__ import annotations

import json
from collections import Counter
from html import unescape
from threading import Event
from types import SimpleNamespace

import letters
import pytest

from redrive import App, Bury, RetryPolicy
from redrive.console import views
from redrive.console.access import Access, Visitor
from redrive.console.asking import Asking, Console
from redrive.console.bounded_code import BoundedCode
from redrive.console.concerns import Concern
from redrive.console.flow import Flow, Node
from redrive.console.letters_index import LettersIndex
from redrive.console.parked_counts import ParkedCounts
from redrive.console.parts import PARTS
from redrive.console.plans import Plans
from redrive.console.ruling import Ruling
from redrive.dead import DeadLetters, Filter, ReplayOptions, ReplayPlan
from redrive.dead.desk import Means
from redrive.dead.operator import Operator
from redrive.dead.steering import Steering
from redrive.errors import ConfigurationError, RedriveError
from redrive.parked_rules import Match
from redrive.secret import Secret
from redrive.testing import Simulation
from redrive.tuning import CONSOLE_DIFF_LINES

CARD, NAME = "4111-2222", "alice-wonder"


def shown(
    view,
    *,
    before=lambda sim, letters: None,
    plans=None,
    path=None,
    ruling=None,
    fixes=(),
    decode=None,
    masked=("card", "name"),
    **fields,
):
    """A page about one letter, whose errors are called after a masked field, and quote others."""
    app = App("shop", retry=RetryPolicy("5s"), masked=[*masked])

    @app.handler("orders")
    def handle(record, ctx):
        data = json.loads(record.value)
        raise type(f"No{data['card']}", (Exception,), {})(f"no customer {data['name']}")

    sim = Simulation(app)
    headers = (("card", CARD.encode()), ("note", f"of {CARD}".encode()))
    sim.send("orders", json.dumps({"card": CARD, "name": NAME}), key=f"k-{CARD}", headers=headers)
    sim.run_until_empty()
    if decode is not None:  # as the console sees the app: it was another one that has buried
        app = App("shop", retry=RetryPolicy("5s"), masked=[*masked])
        app.handler("orders", decode=decode)(bury)
    letters = DeadLetters(sim.broker, app=app, calls=BoundedCode(seconds=0.05))
    index = LettersIndex(letters)
    index.refresh()
    before(sim, letters)
    watched = SimpleNamespace(letters=letters, app=app, steering=lambda _by: sim.steering)
    parked = ParkedCounts(lambda most: sim.steering.parked(min(most, 2)))
    board = SimpleNamespace(
        name="shop",
        watched=watched,
        index=index,
        index_trouble="",
        parked=parked,
        plans=plans,
        ruling=ruling or Ruling(),
    )
    console = Console({"shop": board}, Access(change=Secret("c"), read=Secret("r")), fixes)
    request = SimpleNamespace(
        path_params={"app": "shop", **(path or {})}, url=SimpleNamespace(path="/")
    )
    visitor = Visitor("read token", "read", by_cookie=True)
    return view(Asking(console, request, visitor, fields)).body.decode()


def test_errors_that_are_called_after_a_masked_field_do_not_show_it():
    for page in (
        shown(views.letters),
        shown(views.letter, at=["shop.dead[0]@0"]),
        shown(views.groups),
    ):
        assert CARD not in page
        assert NAME not in page
        assert "No***" in page
        assert "no customer ***" in page


@pytest.mark.parametrize(
    ("seen", "hidden"),
    [
        ({"text": ["no customer ***"]}, {"text": ["customer a"]}),
        ({"text": ["no***"]}, {"text": [f"No{CARD}"]}),
        ({"error": ["No***"]}, {"error": [f"No{CARD}"]}),
        ({"key": ["k-***"]}, {"key": [f"k-{CARD}"]}),
        ({"header": ["card"]}, {"header": [f"card={CARD}"]}),
        ({"header": ["note=of ***"]}, {"header": [f"note=of {CARD}"]}),
        ({"header": ["note"]}, {"header": ["card=***"]}),
    ],
)
def test_a_search_finds_nothing_that_is_masked(seen, hidden):
    assert "1 found" in shown(views.letters, **seen)
    assert "0 found" in shown(views.letters, **hidden)


def test_a_letter_whose_decoder_hangs_is_shown_as_it_was_written_and_the_page_says_so():
    over = Event()
    try:
        hangs = {"decode": lambda _data: over.wait(), "at": ["shop.dead[0]@0"]}
        page = shown(views.letter, masked=(), **hangs)
        assert "the decoder did not answer within 0.05 s" in page
        assert f"&#34;card&#34;: &#34;{CARD}&#34;" in page
        page = shown(views.letter, **hangs)
        assert "the decoder did not answer within 0.05 s" in page
        assert "&#34;card&#34;: &#34;***&#34;" in page
        assert CARD not in page
        page = shown(views.letters, **hangs)
        assert "decoder did not answer within" in page
        assert CARD not in page
    finally:
        over.set()
    assert "did not answer" not in shown(views.letters, decode=json.loads)


def test_whoever_looks_can_log_out():
    assert "Log out" in shown(views.letters)


def discard(sim, letters):
    """What another command does, after the console has looked."""
    sim.broker.create(letters.app.state_topic, 1, {"cleanup.policy": "compact"})
    means = Means(
        take_over=lambda: sim.broker.take_over(letters.topic),
        topics=sim.broker,
        clock=sim.clock,
        wait=lambda _seconds: None,
        progress=sim.broker.progress(letters.app.name),
    )
    Operator(letters, means, "alice").discard(Filter(), "test data")


def test_what_was_done_a_moment_ago_is_there():
    assert "test data" not in shown(views.audit)
    assert "test data" in shown(views.audit, before=discard)
    assert "shop.dead[0]@0" not in shown(views.letters, before=discard, state=["open"])
    assert "shop.dead[0]@0" in shown(views.letters, before=discard, state=["discarded"])


def bury(record, ctx):
    raise Bury("no")


def form_of(value):
    """The text in the form in which the value of a letter is edited."""
    app = App("shop", retry=RetryPolicy("5s"))
    app.handler("orders")(bury)
    with letters.buried(app, value) as sim:
        of_app = DeadLetters(sim.broker, app=app)
        index = LettersIndex(of_app)
        index.refresh()
        board = SimpleNamespace(watched=SimpleNamespace(letters=of_app, app=app), index=index)
        console = Console({"shop": board}, Access(change=Secret("c"), read=Secret("r")))
        request = SimpleNamespace(path_params={"app": "shop"}, url=SimpleNamespace(path="/"))
        visitor = Visitor("change token", "change", by_cookie=True)
        asking = Asking(console, request, visitor, {"at": ["shop.dead[0]@0"]})
        page = views.edit(asking).body.decode()
    _, _, form = page.partition('<textarea id="edited"')
    return unescape(form.partition(">\n")[2].partition("</textarea>")[0])


@pytest.mark.parametrize(
    "value", ['{"n": 1E400}', '{"n":12345678901234567.89}', '{"n":1,"n":2}', "\n</textarea>"]
)
def test_a_form_has_the_value_as_it_was_written(value):
    assert form_of(value) == value


@pytest.mark.parametrize("odd", ["\x00", "\r", "\x1b", "\x7f", "\x85", "\x9f"])
def test_control_characters_are_not_edited_in_a_browser(odd):
    with pytest.raises(ConfigurationError, match="control characters, which a browser would"):
        form_of(f"bad {odd}")


def test_a_letter_is_shown_without_reading_again_what_was_done_about_all_others():
    def unread(sim, letters):
        discard(sim, letters)
        letters.known = None  # whoever reads the whole state topic fails

    place = ["shop.dead[0]@0"]
    assert "discard by alice: test data" in shown(views.letter, before=unread, at=place)


HELD = Match(topics=("shop.retry.5s",))


def hold_and_release(sim, _letters):
    rule = sim.steering.hold(HELD, "the prices are missing")
    sim.steering.release([rule], "they are there")


def test_what_was_said_about_parked_records_is_in_the_audit_also_when_it_has_ended():
    page = shown(views.audit, before=hold_and_release)
    assert "the prices are missing" in page
    assert "ended by test: they are there" in page


def test_a_run_now_of_which_all_has_run_is_not_open_in_the_audit():
    def let_go(sim, _letters):
        sim.send("orders", json.dumps({"card": CARD, "name": NAME}))
        sim.run()
        sim.steering.run_now(HELD, "the prices are there")

    def let_go_and_run(sim, letters):
        let_go(sim, letters)
        sim.run_until_empty()

    over = "all of it was passed"
    assert over not in shown(views.audit, before=let_go)
    assert over in shown(views.audit, before=let_go_and_run)


@pytest.mark.parametrize("view", [views.parked, views.audit])
def test_ids_that_rules_name_are_not_shown_where_fields_are_masked(view):
    def hold(sim, _letters):
        sim.steering.hold(Match(ids=(f"of-{NAME}",)))

    page = shown(view, before=hold)
    assert "id ***" in page
    assert NAME not in page
    assert f"id of-{NAME}" in shown(view, before=hold, masked=())


def test_an_audit_without_the_rules_says_why(monkeypatch):
    def refuse(_steering):
        raise RedriveError("nobody may read shop.retry.rules")

    monkeypatch.setattr(Steering, "rules", refuse)
    page = shown(views.audit)
    assert "nobody may read shop.retry.rules" in page
    assert "Refused requests" in page


def test_parked_records_that_were_not_counted_are_said_to_be_there():
    def park(sim, _letters):
        for number in range(3):
            sim.send("orders", json.dumps({"card": CARD, "number": number}))
        sim.run()

    assert "2 waiting so far, of more that were not read" in shown(views.parked, before=park)
    assert "0 waiting</span>" in shown(views.parked)


def run_now(*, to_the_end):
    """What waits in the delay topic is to run now; it has run, or it has not yet."""

    def said(sim, _letters):
        sim.send("orders", json.dumps({"card": CARD}))
        sim.run()
        sim.steering.run_now(HELD, "the prices are there")
        if to_the_end:
            sim.run_until_empty()

    return said


def test_a_rule_is_in_force_until_all_that_it_is_about_has_run():
    assert "Rules in force" in shown(views.parked, before=run_now(to_the_end=False))
    page = shown(views.parked, before=run_now(to_the_end=True))
    assert "Rules in force" not in page
    assert "Rules in force" in shown(views.parked, before=lambda sim, _: sim.steering.hold(HELD))


def test_what_waits_is_a_part_that_is_live_and_its_buttons_belong_to_the_visitors_own_form():
    def park(sim, _letters):
        sim.send("orders", json.dumps({"card": CARD}))
        sim.run()

    page = shown(views.parked, before=park)
    _, _, part = page.partition('data-live="/apps/shop/live/parked"')
    assert 'class="looking"' in part  # a reader, who is shown no buttons
    assert 'form="ask" name="ask" value="hold shop.retry.5s "' in part
    assert "1 waiting" in part
    assert "form_key" not in part
    assert '<form id="ask" method="post" action="/apps/shop/parked/plan">' in page
    assert "parked" in PARTS


def test_the_page_of_parked_records_says_how_it_stands_with_a_rule():
    ruling = SimpleNamespace(under_way=True, problem="")
    assert "A rule is being written" in shown(views.parked, ruling=ruling)
    ruling = SimpleNamespace(under_way=False, problem="no broker <answers>")
    assert "not written: no broker &lt;answers&gt;" in shown(views.parked, ruling=ruling)


def test_a_plan_says_what_it_does_not_know_and_how_much_of_a_difference_it_leaves_out():
    lines = [f"+{number}" for number in range(CONSOLE_DIFF_LINES + 1234)]
    plan = ReplayPlan(letters=1, unknown="the inbox was not asked", differences=[("x", lines)])
    plans = Plans()
    asked = plans.begin(
        "replay", lambda: plan, wanted=Filter(), options=ReplayOptions(), by="alice", fields={}
    )
    asked.end.result(60)
    page = shown(views.plan, plans=plans, path={"plan": asked.id})
    assert "Not known: the inbox was not asked" in page
    assert "and 1,234 lines more" in page
    assert page.count('class="plus"') == CONSOLE_DIFF_LINES


def tried(**group):
    """The page of a trial of one group."""
    trials = SimpleNamespace(
        limits=[], scanned="1 scanned", groups={"14": SimpleNamespace(**group)}
    )
    plans = Plans()
    asked = plans.begin(
        "try",
        lambda: trials,
        wanted=Filter(),
        options=ReplayOptions(fix="shop:fix"),
        by="alice",
        fields={"group": ["14"]},
    )
    asked.end.result(60)
    return shown(views.plan, plans=plans, path={"plan": asked.id}, fixes=("shop:fix", "shop:other"))


GROUP = {
    "group": "14",
    "error_type": "KeyError",
    "verdicts": Counter(fail=1),
    "errors": Counter(KeyError=1),
    "sends": Counter(done=1),
}


def test_a_trial_can_be_made_again_with_a_fix_that_the_console_was_started_with():
    page = tried(**GROUP)
    assert "<option selected>shop:fix</option>" in page
    assert "<option >shop:other</option>" in page
    assert '<input type="hidden" name="group" value="14">' in page
    assert "Try again" in page


def test_a_trial_shows_how_letters_would_fail_and_what_they_would_send():
    failure = SimpleNamespace(message="no <price>", where="shop.price", place="shop.dead[0]@7")
    sent = SimpleNamespace(topic="done", key="k", value='{"n": "<b>"}', place="shop.dead[0]@7")
    page = tried(**GROUP, examples={"KeyError": failure}, sent=[sent])
    assert "no &lt;price&gt;" in page
    assert "in shop.price" in page
    assert "/dead/letter?at=shop.dead%5B0%5D%407" in page
    assert "&lt;b&gt;" in page


def test_several_apps_have_a_page_of_their_own_and_one_alone_has_none():
    def board(name, *concerns):
        flow = Flow((Node(f"{name}.orders", "source", lag=1234, handled=2.5),))
        return SimpleNamespace(
            name=name, sampler=SimpleNamespace(flow=flow), concerns=lambda: [*concerns]
        )

    boards = {
        "shop": board("shop", Concern(grave=True, said="<late>")),
        "billing": board("billing"),
    }
    access = Access(change=Secret("c"), read=Secret("r"))
    request = SimpleNamespace(path_params={}, url=SimpleNamespace(path="/"))
    visitor = Visitor("read token", "read", by_cookie=True)
    page = views.start(Asking(Console(boards, access), request, visitor, {})).body.decode()
    for words in ("/apps/shop", "/apps/billing", "1,234", "2.5/s", "&lt;late&gt;", "nothing"):
        assert words in page
    alone = Console({"shop": boards["shop"]}, access)
    answer = views.start(Asking(alone, request, visitor, {}))
    assert (answer.status_code, answer.headers["location"]) == (303, "/apps/shop")
