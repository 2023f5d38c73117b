"""A schema change: letters that need a fix, which shows what it changes before it does."""

from __future__ import annotations

import json
from collections import Counter

import pytest


def mended(made, count):
    values = [f"never {number}" for number in range(count)]
    made.bury(values, keys=50)
    before = made.read(made.app.dead_topic)
    how = ("dead", "replay", made.target, "--fix", made.fix)
    dry = made.run(*how)
    assert f"{count:,} changed by the fix" in dry
    assert f"{count:,} letters would be replayed; nothing was written" in dry
    first = [record.value.decode() for record in before[:3]]
    assert [line.strip() for line in dry.splitlines() if line.startswith("    -")] == [
        f"-{value}" for value in first
    ]
    assert [line.strip() for line in dry.splitlines() if line.startswith("    +")] == [
        f"+{value.replace('never', 'now')}" for value in first
    ]
    assert made.copies() == {}
    done = json.loads(made.run(*how, "--yes", "--json"))
    assert (done["status"], done["counts"]) == ("done", {"sent": count})

    # The letters themselves are as they were, key, value, headers and time.
    assert made.read(made.app.dead_topic) == before
    made.run("run", made.target, "--engine", "worker", "--until-empty", timeout=900)
    found = Counter(record.value for record in made.read(f"{made.name}.done"))
    assert found == {f"now {number}".encode(): 1 for number in range(count)}
    assert made.read(made.app.dead_topic) == before


@pytest.mark.timeout(600)
def test_letters_of_an_old_schema_are_mended_and_stay_as_they_were(shop):
    mended(shop(), 200)


@pytest.mark.chaos
@pytest.mark.timeout(1800)
def test_twenty_thousand_letters_of_an_old_schema(shop):
    mended(shop(), 20_000)
