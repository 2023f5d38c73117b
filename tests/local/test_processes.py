"""Only what was started is ended, and it is ended for good."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from dataclasses import replace

import pytest

from redrive.errors import LocalError
from redrive.local import processes, tcp_ports
from redrive.local.waiting import only_one, wait_until

STUBBORN = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(flush=True)"
SLEEPER = "import time; time.sleep(600)"
PARENT = f"""
import subprocess, sys, time
print(subprocess.Popen([sys.executable, "-c", "{SLEEPER}"]).pid, flush=True)
time.sleep(600)
"""


@pytest.fixture
def spawn(tmp_path):
    started = []

    def run(code, *arguments):
        command = [sys.executable, "-c", code, *arguments]
        started.append(processes.spawn(command, tmp_path / f"{len(started)}.log"))
        return started[-1]

    yield run
    processes.end(started, ())


def test_a_process_is_ended_politely(spawn):
    sleeper = spawn(SLEEPER)
    assert processes.alive(sleeper)
    processes.end([sleeper], ((signal.SIGTERM, 60.0),))
    assert not processes.alive(sleeper)


def test_a_recycled_pid_is_never_ended(spawn):
    sleeper = spawn(SLEEPER)
    predecessor = replace(sleeper, started="another-boot/1")
    assert not processes.alive(predecessor)
    processes.end([predecessor], ())
    assert processes.alive(sleeper)


def test_who_ignores_the_polite_signal_is_killed(spawn, tmp_path):
    stubborn = spawn(f"{STUBBORN}; time.sleep(600)")
    assert wait_until(lambda: (tmp_path / "0.log").read_text() == "\n", 60)
    processes.end([stubborn], ((signal.SIGTERM, 0.0),))
    assert not processes.alive(stubborn)


def test_children_are_ended_with_their_parent(spawn, tmp_path):
    parent = spawn(PARENT)
    assert wait_until(lambda: (tmp_path / "0.log").read_text().endswith("\n"), 60)
    child = processes.identify(int((tmp_path / "0.log").read_text()))
    processes.end([parent], ())
    assert not processes.alive(child)


def test_a_zombie_is_not_alive(spawn):
    sleeper = spawn(SLEEPER)
    os.kill(sleeper.pid, signal.SIGKILL)
    assert wait_until(lambda: not processes.alive(sleeper), 60)


def test_strays_are_found_by_an_argument_of_their_own(spawn, tmp_path):
    stray = spawn(SLEEPER, f"-Dredrive.member={tmp_path}")
    assert wait_until(lambda: processes.strays(f"-Dredrive.member={tmp_path}") == [stray], 60)
    assert processes.strays(f"-Dredrive.member={tmp_path}/other") == []


def test_the_last_log_is_kept(spawn, tmp_path):
    for text in ("first", "second"):
        echo = processes.spawn(["echo", text], tmp_path / "echo.log")
        assert wait_until(lambda echo=echo: not processes.alive(echo), 60)
    assert (tmp_path / "echo.previous.log").read_text() == "first\n"
    assert processes.last_lines(tmp_path / "echo.log") == "\n  second"


def test_a_lock_is_for_one_process_at_a_time(tmp_path):
    lock = tmp_path / "lock"
    with (
        only_one(lock, timeout=1),
        pytest.raises(LocalError, match=r"has held .*lock for 0 s"),
        only_one(lock, timeout=0),
    ):
        pass
    with only_one(lock, timeout=0):
        pass


def test_a_killed_holder_frees_its_lock(tmp_path):
    lock = tmp_path / "lock"
    code = (
        "import sys, time\nfrom pathlib import Path\nfrom redrive.local.waiting import only_one\n"
        "with only_one(Path(sys.argv[1]), 60):\n    print(flush=True)\n    time.sleep(600)"
    )
    command = [sys.executable, "-c", code, str(lock)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as holder:
        holder.stdout.readline()
        holder.kill()
    with only_one(lock, timeout=60):
        pass


def test_a_port_in_use_is_not_free_and_says_so():
    with tcp_ports.socket.socket() as taken:
        taken.bind((tcp_ports.HOST, 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(LocalError, match=rf"Port {port} .*another process uses it.*--x"):
            tcp_ports.require(port, "--x")


@pytest.mark.parametrize("port", [-1, 70000])
def test_a_number_that_is_no_port_says_so(port):
    with pytest.raises(LocalError, match="it is not a port number"):
        tcp_ports.require(port, "--kafka-port")


def test_free_ports_are_distinct():
    taken = set()
    for _ in range(50):
        taken.add(tcp_ports.free(taken))
    assert len(taken) == 50
