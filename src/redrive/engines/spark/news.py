"""News: what became of a lane's last batch, from the driver to the planner.

The planner is in a process of its own, and plans after the batch has ended: a file is enough.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from redrive.record import TopicPartition


class News(NamedTuple):
    """What became of a batch."""

    died: Sequence[Mapping[str, Any]] = ()
    """The ranges of each task whose own Python worker died, and whether it had begun with one."""
    ends: Mapping[TopicPartition, int] = MappingProxyType({})
    """How far its tasks have committed."""
    slots: int = 0
    """How many tasks can run at once now; 0 if that is not known."""
    refused: Mapping[TopicPartition, tuple[int, Sequence[Sequence[str]]]] = MappingProxyType({})
    """How many records of a partition wait for topics that refuse writes, and for which."""

    @classmethod
    def of(cls, reports: Iterable[Mapping[str, Any]], slots: int = 0) -> News:
        """The news in the reports of a batch."""
        died = [report["died"] for report in reports if "died" in report]
        ends = {
            TopicPartition(report["topic"], report["partition"]): report["end"]
            for report in reports
            if "topic" in report
        }
        refused = {
            TopicPartition(report["topic"], report["partition"]): (
                report["refused"],
                report["refusals"],
            )
            for report in reports
            if report.get("refused")
        }
        return cls(died, ends, slots, refused)

    def write(self, path: Path) -> None:
        """Leave them for the planner."""
        ends = [[*place, end] for place, end in self.ends.items()]
        refused = [[*place, *waiting] for place, waiting in self.refused.items()]
        path.write_text(json.dumps([self.died, ends, self.slots, refused]))

    @classmethod
    def taken_from(cls, path: Path) -> News:
        """What the driver has left, once."""
        try:
            died, ends, slots, refused = json.loads(path.read_text())
        except FileNotFoundError:
            return cls()
        path.unlink()
        return cls(
            died,
            {TopicPartition(topic, number): end for topic, number, end in ends},
            slots,
            {TopicPartition(topic, number): tuple(waiting) for topic, number, *waiting in refused},
        )
