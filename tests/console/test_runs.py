"""What runs say of themselves is on the page, in their own words."""

from __future__ import annotations

import html

import psycopg
import pytest
from consoles import Run

from redrive.ledger.migrating import migrate
from redrive.local.waiting import wait_until
from redrive.record import Write


def flow(served):
    return html.unescape(served.ask(served.path())[2])


def says(served, words, seconds=120):
    return wait_until(lambda: words in flow(served), seconds, pause=0.5)


def is_said(run, served):
    """Whether the page has what the run answers just now: its words change while it tries."""
    good, words = run.ready()
    beginning = " ".join(words.split())[:80]
    return not good and bool(words) and beginning in " ".join(flow(served).split())


@pytest.mark.chaos
@pytest.mark.parametrize("engine", ["worker", "spark"])
def test_what_is_in_the_way_of_a_run_is_on_the_page(serve, shop, redrive_stack, engine):
    shop.publisher.publish([Write(f"{shop.name}.orders", b"k", b"fine 1")])
    run = Run(shop, "run", shop.target, "--engine", engine)
    try:
        assert wait_until(lambda: run.ready()[0], 240, pause=0.5), run.process.poll()
        served = serve(shop.target, "--watch", run.address)
        assert says(served, "0 in flight"), flow(served)
        broker = redrive_stack.brokers[0]
        broker.kill()
        try:
            assert wait_until(lambda: is_said(run, served), 240, pause=0.5), flow(served)
        finally:
            broker.start()
        assert says(served, "ok</span>"), flow(served)
    finally:
        run.stop()


@pytest.mark.chaos
def test_a_relay_says_how_many_rows_wait(serve, shop, redrive_database, monkeypatch):
    monkeypatch.setenv("REDRIVE_DATABASE", redrive_database)
    module = shop.folder / f"{shop.target.partition(':')[0]}.py"
    module.write_text(module.read_text().replace("at-least-once", "idempotent+outbox"))
    with psycopg.connect(redrive_database) as connection:
        migrate(connection, shop.settings.ledger_schema)
    relay = Run(shop, "relay", shop.target)
    try:
        served = serve(shop.target, "--watch", relay.address)
        assert says(served, "rows wait in the outbox"), flow(served)
    finally:
        relay.stop()
