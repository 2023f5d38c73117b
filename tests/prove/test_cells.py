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
from driver import planted

from redrive.local.waiting import wait_until

CLAIM_AFTER_WORK = (
    "delivery/unit.py",
    """            await self._claim(session)
            begin = monotonic()
            if self._lot.in_one_call:
                await self._call_together(session)
            else:
                await self._call_one_by_one(session, min(until, begin + UNIT_SECONDS))
""",
    """            begin = monotonic()
            if self._lot.in_one_call:
                await self._call_together(session)
            else:
                await self._call_one_by_one(session, min(until, begin + UNIT_SECONDS))
            await self._claim(session)
""",
)
COMMIT_BEFORE_WORK = (
    "engines/worker/loop.py",
    "            if self._dispatcher.offer(each.processor, each.within(records)):\n",
    """            each.tracker.receive([record.offset for record in records])
            each.tracker.complete([record.offset for record in records], each.tracker.epoch)
            self._commits.commit_now([each])
            each.tracker.assign()
            each.processor.epoch = each.tracker.epoch
            if self._dispatcher.offer(each.processor, each.within(records)):
""",
)


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


@pytest.mark.parametrize(
    ("bug", "delivery", "moment"),
    [
        (CLAIM_AFTER_WORK, "idempotent", "after database commit"),
        (COMMIT_BEFORE_WORK, "at-least-once", "after POST and INSERT"),
    ],
    ids=["ids inserted after the work", "offsets committed first"],
)
def test_a_planted_bug_makes_cells_differ(tmp_path, bug, delivery, moment) -> None:
    source = planted(tmp_path, *bug)
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
    assert told.endswith("redrive: stopped before all of it was proved\n")
    assert not psutil.wait_procs(started, timeout=30)[1]


def _is_run(process: psutil.Process) -> bool:
    try:
        return "redrive.prove.shop:app" in process.cmdline()
    except psutil.Error:
        return False  # it has just ended
