"""PostgreSQL refuses to run as root: the user it runs as instead, and what that user can reach."""

from __future__ import annotations

import os
import pwd
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from redrive.errors import LocalError

CANDIDATES = ("postgres", "nobody")


@dataclass(frozen=True)
class Account:
    name: str
    uid: int
    gid: int

    def as_arguments(self) -> dict[str, Any]:
        """For `subprocess`: run as this user, without any of root's groups."""
        return {"user": self.uid, "group": self.gid, "extra_groups": []}

    def owns(self, path: Path) -> None:
        os.chown(path, self.uid, self.gid)

    def reaches(self, path: Path) -> bool:
        """Ask the kernel as that user: modes, ACLs and mounts all count."""
        test = ["test", "-r", str(path), "-a", "-x", str(path)]
        asked = subprocess.run(test, check=False, cwd="/", **self.as_arguments())
        return asked.returncode == 0


def unprivileged(data: Path) -> Account | None:
    """The current user unless it is root; then the owner of existing `data`, or a system user."""
    if os.geteuid() != 0:
        return None
    if data.exists() and (owner := data.stat().st_uid) != 0:
        entry = pwd.getpwuid(owner)
        return Account(entry.pw_name, entry.pw_uid, entry.pw_gid)
    for name in CANDIDATES:
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        return Account(name, entry.pw_uid, entry.pw_gid)
    raise LocalError(
        "PostgreSQL does not run as root and this machine has no user 'postgres' or 'nobody'; "
        "run redrive as an ordinary user."
    )
