"""Jars, named by coordinates in jars.xml and fetched once.

A set is complete if its manifest exists, was written for the current coordinates, and every file
it lists has its size. It is built in a separate folder and moved into place at the end, so a killed
download leaves nothing that counts as complete; what was downloaded stays in Ivy's cache.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from redrive.errors import LocalError
from redrive.local import archive, folders, ivy
from redrive.local.waiting import only_one

Configuration = Literal["kafka", "spark-kafka"]
Retrieve = Callable[[str, Path], None]

COORDINATES = Path(__file__).with_name("jars.xml")
MANIFEST = "manifest.json"
ATTEMPTS = 6
LOCK_SECONDS = 1800.0


@dataclass(frozen=True)
class JarSet:
    """The jars of one configuration, downloaded or not."""

    configuration: str
    folder: Path
    coordinates: Path = COORDINATES

    def complete(self) -> bool:
        """Cheap: sizes only."""
        manifest = self._manifest()
        return manifest is not None and all(
            _size(self.folder / name) == entry["size"] for name, entry in manifest.items()
        )

    def problems(self) -> list[str]:
        """Thorough: every hash, for `redrive doctor`."""
        manifest = self._manifest()
        if manifest is None:
            return [f"the {self.configuration} jars are not downloaded yet, or are out of date"]
        return [
            f"{name} is missing or damaged"
            for name, entry in manifest.items()
            if _size(self.folder / name) is None or _sha256(self.folder / name) != entry["sha256"]
        ]

    def files(self) -> list[Path]:
        return sorted(self.folder.glob("*.jar"))

    def seal(self, stage: Path) -> None:
        """Move a fully retrieved `stage` into place."""
        files = {
            jar.name: {"size": jar.stat().st_size, "sha256": _sha256(jar)}
            for jar in sorted(stage.glob("*.jar"))
        }
        content = {"coordinates": _sha256(self.coordinates), "files": files}
        (stage / MANIFEST).write_text(json.dumps(content, indent=1))
        shutil.rmtree(self.folder, ignore_errors=True)
        stage.rename(self.folder)

    def _manifest(self) -> dict[str, dict[str, object]] | None:
        try:
            content = json.loads((self.folder / MANIFEST).read_text())
            if content["coordinates"] != _sha256(self.coordinates):
                return None
            files: dict[str, dict[str, object]] = content["files"]
        except (OSError, ValueError, KeyError, TypeError):
            return None
        return files or None


def jar_set(configuration: Configuration, home: str | Path | None = None) -> JarSet:
    return JarSet(configuration, folders.jars_folder(home) / configuration)


def fetch(
    configuration: Configuration = "kafka",
    home: str | Path | None = None,
    *,
    coordinates: Path = COORDINATES,
    retrieve: Retrieve | None = None,
    attempts: int = ATTEMPTS,
    pause: Callable[[float], None] = time.sleep,
) -> list[Path]:
    """The jars of `configuration`, downloaded if any is missing; otherwise without network."""
    folder = folders.jars_folder(home)
    jars = JarSet(configuration, folder / configuration, coordinates)
    if jars.complete():
        return jars.files()
    folders.usable(folder)
    with only_one(folder / ".lock", LOCK_SECONDS):
        if not jars.complete():
            stage = folder / f".{configuration}.part"
            run = retrieve or ivy.retriever(coordinates, folder / ".ivy")
            _retrieve(configuration, stage, run, attempts, pause)
            jars.seal(stage)
            if configuration == "kafka" and retrieve is None:
                archive.make(jars.files())
    return jars.files()


def _retrieve(
    configuration: str,
    stage: Path,
    run: Retrieve,
    attempts: int,
    pause: Callable[[float], None],
) -> None:
    """Single look-ups fail now and then; each retry resumes from Ivy's cache."""
    for attempt in range(1, attempts + 1):
        shutil.rmtree(stage, ignore_errors=True)
        stage.mkdir(parents=True)
        try:
            run(configuration, stage)
        except ivy.RetrieveError as error:
            if attempt == attempts:
                raise LocalError(
                    f"The {configuration} jars could not be downloaded in {attempts} attempts"
                    f" ({error}); check the network and run it again: it resumes where it stopped."
                ) from error
            pause(float(attempt))
        else:
            return


def _size(file: Path) -> int | None:
    try:
        return file.stat().st_size
    except OSError:
        return None


def _sha256(file: Path) -> str:
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


if __name__ == "__main__":
    try:
        fetch()
    except LocalError as failure:
        sys.exit(f"redrive: {failure}")
