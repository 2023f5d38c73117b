"""The whole way in a real browser, on a real Kafka, with a running worker."""

from __future__ import annotations

import os
import pickle
import signal
from collections import Counter
from importlib.resources import files
from pathlib import Path
from threading import Event
from urllib.parse import quote

import pytest
from consoles import CHANGE, READ, SHOTS, Run, Served
from shops import Shop

from redrive.dead import Filter
from redrive.envelope import Envelope
from redrive.fingerprint import Fingerprint
from redrive.local.waiting import wait_until
from redrive.record import Write
from redrive.threads import begin


def shot(page, name):
    if SHOTS:
        page.screenshot(path=Path(SHOTS) / f"{name}.png")


def log_in(page, served, token=CHANGE):
    page.goto(f"{served.address}/login?token={token}")


def confirm(page, why):
    page.wait_for_selector("#reason")
    page.fill("#reason", why)
    page.click("form.confirm button")


def test_from_a_group_to_a_letter_that_succeeds(serve, shop, page):
    shop.publisher.publish(
        [
            Write(f"{shop.name}.orders", b"k%d" % (n % 5), f"{word} {n}".encode())
            for n, word in enumerate(["bad", "missing", "never", "fine"] * 5)
        ]
    )
    shop.run("run", shop.target, "--engine", "worker", "--until-empty")
    served = serve()
    log_in(page, served)
    page.wait_for_selector(f"text={shop.name}.dead")
    page.wait_for_function("() => document.querySelector('.tiles').innerText.includes('15')")
    page.keyboard.press("d")
    page.wait_for_selector("text=15 of 15 letters counted")
    shot(page, "groups")
    # Find a group by its error, open a letter, read its way.
    page.click("a:has-text('ValueError')")
    page.click("tbody a >> nth=0")
    place = page.inner_text("h1").split()[0]
    assert page.locator("ol.way li.failed").count() == 2
    assert "buried: exhausted, after 2 attempts" in page.inner_text("ol.way")
    shot(page, "letter")
    # Try: it would fail still.
    page.click("button:has-text('Try')")
    page.wait_for_selector("text=1 would fail")
    page.go_back()
    page.wait_for_selector("text=Edit and replay")
    # Edit it, see the difference, replay it while a worker runs, and see it succeed, live.
    page.click("text=Edit and replay")
    page.fill("#edited", page.input_value("#edited").replace("never", "now"))
    page.click("button:has-text('difference')")
    page.wait_for_selector("#reason")
    assert "-never" in page.inner_text(".diff")
    assert "+now" in page.inner_text(".diff")
    shot(page, "plan")
    worker = shop.start("run", shop.target, "--engine", "worker")
    try:
        confirm(page, "a typo")
        page.wait_for_selector("#live .state.done")
        # Whether it has worked is seen there: nothing is reloaded.
        page.wait_for_selector("text=1 handled, 0 waiting, 0 died again", timeout=120_000)
        assert not page.is_visible("button:has-text('Resume')")
        shot(page, "job")
        page.goto(f"{served.address}/apps/{shop.name}/dead/letter?at={place}")
        assert "by change token: a typo" in page.inner_text("ol.way")
        page.goto(f"{served.address}/apps/{shop.name}/audit")
        assert "a typo" in page.inner_text("main")
        shot(page, "audit")
        # The worker handles it: nothing is reloaded from here on.
        page.goto(f"{served.address}/apps/{shop.name}")
        page.wait_for_function(
            "name => [...document.querySelectorAll('tr')].some("
            "row => row.innerText.startsWith(name) && row.cells[2].innerText === '6')",
            arg=f"{shop.name}.done",
        )
    finally:
        worker.send_signal(signal.SIGTERM)
        worker.communicate(timeout=60)
    shop.run("run", shop.target, "--engine", "worker", "--until-empty")
    assert Counter(each.value.partition(b" ")[0] for each in shop.read(f"{shop.name}.done")) == {
        b"fine": 5,
        b"now": 1,
    }
    [replayed] = shop.letters.scan(Filter(states=("replayed",)))
    assert replayed.letter.record.value.startswith(b"never")


