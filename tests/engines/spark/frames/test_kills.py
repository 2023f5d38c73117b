"""The pipeline of examples/frames, killed again and again: every order once."""

from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path

import pytest
from driver import Driver

from redrive.envelope import parse
from redrive.record import Write

pytestmark = pytest.mark.chaos

EXAMPLE = Path(__file__).parents[4] / "examples" / "frames" / "orders.py"
OURS = {
    "from __future__ import annotations\n": "",
    'App("desk", ': "App(NAME, ",
    '@app.frame("orders", ': '@app.frame(topic("in"), ',
    '"orders.enriched"': 'topic("out")',
    # However long the kills take: nothing is used up before the customer comes.
    'RetryPolicy("2s 5s 10s")': 'RetryPolicy.every("2s", until="1h")',
}
COUNT = 60_000


def example() -> str:
    """The example, with topics and delays of this test."""
    text = EXAMPLE.read_text()
    for theirs, ours in OURS.items():
        assert theirs in text
        text = text.replace(theirs, ours)
    return text


def test_every_order_is_sent_once_or_buried_whoever_is_killed(world, monkeypatch):
    customers = world.folder / "customers"
    customers.mkdir()
    monkeypatch.setitem(os.environ, "CUSTOMERS", str(customers))
    (customers / "1.json").write_text(
        "".join(json.dumps({"customer": n, "name": f"n{n}"}) + "\n" for n in range(9))
    )
    target = world.app(example(), partitions=4)
    world.create(world.topic("out"), 4)
    orders = [b'{"id": "%d", "customer": %d, "amount": 1}' % (n, n % 10) for n in range(COUNT)]
    orders[77] = b'{"id": 7'
    world.publisher.publish([Write(world.topic("in"), b"%d" % n, o) for n, o in enumerate(orders)])

    def run() -> Driver:
        options = ("--until-empty", "--max-records-per-batch", "8000")
        return Driver(target, world.folder, world.bootstrap, *options)

    killed = run()
    try:
        world.wait(killed, "a fifth", lambda: world.lag("in") < COUNT * 4 // 5, timeout=180)
        killed.kill()
        killed = run()
        world.wait(killed, "a half", lambda: world.lag("in") < COUNT // 2, timeout=180)
        world.wait(killed, "a Python worker", killed.kill_worker)
        world.wait(killed, "all of it", lambda: world.lag("in") == 0, timeout=180)
        killed.kill()
        (customers / "2.json").write_text('{"customer": 9, "name": "n9"}\n')
        killed = run()
        assert killed.wait(240) == 0, killed.output()[-3000:]
    finally:
        killed.kill()
    sent = Counter(int(json.loads(value or b"")["id"]) for value in world.values("out"))
    assert {number: times for number, times in sent.items() if times > 1} == {}
    assert set(range(COUNT)) - set(sent) == {77}
    assert [parse(letter.headers).error_message for letter in world.records("dead")] == [
        "broken JSON"
    ]


COPY = """
    from redrive.spark import send

    app = App(NAME, delivery={delivery!r}, retry=RetryPolicy("1s"))

    @app.frame(topic("in"))
    def copy(frame):
        return frame.withColumn("outcome", send(topic("out"), "key", "value"))
"""


@pytest.mark.parametrize("delivery", ["at-least-once", "transaction"])
def test_a_broker_that_is_away_for_a_while_buries_nobody(world, redrive_stack, delivery):
    target = world.app(COPY.format(delivery=delivery), partitions=2)
    world.create(world.topic("out"), 2)
    values = [b"%d" % number for number in range(20_000)]
    world.send("in", *values)
    run = Driver(target, world.folder, world.bootstrap, "--max-records-per-batch", "1000")
    try:
        world.wait(run, "some of it", lambda: world.count("out") >= 2000, timeout=120)
        broker = redrive_stack.brokers[0]
        broker.kill()
        try:
            world.wait(run, "a word about it", lambda: "lane waits: " in run.output(), timeout=120)
        finally:
            broker.start()
        world.wait(run, "all of it", lambda: world.lag("in") == 0, timeout=150)
    finally:
        run.kill()
    assert {*world.values("out")} == {*values}
    if delivery == "transaction":
        assert len(world.values("out")) == len(values)
    assert world.values("dead") == []
