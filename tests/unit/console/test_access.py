"""Who may look and who may change: every way in is tried without the right to it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive.console import new_access
from redrive.console.access import COOKIE, Access, Proxy
from redrive.errors import ConfigurationError
from redrive.secret import Secret

ACCESS = Access(change=Secret("may-change"), read=Secret("may-read"))
SAME = {"host": "127.0.0.1:8484", "origin": "http://127.0.0.1:8484"}


def by_cookie(role):
    return ACCESS.visitor({"cookie": f"a=b; {COOKIE}={ACCESS.cookie(role)}"}, "127.0.0.1")


def by_token(token):
    return ACCESS.visitor({"authorization": f"Bearer {token}"}, "127.0.0.1")


@pytest.mark.parametrize(("token", "role"), [("may-change", "change"), ("may-read", "read")])
def test_a_token_gives_its_role_to_programs(token, role):
    assert by_token(token).role == role
    assert not by_token(token).by_cookie


@pytest.mark.parametrize("role", ["change", "read"])
def test_a_cookie_gives_its_role_to_browsers(role):
    assert by_cookie(role).role == role
    assert by_cookie(role).by_cookie


@given(st.text())
def test_no_other_token_and_no_other_cookie_is_known(text):
    if text.strip() in ("may-change", "may-read"):
        return
    assert by_token(text) is None
    headers = {"cookie": f"{COOKIE}={text}"}
    assert ACCESS.visitor(headers, "127.0.0.1") is None


def test_a_token_is_no_cookie_and_a_cookie_no_token():
    assert ACCESS.visitor({"cookie": f"{COOKIE}=may-change"}, "") is None
    assert by_token(ACCESS.cookie("change")) is None


def test_the_cookie_of_one_console_is_nothing_to_another():
    other = Access(change=Secret("another"), read=Secret("may-read"))
    assert other.visitor({"cookie": f"{COOKIE}={ACCESS.cookie('change')}"}, "") is None


def test_a_reader_changes_nothing_whatever_they_send():
    for visitor in (by_cookie("read"), by_token("may-read")):
        for key in (ACCESS.form_key(visitor), ACCESS.form_key(by_cookie("change"))):
            assert "for looking only" in ACCESS.refusal(visitor, SAME, key)


def test_a_form_of_this_console_is_accepted():
    visitor = by_cookie("change")
    assert ACCESS.refusal(visitor, SAME, ACCESS.form_key(visitor)) == ""


@pytest.mark.parametrize(
    "headers",
    [
        {"host": "127.0.0.1:8484"},
        {"host": "127.0.0.1:8484", "origin": "null"},
        {"host": "127.0.0.1:8484", "origin": "http://evil.example"},
        {"host": "127.0.0.1:8484", "origin": "http://127.0.0.1:9999"},
        {**SAME, "sec-fetch-site": "cross-site"},
        {**SAME, "sec-fetch-site": "same-site"},
    ],
)
def test_a_form_of_another_page_is_refused(headers):
    visitor = by_cookie("change")
    assert "another" in ACCESS.refusal(visitor, headers, ACCESS.form_key(visitor))


@pytest.mark.parametrize("key", ["", "x", "ü", ACCESS.form_key(by_cookie("read"))])
def test_a_form_without_the_key_is_refused(key):
    assert "not of this console" in ACCESS.refusal(by_cookie("change"), SAME, key)


def test_programs_need_no_form():
    assert ACCESS.refusal(by_token("may-change"), {"host": "h"}, "") == ""


@pytest.mark.parametrize(
    ("host", "known"),
    [
        ("127.0.0.1:8484", True),
        ("localhost", True),
        ("[::1]:8484", True),
        ("evil.example", False),
        ("127.0.0.1.evil.example", False),
        ("", False),
        ("[", False),
        ("evil.example@127.0.0.1", True),  # the name is what comes last: browsers send none of it
    ],
)
def test_the_console_is_asked_under_its_own_names_only(host, known):
    assert ACCESS.is_named(host) is known


def test_names_of_the_console_are_compared_whatever_their_case():
    assert new_access(hosts=["Console.Example.com"]).is_named("console.example.COM:8484")


@pytest.mark.parametrize(
    ("change", "read", "words"),
    [
        ("the same for both of them", "the same for both of them", "are the same"),
        ("short", None, "for changing has fewer than 16"),
        (None, "x" * 15, "for looking has fewer than 16"),
    ],
)
def test_tokens_that_protect_nothing_are_refused_and_not_quoted(change, read, words):
    with pytest.raises(ConfigurationError, match=words) as refused:
        new_access(change, read)
    assert (change or read) not in str(refused.value)


def test_good_tokens_are_taken_and_missing_ones_made_up():
    assert new_access("c" * 16, "r" * 16).role_of("c" * 16) == "change"
    made = new_access()
    assert len(made.change.reveal()) >= 16
    assert made.change != made.read


class TestProxy:
    ACCESS = Access(
        change=Secret("c"),
        read=Secret("r"),
        proxy=Proxy(header="X-Forwarded-User", addresses=("10.0.0.5", "192.168.7.0/24")),
    )

    @pytest.mark.parametrize("client", ["10.0.0.5", "192.168.7.9"])
    def test_the_proxy_names_the_user_who_may_look(self, client):
        visitor = self.ACCESS.visitor({"x-forwarded-user": "alice"}, client)
        assert (visitor.name, visitor.role, visitor.by_cookie) == ("alice", "read", True)

    @pytest.mark.parametrize("client", ["10.0.0.6", "127.0.0.1", "", "nonsense"])
    def test_nobody_else_names_users(self, client):
        assert self.ACCESS.visitor({"x-forwarded-user": "alice"}, client) is None

    def test_without_a_proxy_the_header_means_nothing(self):
        assert ACCESS.visitor({"x-forwarded-user": "alice"}, "10.0.0.5") is None

    def test_a_proxy_from_anywhere_is_refused(self):
        with pytest.raises(ConfigurationError, match="believed from anywhere"):
            Proxy(header="X-User", addresses=())
        with pytest.raises(ConfigurationError, match="neither an address nor a network"):
            Proxy(header="X-User", addresses=("everywhere",))

    def test_users_of_a_proxy_need_the_key_of_a_form_as_browsers_vouch_for_them(self):
        access = Access(
            change=Secret("c"),
            read=Secret("r"),
            proxy=Proxy(header="X-User", addresses=("10.0.0.5",), role="change"),
        )
        alice = access.visitor({"x-user": "alice"}, "10.0.0.5")
        bob = access.visitor({"x-user": "bob"}, "10.0.0.5")
        assert access.refusal(alice, SAME, access.form_key(bob))
        assert access.refusal(alice, SAME, access.form_key(alice)) == ""
