"""Workers that keep to one core each, and names that are held."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import threading
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from redrive.engines.worker.membership import Membership
from redrive.engines.worker.one_core import OneCore
from redrive.errors import ConfigurationError

CHILD = """
import sys
from pathlib import Path
from redrive.engines.worker.one_core import OneCore
mine = OneCore(Path(sys.argv[1]))
print(mine.core, flush=True)
sys.stdin.read()
"""


class Other:
    """A process of its own that keeps to a core until it is ended."""

    def __init__(self, folder: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", CHILD, str(folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert self._process.stdout is not None
        self.core = self._process.stdout.readline().strip()

    def end(self) -> None:
        self._process.kill()
        self._process.communicate()


@pytest.fixture
def others(tmp_path):
    started = []

    def start():
        started.append(Other(tmp_path))
        return started[-1]

    yield start
    for each in started:
        each.end()


@pytest.fixture
def mine(tmp_path):
    taken = OneCore(tmp_path)
    yield taken
    taken.close()


def in_a_thread(function):
    found = []
    thread = threading.Thread(target=lambda: found.append(function()))
    thread.start()
    thread.join()
    return found[0]


def test_all_threads_keep_to_it_also_those_that_come_later(tmp_path):
    before = os.sched_getaffinity(0)
    over = threading.Event()
    early = threading.Thread(target=over.wait)
    early.start()
    mine = OneCore(tmp_path)
    try:
        found = [os.sched_getaffinity(0), os.sched_getaffinity(early.native_id)]
        found.append(in_a_thread(lambda: os.sched_getaffinity(0)))
        mine.close()
        after = [os.sched_getaffinity(0), os.sched_getaffinity(early.native_id)]
    finally:
        mine.close()
        over.set()
        early.join()
    assert len(found[0]) == 1
    assert found[0] <= before
    assert found == [found[0]] * 3
    assert after == [before] * 2


def test_only_threads_of_handlers_step_back(mine):
    def begin():
        mine.begin_thread()
        return os.sched_getscheduler(0)

    assert in_a_thread(begin) == os.SCHED_BATCH
    assert in_a_thread(lambda: os.sched_getscheduler(0)) == os.SCHED_OTHER


def test_each_worker_has_its_own(others):
    cores = sorted(map(str, os.sched_getaffinity(0)))
    assert sorted(others().core for _ in cores) == cores
    assert others().core == "None"


def test_the_core_of_one_that_was_killed_is_free_again(others):
    all_of_them = [others() for _ in os.sched_getaffinity(0)]
    all_of_them[0].end()
    assert others().core == all_of_them[0].core


def test_where_all_are_taken_it_runs_on_any(others, tmp_path, caplog):
    before = os.sched_getaffinity(0)
    for _ in before:
        others()
    late = OneCore(tmp_path)
    late.begin_thread()
    assert os.sched_getaffinity(0) == before
    assert os.sched_getscheduler(0) == os.SCHED_OTHER
    assert "other workers have taken all cores" in caplog.text
    late.close()


def test_a_system_that_cannot_says_so(monkeypatch, tmp_path):
    monkeypatch.delattr(os, "sched_setaffinity")
    with pytest.raises(ConfigurationError, match="cannot keep a process to a core"):
        OneCore(tmp_path)


@pytest.fixture
def refused(monkeypatch):
    def refuse(*_):
        raise PermissionError(1, "Operation not permitted")

    return lambda name: monkeypatch.setattr(os, name, refuse)


def test_a_system_that_does_not_allow_it_says_so(refused, tmp_path):
    refused("sched_setaffinity")
    with pytest.raises(ConfigurationError, match=r"does not let a process .*not permitted"):
        OneCore(tmp_path)


def test_threads_that_cannot_step_back_run_all_the_same(refused, mine):
    refused("sched_setscheduler")
    assert in_a_thread(mine.begin_thread) is None


def test_it_ends_also_if_the_system_does_not_let_it_go_back(refused, tmp_path, monkeypatch, caplog):
    before = os.sched_getaffinity(0)
    mine = OneCore(tmp_path)
    with monkeypatch.context():
        refused("sched_setaffinity")
        mine.close()
    monkeypatch.undo()
    os.sched_setaffinity(0, before)
    assert "stays on core" in caplog.text
    with closing(OneCore(tmp_path)) as again:
        assert again.core is not None


def test_members_of_a_machine_have_names_of_their_own(tmp_path):
    with ExitStack() as held:

        def member(app, given=None):
            return held.enter_context(closing(Membership(app, given, tmp_path)))

        first, second, of_another_app = member("shop"), member("shop"), member("shop-0")
        assert first.instance.endswith("-0")
        assert second.instance.endswith("-1")
        assert of_another_app.instance.endswith("-0")
        first.close()
        assert member("shop").instance == first.instance
        assert member("shop", "given").instance == "given"


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a name is the lock of a file alone")
def test_a_name_is_held_also_after_a_cleaner_has_removed_its_file(tmp_path):
    with closing(Membership("shop", folder=tmp_path)) as first:
        for each in tmp_path.iterdir():
            each.unlink()
        with closing(Membership("shop", folder=tmp_path)) as second:
            assert second.instance != first.instance
    with closing(Membership("shop", folder=tmp_path)) as again:
        assert again.instance == first.instance


def test_a_name_that_an_older_version_holds_by_its_file_is_not_taken(tmp_path):
    with (tmp_path / "shop-0.lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with closing(Membership("shop", folder=tmp_path)) as worker:
            assert worker.instance.endswith("-1")
