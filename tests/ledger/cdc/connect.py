"""Kafka Connect with Debezium's connector on the outbox, as docs/reference/relay.md has it."""

from __future__ import annotations

import re
from contextlib import closing
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Final, Self

from redrive.local import Stack
from redrive.local.jars import fetch
from redrive.local.java import find_java
from redrive.local.processes import Identity, alive, end, last_lines, spawn
from redrive.local.tcp_ports import free
from redrive.local.waiting import wait_until

HERE: Final = Path(__file__).parent
DOCUMENT: Final = HERE.parents[2] / "docs" / "reference" / "relay.md"
NAME: Final = "shop-outbox"


class Connect:
    """One worker and one connector; ends with the block."""

    def __init__(self, stack: Stack, database: str, folder: Path, **changes: str) -> None:
        self._folder = folder
        self._port = free()
        self._log = folder / "connect.log"
        worker = documented("worker.properties") | {
            "bootstrap.servers": stack.bootstrap,
            "listeners": f"http://127.0.0.1:{self._port}",
            "plugin.discovery": "service_load",  # twice as fast to start
            "offset.storage.file.filename": str(folder / "offsets"),
        }
        connector = documented("outbox.properties") | {
            "name": NAME,
            "database.hostname": "127.0.0.1",
            "database.port": str(stack.postgres.port),
            "database.user": "redrive",
            "database.password": stack.postgres.password,
            "database.dbname": database,
            "slot.name": f"slot_{database}",
            **changes,
        }
        self._files = [_written(folder / "worker.properties", worker)]
        self._files.append(_written(folder / "outbox.properties", connector))
        self._process: Identity | None = None

    def __enter__(self) -> Self:
        jars = fetch("debezium", coordinates=HERE / "jars.xml")
        import redrive.local

        log4j = Path(redrive.local.__file__).with_name("log4j2.xml")
        command = [str(find_java()), "-Xmx512m", f"-Dlog4j2.configurationFile={log4j}"]
        command += ["-cp", ":".join(map(str, jars))]
        command += ["org.apache.kafka.connect.cli.ConnectStandalone", *map(str, self._files)]
        self._process = spawn(command, self._log)
        try:
            self.wait_for_state("RUNNING")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            end([self._process], ())

    def pause(self) -> None:
        self._ask("pause", "PUT")
        self.wait_for_state("PAUSED")

    def resume(self) -> None:
        self._ask("resume", "PUT")

    def wait_for_state(self, state: str) -> None:
        """Until its only task is in that state."""

        def reached() -> bool:
            if not alive(self._process):
                return True
            answer = self._ask("status", "GET")
            assert '"state":"FAILED"' not in answer, answer
            return answer.count(f'"state":"{state}"') == 2

        in_time = wait_until(reached, 120)
        assert in_time, f"not {state}; its log ends with:{last_lines(self._log)}"
        assert alive(self._process), f"Connect ended:{last_lines(self._log)}"

    def _ask(self, what: str, method: str) -> str:
        place = f"/connectors/{NAME}/{what}"
        try:
            connection = HTTPConnection("127.0.0.1", self._port, timeout=30)
            with closing(connection):
                connection.request(method, place)
                return connection.getresponse().read().decode()
        except (HTTPException, OSError):
            return ""


def documented(file: str) -> dict[str, str]:
    """A file of settings, as the documentation shows it."""
    text = DOCUMENT.read_text()
    shown = re.search(rf"```properties\n# {re.escape(file)}\n(.*?)```", text, re.DOTALL)
    assert shown is not None, f"docs/reference/relay.md shows no {file}"
    lines = (line.partition("=") for line in shown[1].splitlines() if "=" in line)
    return {name.strip(): value.strip() for name, _, value in lines}


def documented_sql() -> str:
    """How the database is prepared, as the documentation shows it."""
    shown = re.search(r"```sql\n(create publication.*?)```", DOCUMENT.read_text(), re.DOTALL)
    assert shown is not None
    return shown[1]


def _written(file: Path, settings: dict[str, str]) -> Path:
    file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    return file
