"""Tables of the docs say what the code does: compared, so that neither can drift from the other."""

from __future__ import annotations

import json
import logging
import re
from pathlib import Path

import pytest
import typer

from redrive.cli import app
from redrive.decisions import REASONS
from redrive.engines.cause_log import CauseLog
from redrive.engines.metrics import RunCollector
from redrive.engines.spark.metrics import SparkCollector
from redrive.engines.worker.metrics import WorkerCollector
from redrive.fingerprint import Fingerprint
from redrive.ledger.relay_metrics import RelayCollector
from redrive.logs import JsonLines
from redrive.processing.causes import Cause, Seen

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


def test_fields_of_log_lines():
    documented = {name for names, *_ in rows("running.md", "field") for name in names.split(", ")}
    lines: list[str] = []

    class Kept(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(JsonLines().format(record))

    log, kept = logging.getLogger("redrive.causes"), Kept()
    log.addHandler(kept)
    cause = Cause("bury", "orders", Fingerprint("rejected", "ValueError"))
    CauseLog("shop").take([Seen(cause, 1, 0, 0, trace="Traceback")])
    log.removeHandler(kept)
    (line,) = lines
    assert documented - {"stack", "any other"} == json.loads(line).keys()


@pytest.mark.parametrize(
    ("verb", "pages"), [("run", ["running.md", "worker.md"]), ("relay", ["relay.md"])]
)
def test_options_of_commands(verb, pages):
    text = "".join((DOCS / page).read_text() for page in pages)
    command = typer.main.get_command(app).commands[verb]
    options = [name for each in command.params for name in each.opts if name.startswith("--")]
    assert len(options) > 3
    assert [name for name in options if f"`{name}" not in text] == []
