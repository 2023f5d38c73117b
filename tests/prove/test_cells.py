"""A few cells on real processes; `make prove` runs all of them on both engines."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from planted import IDS_INSERTED_AFTER_THE_WORK, OFFSETS_COMMITTED_FIRST, Bug

from redrive.local.waiting import wait_until


def prove(*options: str, source: Path | None = None) -> tuple[int, list[dict[str, object]]]:
    environment = {**os.environ, **({"PYTHONPATH": str(source)} if source else {})}
    ended = subprocess.run(
        [sys.executable, "-m", "redrive", "prove", "--json", *options],
        stdout=subprocess.PIPE,
        env=environment,
        timeout=300,
        check=False,
    )
    return ended.returncode, json.loads(ended.stdout)


def test_cells_of_the_worker_are_as_the_table_says() -> None:
    code, cells = prove(
        "--delivery", "idempotent", "--delivery", "transaction", "--moment", "after produce",
        "--moment", "consumer time-out",
    )  # fmt: skip
    found = {(cell["delivery"], cell["moment"]): cell["duplicated"] for cell in cells}
    assert found == {
        ("idempotent", "after produce"): ["POST", "PRODUCE"],
        ("idempotent", "consumer time-out"): [],
        ("transaction", "after produce"): ["POST", "INSERT"],
        ("transaction", "consumer time-out"): ["POST", "INSERT"],
    }
    assert code == 0


def test_a_cell_of_spark_is_as_the_table_says() -> None:
    code, cells = prove(
        "--engine", "spark", "--delivery", "idempotent+outbox", "--moment", "after database commit"
    )
    assert [cell["duplicated"] for cell in cells] == [[]]
    assert code == 0


@pytest.mark.chaos
@pytest.mark.parametrize(
    ("bug", "delivery", "moment"),
    [
        (IDS_INSERTED_AFTER_THE_WORK, "idempotent", "after database commit"),
        (OFFSETS_COMMITTED_FIRST, "at-least-once", "after POST and INSERT"),
    ],
    ids=["ids inserted after the work", "offsets committed first"],
)
def test_a_planted_bug_makes_cells_differ(tmp_path, bug: Bug, delivery, moment) -> None:
    source = bug.planted(tmp_path)
    code, cells = prove("--delivery", delivery, "--moment", moment, source=source)
    assert not all(cell["agrees"] for cell in cells)
    assert code == 1


def test_a_signal_ends_what_was_started() -> None:
    """Runs are in sessions of their own: whoever ends the proof would never see them."""
    command = [sys.executable, "-m", "redrive", "prove", "--delivery", "at-least-once"]
    nothing, pipe = subprocess.DEVNULL, subprocess.PIPE
    started: list[psutil.Process] = []
    with subprocess.Popen(command, stdout=nothing, stderr=pipe, text=True) as proof:

        def runs() -> bool:
            started[:] = psutil.Process(proof.pid).children(recursive=True)
            return any(_is_run(each) for each in started)

        assert wait_until(runs, 120)
        proof.send_signal(signal.SIGTERM)
        told = proof.communicate(timeout=60)[1]
    assert proof.returncode == 1
    assert told.endswith("redrive: stopped before the proof was complete\n")
    assert not psutil.wait_procs(started, timeout=30)[1]


def _is_run(process: psutil.Process) -> bool:
    try:
        return "redrive.prove.shop:app" in process.cmdline()
    except psutil.Error:
        return False  # it has just ended
