"""Finding a Java that is new enough."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from redrive.errors import LocalError

MINIMUM = 17
ADVICE = (
    f"install Java {MINIMUM} or newer "
    "(Debian, Ubuntu: apt install openjdk-17-jre-headless; macOS: brew install openjdk@17) "
    "or point JAVA_HOME at one"
)


def find_java() -> Path:
    """The `java` to run, from JAVA_HOME or the PATH; the first that is new enough."""
    found: list[str] = []
    for candidate in _candidates():
        version = java_version(candidate)
        if version is not None and version >= MINIMUM:
            return candidate
        found.append(f"{candidate} is {'not a working Java' if version is None else version}")
    what = "; ".join(found) if found else "no java in JAVA_HOME or on the PATH"
    raise LocalError(f"Kafka needs Java {MINIMUM} or newer, but {what}: {ADVICE}.")


@cache
def java_version(java: Path) -> int | None:
    """The feature release (17 of `17.0.15`, 8 of `1.8.0_402`), or None if it does not run."""
    try:
        asked = subprocess.run(
            [java, "-version"], capture_output=True, text=True, timeout=30, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = re.search(r'version "(?:1\.)?(\d+)', asked.stderr + asked.stdout)
    return int(match.group(1)) if match else None


def _candidates() -> Iterator[Path]:
    if java_home := os.environ.get("JAVA_HOME"):
        yield Path(java_home) / "bin" / "java"
    if on_path := shutil.which("java"):
        yield Path(on_path)
