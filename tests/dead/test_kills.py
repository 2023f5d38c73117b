"""kill -9 in the middle of a replay: none left out, none twice."""

from __future__ import annotations

import random
import subprocess

import pytest

from redrive.record import TopicPartition


def replayed_with_kills(shop, letters, kills, rate):
    """Replay letters, by commands that are killed; gives how many of them were."""
    shop.bury([f"bad {number}" for number in range(letters)], keys=50)
    dice = random.Random(7)
    process = shop.start("dead", "replay", shop.target, "--yes", "--rate", f"{rate}/s")
    for kill in range(1, kills + 1):
        shop.wait_for_copies(kill * letters // (kills + 2))
        # Anywhere: within a transaction, between two, or while it waits.
        try:
            process.wait(dice.random() * 0.3)
        except subprocess.TimeoutExpired:
            process.kill()
        process.communicate()
        [job] = [each for each in shop.jobs() if each["status"] != "done"]
        process = shop.start("dead", "jobs", shop.target, "--resume", job["id"])
    out, err = process.communicate(timeout=240)
    assert process.returncode == 0, (out, err)
    [job] = shop.jobs()
    assert (job["status"], job["counts"]) == ("done", {"sent": letters})


def check_once_and_in_order(shop, letters):
    copies = shop.copies()
    assert (len(copies), set(copies.values())) == (letters, {1})
    (delay,) = shop.app.delay_topics
    for number in range(shop.log.partitions(delay)):
        place = TopicPartition(delay, number)
        last = {}
        for record in shop.log.read(place, *shop.log.bounds(place)):
            offset = int(dict(record.headers)["redrive-origin-offset"])
            assert last.get(record.key, -1) < offset
            last[record.key] = offset


def test_a_replay_that_is_killed_leaves_none_out_and_drives_none_twice(shop):
    made = shop()
    replayed_with_kills(made, 600, 3, rate=100)
    check_once_and_in_order(made, 600)


@pytest.mark.chaos
@pytest.mark.timeout(1200)
def test_ten_thousand_letters_and_ten_kills(shop):
    made = shop()
    replayed_with_kills(made, 10_000, 10, rate=1000)
    check_once_and_in_order(made, 10_000)
