"""The console as a web application: who is let in, and what is said to odd requests."""

from __future__ import annotations

import asyncio
from threading import Event
from types import SimpleNamespace

import pytest

from redrive.console import views
from redrive.console.access import COOKIE, Access, Proxy, Visitor
from redrive.console.asking import Console
from redrive.console.forms import DIGITS
from redrive.console.server import server
from redrive.errors import ConfigurationError
from redrive.secret import Secret
from redrive.tuning import CONSOLE_BURST

ACCESS = Access(
    change=Secret("may-change"),
    read=Secret("may-read"),
    proxy=Proxy(header="X-User", addresses=("10.0.0.9",)),
)
MANY = "&".join("a=b" for _ in range(3000))


@pytest.fixture
def ask():
    """Asks a console that shows no app, from an address; gives the status and the text."""
    console = Console({}, ACCESS)
    app = server(console)

    async def asking(path="/", *, client="10.0.0.1", method="GET", body="", headers=None):
        sent = []
        path, _, query = path.partition("?")
        given = [("host", "localhost")]
        given += headers if isinstance(headers, list) else (headers or {}).items()
        scope = {
            "type": "http",
            "method": method,
            "path": path,
            "query_string": query.encode(),
            "client": (client, 5),
            "headers": [(name.lower().encode(), value.encode()) for name, value in given],
        }

        async def receive():
            return {"type": "http.request", "body": body.encode(), "more_body": False}

        async def send(message):
            sent.append(message)

        await app(scope, receive, send)
        return sent[0]["status"], b"".join(each.get("body", b"") for each in sent).decode()

    def asked(*args, **kwargs):
        return asyncio.run(asking(*args, **kwargs))

    asked.console, asked.asking = console, asking
    return asked


def bearer(token):
    return {"Authorization": f"Bearer {token}"}


def by_cookie(value):
    return {"Cookie": f"{COOKIE}={value}"}


WAYS = {
    "bearer": lambda token: {"headers": bearer(token)},
    "cookie": lambda token: {"headers": by_cookie(token)},
    "login": lambda token: {"path": f"/login?token={token}"},
}


@pytest.mark.parametrize("way", WAYS)
def test_guessing_is_slow_wherever_tokens_are_sent_and_locks_nobody_out(ask, way):
    answers = [ask(**WAYS[way](f"guess{number}"))[0] for number in range(12)]
    assert answers == [401] * 10 + [429] * 2
    for right in (
        {"headers": bearer("may-change")},
        {"headers": by_cookie(ACCESS.cookie("read"))},
        {"path": "/login?token=may-read"},
    ):
        assert ask(**right)[0] in (200, 303)
    assert ask(**WAYS[way]("guess"), client="10.0.0.2")[0] == 401


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_another_page_neither_logs_anybody_in_nor_uses_up_their_guesses(ask, site):
    from_there = {"sec-fetch-site": site}
    for number in range(12):
        assert ask(f"/login?token=guess{number}", headers=from_there)[0] == 403
    assert ask("/login?token=may-read", headers=from_there)[0] == 403
    assert ask("/login", headers=from_there)[0] == 200
    assert ask("/login?token=guess")[0] == 401
    assert ask("/login?token=may-read", headers={"sec-fetch-site": "same-origin"})[0] == 303


def test_every_request_that_is_refused_is_on_the_audit_page_once(ask):
    headers = bearer("may-change")
    several = {
        ("/apps/other", "GET"): (404, "change token: the console does not show this app"),
        ("/nowhere", "GET"): (404, "not found"),
        ("/static/x", "GET"): (404, "not found"),
        ("/", "DELETE"): (405, "method not allowed"),
        (f"/?{MANY}", "GET"): (400, "change token: too many fields"),
        ("/login?token=guess", "GET"): (401, "a wrong token"),
    }
    for (path, method), (status, why) in several.items():
        before = len(ask.console.refusals.newest_first())
        assert ask(path, method=method, headers=headers)[0] == status
        refused = ask.console.refusals.newest_first()
        assert len(refused) == before + 1
        assert (refused[0].code, refused[0].why[: len(why)]) == (status, why)


def hanging(over):
    """A board of which each page that shows a letter, or asks brokers, hangs until that event."""
    index = SimpleNamespace(catch_up=lambda: over.wait(60))
    return SimpleNamespace(index=index, plans=SimpleNamespace(get=lambda _name: None))


