"""Trials in a real database: nothing of them remains, or it is said."""

from __future__ import annotations

from threading import Event

import psycopg
import pytest

from redrive.app import App
from redrive.dead import DeadLetters, Trying
from redrive.testing import Simulation

ENDS = {
    "commit": ("commit", "insert into item values (2)"),
    "chained": ("commit and chain",),
    "begun again": ("commit", "begin"),
    "failed after it": ("commit", "select 1 / 0"),
    "close": (),
}
"""What ends a transaction."""
GOES_ON = {"plain": (), "fails": ("select 1 / 0",), "savepoint": ("savepoint other",)}


class Shop:
    """An app whose handlers do something in their database, once they are repaired."""

    def __init__(self, how):
        self.app = App("shop", delivery="idempotent")
        self._how = how
        self._broken = True
        self.called = []
        self.app.handler("orders")(self._handle)
        self.app.handler("later")(self._handle_later)

    def _handle(self, record, ctx):
        for each in self._statements(record):
            ctx.db.execute(each)
        if self._how == "close":
            ctx.db.close()

    async def _handle_later(self, record, ctx):
        for each in self._statements(record):
            await ctx.db.execute(each)
        if self._how == "close":
            await ctx.db.close()

    def _statements(self, record):
        if self._broken:
            raise KeyError("x")
        self.called.append(record.value)
        return ("insert into item values (1)", *(ENDS | GOES_ON)[self._how])

    def tried(self, database, topic):
        """Bury two records, and try them: how they went, what remained, and what was said."""
        with (
            Simulation(self.app, db=object()) as sim,
            psycopg.connect(database, autocommit=True) as connection,
        ):
            sim.send(topic, "a")
            sim.send(topic, "b")
            sim.run_until_empty()
            self._broken = False
            connection.execute("create table item (id integer)")
            trying = Trying(DeadLetters(sim.broker, app=self.app), database=database)
            total = trying.run().total
            left = connection.execute("select * from item").fetchall()
        return total, left, trying.limits


@pytest.mark.parametrize("topic", ["orders", "later"])
@pytest.mark.parametrize("how", GOES_ON)
def test_what_a_trial_does_in_the_database_is_rolled_back(redrive_database, topic, how):
    verdict = "fail" if how == "fails" else "pass"
    assert Shop(how).tried(redrive_database, topic) == ({verdict: 2}, [], [])


def test_a_handler_that_hangs_in_its_trial_leaves_no_locks_to_the_next(redrive_database):
    app, is_over, broken = App("shop", delivery="idempotent"), Event(), [True]

    @app.handler("orders")
    def handle(record, ctx):
        if broken:
            raise KeyError("x")
        ctx.db.execute("update item set id = id")
        if record.value == b"a":
            is_over.wait()

    with (
        Simulation(app, db=object()) as sim,
        psycopg.connect(redrive_database, autocommit=True) as connection,
    ):
        sim.send("orders", "a")
        sim.send("orders", "b")
        sim.run_until_empty()
        broken.clear()
        connection.execute("create table item as select 1 as id")
        letters = DeadLetters(sim.broker, app=app)
        trials = Trying(letters, database=redrive_database, timeout="3s").run()
    is_over.set()
    assert trials.total == {"not-ended": 1, "pass": 1}


@pytest.mark.parametrize("topic", ["orders", "later"])
@pytest.mark.parametrize("how", ENDS)
def test_a_handler_that_ends_the_transaction_of_its_trial_is_told_of(redrive_database, topic, how):
    shop = Shop(how)
    total, left, [said] = shop.tried(redrive_database, topic)
    assert total == {"not-rolled-back": 1, "decoded": 1}
    assert (shop.called, left) == ([b"a"], [] if how == "close" else [(1,)])
    assert said.startswith("all letters after shop.dead[0]@0. THE TRIAL OF THAT ONE MAY HAVE HAD")
