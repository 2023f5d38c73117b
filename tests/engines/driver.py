"""`redrive run` as a process of its own: killed, stopped and continued with all that it started."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil

QUIET = ("--spark-conf", "spark.ui.enabled=false")


class Driver:
    """One run of an app, with everything that it starts."""

    def __init__(
        self, target: str, folder: Path, bootstrap: str, *options: str, source: Path | None = None
    ) -> None:
        self._log = folder / f"driver-{len(list(folder.glob('driver-*')))}.log"
        environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
        if source is not None:
            environment["PYTHONPATH"] = str(source)
        quiet = () if "worker" in options else QUIET
        arguments = ["run", target, "--new-app", "--bootstrap", bootstrap, *quiet, *options]
        self.started = time.time()
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "redrive", *arguments],
                cwd=folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._seen: dict[int, psutil.Process] = {}

    # As the suites see any run

    def check(self) -> None:
        code = self._process.poll()
        if code:
            raise AssertionError(f"the run ended with {code}:\n{self.output()[-3000:]}")

    def stop(self) -> None:
        self.terminate()
        self.wait(60)

    def terminate(self) -> None:
        """The signal to end, without waiting for the end."""
        self._process.terminate()

    def kill(self) -> None:
        """The whole tree at once, as a machine that loses its power."""
        self._signal(signal.SIGKILL)
        self._process.wait(30)
        psutil.wait_procs(list(self._seen.values()), timeout=30)

    # What else can happen to it

    def freeze(self) -> None:
        self._signal(signal.SIGSTOP)

    def go_on(self) -> None:
        self._signal(signal.SIGCONT)

    def workers(self) -> list[psutil.Process]:
        """The Python processes in which tasks run."""
        return [
            child
            for process in self._tree()
            if "pyspark.worker" in command_of(process)
            for child in _children(process)  # the daemon's: they have its command line
        ]

    def kill_worker(self) -> bool:
        """Whether there was one, and it was killed."""
        for worker in self.workers():
            try:
                worker.kill()
            except psutil.NoSuchProcess:
                continue
            return True
        return False

    @property
    def ended(self) -> bool:
        return self._process.poll() is not None

    def wait(self, timeout: float) -> int:
        return self._process.wait(timeout)

    def output(self) -> str:
        return self._log.read_text(errors="replace")

    def _tree(self) -> list[psutil.Process]:
        try:
            root = psutil.Process(self._process.pid)
            found = [root, *root.children(recursive=True)]
        except psutil.NoSuchProcess:
            found = []
        self._seen.update({process.pid: process for process in found})
        return found

    def _signal(self, number: int) -> None:
        self._tree()
        # Twice: what was started while the others were told is told the second time.
        for _ in range(2):
            for process in [*self._seen.values(), *self._tree()]:
                try:
                    process.send_signal(number)
                except psutil.NoSuchProcess:
                    continue


def command_of(process: psutil.Process) -> list[str]:
    """Its command line; nothing of one that is gone."""
    try:
        return process.cmdline()
    except psutil.Error:
        return []


def _children(process: psutil.Process) -> list[psutil.Process]:
    try:
        return process.children()
    except psutil.Error:
        return []


def values_per_partition(world: Any, topic: str) -> dict[int, list[bytes | None]]:
    """What is in the topic, in the order of each partition."""
    found: dict[int, list[bytes | None]] = {place.partition: [] for place in world.places(topic)}
    for record in world.records(topic):
        found[record.partition].append(record.value)
    return found