@pytest.mark.parametrize(
    ("slow", "quick"),
    [
        ("/apps/shop/dead/letter?at=shop.dead[0]@0", "/apps/other/audit"),
        ("/apps/shop/dead/letter?at=shop.dead[0]@0", "/apps/shop/plans/1"),
        ("/apps/shop/audit", "/apps/shop/plans/1"),
        ("/apps/shop/audit", "/apps/other/dead/letter?at=shop.dead[0]@0"),
    ],
)
def test_pages_that_wait_keep_no_others_waiting(ask, slow, quick):
    over = Event()
    ask.console.boards.update(shop=hanging(over), other=hanging(over))
    ask.console.boards["other"].index.catch_up = lambda: refuse("nobody may read it")
    headers = bearer("may-read")

    async def asked():
        waiting = [asyncio.create_task(ask.asking(slow, headers=headers)) for _ in range(60)]
        await asyncio.sleep(0.1)
        try:
            status, _ = await asyncio.wait_for(ask.asking(quick, headers=headers), 20)
        finally:
            still = sum(not each.done() for each in waiting)
            over.set()
            for each in waiting:
                each.cancel()
            await asyncio.gather(*waiting, return_exceptions=True)
        return status, still

    assert asyncio.run(asked()) == (400, 60)


def refuse(said):
    raise ConfigurationError(said)


def test_what_was_sent_with_a_refused_request_is_not_kept(ask):
    def refuse(name):
        raise ConfigurationError(f"{name} is not known")

    ask.console.boards["shop"] = SimpleNamespace(plans=SimpleNamespace(get=refuse))
    status, text = ask("/apps/shop/plans/hunter2", headers=bearer("may-read"))
    assert (status, text) == (400, "hunter2 is not known\n")
    [refused] = ask.console.refusals.newest_first()
    assert refused.why == "read token: that cannot be done (ConfigurationError)"


def test_whoever_is_named_twice_by_the_proxy_is_nobody(ask):
    twice = [("X-User", "forged"), ("x-user", "alice")]
    status, text = ask(client="10.0.0.9", headers=twice)
    assert (status, "more than one header X-User" in text) == (400, True)
    assert ask(client="10.0.0.9", headers=twice[:1])[0] == 200


def test_users_of_the_proxy_do_not_use_up_each_others_requests(ask):
    def asked(user):
        return ask("/static/console.js", client="10.0.0.9", headers={"X-User": user})[0]

    answers = [asked("alice") for _ in range(CONSOLE_BURST + 50)]
    assert 429 in answers
    assert asked("bob") == 200


def test_whoever_sends_no_token_or_comes_through_the_proxy_does_not_guess(ask):
    for _ in range(12):
        assert ask()[0] == 401
    assert ask(headers=bearer("may-read"))[0] == 200
    for number in range(12):
        headers = {**by_cookie(f"guess{number}"), "X-User": "alice"}
        assert ask(headers=headers, client="10.0.0.9")[0] == 200


def test_too_many_fields_are_a_sentence(ask):
    headers = bearer("may-change")
    for status, text in (
        ask(f"/?{MANY}", headers=headers),
        ask("/logout", method="POST", body=MANY, headers=headers),
        ask(f"/login?{MANY}"),
        ask("/login", method="POST", body=MANY),
    ):
        assert status == 400
        assert "too many fields" in text


def test_where_a_page_goes_on_has_no_number_of_thousands_of_digits(monkeypatch):
    asked = []

    def latest(*_, before, **__):
        asked.append(before)
        return SimpleNamespace(found=[], before={}, left=0)

    monkeypatch.setattr(views, "latest", latest)
    board = SimpleNamespace(
        watched=SimpleNamespace(letters=SimpleNamespace(masks=False)),
        index=SimpleNamespace(catch_up=lambda: None, known=None),
    )
    before = f"0:{'9' * 5000},{'9' * 5000}:1,2:3,4:{'9' * DIGITS}"
    fields = {"before": [before]}
    views.letters(SimpleNamespace(board=board, fields=fields, page=lambda *_, **__: None))
    assert asked == [{2: 3, 4: int("9" * DIGITS)}]


@pytest.mark.parametrize("role", ["read", "change"])
def test_everybody_can_log_out_on_a_page_of_this_console_and_on_no_other(ask, role):
    headers = {**by_cookie(ACCESS.cookie(role)), "origin": "http://localhost"}
    key = ACCESS.form_key(Visitor(f"{role} token", role, by_cookie=True))
    logout = {"path": "/logout", "method": "POST", "body": f"form_key={key}"}
    assert ask(**logout, headers=headers)[0] == 303
    assert ask(**{**logout, "body": "form_key=x"}, headers=headers)[0] == 403
    assert ask(**logout, headers={**headers, "origin": "http://evil.example"})[0] == 403
