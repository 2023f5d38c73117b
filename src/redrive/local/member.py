"""One process of the stack: a broker or the database. A file records which process it is."""

from __future__ import annotations

import json
import signal
from abc import ABC, abstractmethod
from dataclasses import asdict
from pathlib import Path
from typing import ClassVar

from redrive.errors import LocalError
from redrive.local import processes
from redrive.local.processes import Identity
from redrive.local.waiting import wait_until

READY_SECONDS = 60.0


class Member(ABC):
    """Starts, stops and kills it: also the handle for fault tests."""

    stop_signals: ClassVar[tuple[tuple[signal.Signals, float], ...]]
    discard_signals: ClassVar[tuple[tuple[signal.Signals, float], ...]]

    def __init__(self, name: str, local: Path, port: int) -> None:
        self.name = name
        self.folder = local / name
        self.log = local / "logs" / f"{name}.log"
        self.port = port

    @property
    @abstractmethod
    def marker(self) -> str:
        """An argument on its command line that no other process has."""

    @abstractmethod
    def prepare(self) -> None:
        """Create its data folder, unless it exists. If killed half-way, it must start over."""

    @abstractmethod
    def spawn(self) -> Identity: ...

    @abstractmethod
    def ready(self) -> bool: ...

    @property
    def process(self) -> Identity | None:
        """The running process; None if there is none."""
        try:
            recorded = Identity(**json.loads(self._record.read_text()))
        except (OSError, ValueError, TypeError):
            return None
        return recorded if processes.alive(recorded) else None

    @property
    def pid(self) -> int | None:
        return self.process.pid if self.process else None

    @property
    def running(self) -> bool:
        return self.process is not None

    def start(self) -> None:
        """Start it unless it is running, and wait until it is ready."""
        process = self.process
        if process is None:
            self._end_strays()
            self.log.parent.mkdir(parents=True, exist_ok=True)
            self.folder.mkdir(parents=True, exist_ok=True)
            self.prepare()
            process = self.spawn()
            self._record.write_text(json.dumps(asdict(process)))
        self._wait_ready(process)

    def stop(self) -> None:
        """Stop it: politely, then by force."""
        self._end(self.stop_signals)

    def kill(self) -> None:
        """Kill it, as a fault would: kill -9."""
        self._end(())

    def discard(self) -> None:
        """Stop it fast: its data is deleted anyway."""
        self._end(self.discard_signals)

    @property
    def _record(self) -> Path:
        return self.folder / "process.json"

    def _end(self, signals: tuple[tuple[signal.Signals, float], ...]) -> None:
        recorded = self.process
        found = [recorded] if recorded else processes.strays(self.marker)
        processes.end(found, signals)
        self._record.unlink(missing_ok=True)

    def _end_strays(self) -> None:
        processes.end(processes.strays(self.marker), self.stop_signals)

    def _wait_ready(self, process: Identity) -> None:
        in_time = wait_until(lambda: not processes.alive(process) or self.ready(), READY_SECONDS)
        if in_time and processes.alive(process):
            return
        how = f"was not ready after {READY_SECONDS:.0f} s" if in_time is False else "exited at once"
        raise LocalError(
            f"{self.name} {how}; {self.log} ends with:{processes.last_lines(self.log)}"
        )
