"""The stack as a context manager, for programs and fault tests."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

from redrive.config import SettingsArguments
from redrive.errors import LocalError
from redrive.local import folders, lifecycle, watchdog
from redrive.local.broker import Broker
from redrive.local.clients import client_config
from redrive.local.member import Member
from redrive.local.plan import Plan, Wish
from redrive.local.postgres import Postgres
from redrive.local.securing import Securing, checked_name
from redrive.local.users import Users
from redrive.permissions import Permission


class Stack:
    """A running Kafka and PostgreSQL.

    `brokers` and `postgres` can be killed, stopped and started again, each by itself.
    """

    def __init__(self, plan: Plan, home: Path) -> None:
        self.home = home
        self.bootstrap = plan.bootstrap
        self.brokers: list[Broker] = plan.all_brokers()
        self.postgres: Postgres = plan.postgres()
        self._plan = plan

    @property
    def database(self) -> str:
        """The DSN; it names the file with the password, not the password."""
        return self.postgres.dsn()

    @property
    def settings(self) -> SettingsArguments:
        """Where Kafka is and how the administrator logs in, for `App(**...)` and the like."""
        securing = self._plan.securing
        if securing is None:
            return {"bootstrap": self.bootstrap}
        return {"bootstrap": self.bootstrap, "security": securing.by_password()}

    def add_user(
        self, name: str, permissions: Iterable[Permission] = (), *, certificate: bool = False
    ) -> SettingsArguments:
        """Create a user of a secured stack with only these permissions; returns its settings.

        It logs in with its own password; with `certificate`, by mutual TLS instead.
        """
        securing = self._securing()
        checked_name(name)
        if not certificate:
            self.users.add(name, securing.new_password(name))
        self.users.grant(name, permissions)
        if certificate:
            where, security = self._plan.tls_bootstrap, securing.by_certificate(name)
        else:
            where, security = self.bootstrap, securing.by_password(name)
        return {"bootstrap": where, "security": security}

    @cached_property
    def users(self) -> Users:
        """Who may do what on a secured stack."""
        self._securing()
        return Users(self.client())

    def client(self, settings: SettingsArguments | None = None) -> dict[str, Any]:
        """Settings for a confluent_kafka client: the administrator's by default.

        They contain secrets: never print them.
        """
        given = self.settings if settings is None else settings
        return client_config(given["bootstrap"], given.get("security", {}))

    def _securing(self) -> Securing:
        if self._plan.securing is None:
            raise LocalError("This stack is not secured; `stack(secure=True)` starts one that is.")
        return self._plan.securing


@contextmanager
def stack(
    brokers: int | None = None,
    *,
    home: str | Path | None = None,
    ephemeral: bool = False,
    secure: bool = False,
) -> Iterator[Stack]:
    """`redrive local up` and `down` around a block; what was running before stays running.

    An ephemeral stack has its own temporary folder and ports, which are gone at the end.
    Either way its processes end with this one, whatever ends it. A secured one has TLS, users with
    passwords or certificates, and permissions.
    """
    jars_home = folders.home(home)
    wish = Wish(brokers, secure=secure or None)
    with _folder(jars_home, temporary=ephemeral) as folder:
        dog = None
        if not lifecycle.running(folder):
            dog = watchdog.start(folder, delete=ephemeral)
        started: list[Member] = []
        try:
            up = lifecycle.up(folder, wish, jars_home=jars_home, short_lived=ephemeral)
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
