"""Bugs to be planted in a copy of the package: a test that cannot fail proves nothing.

For what only real processes show. Those that the ordinary tests catch are in tools/mutants.toml.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

import redrive


@dataclass(frozen=True, slots=True)
class Bug:
    """A text of a file below src/redrive, and what stands there instead."""

    file: str
    find: str
    replace: str

    def planted(self, folder: Path) -> Path:
        """A copy of the package with the bug in it; for PYTHONPATH."""
        copy = folder / "planted"
        package = Path(redrive.__file__).parent
        shutil.copytree(package, copy / "redrive", ignore=shutil.ignore_patterns("__pycache__"))
        (copy / "redrive" / self.file).write_text(self.text())
        return copy

    def text(self) -> str:
        """The file with the bug in it."""
        text = (Path(redrive.__file__).parent / self.file).read_text()
        assert text.count(self.find) == 1, f"{self.file} has no longer what the bug replaces"
        return text.replace(self.find, self.replace)


IDS_INSERTED_AFTER_THE_WORK = Bug(
    "delivery/unit.py",
    """            await self._claim(session)
            begin = monotonic()
            if self._lot.in_one_call:
                await self._call_together(session)
            else:
                await self._call_one_by_one(session, min(until, begin + UNIT_SECONDS))
""",
    """            begin = monotonic()
            if self._lot.in_one_call:
                await self._call_together(session)
            else:
                await self._call_one_by_one(session, min(until, begin + UNIT_SECONDS))
            await self._claim(session)
""",
)
OFFSETS_COMMITTED_FIRST = Bug(
    "engines/worker/loop.py",
    "            if self._dispatcher.offer(each.processor, taken):\n",
    # Every later commit says so too: the next one would take it back, sooner or later.
    """            each.position = lambda ahead=Position(taken[-1].offset + 1): ahead
            each.committed = None
            self._commits.commit_now([each])
            if self._dispatcher.offer(each.processor, taken):
""",
)
PROGRESS_COMMITTED_FIRST_ON_SPARK = Bug(
    "engines/spark/slices.py",
    "        self._received += len(records)",
    """        ahead = Position(records[-1].offset + 1)
        self.runtime.progress.commit({self.range.place: ahead})
        self._received += len(records)""",
)

BUGS = (
    IDS_INSERTED_AFTER_THE_WORK,
    OFFSETS_COMMITTED_FIRST,
    PROGRESS_COMMITTED_FIRST_ON_SPARK,
)
