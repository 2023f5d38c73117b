"""The table: what is expected to be duplicated, delivery by delivery and point by point."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, Literal

from redrive.guarantees import Delivery

Moment = Literal[
    "no failure",
    "after POST and INSERT",
    "after produce",
    "after database commit",
    "consumer time-out",
]
Effect = Literal["POST", "INSERT", "PRODUCE"]
Effects = tuple[Effect, ...]

MOMENTS: Final[tuple[Moment, ...]] = (
    "no failure",
    "after POST and INSERT",
    "after produce",
    "after database commit",
    "consumer time-out",
)
EFFECTS: Final[tuple[Effect, ...]] = ("POST", "INSERT", "PRODUCE")


@dataclass(frozen=True)
class Row:
    """One delivery, used in one way."""

    name: str
    delivery: Delivery
    expected: dict[Moment, Effects | None] = field(hash=False)
    """None: there is no such point."""
    better: Effects | None = field(default=None, hash=False)
    """What a consumer time-out may duplicate instead: a process that learns in time that it lost
    its partition rolls back what it can."""
    own_ids: bool = False
    """Whether the handler sets ids on its outbound records: `ctx.send(..., id=...)`."""
    keys: bool = False
    """Whether the service honours `ctx.idempotency_key`."""


def _row(
    name: str,
    delivery: Delivery,
    *cells: str | None,
    better: str | None = None,
    own_ids: bool = False,
    keys: bool = False,
) -> Row:
    expected = {moment: effects(cell) for moment, cell in zip(MOMENTS, cells, strict=True)}
    return Row(name, delivery, expected, effects(better), own_ids, keys)


def effects(text: str | None) -> Effects | None:
    """`POST, INSERT` as effects; an empty string is none of them."""
    if text is None:
        return None
    return tuple(one for one in EFFECTS if one in text.split(", "))


ROWS: Final = (
    _row("at-least-once", "at-least-once",
         "", "POST, INSERT", "POST, INSERT, PRODUCE", None, "POST, INSERT, PRODUCE",
         better="POST, INSERT"),
    _row("idempotent", "idempotent",
         "", "POST", "POST, PRODUCE", "", ""),
    _row("outbox", "outbox",
         "", "POST", None, "POST, INSERT, PRODUCE", "POST, INSERT, PRODUCE", better="POST"),
    _row("idempotent+outbox", "idempotent+outbox",
         "", "POST", None, "", ""),
    _row("transaction", "transaction",
         "", "POST", "POST, INSERT", None, "POST, INSERT"),
    _row("outbox, with the user's ids", "outbox",
         "", "POST", None, "POST", "POST", own_ids=True),
    _row("at-least-once, service honours keys", "at-least-once",
         "", "INSERT", "INSERT, PRODUCE", None, "INSERT, PRODUCE", better="INSERT", keys=True),
)  # fmt: skip


@dataclass(frozen=True)
class Cell:
    """One delivery at one failure point: what was found, and what is expected."""

    row: Row
    moment: Moment
    found: Effects | None
    lost: Effects = ()
    note: str = ""

    @property
    def expected(self) -> Effects | None:
        """What is duplicated."""
        return self.row.expected[self.moment]

    @property
    def agrees(self) -> bool:
        """Whether it is as expected or known to be better, and nothing was lost."""
        return not self.lost and (self.found == self.expected or self.is_better)

    @property
    def is_better(self) -> bool:
        """Whether less is duplicated than the table says, for the reason it names."""
        known = self.row.better if self.moment == "consumer time-out" else None
        return known is not None and self.found == known


def told(found: Effects | None) -> str:
    """Effects as the table shows them."""
    if found is None:
        return "n/a"
    return ", ".join(found) or "none"


def markdown(cells: list[Cell]) -> str:
    """The table; a cell that differs says what was expected."""
    by_row: dict[str, dict[Moment, Cell]] = {}
    for cell in cells:
        by_row.setdefault(cell.row.name, {})[cell.moment] = cell
    lines = [
        "| delivery | " + " | ".join(MOMENTS) + " |",
        "|---" * (len(MOMENTS) + 1) + "|",
    ]
    for name, found in by_row.items():
        shown = [_shown(found[moment]) if moment in found else "" for moment in MOMENTS]
        lines.append(f"| {name} | " + " | ".join(shown) + " |")
    return "\n".join(lines)


def _shown(cell: Cell) -> str:
    text = told(cell.found)
    if cell.lost:
        text += f" (LOST: {', '.join(cell.lost)})"
    if cell.is_better:
        text += f" (better than: {told(cell.expected)})"
    elif cell.found != cell.expected:
        text += f" (expected: {told(cell.expected)})"
    return text
