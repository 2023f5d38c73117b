"""A home of its own for each test, with the jars of the machine's cache."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from redrive.local import folders, jars


@dataclass(frozen=True)
class Home:
    """Runs `redrive local` as a user would, in a folder nobody else uses."""

    folder: Path
    env: dict[str, str]

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.command(*arguments), env=self.env, capture_output=True, text=True, check=False
        )

    def begin(self, *arguments: str) -> subprocess.Popen[str]:
        pipe = subprocess.PIPE
        return subprocess.Popen(
            self.command(*arguments), env=self.env, stdout=pipe, stderr=pipe, text=True
        )

    def command(self, *arguments: str) -> list[str]:
        return [sys.executable, "-m", "redrive", "local", *arguments]

    def up(self, *arguments: str) -> dict:
        done = self.run("up", "--json", *arguments)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)


@pytest.fixture(scope="session")
def jar_cache() -> Path:
    jars.fetch("kafka")
    return folders.jars_folder()


@pytest.fixture(scope="session")
def make_home(tmp_path_factory, jar_cache: Path):
    def make() -> Home:
        folder = tmp_path_factory.mktemp("stack") / "home"
        own = {"REDRIVE_HOME": str(folder), "REDRIVE_JARS": str(jar_cache)}
        return Home(folder, os.environ | own)

    return make


@pytest.fixture
def home(make_home):
    made = make_home()
    yield made
    made.run("down", "--delete")
