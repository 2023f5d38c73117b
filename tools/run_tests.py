"""Runs pytest with the arguments given, and ends every process that the tests leave behind.

The tests start real brokers and databases. Whatever happens to pytest (an interrupt, a time-out
that ends it on the spot, a kill), nothing of theirs may outlive this command. On Linux this process
becomes the parent of every orphan below it, also of those in sessions of their own, and ends them.
A run that leaves processes behind by itself has failed: some fixture does not clean up.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from types import FrameType

import psutil

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_SECONDS_TO_FINISH = 60
"""After an interrupt, for fixtures to stop what they started."""
_SECONDS_TO_VANISH = 5
"""After pytest's end, for processes that are already stopping."""


def main(arguments: list[str]) -> int:
    """Run pytest; its exit code, or 1 when it left processes behind."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    _prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    pytest = subprocess.Popen(
        [sys.executable, "-m", "pytest", *arguments],
        stdin=subprocess.DEVNULL,
        # A group of its own, so that Ctrl-C reaches it once, from here: the second one would
        # interrupt the fixtures that are cleaning up.
        process_group=0,
        preexec_fn=_take_interrupts,  # noqa: PLW1509 -- no thread is running yet
    )
    code, interrupted = _wait(pytest)
    leftovers = _descendants_after(1 if interrupted else _SECONDS_TO_VANISH)
    if leftovers:
        names = ", ".join(sorted({_name(process) for process in leftovers}))
        print(f"run_tests: ended {len(leftovers)} left-over processes: {names}", file=sys.stderr)
        _end(leftovers)
    return code or int(bool(leftovers))


def _wait(pytest: subprocess.Popen[bytes]) -> tuple[int, bool]:
    signals: list[int] = []

    def interrupt(number: int, _frame: FrameType | None) -> None:
        signals.append(number)
        # Not with Popen, which would look whether pytest has ended and take its exit code.
        os.kill(pytest.pid, signal.SIGINT if len(signals) == 1 else signal.SIGKILL)
        signal.alarm(_SECONDS_TO_FINISH)

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGALRM):
        signal.signal(number, interrupt)
    # Orphans that end become ours to take leave of: until then they are there, and a test that
    # waits for the end of what it has killed would wait in vain.
    ended, status = os.wait()
    while ended != pytest.pid:
        ended, status = os.wait()
    pytest.returncode = os.waitstatus_to_exitcode(status)
    return pytest.returncode, bool(signals)


def _descendants_after(seconds: float) -> list[psutil.Process]:
    deadline = time.monotonic() + seconds
    while True:
        # Waiting also takes leave of orphans that have ended and became ours.
        _, alive = psutil.wait_procs(psutil.Process().children(recursive=True), timeout=0.1)
        if not alive or time.monotonic() > deadline:
            return alive


def _end(processes: list[psutil.Process]) -> None:
    while processes:
        for process in processes:
            _kill(process)
        processes = _descendants_after(0)


def _kill(process: psutil.Process) -> None:
    try:
        process.kill()
    except psutil.NoSuchProcess:
        pass


def _name(process: psutil.Process) -> str:
    try:
        return f"{process.name()} ({process.pid})"
    except psutil.NoSuchProcess:
        return f"({process.pid})"


def _take_interrupts() -> None:
    # Shells start background jobs with interrupts ignored, and children inherit that.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    # If even this process is killed, fixtures still get their chance to clean up.
    _prctl(_PR_SET_PDEATHSIG, signal.SIGINT)


def _prctl(option: int, value: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
