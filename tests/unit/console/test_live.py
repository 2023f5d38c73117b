"""What changes by itself on pages is rendered once for all who look, and reads nothing again."""

from __future__ import annotations

import asyncio
from threading import Event
from types import SimpleNamespace

import pytest

from redrive.console import live
from redrive.console.access import Access
from redrive.console.asking import Console
from redrive.console.jobs import Jobs
from redrive.console.live import rendered
from redrive.errors import RedriveError
from redrive.secret import Secret
from redrive.tuning import CONSOLE_CONNECTIONS_EACH, CONSOLE_LIVE, CONSOLE_LIVE_EACH

BOARD = SimpleNamespace(name="shop")


@pytest.fixture
def console():
    return Console({}, Access(change=Secret("c"), read=Secret("r")))


def rendering(monkeypatch, render):
    """Has a part of a page rendered like that; gives the list of the times that it was."""
    times = []

    def rendered(_console, _board, name):
        times.append(name)
        return render()

    monkeypatch.setattr(live, "PARTS", {"groups": rendered})
    return times


def test_many_viewers_of_one_version_have_it_rendered_once(monkeypatch, console):
    begun, go_on = Event(), Event()

    def slow():
        begun.set()
        assert go_on.wait(60)
        return "<p>"

    times = rendering(monkeypatch, slow)

    async def watch():
        viewers = [
            asyncio.ensure_future(rendered(console, BOARD, "groups", "", 1)) for _ in range(50)
        ]
        await asyncio.to_thread(begun.wait, 60)
        viewers[0].cancel()  # one goes, and the others see it all the same
        go_on.set()
        seen = await asyncio.gather(*viewers[1:])
        return [*seen, await rendered(console, BOARD, "groups", "", 1)]

    assert asyncio.run(watch()) == ["<p>"] * 50
    assert len(times) == 1
    assert asyncio.run(rendered(console, BOARD, "groups", "", 2)) == "<p>"
    assert len(times) == 2


def test_a_rendering_that_failed_is_not_kept(monkeypatch, console):
    answers = [KeyError("never thought of"), "<p>", RedriveError("the broker is <away>")]

    def render():
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    rendering(monkeypatch, render)
    with pytest.raises(KeyError):
        asyncio.run(rendered(console, BOARD, "groups", "", 1))
    assert asyncio.run(rendered(console, BOARD, "groups", "", 1)) == "<p>"
    assert "the broker is &lt;away&gt;" in asyncio.run(rendered(console, BOARD, "groups", "", 2))


def test_whoever_watches_a_job_that_is_not_there_has_nothing_read(console):
    asked = []
    index = SimpleNamespace(operation=asked.append)
    board = SimpleNamespace(name="shop", jobs=Jobs(), index=index)  # and no way to Kafka
    for version in range(5):
        html = asyncio.run(rendered(console, board, "job", "nope", version))
        assert "there is no operation nope" in html
    assert asked == ["nope"] * 5


def test_one_visitor_cannot_take_the_places_of_all_others(console):
    def asked(visitor, address):
        request = SimpleNamespace(
            path_params={"part": "flow"}, client=SimpleNamespace(host=address)
        )
        asking = SimpleNamespace(
            console=console,
            request=request,
            visitor=SimpleNamespace(name=visitor),
            fields={},
            board=BOARD,
        )
        return asyncio.run(live.events(asking)).status_code

    # Fifty share a token and an address, and can still ask for pages.
    assert 50 < CONSOLE_LIVE_EACH < CONSOLE_CONNECTIONS_EACH < CONSOLE_LIVE
    console.viewers["alice", "10.0.0.9"] = CONSOLE_LIVE_EACH
    assert asked("alice", "10.0.0.9") == 503
    assert asked("bob", "10.0.0.9") == 200
    console.viewers["carol", ""] = CONSOLE_LIVE
    assert asked("bob", "10.0.0.9") == 503


def test_viewers_who_have_gone_are_not_counted(console):
    async def watch():
        index = SimpleNamespace(operation=lambda _name: None)
        asking = SimpleNamespace(
            console=console,
            request=SimpleNamespace(path_params={"part": "job"}, client=None),
            visitor=SimpleNamespace(name="alice"),
            fields={"name": ["nope"]},
            board=SimpleNamespace(name="shop", version=1, jobs=Jobs(), index=index),
        )
        stream = (await live.events(asking)).body_iterator
        await anext(stream)
        during = dict(console.viewers)
        await stream.aclose()
        return during, dict(console.viewers)

    assert asyncio.run(watch()) == ({("alice", ""): 1}, {})