class Traffic:
    """Orders that come by and by, of which some fail, until the block is over."""

    def __init__(self, shop):
        self.shop, self._over = shop, Event()

    def __enter__(self):
        self._end = begin(self._send, name="orders")

    def __exit__(self, *_):
        self._over.set()
        self._end.result(60)

    def _send(self):
        name, number = f"{self.shop.name}.orders", 0
        while not self._over.wait(0.1):
            words = ["fine"] * (2 + number // 20 % 5) + ["missing"] * (number % 7 == 0)
            words += ["bad"] * (number % 90 == 0)
            value = [f"{word} {number}".encode() for word in words]
            self.shop.publisher.publish(
                [Write(name, b"k%d" % (number % 9), each) for each in value]
            )
            number += 1


def test_the_flow_moves_while_records_come(serve, shop, page):
    run = Run(shop, "run", shop.target, "--engine", "worker")
    served = serve(shop.target, "--watch", run.address)
    log_in(page, served)
    with Traffic(shop):
        for kind in ("source", "delay", "outbound"):
            page.wait_for_selector(f"path.busy.{kind}", state="attached", timeout=120_000)
        page.wait_for_selector("tr:has-text('in flight')")
        if SHOTS:  # charts have a point every ten seconds
            page.wait_for_function(
                "() => [...document.querySelectorAll('polyline')].every("
                "line => line.points.numberOfItems > 8)",
                timeout=240_000,
            )
            page.wait_for_function(
                "() => document.querySelector('.tiles').innerText.includes('worker')"
            )
        shot(page, "flow")
    run.stop()


HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(2)>\"'`{{7*7}}${7*7}"
JAVA = bytes.fromhex("aced0005737200116a6176612e7574696c2e48617368536574ba44859596b8b7340300007870")
"""How Java writes objects: readers of such headers have been made to run code."""


class Owned:
    """Touches a file when somebody unpickles it."""

    def __init__(self, path):
        self.path = str(path)

    def __reduce__(self):
        return os.mkdir, (self.path,)


def hostile_letter(shop):
    """A letter that says of itself what no redrive writes."""
    envelope = Envelope(
        app=shop.name,
        id=HOSTILE,
        origin_topic="../<script>alert(3)</script>",
        origin_partition=0,
        origin_offset=0,
        first_received=1,
        attempt=2,
        error_type=HOSTILE,
        error_message=HOSTILE,
        error_group=Fingerprint("exhausted", HOSTILE).id,
        dead_reason=HOSTILE,
    )
    return Write(shop.app.dead_topic, HOSTILE.encode(), HOSTILE.encode(), envelope.headers(()))


def assert_harmless(page):
    """Nothing of a record became part of the page, or made it large."""
    assert (
        page.locator("main script, main img, main iframe, header script, header img").count() == 0
    )
    assert "\u202e" not in page.inner_text("body")
    assert len(page.content()) < 500_000


def test_a_hostile_record_is_shown_and_does_nothing(serve, shop, page):
    # Values whose records die, with everything hostile in keys, values, headers and errors.
    name, owned = f"{shop.name}.orders", shop.folder / "owned"
    serialised = (("java", JAVA), ("pickle", pickle.dumps(Owned(owned))))
    odd = [
        Write(name, HOSTILE.encode(), b"never " + HOSTILE.encode(), ((HOSTILE, HOSTILE.encode()),)),
        Write(name, b"\x00\xff", b"\xff\xfe\x00binary", (("b", b"\xff"), *serialised)),
        Write(name, "\u202egnp.exe".encode(), "never \u202etxt.exe \x1b[31m".encode()),
        Write(name, b"big", b"never " + b"A" * 1_000_000),
    ]
    shop.publisher.publish(odd)
    shop.run("run", shop.target, "--engine", "worker", "--until-empty")
    # A proxy names whoever asks, and lets them be called anything.
    proxy = ("--proxy-user-header", "X-User", "--proxy-from", "127.0.0.1", "--proxy-may-change")
    served = serve(shop.target, *proxy)
    page.set_extra_http_headers({"X-User": HOSTILE})
    of_app = f"{served.address}/apps/{shop.name}"
    page.goto(f"{of_app}/dead")
    page.wait_for_selector("text=4 of 4 letters counted")
    shop.publisher.publish([hostile_letter(shop)])
    page.wait_for_selector("text=5 of 5 letters counted")  # and now it was put there by a script
    assert_harmless(page)
    page.goto(f"{of_app}/dead/letters")
    assert_harmless(page)
    places = page.locator("tbody a").all_inner_texts()
    assert len(places) == 5
    shown = ""
    for place in places:
        page.goto(f"{of_app}/dead/letter?at={place}")
        assert_harmless(page)
        shown += page.inner_text("main")
    assert "characters more" in shown  # of the value of a megabyte
    page.goto(f"{of_app}/dead/letters?key={quote(HOSTILE)}&origin={quote(name)}")
    page.click("tbody a")
    page.click("text=Edit and replay")
    assert_harmless(page)
    page.fill("#edited", page.input_value("#edited").replace("never", "now"))
    page.click("button:has-text('difference')")
    page.wait_for_selector("#reason")
    assert_harmless(page)
    confirm(page, HOSTILE)
    page.wait_for_selector("#live .state.done")
    assert_harmless(page)
    page.goto(f"{of_app}/audit")
    assert_harmless(page)
    assert page.inner_text("main").count("<script>alert(1)</script>") >= 2  # who, and why
    assert not owned.exists()
    status, _, text = served.ask(served.path(f"/dead/letter?at={quote(places[0])}"), token=READ)
    assert (status, "Replay" in text) == (200, False)  # only looking


@pytest.mark.parametrize("letters", [300, pytest.param(10_000, marks=pytest.mark.chaos)])
def test_a_bulk_replay_survives_a_pause_and_the_death_of_the_console(serve, shop, page, letters):
    shop.bury([f"bad {number}" for number in range(letters)], keys=50)
    served = serve()
    served.counted(letters)
    log_in(page, served)
    page.goto(f"{served.address}/apps/{shop.name}/dead/letters?dead_reason=exhausted")
    page.click("button:has-text('Replay')")
    page.wait_for_selector("#o-rate")
    page.fill("#o-rate", f"{letters // 20}/s")  # on a busy machine, too, there is time to pause it
    page.click("button:has-text('Plan again')")
    confirm(page, "repaired")
    page.wait_for_selector("#live .state.running")
    job = page.inner_text("h1")
    shop.wait_for_copies(letters // 10)
    page.click("button:has-text('Pause')")
    page.wait_for_selector("#live .state.paused")
    assert not page.is_visible("button:has-text('Pause')")
    page.click("button:has-text('Resume')")
    page.wait_for_selector("#live .state.running")
    shop.wait_for_copies(letters // 2)
    served.kill()
    again = serve()
    log_in(page, again)
    page.goto(f"{again.address}/apps/{shop.name}/jobs/{job}")
    page.click("button:has-text('Resume')")
    page.wait_for_selector("#live .state.done", timeout=120_000)
    copies = shop.copies()
    assert (len(copies), set(copies.values())) == (letters, {1})


def test_letters_that_were_chosen_are_replayed_and_no_others(serve, shop, page):
    shop.bury([f"bad {number}" for number in range(6)])
    served = serve()
    served.counted(6)
    log_in(page, served)
    listed = f"{served.address}/apps/{shop.name}/dead/letters"
    page.goto(listed)
    boxes = page.locator("input[name=selected]")
    chosen = [boxes.nth(number).get_attribute("value") for number in (1, 4)]
    for place in chosen:
        page.check(f"[aria-label='Select {place}']")
    page.click("button:has-text('Replay')")
    page.wait_for_selector("#reason")
    assert "2 letters would be replayed" in page.inner_text("main")
    confirm(page, "only these")
    page.wait_for_selector("#live .state.done")
    assert shop.copies() == Counter(chosen)
    page.goto(f"{listed}?state=replayed")
    assert {*page.locator("tbody a").all_inner_texts()} == {*chosen}
    page.goto(f"{listed}?state=open")
    assert page.locator("tbody a").count() == 4


def test_a_ramp_that_is_cancelled_sends_no_more(serve, shop, page):
    shop.bury([f"bad {number}" for number in range(30)])
    served = serve()
    served.counted(30)
    log_in(page, served)
    page.goto(f"{served.address}/apps/{shop.name}/dead/letters?dead_reason=exhausted")
    page.click("button:has-text('Replay')")
    page.wait_for_selector("#o-ramp")
    page.fill("#o-ramp", "5,100")
    page.click("button:has-text('Plan again')")
    confirm(page, "repaired")
    page.wait_for_selector("#live .state.running")
    shop.wait_for_copies(5)  # the first step: the next waits until a run has handled these
    page.click("button:has-text('Cancel')")
    page.wait_for_selector("#live .state.cancelled")
    for button in ("Pause", "Resume", "Cancel"):
        assert not page.is_visible(f"button:has-text('{button}')")
    (shop.folder / "repaired").touch()
    shop.run("run", shop.target, "--engine", "worker", "--until-empty")
    assert len(shop.read(f"{shop.name}.done")) == len(shop.copies()) == 5
    assert len([*shop.letters.scan(Filter(states=("open",)))]) == 25


def test_the_page_is_for_phones_dark_rooms_and_keyboards(serve, shop, chromium):
    shop.bury(["bad 1"])
    served = serve()
    served.counted(1)
    context = chromium.new_context(viewport={"width": 390, "height": 800}, color_scheme="dark")
    page = context.new_page()
    log_in(page, served)
    for path in ("", "/dead", "/dead/letters", "/audit", "/parked"):
        page.goto(f"{served.address}/apps/{shop.name}{path}")
        wide = page.evaluate("document.documentElement.scrollWidth")
        assert wide <= 390, path
        unlabelled = page.evaluate(
            "[...document.querySelectorAll('input:not([type=hidden]), select, textarea')]"
            ".filter(each => !each.labels?.length && !each.ariaLabel).length"
        )
        assert unlabelled == 0, path
    page.goto(f"{served.address}/apps/{shop.name}/dead")
    page.wait_for_selector("text=1 of 1 letters counted")
    page.set_viewport_size({"width": 1280, "height": 900})
    page.goto(f"{served.address}/apps/{shop.name}")
    page.wait_for_selector("svg.flow")
    page.set_viewport_size({"width": 390, "height": 800})
    background = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert background == "rgb(18, 20, 26)"
    page.goto(f"{served.address}/apps/{shop.name}")
    page.keyboard.press("a")
    page.wait_for_url("**/audit")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    context.close()


def test_reading_works_without_scripts(serve, shop, chromium):
    shop.bury(["bad 1"])
    served = serve()
    served.counted(1)
    context = chromium.new_context(java_script_enabled=False)
    page = context.new_page()
    log_in(page, served, READ)
    for path, words in (("", "dead letters"), ("/dead", "KeyError"), ("/audit", "Nothing was")):
        page.goto(f"{served.address}/apps/{shop.name}{path}")
        assert words in page.content() or "Bury" in page.content(), path
    context.close()


def test_short_words_are_not_broken_beside_long_ones(chromium):
    context = chromium.new_context(viewport={"width": 1300, "height": 900})
    page = context.new_page()
    css = files("redrive.console").joinpath("static", "console.css").read_text()
    long = "".join(f"<td>{'many words ' * 8}</td>" for _ in range(6))
    short = '<td class="w">olga</td><td><span class="state done">cancelled</span></td>'
    table = f"<table><tr><td>{'x' * 300}</td>{long}{short}</tr></table>"
    page.set_content(f"<style>{css}</style><main>{table}</main>")
    lines = "[...document.querySelectorAll('.w, .state')].map(each => {"
    lines += "const range = document.createRange(); range.selectNodeContents(each);"
    lines += "return range.getClientRects().length})"
    assert page.evaluate(lines) == [1, 1]
    context.close()


def test_a_page_that_is_not_live_says_so_and_is_live_again_later(chromium):
    context = chromium.new_context()
    page = context.new_page()
    script = files("redrive.console").joinpath("static", "console.js").read_text()
    answers = [(503, "text/plain", "too many"), (200, "text/event-stream", "data: <b>new</b>\n\n")]

    def answer(route):
        if route.request.url.endswith("/live"):
            status, kind, body = answers.pop(0) if len(answers) > 1 else answers[0]
            route.fulfill(status=status, content_type=kind, body=body)
        elif route.request.url.endswith(".js"):
            route.fulfill(content_type="text/javascript", body=script)
        else:
            html = '<div id="live" data-live="/live">old</div><script src="/console.js"></script>'
            route.fulfill(content_type="text/html", body=html)

    page.route("**/*", answer)
    page.clock.install()
    page.goto("http://127.0.0.1:9/")
    page.wait_for_selector("[role=status]:has-text('Not live')")
    assert page.inner_text("#live") == "old"
    page.clock.run_for(11_000)
    page.wait_for_selector("#live:has-text('new')")
    context.close()


def test_a_page_says_when_it_is_paused_and_goes_on_when_it_is_left(chromium):
    context = chromium.new_context()
    page = context.new_page()
    script = files("redrive.console").joinpath("static", "console.js").read_text()
    answers = [(503, "text/plain", "too many"), (200, "text/event-stream", "data: <b>new</b>\n\n")]

    def answer(route):
        if route.request.url.endswith("/live"):
            status, kind, body = answers.pop(0) if len(answers) > 1 else answers[0]
            route.fulfill(status=status, content_type=kind, body=body)
        elif route.request.url.endswith(".js"):
            route.fulfill(content_type="text/javascript", body=script)
        else:
            link = '<a href="#" id="link">old</a>'
            html = (
                f'<div id="live" data-live="/live">{link}</div><script src="/console.js"></script>'
            )
            route.fulfill(content_type="text/html", body=html)

    page.route("**/*", answer)
    page.clock.install()
    page.goto("http://127.0.0.1:9/")
    page.wait_for_selector("[role=status]:has-text('Not live')")
    page.focus("#link")
    page.clock.run_for(11_000)
    page.wait_for_selector("[role=status]:has-text('Paused while you are in it')")
    assert page.inner_text("#live") == "old"
    page.keyboard.press("Escape")
    page.wait_for_selector("#live:has-text('new')")
    assert "Paused" not in page.inner_text("[role=status]")
    context.close()


def test_parked_records_are_held_let_go_and_run_now(redrive_stack, redrive_prefix, tmp_path, page):
    # With a delay that nobody waits for.
    shop = Shop(redrive_stack, "shop" if SHOTS else redrive_prefix, tmp_path, retry="1h")
    writes = [Write(f"{shop.name}.orders", b"k", b"missing %d" % n) for n in range(3)]
    shop.publisher.publish(writes)
    shop.run("run", shop.target, "--engine", "worker", "--once")
    served = Served(shop)
    try:
        log_in(page, served)
        page.goto(f"{served.address}/apps/{shop.name}/parked")
        assert "3 waiting" in page.inner_text("main")
        page.click("td button:has-text('Hold')")
        assert "3 records" in page.inner_text("main")
        confirm(page, "the prices are missing")
        page.wait_for_selector("text=3 held")
        shot(page, "parked")
        page.fill("input[name=reason]", "the prices are there")
        page.click("button:has-text('End it')")
        page.wait_for_selector("text=3 held", state="detached")
        (tmp_path / "repaired").touch()
        page.click("td button:has-text('Run now')")
        confirm(page, "the prices are there")
        page.wait_for_selector("text=3 to run now")
        worker = shop.start("run", shop.target, "--engine", "worker")
        assert wait_until(lambda: len(shop.read(f"{shop.name}.done")) == 3, 120)
        worker.send_signal(signal.SIGTERM)
        worker.communicate(timeout=60)
        # What has run is no longer in force, and can be found in the audit.
        page.goto(f"{served.address}/apps/{shop.name}/parked")
        assert "Rules in force" not in page.inner_text("main")
        page.goto(f"{served.address}/apps/{shop.name}/audit")
        assert "run-now" in page.inner_text("main")
    finally:
        served.stop()
        shop.close()
