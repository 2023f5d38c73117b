"""Replays for an app with an inbox, on a real Kafka and PostgreSQL."""

from __future__ import annotations

from test_rewind import UNTIL_EMPTY, handled, send

LETTERS = 6


def test_letters_that_were_done_meanwhile_are_left_out_and_counted(shop, database):
    made = shop(delivery="idempotent")
    send(made, *(f"bad {number}" for number in range(LETTERS)))
    made.run("run", made.target, *UNTIL_EMPTY)
    assert len(made.letters.some(limit=10)[0]) == LETTERS
    (made.folder / "repaired").touch()
    some = [each.letter.place for each in made.letters.some(limit=2)[0]]
    said = made.run("dead", "replay", made.target, "--at", some[0], "--at", some[1], "--yes")
    assert "done, 2 replayed" in said
    made.run("run", made.target, *UNTIL_EMPTY)

    dry_run = made.run("dead", "replay", made.target, "--again")
    assert "2 left out, as they were done meanwhile: the inbox has their ids" in dry_run
    assert "4 letters would be replayed" in dry_run
    said = made.run("dead", "replay", made.target, "--again", "--yes")
    assert "done, 4 replayed" in said
    assert "2 left out, as they were done meanwhile" in said
    made.run("run", made.target, *UNTIL_EMPTY)
    assert handled(made) == {f"bad {number}": 1 for number in range(LETTERS)}
    assert len(made.copies()) == LETTERS
