"""Every line of the threat model, attacked: refused, and in the audit."""

from __future__ import annotations

import http.client
import re
import socket
from urllib.parse import quote, urlencode

import psutil
import pytest
from consoles import CHANGE, READ

from redrive.console.access import COOKIE, Access
from redrive.local.waiting import wait_until
from redrive.secret import Secret

COOKIES = Access(change=Secret(CHANGE), read=Secret(READ))


def cookie(role):
    return {"Cookie": f"{COOKIE}={COOKIES.cookie(role)}"}


def key(served, role="change"):
    """The key that the forms of a visitor have."""
    visitor = COOKIES.visitor({"cookie": f"{COOKIE}={COOKIES.cookie(role)}"}, "")
    return COOKIES.form_key(visitor)


PAGES = ["", "/dead", "/dead/letters", "/parked", "/audit", "/live/flow", "/dead/edit?at=x"]


def test_nothing_is_shown_or_changed_without_the_right_to_it(serve, shop):
    shop.bury(["bad 1", "bad 2"])
    served = serve()
    for path in ("/", *(served.path(page) for page in PAGES)):
        for token in (None, "wrong", "", CHANGE + "x"):
            assert served.ask(path, token=token)[0] == 401
    place = f"{shop.app.dead_topic}[0]@0"
    discard = {"action": "discard", "at": place}
    plan = served.path("/dead/plan")
    origin = {"Origin": served.address}
    attacks = {
        "no token": ({"token": None}, 401),
        "the reading token": ({"token": READ}, 403),
        "a reader's cookie": ({"token": None, "headers": {**cookie("read"), **origin}}, 403),
        "no origin": ({"token": None, "headers": cookie("change")}, 403),
        "a foreign origin": (
            {"token": None, "headers": {**cookie("change"), "Origin": "http://evil.example"}},
            403,
        ),
        "no key of a form": ({"token": None, "headers": {**cookie("change"), **origin}}, 403),
        "a foreign name": ({"headers": {"Host": "evil.example"}}, 421),
        "too much": ({"headers": {"Content-Length": "99999999"}}, 413),
    }
    for name, (how, code) in attacks.items():
        assert served.ask(plan, fields=discard, **how)[0] == code, name
    for page in ("/parked/plan", "/parked/do"):
        for token, code in ((READ, 403), (None, 401)):
            fields = {"action": "hold", "topic": "x", "reason": "y"}
            assert served.ask(served.path(page), token=token, fields=fields)[0] == code
    for verb in ("pause", "resume", "cancel"):
        path = served.path(f"/jobs/replay-1/{verb}")
        assert served.ask(path, token=READ, fields={"x": "y"})[0] == 403
        assert served.ask(path, token=None, fields={"x": "y"})[0] == 401
    audit = served.ask(served.path("/audit"))[2]
    for words in ("no token, or a wrong one", "for looking only", "another origin", "larger than"):
        assert words in audit
    assert shop.letters.known().operations == {}
    # And with the right to it:
    headers = {**cookie("change"), **origin}
    fields = {**discard, "form_key": key(served)}
    assert served.ask(plan, token=None, fields=fields, headers=headers)[0] == 303


def test_paths_lead_nowhere_else(serve, shop):
    served = serve()
    for path in (
        "/static/../server.py",
        "/static/%2e%2e/server.py",
        "/static/..%2fserver.py",
        "/static//etc/passwd",
        "/apps/../apps",
        "/apps/another",
        "/apps/another/dead",
        served.path("/jobs/../../x"),
        served.path("/live/../flow"),
        "/%00",
    ):
        status, _, text = served.ask(path)
        assert status in (400, 404), path
        assert "import" not in text
        assert "root:" not in text


def test_letters_go_to_topics_of_the_app_and_nowhere_else(serve, shop):
    shop.bury(["bad 1"])
    served = serve()
    other = f"{shop.name}.done"
    for fields in ({"to": other}, {"topic": other}, {"target": other, "dialect": "spring"}):
        given = {"action": "replay", "state": "open", **fields}
        status, headers, _ = served.ask(served.path("/dead/plan"), fields=given)
        assert status == 303
        plan = wait_for_plan(served, headers["location"])
        assert f"1 to <code>{shop.name}.retry.1s" in plan
    foreign = {"action": "replay", "at": f"{other}[0]@0"}
    status, headers, _ = served.ask(served.path("/dead/plan"), fields=foreign)
    assert status != 303 or "<b>0</b> letters" in wait_for_plan(served, headers["location"])
    assert shop.read(other) == []


def wait_for_plan(served, path):
    assert wait_until(lambda: "being read" not in served.ask(path)[2], 60)
    return served.ask(path)[2]


