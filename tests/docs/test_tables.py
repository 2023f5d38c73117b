"""Tables of the docs say what the code does: compared, so that neither can drift from the other."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from redrive.decisions import REASONS
from redrive.engines.metrics import RunCollector
from redrive.engines.spark.metrics import SparkCollector
from redrive.engines.worker.metrics import WorkerCollector
from redrive.ledger.relay_metrics import RelayCollector

DOCS = Path(__file__).parents[2] / "docs"


def rows(page: str, first: str) -> list[list[str]]:
    """The rows of all tables of a page whose first column has that name, without code marks."""
    found: list[list[str]] = []
    in_table = False
    for line in (DOCS / page).read_text().splitlines():
        if not line.startswith("|"):
            in_table = False
            continue
        cells = [cell.strip().replace("`", "") for cell in line.strip("|").split("|")]
        if in_table and not set(line) <= set("|-"):
            found.append(cells)
        in_table = in_table or cells[0] == first
    assert found, f"{page} has no table of that kind"
    return found


def figures(page: str) -> list[tuple[str, str, tuple[str, ...]]]:
    found = []
    for name, how, meaning in rows(page, "figure"):
        kind, _, labels = how.partition(";")
        assert meaning
        found.append((name, kind, tuple(re.findall(r"\w+", labels))))
    return found


@pytest.mark.parametrize(
    ("page", "collectors"),
    [
        ("running.md", [RunCollector, SparkCollector]),
        ("worker.md", [WorkerCollector]),
        ("relay.md", [RelayCollector]),
    ],
)
def test_figures(page, collectors):
    declared = [
        (figure.name, figure.kind, figure.labels)
        for collector in collectors
        for figure in collector.FIGURES
    ]
    assert figures(page) == declared


def test_reasons_why_records_are_dead():
    assert {reason for reason, _ in rows("retry.md", "reason")} == set(REASONS)
