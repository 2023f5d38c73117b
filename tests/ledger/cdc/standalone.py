"""Kafka Connect from its ordinary jars: one worker with one connector."""

from __future__ import annotations

from contextlib import closing
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Final, Self

from redrive.local.jars import fetch
from redrive.local.java import find_java
from redrive.local.processes import Identity, alive, end, last_lines, spawn
from redrive.local.tcp_ports import free
from redrive.local.waiting import wait_until

JARS: Final = Path(__file__).with_name("jars.xml")


class Standalone:
    """One worker and one connector, by the jars of a configuration; ends with the block."""

    def __init__(
        self, jars: str, folder: Path, worker: dict[str, str], connector: dict[str, str]
    ) -> None:
        self._jars = jars
        self._name = connector["name"]
        self._port = free()
        self._log = folder / "connect.log"
        given = worker | {
            "listeners": f"http://127.0.0.1:{self._port}",
            "plugin.discovery": "service_load",  # twice as fast to start
            "offset.storage.file.filename": str(folder / "offsets"),
        }
        self._files = [_written(folder / "worker.properties", given)]
        self._files.append(_written(folder / "connector.properties", connector))
        self._process: Identity | None = None

    def __enter__(self) -> Self:
        jars = fetch(self._jars, coordinates=JARS)  # type: ignore[arg-type]  # -- not redrive's own
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
        place = f"/connectors/{self._name}/{what}"
        try:
            connection = HTTPConnection("127.0.0.1", self._port, timeout=30)
            with closing(connection):
                connection.request(method, place)
                return connection.getresponse().read().decode()
        except (HTTPException, OSError):
            return ""


def _written(file: Path, settings: dict[str, str]) -> Path:
    file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    return file
