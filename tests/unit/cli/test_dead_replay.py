"""Operations in sight: what Ctrl-C does to them; `dead jobs --watch` says what became of copies."""

from __future__ import annotations

import json
import signal

import pytest
import typer

from redrive.cli.dead_replay import follow, in_sight
from redrive.dead import Operation
from redrive.dead.watching import Fate

OPERATION = Operation(id="rewind-1", kind="rewind", by="me", at=0)
REPLAY = Operation(id="replay-1", kind="replay", by="a", at=0, status="done", counts={"sent": 5})


def test_the_first_signal_pauses_what_has_begun():
    def run(progress, stopping):
        progress(OPERATION, None)
        signal.raise_signal(signal.SIGINT)
        return OPERATION.change(status="paused" if stopping() else "done")

    for begins_late in (True, False):
        assert in_sight(run, as_json=True, begins_late=begins_late).status == "paused"


def test_what_waits_for_others_first_is_ended_by_a_signal_and_has_failed():
    def run(progress, stopping):
        signal.raise_signal(signal.SIGINT)
        raise AssertionError("it went on")

    with pytest.raises(SystemExit) as ended:
        in_sight(run, as_json=True, begins_late=True)
    assert ended.value.code == 1


class Watch:
    """Follows copies as the real one does, and finds what it is told to."""

    def __init__(self, *found):
        self.found = found

    def follow(self, show, stopping, wait):
        for fate in self.found:
            show(fate)
            wait()
        return self.found[-1]


def followed(capsys, *found, as_json=False):
    with pytest.raises(typer.Exit) as end:
        follow(REPLAY, Watch(*found), as_json=as_json, wait=lambda: None)
    return end.value.exit_code, capsys.readouterr().out


def test_it_says_how_it_stands_whenever_that_changes(capsys):
    code, out = followed(capsys, Fate(0, 0, 5), Fate(0, 0, 5), Fate(0, 2, 0), Fate(0, 0, 0))
    assert (code, out.splitlines()) == (
        0,
        ["replay-1: 5 waiting", "replay-1: 3 handled, 2 parked again", "replay-1: 5 handled"],
    )


@pytest.mark.parametrize("fate", [Fate(1, 0, 0), Fate(0, 0, 1), Fate(0, 1, 0)])
def test_copies_that_died_or_still_wait_are_no_success(capsys, fate):
    assert followed(capsys, fate)[0] == 1


def test_programs_get_one_object(capsys):
    code, out = followed(capsys, Fate(0, 0, 5), Fate(1, 0, 0), as_json=True)
    expected = {"operation": "replay-1", "sent": 5, "dead": 1, "parked": 0, "waiting": 0}
    assert (code, json.loads(out)) == (1, {**expected, "settled": True})
