"""Connections: whoever does not say what they want, or has many, keeps nobody else out."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager

import pytest
import uvicorn
from starlette.responses import PlainTextResponse
from uvicorn.server import ServerState

from redrive.console import serving
from redrive.console.access import Proxy
from redrive.console.refusals import Refusals
from redrive.console.serving import Patient

REQUEST = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"
LONG = 60
HELLO = PlainTextResponse("hello")


@asynccontextmanager
async def listening(protocol=Patient, app=HELLO):
    config = uvicorn.Config(app, log_config=None)
    config.load()
    state = ServerState()
    server = await asyncio.get_running_loop().create_server(
        lambda: protocol(config=config, server_state=state, app_state={}), "127.0.0.1", 0
    )
    async with server:
        yield lambda: asyncio.open_connection(*server.sockets[0].getsockname())


async def trickled(reader, writer, data):
    """Sends a bit now and then, until the other side closes."""

    async def send():
        while True:
            writer.write(data)
            await asyncio.sleep(0.02)

    sending = asyncio.create_task(send())
    try:
        return await asyncio.wait_for(reader.read(), LONG)
    except ConnectionError:  # closed while something was under way to it
        return b""
    finally:
        sending.cancel()
        writer.close()


@pytest.mark.parametrize("first", [b"", REQUEST, REQUEST * 2])
def test_a_request_that_trickles_in_loses_its_place_also_if_others_came_before(monkeypatch, first):
    monkeypatch.setattr(serving, "CONSOLE_BODY_SECONDS", 2)

    async def run():
        async with listening() as connect:
            reader, writer = await connect()
            writer.write(first + REQUEST[:10])
            # Before anything trickles: answers that nobody has read yet are gone with a reset.
            for _ in range(first.count(REQUEST)):
                await asyncio.wait_for(reader.readuntil(b"hello"), LONG)
            assert b"hello" not in await trickled(reader, writer, b"x")

    asyncio.run(run())


@pytest.mark.parametrize(("sent", "noted"), [(REQUEST[:10], 1), (b"", 0)])
def test_a_request_that_does_not_arrive_is_in_the_audit_and_a_spare_connection_is_not(
    monkeypatch, sent, noted
):
    monkeypatch.setattr(serving, "CONSOLE_BODY_SECONDS", 0.1)
    protocol = type("Here", (Patient,), {"refusals": Refusals()})

    async def run():
        async with listening(protocol) as connect:
            several = [await connect() for _ in range(3)]
            for _, writer in several:
                writer.write(sent)
            for reader, writer in several:
                assert await asyncio.wait_for(reader.read(), LONG) == b""
                writer.close()

    asyncio.run(run())
    found = protocol.refusals.newest_first()
    assert [(each.address, each.why) for each in found] == [
        ("127.0.0.1", "a request did not arrive in time")
    ] * noted


def test_a_body_that_trickles_in_after_its_answer_loses_its_place(monkeypatch):
    monkeypatch.setattr(serving, "CONSOLE_BODY_SECONDS", 2)

    async def run():
        async with listening() as connect:
            reader, writer = await connect()
            writer.write(b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 99999999\r\n\r\n")
            await asyncio.wait_for(reader.readuntil(b"hello"), LONG)
            await trickled(reader, writer, b"x")

    asyncio.run(run())


def test_an_answer_may_take_longer_than_a_request(monkeypatch):
    monkeypatch.setattr(serving, "CONSOLE_BODY_SECONDS", 0.05)

    async def slow(scope, receive, send):
        await asyncio.sleep(0.3)
        await PlainTextResponse("slowly")(scope, receive, send)

    async def run():
        async with listening(app=slow) as connect:
            reader, writer = await connect()
            writer.write(REQUEST)
            return await trickled(reader, writer, b"")

    assert b"slowly" in asyncio.run(run())


@pytest.mark.parametrize("is_proxy", [True, False])
def test_one_address_has_a_bounded_number_of_connections_unless_it_is_the_proxy(
    monkeypatch, is_proxy
):
    monkeypatch.setattr(serving, "CONSOLE_CONNECTIONS_EACH", 3)
    proxy = Proxy(header="X-User", addresses=("127.0.0.1",)) if is_proxy else None
    protocol = type("Here", (Patient,), {"proxy": proxy, "refusals": Refusals()})

    async def answered(connection):
        reader, writer = connection
        try:
            writer.write(REQUEST)
            return b"200" in await asyncio.wait_for(reader.readline(), LONG)
        except ConnectionError:
            return False

    async def run():
        async with listening(protocol) as connect:
            several = [await connect() for _ in range(5)]
            found = [await answered(each) for each in several]
            for _, writer in several:
                writer.close()
            return found

    assert asyncio.run(run()) == [True] * 3 + [is_proxy] * 2
    noted = [each.why for each in protocol.refusals.newest_first()]
    assert noted == ([] if is_proxy else ["too many connections from this address"])
