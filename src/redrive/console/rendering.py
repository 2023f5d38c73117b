"""Rendering: pages from templates. Everything that comes from a record is escaped."""

from __future__ import annotations

from collections.abc import Mapping
from time import time
from typing import Any, Final

from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.responses import HTMLResponse

from redrive.console.trends import chart
from redrive.dead.copies import WHY
from redrive.dead.filters import age
from redrive.dead.showing import printable, time_text
from redrive.durations import text
from redrive.tuning import CONSOLE_DIFF_LINES, CONSOLE_VALUE

_SHORT: Final = 120


class Pages:
    """Renders pages, and parts of them."""

    def __init__(self) -> None:
        self._environment = Environment(
            loader=PackageLoader("redrive.console"),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._environment.filters |= {
            "ago": _ago,
            "count": lambda number: f"{number:,}",
            "duration": text,
            "rate": _rate,
            "removed": str.removeprefix,
            "safe_text": safe_text,
            "seconds": lambda value: "-" if value is None else f"{value:g} s",
            "short": _short,
            "time": time_text,
        }
        self._environment.globals |= {
            "chart": chart,
            "diff_lines": CONSOLE_DIFF_LINES,
            "why_left_out": WHY,
        }

    def page(self, name: str, status: int = 200, /, **values: Any) -> HTMLResponse:
        """A whole page."""
        return HTMLResponse(self.part(name, **values), status)

    def part(self, name: str, /, **values: Any) -> str:
        """A piece of HTML."""
        return self._environment.get_template(name).render(**values)


def safe_text(value: str) -> str:
    """Text of a record: bounded, with what would turn its direction escaped."""
    shown = printable(value[:CONSOLE_VALUE])
    left = len(value) - CONSOLE_VALUE
    return f"{shown}\n... and {left:,} characters more" if left > 0 else shown


def _short(value: str | None, length: int = _SHORT) -> str:
    line = " ".join(safe_text((value or "")[: 4 * length]).split())
    return line if len(line) <= length else f"{line[: length - 1]}\u2026"


def _ago(milliseconds: int | None) -> str:
    return "-" if milliseconds is None else age(int(time() * 1000) - milliseconds)


def _rate(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,.0f}/s" if value >= 10 or value == 0 else f"{value:.1f}/s"


def selected(fields: Mapping[str, list[str]]) -> dict[str, str]:
    """The fields of a form as it shows them again: the first of each."""
    return {name: values[0] for name, values in fields.items()}