@pytest.mark.parametrize("fix", ["os:system", "shop:fix", "subprocess:run"])
def test_functions_that_the_console_was_not_started_with_are_not_called(serve, shop, fix):
    shop.bury(["bad 1"])
    served = serve()
    status, _, text = served.ask(served.path("/dead/plan"), fields={"action": "replay", "fix": fix})
    assert (status, "not among the fixes" in text) == (400, True)


def test_filters_are_words_and_never_evaluated(serve, shop):
    shop.bury(["bad 1"])
    served = serve()
    served.counted(1)
    for text in ("${7*7}", "{{7*7}}", "__import__('os')", "java.lang.Runtime", "' or 1=1 --"):
        status, _, page = served.ask(served.path(f"/dead/letters?text={quote(text)}"))
        assert status == 200
        assert "0 found" in page
        assert ">49<" not in page


SETTINGS = (
    "bootstrap",
    "bootstrap.servers",
    "sasl.jaas.config",
    "librdkafka.plugin.library.paths",
    "security.protocol",
    "database",
)
POSTS = (
    "/dead/plan",
    "/plans/x/do",
    "/jobs/replay-1/pause",
    "/jobs/replay-1/resume",
    "/jobs/replay-1/cancel",
    "/parked/plan",
    "/parked/do",
)


def test_connection_settings_are_never_taken_from_a_request(serve, shop):
    shop.bury(["bad 1"])
    served = serve()
    with socket.create_server(("127.0.0.1", 0)) as another:
        another.setblocking(False)
        address = f"127.0.0.1:{another.getsockname()[1]}"
        evil = {"bootstrap": address, "bootstrap.servers": address} | dict.fromkeys(
            SETTINGS, address
        )
        query = urlencode(evil)
        for page in PAGES:
            if "live" not in page:
                mark = "&" if "?" in page else "?"
                assert address not in served.ask(served.path(f"{page}{mark}{query}"))[2]
        for path in (*map(served.path, POSTS), "/login", "/logout"):
            for action in ({"action": "replay"}, {"action": "hold", "topic": "x", "reason": "y"}):
                status, headers, text = served.ask(path, fields={**evil, **action})
                assert status < 500, path
                assert address not in text
        status, headers, _ = served.ask(
            served.path("/dead/plan"), fields={**evil, "action": "replay", "state": "open"}
        )
        assert (status, "1 to <code>" in wait_for_plan(served, headers["location"])) == (303, True)
        with pytest.raises(BlockingIOError):  # nobody has come
            another.accept()


def listening(served):
    """The addresses that the console's process listens on."""
    connections = psutil.Process(served.process.pid).net_connections("inet")
    return {each.laddr.ip for each in connections if each.status == psutil.CONN_LISTEN}


def test_it_listens_on_this_machine_alone_unless_told(serve, shop):
    assert listening(serve()) == {"127.0.0.1"}
    assert listening(serve(shop.target, "--host", "127.0.0.2")) == {"127.0.0.2"}


def test_tokens_of_its_own_are_printed_as_links_that_can_be_followed(serve, shop):
    served = serve(tokens=False)

    def printed():
        return re.findall(r"/login\?token=([\w-]{16,})", served.said())

    assert wait_until(lambda: len(set(printed())) == 2, 60), served.said()
    links = printed()
    for token, code in zip(links, (303, 403), strict=True):
        status, headers, _ = served.ask(f"/login?token={token}", token=None)
        assert (status, headers["location"]) == (303, "/")
        kept = headers["set-cookie"].partition(";")[0]
        assert "HttpOnly" in headers["set-cookie"]
        assert "SameSite=strict" in headers["set-cookie"]
        status, _, text = served.ask(served.path("/dead"), token=None, headers={"Cookie": kept})
        assert status == 200
        form_key = re.search(r'name="form_key" value="(\w+)"', text)[1]
        fields = {"action": "discard", "state": "open", "form_key": form_key}
        headers = {"Cookie": kept, "Origin": served.address}
        answer = served.ask(served.path("/dead/plan"), token=None, fields=fields, headers=headers)
        assert answer[0] == code
    assert served.ask(served.path(), token=CHANGE)[0] == 401


def test_a_proxy_names_users_from_its_own_address_only(serve, shop):
    served = serve(shop.target, "--proxy-user-header", "X-User", "--proxy-from", "127.0.0.2")
    alice = {"X-User": "alice"}
    path = served.path("/dead")
    status, _, text = served.ask(path, token=None, headers=alice, client="127.0.0.2")
    assert (status, "alice" in text) == (200, True)
    for address in ("127.0.0.1", "127.0.0.3"):
        assert served.ask(path, token=None, headers=alice, client=address)[0] == 401
    # Whoever asks through it may look; without the header they are nobody there, too.
    assert served.ask(path, token=None, client="127.0.0.2")[0] == 401
    discard = {"action": "discard", "state": "open"}
    plan = served.path("/dead/plan")
    how = {"token": None, "fields": discard, "headers": alice, "client": "127.0.0.2"}
    assert served.ask(plan, **how)[0] == 403
    # And without the switch nobody is named by a header.
    plain = serve()
    assert plain.ask(path, token=None, headers=alice, client="127.0.0.2")[0] == 401


