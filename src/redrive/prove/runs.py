"""Runs: `redrive run` and `redrive relay` as separate processes, with all that they start."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import psutil

from redrive.choices import Engine
from redrive.errors import RedriveError
from redrive.prove.orders import VARIABLE, Orders

TARGET: Final = "redrive.prove.shop:app"
_END: Final = 30.0


class ProveError(RedriveError):
    """A cell could not be produced."""


class Run:
    """One process, and those that it has started."""

    def __init__(self, arguments: list[str], orders: Orders, folder: Path) -> None:
        self._log = folder / f"run-{len(list(folder.glob('run-*')))}.log"
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "redrive", *arguments],
                cwd=folder,
                env={**os.environ, VARIABLE: orders.written(), "PYTHONUNBUFFERED": "1"},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._seen: dict[int, psutil.Process] = {}

    @property
    def ended(self) -> bool:
        """Whether it has ended."""
        return self._process.poll() is not None

    @property
    def code(self) -> int | None:
        """Its exit code, once it has ended."""
        return self._process.poll()

    def wait(self, seconds: float) -> int:
        """Its exit code; an error that quotes its last lines if it does not finish in time."""
        try:
            return self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise ProveError(
                f"a run did not finish within {seconds:.0f} s; its last lines:"
                f" {self.output()[-2000:]}"
            ) from None

    def output(self) -> str:
        """What it has printed."""
        return self._log.read_text(errors="replace")

    def freeze(self) -> None:
        """Freeze it with all that it has started, like a machine that hangs."""
        self._signal(signal.SIGSTOP)

    def go_on(self) -> None:
        """Continue it."""
        self._signal(signal.SIGCONT)

    def kill(self) -> None:
        """Kill it with all that it has started."""
        self._signal(signal.SIGKILL)
        self._process.wait(_END)
        psutil.wait_procs(list(self._seen.values()), timeout=_END)

    def _signal(self, number: int) -> None:
        for _ in range(2):  # the second pass reaches what was started during the first
            for process in self._tree():
                try:
                    process.send_signal(number)
                except psutil.NoSuchProcess:
                    continue

    def _tree(self) -> list[psutil.Process]:
        try:
            root = psutil.Process(self._process.pid)
            found = [root, *root.children(recursive=True)]
        except psutil.NoSuchProcess:
            found = []
        self._seen.update({process.pid: process for process in found})
        return list(self._seen.values())


class Runs:
    """Starts runs of one cell, and ends them."""

    def __init__(self, engine: Engine, orders: Orders, folder: Path, bootstrap: str) -> None:
        self._engine = engine
        self._orders = orders
        self._folder = folder
        self._bootstrap = bootstrap
        self._started: list[Run] = []
        self._write_settings()

    def _write_settings(self) -> None:
        # A rival must not have to wait long for the partitions of a frozen run.
        text = "[librdkafka]\n'session.timeout.ms' = 6000\n'heartbeat.interval.ms' = 1000\n"
        (self._folder / "redrive.toml").write_text(text)

    def start(self) -> Run:
        """A run of the app, until nothing is left."""
        arguments = ["run", TARGET, "--engine", self._engine, "--until-empty", "--new-app"]
        if self._engine == "spark":
            arguments += ["--spark-conf", "spark.ui.enabled=false"]
        return self._begin(arguments)

    def relay(self) -> None:
        """Publish the outbox."""
        run = self._begin(["relay", TARGET, "--until-empty"])
        if run.wait(60):
            raise ProveError(f"the relay failed: {run.output()[-2000:]}")

    def _begin(self, arguments: list[str]) -> Run:
        run = Run([*arguments, "--bootstrap", self._bootstrap], self._orders, self._folder)
        self._started.append(run)
        return run

    def end(self) -> None:
        """End whatever still runs."""
        for run in self._started:
            run.go_on()
            run.kill()


@contextmanager
def runs(engine: Engine, orders: Orders, folder: Path, bootstrap: str) -> Iterator[Runs]:
    """Runs that are ended at the end of the block."""
    made = Runs(engine, orders, folder, bootstrap)
    try:
        yield made
    finally:
        made.end()
