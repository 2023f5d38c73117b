"""Up and down, safely: one stack per folder, no matter who asks or how often."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from redrive.errors import LocalError
from redrive.local import folders, jars, tcp_ports
from redrive.local.member import Member
from redrive.local.plan import Plan, Wish
from redrive.local.waiting import only_one, wait_until

LOCK_SECONDS = 300.0
PORT_ATTEMPTS = 3


@dataclass(frozen=True)
class Up:
    """A running stack, and those of its processes that this call started."""

    plan: Plan
    started: list[Member]


def local_folder(home: Path) -> Path:
    return home / "local"


def up(
    home: Path,
    wish: Wish,
    *,
    fresh: bool = False,
    jars_home: Path | None = None,
    short_lived: bool = False,
) -> Up:
    """Bring up the stack of `home`; what is already running is left alone."""
    jars_home = jars_home or home
    local = local_folder(home)
    with _alone(home):
        if fresh:
            _throw_away(local)
        folders.usable(local)
        plan = Plan.load(local) or Plan.new(local, wish, jars_home, short_lived=short_lived)
        plan.check(wish)
        if plan.securing is not None:
            plan.securing.prepare()
        jars.fetch("kafka", plan.jars_home)  # here, since its progress and time are its own
        return _start(plan, wish)


def down(home: Path, *, delete: bool = False) -> list[str]:
    """Stop the stack of `home`; returns the names of what was running."""
    local = local_folder(home)
    if not local.exists():
        return []
    with _alone(home):
        plan = Plan.load(local)
        members = plan.members() if plan else []
        ended = [member.name for member in members if member.running]
        end_all(members, discard=delete)
        if delete:
            _delete(local, plan)
    return ended


def running(home: Path) -> list[Member]:
    """The stack's processes that are running."""
    plan = Plan.load(local_folder(home))
    return [member for member in plan.members() if member.running] if plan else []


def plan_of(home: Path) -> Plan:
    """The plan of a running stack."""
    plan = Plan.load(local_folder(home))
    if plan is None or not all(member.running for member in plan.members()):
        raise LocalError("No stack is running here; `redrive local up` starts one.")
    return plan


def end_all(members: Sequence[Member], *, discard: bool) -> None:
    """Stop all at once: brokers that stop one after the other lose their majority half-way."""
    if not members:
        return
    with ThreadPoolExecutor(len(members)) as pool:
        ends = [pool.submit(member.discard if discard else member.stop) for member in members]
    for ended in ends:
        ended.result()


def _start(plan: Plan, wish: Wish) -> Up:
    """Retry: a free port may be taken before its server listens. Not if it was requested."""
    for attempt in range(1, PORT_ATTEMPTS + 1):
        if any(member.running for member in plan.members()):
            plan.check_running(wish)
        else:
            plan = plan.with_usable_ports(wish)
            plan.save()
        missing = [member for member in plan.members() if not member.running]
        try:
            _start_all(plan.members())
        except LocalError:
            if attempt == PORT_ATTEMPTS or not _port_was_lost(plan):
                raise
        else:
            return Up(plan, missing)
    raise AssertionError("unreachable: the last attempt returns or raises")


def _port_was_lost(plan: Plan) -> bool:
    """Nothing of the stack is running, and yet somebody listens."""
    return not any(member.running for member in plan.members()) and any(
        tcp_ports.problem(port) for port in plan.ports()
    )


def _start_all(members: Sequence[Member]) -> None:
    """Concurrently, as brokers wait for each other; on failure, stop only what was started here."""
    missing = [member for member in members if not member.running]
    try:
        with ThreadPoolExecutor(len(members)) as pool:
            starts = [pool.submit(member.start) for member in members]
            try:
                for started in as_completed(starts):
                    started.result()
            except BaseException:
                _kill(missing)  # so that none waits for a peer that will never come
                raise
    except BaseException:
        _kill(missing)  # those that were still preparing when the first one failed
        raise


def _kill(members: Sequence[Member]) -> None:
    for member in members:
        member.kill()


def _throw_away(local: Path) -> None:
    try:
        plan = Plan.load(local)
    except LocalError:
        plan = None
    end_all(plan.members() if plan else [], discard=True)
    _delete(local, plan)


def _delete(local: Path, plan: Plan | None) -> None:
    gone = [local]
    if plan and local not in plan.postgres_data.parents:
        gone.append(plan.postgres_data.parent)
    for folder in gone:
        # A tool that is still preparing may write again while its folder is being emptied.
        wait_until(partial(_removed, folder), timeout=10)


def _removed(folder: Path) -> bool:
    shutil.rmtree(folder, ignore_errors=True)
    return not folder.exists()


@contextmanager
def _alone(home: Path) -> Iterator[None]:
    """The lock lies beside the folder that `--delete` removes."""
    folders.usable(home)
    with only_one(home / "local.lock", LOCK_SECONDS):
        yield