def test_a_connection_that_says_nothing_is_closed_and_others_are_answered(serve, shop):
    served = serve()
    silent = [socket.create_connection(("127.0.0.1", served.port), timeout=60) for _ in range(30)]
    silent[0].sendall(b"GET / HTTP/1.1\r\nHost: local")
    assert served.ask(served.path())[0] == 200
    for each in silent:
        assert each.recv(100) == b""  # closed by the console
        each.close()
    assert "a request did not arrive in time" in served.ask(served.path("/audit"))[2]


def test_guessing_tokens_is_stopped(serve, shop):
    served = serve()
    answers = [served.ask(f"/login?token=guess{n}", token=None)[0] for n in range(12)]
    assert answers[:10] == [401] * 10
    assert answers[10:] == [429] * 2
    # The right one cannot be guessed, and is not locked out by whoever tries.
    assert served.ask(f"/login?token={CHANGE}", token=None)[0] == 303


def test_no_token_is_logged_or_shown(serve, shop):
    served = serve()
    served.ask("/login?token=some-wrong-token", token=None)
    served.ask("/", token="some-wrong-token")
    pages = [served.ask(served.path(page))[2] for page in PAGES if "live" not in page]
    for secret in (CHANGE, READ, "some-wrong-token"):
        assert secret not in served.said()
        assert not any(secret in page for page in pages)


def test_an_app_without_its_code_can_be_read_and_not_replayed(serve, shop):
    shop.bury(["bad 1"])
    served = serve("--app-name", shop.name)
    served.counted(1)
    status, _, text = served.ask(served.path("/dead/plan"), fields={"action": "replay"})
    assert (status, "by its name only" in text) == (400, True)
    # Found by their names, and the source topic by where letters come from.
    topics = (f"{shop.name}.orders", f"{shop.name}.retry.1s", shop.app.dead_topic)
    flow = lambda: served.ask(served.path())[2]  # noqa: E731 -- asked again and again
    assert wait_until(lambda: all(topic in flow() for topic in topics), 60)
    assert "not up to date" not in flow()


def test_what_a_browser_would_change_is_not_edited_in_one(serve, shop):
    shop.bury(["bad 1\r\nline", "bad \x00"], keys=1)
    served = serve()
    served.counted(2)
    places = [each.letter.place for each in shop.letters.scan()]
    for place in places:
        status, _, text = served.ask(served.path(f"/dead/edit?at={quote(place)}"))
        assert (status, "control characters" in text) == (400, True)


def first_part(served, part):
    """What a page is told first by its stream."""
    connection = http.client.HTTPConnection("127.0.0.1", served.port, timeout=60)
    try:
        headers = {"Authorization": f"Bearer {READ}"}
        connection.request("GET", served.path(f"/live/{part}"), headers=headers)
        answer = connection.getresponse()
        assert answer.status == 200
        lines = iter(answer.readline, b"\n")
        return b"".join(lines).decode()
    finally:
        connection.close()


def test_masked_fields_are_on_no_page(serve, shop):
    module = shop.folder / f"{shop.target.partition(':')[0]}.py"
    module.write_text(module.read_text().replace(", sends=", ", masked=['card'], sends=", 1))
    secret = "tok_wonderland"
    shop.bury([f'{{"card": "{secret}", "n": 1}}'], said=f"no customer {secret}, as said")
    served = serve()
    served.counted(1)
    place = next(iter(shop.letters.scan())).letter.place
    paths = [f"/dead/letter?at={quote(place)}", f"/dead/edit?at={quote(place)}"]
    paths += ["", "/dead", "/dead/letters", "/parked", "/audit"]
    paths = [served.path(each) for each in paths]
    for action in ("try", "replay", "discard"):
        paths.append(
            served.ask(served.path("/dead/plan"), fields={"action": action})[1]["location"]
        )
        wait_for_plan(served, paths[-1])
    paths.append(served.ask(f"{paths[-1]}/do", fields={"reason": "x"})[1]["location"])
    job = paths[-1].rpartition("/")[2]
    for path in paths:
        assert secret not in served.ask(path, token=READ)[2], path
    for part in ("flow", "groups", f"job?name={job}"):
        assert secret not in first_part(served, part), part
    assert "no customer ***" in served.ask(served.path("/dead"))[2]
    assert "***" in served.ask(served.path(f"/dead/letter?at={quote(place)}"))[2]
