"""Processes that outlive the command that started them, and how to stop exactly those."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from redrive.errors import LocalError
from redrive.local.accounts import Account
from redrive.local.waiting import wait_until

try:
    import psutil
except ImportError as error:
    raise LocalError(
        "The embedded stack is not installed: pip install 'redrive[local]'."
    ) from error

GONE_SECONDS = 20.0

# Children of this very process must be waited for, or they stay behind as zombies.
_children: dict[int, subprocess.Popen[bytes]] = {}


@dataclass(frozen=True)
class Identity:
    """A process and its start time, so that a recycled pid is never mistaken for it."""

    pid: int
    started: str


def identify(pid: int) -> Identity | None:
    """The running process `pid`; None if there is none, or only a zombie."""
    if (child := _children.get(pid)) is not None and child.poll() is not None:
        del _children[pid]
    started = _linux_start(pid) if Path("/proc/self/stat").exists() else _portable_start(pid)
    return None if started is None else Identity(pid, started)


def myself() -> Identity:
    return identify(os.getpid()) or Identity(os.getpid(), "unknown")


def alive(process: Identity | None) -> bool:
    return process is not None and identify(process.pid) == process


def spawn(
    command: Sequence[str],
    log: Path,
    *,
    account: Account | None = None,
    env: Mapping[str, str] | None = None,
) -> Identity:
    """Start `command` in its own session, writing to `log`; the previous log is kept."""
    if log.exists():
        log.replace(log.with_suffix(".previous.log"))
    with log.open("wb") as out:
        child = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            cwd="/",
            env=env,
            **(account.as_arguments() if account else {}),
        )
    _children[child.pid] = child
    # A child that is already dead still needs an identity that matches nothing alive.
    return identify(child.pid) or Identity(child.pid, "dead")


def end(processes: Iterable[Identity], signals: Sequence[tuple[signal.Signals, float]]) -> None:
    """Send signal after signal, each with its grace period, then kill; waits until it is gone."""
    leaders = [process for process in processes if alive(process)]
    family = [*leaders, *_descendants(leaders)]
    for number, patience in signals:
        for process in leaders:
            _send(process, number)
        if wait_until(lambda: not any(map(alive, family)), patience):
            return
    family += _descendants(leaders)
    for process in family:
        _send(process, signal.SIGKILL)
    if not wait_until(lambda: not any(map(alive, family)), GONE_SECONDS):
        pids = ", ".join(str(process.pid) for process in family if alive(process))
        raise LocalError(f"The processes {pids} did not exit when killed; check them with ps.")


def strays(argument: str) -> list[Identity]:
    """Running processes with exactly this argument: left over by a killed command."""
    found = [
        identify(process.pid)
        for process in psutil.process_iter(["cmdline"])
        if argument in (process.info["cmdline"] or ())
    ]
    return [process for process in found if process is not None]


def last_lines(log: Path, count: int = 12) -> str:
    try:
        lines = log.read_text(errors="replace").splitlines()
    except OSError:
        return ""
    return "".join(f"\n  {line[:300]}" for line in lines[-count:])


def _send(process: Identity, number: signal.Signals) -> None:
    if alive(process):
        try:
            os.kill(process.pid, number)
        except ProcessLookupError:  # it exited in between, as it should
            pass


def _descendants(leaders: Iterable[Identity]) -> list[Identity]:
    found = []
    for leader in leaders:
        try:
            children = psutil.Process(leader.pid).children(recursive=True)
        except psutil.NoSuchProcess:
            continue
        found += [identify(child.pid) for child in children]
    return [process for process in found if process is not None]


def _linux_start(pid: int) -> str | None:
    """Boot id and clock ticks since boot: unlike a date, clock adjustments cannot change it."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except (FileNotFoundError, ProcessLookupError):
        return None
    state, *fields = stat.rpartition(")")[2].split()
    return None if state in "ZX" else f"{boot}/{fields[18]}"


def _portable_start(pid: int) -> str | None:
    try:
        process = psutil.Process(pid)
        ended = process.status() in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)
        return None if ended else f"{process.create_time():.2f}"
    except psutil.NoSuchProcess:
        return None
