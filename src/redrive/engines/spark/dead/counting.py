"""What a task that looks at letters does with its part of a dead topic: counts, or makes rows."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from redrive.config import Settings
from redrive.dead.dialects import dialect_named
from redrive.dead.filters import Filter
from redrive.dead.groups import Groups
from redrive.dead.letters import exported
from redrive.dead.scan import Found, Scan
from redrive.dead.showing import See, Seen
from redrive.dead.stats import Stats
from redrive.engines.spark.dead.parts import Part
from redrive.engines.spark.dead.sight import Sight
from redrive.kafka.log import KafkaLog

Form = Literal["json", "parquet"]
What = Literal["groups", "stats"] | Form

_SCAN: Final = "scan string"
"""What a task has scanned, in its last row, which has nothing else; null in all others."""
_HEADERS: Final = "array<struct<name string, value binary>>"
SCHEMAS: Final[dict[What, str]] = {
    "groups": f"{_SCAN}, number int, counted string",
    "stats": f"{_SCAN}, number int, counted string",
    "json": f"{_SCAN}, line string",
    "parquet": (
        f"{_SCAN}, place string, dialect string, died bigint, `group` string, reason string,"
        " error_type string, error_message string, app string, id string, origin string,"
        " attempt bigint, replay_of string, replay_count bigint, operation string, state string,"
        " operations array<string>, error_trace string, timestamp bigint, key binary, value binary,"
        f" headers {_HEADERS}"
    ),
}
_COLUMNS: Final[dict[What, int]] = {"groups": 2, "stats": 2, "json": 1, "parquet": 21}
"""How many there are besides what was scanned."""
Row = tuple[Any, ...]


@dataclass(frozen=True)
class Counting:
    """What all tasks of one command have to know; it travels pickled: there are passwords in it."""

    what: What
    settings: Settings
    group: str
    topic: str
    dialect: str
    wanted: Filter
    sight: Sight = field(default_factory=Sight)

    @property
    def schema(self) -> str:
        """What its rows are like."""
        return SCHEMAS[self.what]

    def rows(self, part: Part) -> Iterator[Row]:
        """Read a part; runs in a Python worker."""
        see = self.sight.see(self.settings)
        log = KafkaLog(self.settings, self.group)
        try:
            scan = Scan(
                log,
                self.topic,
                self.wanted,
                marks=part.marks,
                dialect=dialect_named(self.dialect),
                bounds={part.partition: (part.start, part.end)},
                see=see,
            )
            yield from self._rows(scan, part.number, see)
            yield (json.dumps(scan.result.as_data()), *[None] * _COLUMNS[self.what])
        finally:
            log.close()

    def _rows(self, scan: Scan, number: int, see: See) -> Iterator[Row]:
        if self.what == "json":
            yield from ((None, json.dumps(exported(found, Seen(found.letter)))) for found in scan)
        elif self.what == "parquet":
            yield from ((None, *columns(found)) for found in scan)
        else:
            yield (None, number, json.dumps(self._counted(scan, see)))

    def _counted(self, scan: Scan, see: See) -> Any:
        """What is found in a part, as data: bounded, however many letters there are."""
        if self.what == "stats":
            stats = Stats()
            for letter, state, _ in scan:
                stats.add(see(letter), state)
            return stats.as_data()
        groups = Groups(see)
        for letter, state, _ in scan:
            groups.add(letter, state)
        return [each.as_data() for each in groups.largest_first()]


def columns(found: Found) -> Row:
    """A letter as `exported` has it, but its bytes as they are."""
    letter, record = found.letter, found.letter.record
    return (
        *letter.as_data().values(),
        found.state,
        list(found.mark.operations) if found.mark else [],
        letter.error_trace,
        record.timestamp,
        record.key,
        record.value,
        [*letter.headers],
    )
