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
    own_ids: bool = False
    """Whether the handler gives its outbound records ids: `ctx.send(..., id=...)`."""
    keys: bool = False
    """Whether the service honours `ctx.idempotency_key`."""


def _row(
    name: str,
    delivery: Delivery,
    *cells: str | None,
    own_ids: bool = False,
    keys: bool = False,
) -> Row:
    expected = {moment: effects(cell) for moment, cell in zip(MOMENTS, cells, strict=True)}
    return Row(name, delivery, expected, own_ids, keys)


def effects(text: str | None) -> Effects | None:
    """`POST, INSERT` as effects; nothing is none of them."""
    if text is None:
        return None
    return tuple(one for one in EFFECTS if one in text.split(", "))


ROWS: Final = (
    _row("at-least-once", "at-least-once",
         "", "POST, INSERT", "POST, INSERT, PRODUCE", None, "POST, INSERT, PRODUCE"),
    _row("idempotent", "idempotent",
         "", "POST", "POST, PRODUCE", "", ""),
    _row("outbox", "outbox",
         "", "POST", None, "POST, INSERT, PRODUCE", "POST, INSERT, PRODUCE"),
    _row("idempotent+outbox", "idempotent+outbox",
         "", "POST", None, "", ""),
    _row("transaction", "transaction",
         "", "POST", "POST, INSERT", None, "POST, INSERT"),
    _row("outbox, with the user's ids", "outbox",
         "", "POST", None, "POST", "POST", own_ids=True),
    _row("at-least-once, service honours keys", "at-least-once",
         "", "INSERT", "INSERT, PRODUCE", None, "INSERT, PRODUCE", keys=True),
)  # fmt: skip


@dataclass(frozen=True)
class Cell:
    """One delivery at one failure point: what was found beside what is expected."""

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
        """Whether it is as expected, and nothing was lost."""
        return self.found == self.expected and not self.lost


def told(found: Effects | None) -> str:
    """Effects in the table's words."""
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
    if cell.found != cell.expected:
        text += f" (expected: {told(cell.expected)})"
    return text
