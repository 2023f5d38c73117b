"""Where the embedded stack keeps its files."""

from __future__ import annotations

import os
from pathlib import Path

from redrive.errors import LocalError


def home(path: str | Path | None = None) -> Path:
    """The cache folder: the argument, else `REDRIVE_HOME`, else `~/.cache/redrive`."""
    chosen = path or os.environ.get("REDRIVE_HOME") or Path.home() / ".cache" / "redrive"
    return Path(chosen).expanduser().absolute()


def jars_folder(path: str | Path | None = None) -> Path:
    """Where jars are kept; `REDRIVE_JARS` lets several homes share one set."""
    override = os.environ.get("REDRIVE_JARS")
    return Path(override).expanduser().absolute() if override else home(path) / "jars"


def write_durably(file: Path, content: str, mode: int = 0o644) -> None:
    """Write a file, all or nothing, even if the machine loses power."""
    draft = file.with_name(f"{file.name}.new")
    draft.unlink(missing_ok=True)
    with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "w") as out:
        out.write(content)
        out.flush()
        os.fsync(out.fileno())
    draft.replace(file)


def usable(folder: Path) -> Path:
    """Create `folder`; a clear error if it cannot be written to."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        trial = folder / f".probe-{os.getpid()}"
        trial.touch()
        trial.unlink()
    except OSError as error:
        raise LocalError(
            f"The folder {folder} cannot be used ({error.strerror}); set REDRIVE_HOME to a folder"
            " that you can write to."
        ) from error
    return folder
