"""Stops a stack when the process that wanted it is gone, even by kill -9.

A separate process, because nothing inside a killed process can still clean up.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import redrive
from redrive.local import lifecycle, processes
from redrive.local.processes import Identity

POLL_SECONDS = 0.2


def start(home: Path, *, delete: bool) -> subprocess.Popen[bytes]:
    """Watch this process."""
    me = processes.myself()
    roots = [str(Path(redrive.__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
    return subprocess.Popen(
        [sys.executable, "-m", __name__, str(me.pid), me.started, str(home), str(int(delete))],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, roots))},
    )


def watch(owner: Identity, home: Path, *, delete: bool) -> None:
    while processes.alive(owner):
        time.sleep(POLL_SECONDS)
    lifecycle.down(home, delete=delete)
    if delete:
        shutil.rmtree(home, ignore_errors=True)


if __name__ == "__main__":
    pid, started, folder, deletes = sys.argv[1:]
    watch(Identity(int(pid), started), Path(folder), delete=deletes == "1")
