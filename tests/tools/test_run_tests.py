"""However a test run ends, no process of it stays."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

TOOL = Path(__file__).resolve().parents[2] / "tools" / "run_tests.py"
ENVIRONMENT = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}

IN_PARALLEL = ("-p", "xdist", "-n", "2", "--max-worker-restart=1")

# A daemon as careless tests start them: in a session of its own, with a name to find it by.
START = """
import os, pathlib, subprocess, sys, time

def start():
    code = "import time; time.sleep(600)"
    child = subprocess.Popen([sys.executable, "-c", code], start_new_session=True)
    pathlib.Path("child.new").write_text(str(child.pid))
    os.rename("child.new", "child")
    return child
"""

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="orphans are adopted on Linux only")


def write_test(folder: Path, body: str) -> None:
    (folder / "pytest.ini").write_text("[pytest]\n", "utf-8")
    (folder / "test_it.py").write_text(START + body, "utf-8")


def run(folder: Path, *before: str, options: tuple[str, ...] = ()) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*before, sys.executable, str(TOOL), "-q", *options],
        cwd=folder,
        env=ENVIRONMENT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def child_of(folder: Path) -> int:
    deadline = time.monotonic() + 60
    while not (folder / "child").exists():
        assert time.monotonic() < deadline, "the test did not start its child"
        time.sleep(0.02)
    return int((folder / "child").read_text("utf-8"))


@pytest.mark.parametrize("options", [(), IN_PARALLEL])
def test_a_clean_run_ends_with_the_closing_line_of_pytest(
    tmp_path: Path, options: tuple[str, ...]
) -> None:
    write_test(
        tmp_path, "def test_it():\n    child = start()\n    child.kill()\n    child.wait()\n"
    )

    output, _ = (running := run(tmp_path, options=options)).communicate(timeout=120)

    assert running.returncode == 0
    assert output.splitlines()[-1].startswith("1 passed in ")


def test_a_time_out_that_ends_pytest_on_the_spot_leaves_nothing(tmp_path: Path) -> None:
    write_test(tmp_path, "def test_it():\n    start()\n    os._exit(1)\n")

    output, _ = (running := run(tmp_path)).communicate(timeout=120)

    assert running.returncode == 1
    assert "ended 1 left-over processes: python" in output
    assert not psutil.pid_exists(child_of(tmp_path))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_interrupt_lets_fixtures_clean_up(tmp_path: Path, number: int) -> None:
    body = (
        "def test_it():\n    child = start()\n    try:\n        time.sleep(600)\n"
        "    finally:\n        child.kill(); child.wait(); print('cleaned up')\n"
    )
    write_test(tmp_path, body)
    running = run(tmp_path)
    child = child_of(tmp_path)

    running.send_signal(number)
    output, _ = running.communicate(timeout=120)

    assert running.returncode == 2
    assert "KeyboardInterrupt" in output
    assert "left-over" not in output
    assert not psutil.pid_exists(child)


def test_a_background_job_of_a_shell_can_be_interrupted_too(tmp_path: Path) -> None:
    write_test(tmp_path, "def test_it():\n    start()\n    time.sleep(600)\n")
    running = run(tmp_path, "sh", "-c", 'trap "" INT; exec "$@"', "sh")
    child = child_of(tmp_path)

    running.send_signal(signal.SIGTERM)
    output, _ = running.communicate(timeout=30)

    assert "KeyboardInterrupt" in output
    assert not psutil.pid_exists(child)


def test_what_a_test_has_killed_is_gone_at_once_even_if_its_parent_was_killed_first(
    tmp_path: Path,
) -> None:
    body = (
        "import psutil\n"
        "def test_it():\n"
        "    code = START + 'start(); time.sleep(600)'\n"
        "    parent = subprocess.Popen([sys.executable, '-c', code])\n"
        "    while not pathlib.Path('child').exists():\n"
        "        time.sleep(0.02)\n"
        "    child = psutil.Process(int(pathlib.Path('child').read_text()))\n"
        "    parent.kill(); parent.wait(); child.kill()\n"
        "    assert psutil.wait_procs([child], timeout=30)[1] == []\n"
    )
    write_test(tmp_path, f"START = {START!r}\n" + body)

    output, _ = (running := run(tmp_path)).communicate(timeout=120)

    assert running.returncode == 0, output


def test_an_interrupted_run_without_clean_up_leaves_nothing(tmp_path: Path) -> None:
    write_test(tmp_path, "def test_it():\n    start()\n    time.sleep(600)\n")
    running = run(tmp_path)
    child = child_of(tmp_path)

    running.send_signal(signal.SIGINT)
    running.communicate(timeout=120)

    assert running.returncode != 0
    assert not psutil.pid_exists(child)


def test_a_worker_that_dies_fails_the_run_and_leaves_nothing(tmp_path: Path) -> None:
    write_test(tmp_path, "def test_it():\n    start()\n    os._exit(1)\n")

    output, _ = (running := run(tmp_path, options=IN_PARALLEL)).communicate(timeout=120)

    assert running.returncode == 1
    assert "crashed while running 'test_it.py::test_it'" in output
    assert not psutil.pid_exists(child_of(tmp_path))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_lets_the_fixtures_of_workers_clean_up(tmp_path: Path, number: int) -> None:
    body = (
        "def test_it():\n    child = start()\n    try:\n        time.sleep(600)\n"
        "    finally:\n        child.kill(); child.wait(); open('cleaned-up', 'w').close()\n"
    )
    write_test(tmp_path, body)
    running = run(tmp_path, options=IN_PARALLEL)
    child = child_of(tmp_path)

    running.send_signal(number)
    output, _ = running.communicate(timeout=120)

    assert running.returncode == 2
    assert (tmp_path / "cleaned-up").exists(), output
    assert "left-over" not in output
    assert not psutil.pid_exists(child)
