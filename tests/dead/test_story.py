"""From an alarm to all green, on a real Kafka: a worker, its letters, the repair, the replay."""

from __future__ import annotations

import json
import signal
from collections import Counter

from redrive.record import Write

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
