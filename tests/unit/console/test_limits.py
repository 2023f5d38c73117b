"""Every request keeps to its limits, and every answer tells the browser what not to do."""

from __future__ import annotations

import asyncio

import pytest
from starlette.responses import PlainTextResponse

from redrive.console import limits
from redrive.console.access import Access
from redrive.console.limits import ANSWERS, Buckets, Limits
from redrive.console.logins import Logins
from redrive.console.refusals import Refusals
from redrive.secret import Secret
from redrive.tuning import CONSOLE_BURST, CONSOLE_REQUESTS


async def echo(scope, receive, send):
    """Answers with the size of what it was sent."""
    size, more = 0, True
    while more:
        message = await receive()
        size += len(message.get("body", b""))
        more = message.get("more_body", False)
    await PlainTextResponse(str(size))(scope, receive, send)


class Asked:
    def __init__(self):
        self.refusals = Refusals()
        access = Access(change=Secret("c"), read=Secret("r"))
        self.app = Limits(echo, access, self.refusals)

    def ask(self, *parts, host="localhost", slow=False, **headers):
        sent = []
        named = {"host": host, **{name.replace("_", "-"): value for name, value in headers.items()}}
        scope = {
            "type": "http",
            "method": "POST",
            "path": "/x",
            "client": ("127.0.0.1", 5),
            "headers": [(name.encode(), value.encode()) for name, value in named.items()],
        }
        waiting = [*parts]

        async def receive():
            if not waiting:
                await asyncio.sleep(3600)
            part = waiting.pop(0)
            more = bool(waiting) or slow
            return {"type": "http.request", "body": part, "more_body": more}

        async def send(message):
            sent.append(message)

        asyncio.run(self.app(scope, receive, send))
        return sent[0]["status"], dict(sent[0]["headers"])


def test_a_request_that_keeps_to_the_limits_is_answered_with_all_headers():
    status, headers = Asked().ask(b"12", b"3")
    assert status == 200
    assert {name: headers[name.encode()].decode() for name in ANSWERS} == dict(ANSWERS)


def test_scripts_and_styles_within_a_page_are_never_run():
    policy = ANSWERS["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy


def test_a_request_that_is_too_large_is_cut_off(monkeypatch):
    monkeypatch.setattr(limits, "CONSOLE_BODY", 10)
    asked = Asked()
    assert asked.ask(b"x" * 6, b"x" * 6)[0] == 413
    assert asked.ask(b"", content_length="11")[0] == 413
    assert asked.ask(b"", content_length="-1")[0] == 413
    assert [each.code for each in asked.refusals.newest_first()] == [413] * 3


def test_a_request_that_is_too_slow_is_cut_off(monkeypatch):
    monkeypatch.setattr(limits, "CONSOLE_BODY_SECONDS", 0.05)
    assert Asked().ask(b"x", slow=True)[0] == 408


def test_a_page_of_another_name_is_refused():
    asked = Asked()
    assert asked.ask(b"", host="evil.example")[0] == 421
    [refused] = asked.refusals.newest_first()
    assert (refused.address, refused.request, refused.code) == ("127.0.0.1", "POST /x", 421)


def test_one_address_cannot_keep_others_waiting():
    now = [0.0]
    buckets = Buckets(lambda: now[0])
    assert all(buckets.take("a") for _ in range(CONSOLE_BURST))
    assert not buckets.take("a")
    assert buckets.take("b")
    now[0] = 2.0
    assert sum(buckets.take("a") for _ in range(1000)) == int(2 * CONSOLE_REQUESTS)


def test_too_many_requests_are_refused():
    asked = Asked()
    answers = {asked.ask(b"")[0] for _ in range(CONSOLE_BURST + 50)}
    assert 429 in answers


def test_refusals_are_bounded_and_cannot_play_with_a_terminal():
    refusals = Refusals()
    for number in range(2000):
        scope = {"method": "GET", "path": f"/\x1b[31m{number}" + "x" * 500, "client": None}
        refusals.add(scope, 404, "no")
    assert len(refusals.newest_first()) == 500
    assert refusals.newest_first()[0].request.startswith("GET /\\x1b[31m1999")


@pytest.mark.parametrize("wrong", [0, 9])
def test_a_few_wrong_tokens_lock_nobody_out(wrong):
    logins = Logins()
    for number in range(wrong):
        logins.failed("a", str(number))
    assert logins.may_try("a")


def test_guessing_tokens_is_slow():
    now = [0.0]
    logins = Logins(lambda: now[0])
    for number in range(10):
        logins.failed("a", str(number))
    assert not logins.may_try("a")
    assert logins.may_try("b")
    now[0] = 61.0
    assert logins.may_try("a")


def test_the_same_wrong_token_again_is_no_other_guess():
    logins = Logins()
    for _ in range(100):
        logins.failed("a", "of an earlier start")
    assert logins.may_try("a")


def test_a_number_of_thousands_of_digits_is_too_large():
    assert Asked().ask(b"", content_length="9" * 5000)[0] == 413
