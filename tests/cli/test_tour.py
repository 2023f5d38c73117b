"""The README's tour, followed as it is written; only the app and its topics have other names.

What it shows in Python is run by the tests of the documentation.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from redrive.config import load_settings
from redrive.kafka.log import KafkaLog
from redrive.kafka.publisher import KafkaPublisher
from redrive.local.waiting import wait_until
from redrive.record import TopicPartition, Write

README = Path(__file__).parents[2] / "README.md"
ON_SPARK = ("--once", "--master", "local[3, 4]", "--spark-conf", "spark.ui.enabled=false")
"""What a test adds: an end, and few workers."""
ELSEWHERE = {
    "redrive local up": "the stack of all tests stands for it",
}


class Tour:
    """The folder of somebody who follows it."""

    def __init__(self, folder: Path, bootstrap: str, database: str, prefix: str) -> None:
        self._settings = load_settings({"bootstrap": bootstrap}, environ={})
        self._prefix = prefix
        self._folder = folder
        self._environment = {
            **os.environ,
            "REDRIVE_BOOTSTRAP": bootstrap,
            "REDRIVE_DATABASE": database,
        }
        text = README.read_text(encoding="utf-8")
        tour = text.partition("\n## Five minutes\n")[2].partition("\n## ")[0]
        (code,) = re.findall(r"^```python\n# shop.py\n(.*?)^```$", tour, re.MULTILINE | re.DOTALL)
        code = code.replace('App("items"', f'App("{prefix}"')
        (folder / "shop.py").write_text(code.replace('"item.', f'"{prefix}.item.'))
        lines = re.findall(r"^redrive [^#\n]+", tour, re.MULTILINE)
        self.commands = [line.strip() for line in lines]

    def begin(self, command: str) -> subprocess.Popen[str]:
        words = command.split()[1:]
        sparks = ON_SPARK if words[0] == "run" and "worker" not in words else ()
        return subprocess.Popen(
            [sys.executable, "-m", "redrive", *words, *sparks],
            cwd=self._folder,
            env=self._environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run(self, command: str) -> str:
        process = self.begin(command)
        said, _ = process.communicate()
        assert process.returncode == 0, said
        return said

    def send(self, topic: str, item: str) -> None:
        value = f'{{"id": "{item}", "status": "SOLD"}}'.encode()
        publisher = KafkaPublisher(self._settings)
        publisher.publish([Write(f"{self._prefix}.item.{topic}", item.encode(), value)])
        publisher.close()

    def updated(self) -> list[bytes | None]:
        """The keys of what was sent."""
        log = KafkaLog(self._settings, self._prefix)
        places = [TopicPartition(f"{self._prefix}.item.updated", number) for number in range(3)]
        found = [record.key for place in places for record in log.read(place, *log.bounds(place))]
        log.close()
        return found


@pytest.fixture
def tour(tmp_path, redrive_stack, redrive_database, redrive_prefix) -> Tour:
    return Tour(tmp_path, redrive_stack.bootstrap, redrive_database, redrive_prefix)


def test_the_tour_works_to_its_end(tour):
    commands = [command for command in tour.commands if command not in ELSEWHERE]
    correct, doctor, spark, worker = commands
    assert "not checked" not in (said := tour.run(correct))
    assert said.endswith("All topics are set up correctly.\n")
    tour.run(doctor)
    tour.send("create", "7")
    tour.send("update", "8")  # nobody has created it
    assert "main  lane: 1 done, 1 parked\n" in tour.run(spark)
    process = tour.begin(worker)
    try:
        tour.send("create", "9")
        # Its update may come first: then it is parked for five minutes, and one more is sent.
        assert wait_until(lambda: tour.send("update", "9") or tour.updated(), timeout=60)
        process.send_signal(signal.SIGINT)
        said, _ = process.communicate()
    finally:
        process.kill()
    assert process.returncode == 0, said
    assert set(tour.updated()) == {b"9"}
