"""The stack as a context manager, for programs and fault tests."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from redrive.local import folders, lifecycle, watchdog
from redrive.local.broker import Broker
from redrive.local.member import Member
from redrive.local.plan import Plan, Wish
from redrive.local.postgres import Postgres


class Stack:
    """A running Kafka and PostgreSQL.

    `brokers` and `postgres` can be killed, stopped and started again, each by itself.
    """

    def __init__(self, plan: Plan, home: Path) -> None:
        self.home = home
        self.bootstrap = plan.bootstrap
        self.brokers: list[Broker] = plan.all_brokers()
        self.postgres: Postgres = plan.postgres()

    @property
    def database(self) -> str:
        """The DSN; it names the file with the password, not the password."""
        return self.postgres.dsn()


@contextmanager
def stack(
    brokers: int | None = None, *, home: str | Path | None = None, ephemeral: bool = False
) -> Iterator[Stack]:
    """`redrive local up` and `down` around a block; what ran before is left running.

    An ephemeral stack has a temporary folder and ports of its own, which are gone at the end.
    Either way the processes end with this one, whatever ends it.
    """
    jars_home = folders.home(home)
    with _folder(jars_home, temporary=ephemeral) as folder:
        dog = None
        if not lifecycle.running(folder):
            dog = watchdog.start(folder, delete=ephemeral)
        started: list[Member] = []
        try:
            up = lifecycle.up(folder, Wish(brokers), jars_home=jars_home, short_lived=ephemeral)
            started = up.started
            yield Stack(up.plan, folder)
        finally:
            lifecycle.end_all(started, discard=ephemeral)
            if dog:
                dog.kill()
                dog.wait()


@contextmanager
def _folder(home: Path, *, temporary: bool) -> Iterator[Path]:
    if not temporary:
        yield home
        return
    folder = Path(tempfile.mkdtemp(prefix="redrive-"))
    folder.chmod(0o711)  # root's PostgreSQL runs as somebody else, who must pass through
    try:
        yield folder
    finally:
        lifecycle.down(folder, delete=True)
        shutil.rmtree(folder, ignore_errors=True)
