"""From an alarm to all green, on a real Kafka: a worker, its letters, the repair, the replay."""

from __future__ import annotations

import json
import signal
from collections import Counter

from redrive.app import App
from redrive.dead import DeadLetters, Trying
from redrive.record import Write
from redrive.testing import Simulation

LETTERS = 60


def test_from_an_alarm_to_all_green(shop):
    made = shop()
    words = ("bad", "missing")
    made.publisher.publish(
        [
            Write(f"{made.name}.orders", b"k%d" % (n % 5), f"{words[n % 2]} {n}".encode())
            for n in range(LETTERS)
        ]
    )
    made.run("run", made.target, "--engine", "worker", "--until-empty")
    groups = json.loads(made.run("dead", "groups", made.target, "--json"))["groups"]
    assert [(each["count"], each["states"]) for each in groups] == [(30, {"open": 30})] * 2
    tried = json.loads(made.run("dead", "try", made.target, "--json", code=1))
    assert tried["total"] == {"fail": LETTERS}
    (made.folder / "repaired").touch()
    tried = json.loads(made.run("dead", "try", made.target, "--json"))
    assert tried["total"] == {"pass": LETTERS}
    dry = made.run("dead", "replay", made.target)
    assert f"{LETTERS} letters would be replayed; nothing was written" in dry
    worker = made.start("run", made.target, "--engine", "worker")
    how = ("--ramp", "1,10", "--stop-above", "5%", "--yes", "--reason", "repaired")
    out = made.run("dead", "replay", made.target, *how)
    assert f"done, {LETTERS} replayed" in out
    worker.send_signal(signal.SIGTERM)
    worker.communicate(timeout=60)
    made.run("run", made.target, "--engine", "worker", "--until-empty")
    done = Counter(record.value for record in made.read(f"{made.name}.done"))
    assert (len(done), set(done.values())) == (LETTERS, {1})
    stats = json.loads(made.run("dead", "stats", made.target, "--json"))
    assert stats["states"] == {"replayed": LETTERS}


def test_what_a_trial_does_in_the_database_is_rolled_back(redrive_database):
    import psycopg

    app, broken = App("shop", delivery="idempotent"), [True]

    @app.handler("orders")
    def handle(record, ctx):
        if broken:
            raise KeyError("x")
        ctx.db.execute("insert into item values (1)")

    @app.handler("later")
    async def later(record, ctx):
        if broken:
            raise KeyError("x")
        await ctx.db.execute("insert into item values (2)")

    with Simulation(app, db=object()) as sim:
        sim.send("orders", "a")
        sim.send("later", "b")
        sim.run_until_empty()
        broken.clear()
        with psycopg.connect(redrive_database, autocommit=True) as connection:
            connection.execute("create table item (id integer)")
            letters = DeadLetters(sim.broker, app=app)
            assert Trying(letters, database=redrive_database).run().total == {"pass": 2}
            assert connection.execute("select count(*) from item").fetchone() == (0,)
