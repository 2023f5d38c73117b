"""Running the Ivy that ships inside pyspark: coordinates in, jars out.

Ivy's own defaults say where jars come from, so no repository address is written down here.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterable
from importlib.util import find_spec
from pathlib import Path
from typing import IO

from redrive.errors import LocalError
from redrive.local.java import find_java


class RetrieveError(Exception):
    """One run of Ivy did not fetch everything; another may."""


def retriever(coordinates: Path, cache: Path) -> Callable[[str, Path], None]:
    """A function that puts the jars of a configuration into a folder, resuming from `cache`."""
    java, jars = find_java(), class_path()

    def retrieve(configuration: str, target: Path) -> None:
        command = [str(java), *_network_options(), f"-Divy.default.ivy.user.dir={cache}"]
        command += ["-cp", jars, "org.apache.ivy.Main", "-ivy", str(coordinates)]
        command += ["-confs", configuration, "-types", "jar", "bundle"]
        command += ["-retrieve", f"{target}/[artifact]-[revision](-[classifier]).[ext]"]
        run_ivy(command, configuration, target)

    return retrieve


def _network_options() -> list[str]:
    # Without time-outs a silent connection would hang the download forever.
    return [
        "-Djava.net.preferIPv4Stack=true",
        "-Dsun.net.client.defaultConnectTimeout=20000",
        "-Dsun.net.client.defaultReadTimeout=60000",
    ]


def class_path() -> str:
    """Only Ivy and what it needs: with all of Spark's jars it would be ten times slower."""
    spec = find_spec("pyspark")
    if spec is None or not spec.submodule_search_locations:
        raise LocalError("Downloading Kafka's jars needs pyspark: pip install 'redrive[local]'.")
    jars = Path(spec.submodule_search_locations[0]) / "jars"
    found = [*jars.glob("ivy-*.jar"), *jars.glob("commons-cli-*.jar")]
    if len(found) < 2:
        raise LocalError(f"{jars} contains no Ivy; reinstall with: pip install 'redrive[local]'.")
    return ":".join(str(jar) for jar in found)


def run_ivy(command: list[str], configuration: str, target: Path) -> None:
    """Run the command, and show how far it is; RetrieveError if it failed, or fetched nothing."""
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    ) as process:
        try:
            problem = follow(process.stdout or (), Progress(configuration))
        except BaseException:
            process.kill()
            raise
    if process.returncode != 0 or not any(target.glob("*.jar")):
        raise RetrieveError(problem or f"Ivy ended with code {process.returncode}")


def follow(output: Iterable[str], progress: Progress) -> str:
    """Show progress; returns the last problem that Ivy reported."""
    problem = ""
    for line in output:
        text = line.strip()
        if text.startswith("found "):
            progress.found()
        elif text.startswith("[SUCCESSFUL ]"):
            progress.fetched()
        elif "[FAILED" in text or "unresolved dependency" in text or "ERROR" in text:
            problem = text
    progress.close()
    return problem


class Progress:
    """A counting line on a terminal; a line now and then elsewhere."""

    def __init__(self, configuration: str, out: IO[str] | None = None, every: int = 10) -> None:
        self._out = out or sys.stderr
        self._what = configuration
        self._every = 1 if self._out.isatty() else every
        self._found = self._fetched = 0
        self._show()

    def found(self) -> None:
        self._found += 1
        if self._found % self._every == 0:
            self._show()

    def fetched(self) -> None:
        self._fetched += 1
        if self._fetched % self._every == 0:
            self._show()

    def close(self) -> None:
        self._show(end="\n")

    def _show(self, end: str | None = None) -> None:
        ending = end or ("" if self._out.isatty() else "\n")
        start = "\r" if self._out.isatty() else ""
        counts = f"{self._found} found, {self._fetched} downloaded"
        self._out.write(f"{start}downloading the {self._what} jars: {counts}{ending}")
        self._out.flush()
