"""Tables of the docs say what the code does: compared, so that neither can drift from the other."""

from __future__ import annotations

import inspect
import json
import logging
import re
from pathlib import Path
from typing import get_args

import pytest
import typer

import redrive.spark
from redrive import Bury, Guard, config, field, policy
from redrive.app import App
from redrive.choices import Commit, Ordering
from redrive.cli.commands import app
from redrive.decisions import REASONS
from redrive.engines.cause_log import CauseLog
from redrive.engines.metrics import RunCollector
from redrive.engines.spark.frames import due_options
from redrive.engines.spark.metrics import SparkCollector
from redrive.engines.worker.metrics import WorkerCollector
from redrive.engines.worker.reader import worker_config
from redrive.envelope import ERROR_MESSAGE_BYTES, ERROR_TRACE_BYTES, HEADERS
from redrive.errors import ConfigurationError
from redrive.fingerprint import Fingerprint
from redrive.guarantees import GUARANTEES
from redrive.kafka.config import admin_config, consumer_config, producer_config
from redrive.ledger import migrating
from redrive.ledger.relay_metrics import RelayCollector
from redrive.logs import JsonLines
from redrive.processing.calls.context import BatchContext, Context
from redrive.processing.outcomes.causes import Cause, Seen
from redrive.processing.outcomes.report import Kind
from redrive.prove.table import MOMENTS, ROWS, told
from redrive.testing import Simulation, fixtures
from redrive.topics import plan_topics

DOCS = Path(__file__).parents[2] / "docs"


def sections(page: str) -> dict[str, str]:
    """The text of a page, by heading."""
    parts = re.split(r"^#+ (.+)$", (DOCS / page).read_text(encoding="utf-8"), flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def rows(page: str, first: str, heading: str | None = None) -> list[list[str]]:
    """The rows of all tables of a page whose first column has that name, without code marks."""
    text = (DOCS / page).read_text(encoding="utf-8") if heading is None else sections(page)[heading]
    found: list[list[str]] = []
    in_table = False
    for line in text.splitlines():
        if not line.startswith("|"):
            in_table = False
            continue
        cells = [cell.strip().replace("`", "") for cell in line.strip("|").split("|")]
        if in_table and not set(line) <= set("|-"):
            found.append(cells)
        in_table = in_table or cells[0] == first
    assert found, f"{page} has no table of that kind"
    return found


def figures(page: str, heading: str) -> list[tuple[str, str, tuple[str, ...]]]:
    found = []
    for name, how, meaning in rows(page, "metric", heading):
        kind, _, labels = how.partition(";")
        assert meaning
        found.append((name, kind, tuple(re.findall(r"\w+", labels))))
    return found


@pytest.mark.parametrize(
    ("heading", "collector", "elsewhere"),
    [
        ("Both engines", RunCollector, ()),
        ("Spark only", SparkCollector, RunCollector.FIGURES),
        ("Worker only", WorkerCollector, RunCollector.FIGURES),
        ("Relay", RelayCollector, ()),
    ],
)
def test_figures(heading, collector, elsewhere):
    declared = [
        (figure.name, figure.kind, figure.labels)
        for figure in collector.FIGURES
        if figure not in elsewhere
    ]
    assert figures("reference/metrics.md", heading) == declared


def written(default: object) -> str:
    """As tables write a default; an empty cell is none."""
    return '"' + default + '"' if isinstance(default, str) else repr(default)


def options(function: object, *without: str) -> list[tuple[str, str]]:
    return [
        (name, written(each.default))
        for name, each in inspect.signature(function).parameters.items()
        if name not in without and each.kind is not each.VAR_KEYWORD
    ]


@pytest.mark.parametrize(
    ("page", "heading", "function", "without"),
    [
        ("reference/handlers.md", "App options", App, ("name",)),
        ("reference/handlers.md", "Handler options", App.handler, ("self", "topic")),
        ("reference/retry.md", "Retry", policy.RetryPolicy, ()),
        ("how-to/outages.md", "What is an outage?", Guard, ("outage_on",)),
    ],
)
def test_options_of_functions_and_their_defaults(page, heading, function, without):
    shown = [(name, default) for name, default, _ in rows(page, "option", heading)]
    assert [each for each in shown if each[0] != "**settings"] == options(function, *without)


def verbs(command, path=("redrive",)):
    for name, each in getattr(command, "commands", {}).items():
        yield from verbs(each, (*path, name))
    if not hasattr(command, "commands"):
        yield " ".join(path), command


COMMANDS = dict(verbs(typer.main.get_command(app)))


def shown_options(command: str) -> list[tuple[str, str]]:
    """All options of the section of a command, and of those below it."""
    text = (DOCS / "reference/cli.md").read_text(encoding="utf-8")
    section = text.partition(f"\n## {command}\n")[2].partition("\n## ")[0]
    found = re.findall(r"^\| `(--[\w-]+)` \| (?:`([^`]*)`)? ?\| \S", section, re.MULTILINE)
    assert found, command
    return found


def declared_options(command) -> list[tuple[str, str]]:
    return [
        (name, str(each.default) if each.default not in (None, False) else "")
        for each in command.params
        for name in each.opts
        if name.startswith("--")
    ]


@pytest.mark.parametrize("command", COMMANDS)
def test_options_of_commands_and_their_defaults(command):
    declared, shown = declared_options(COMMANDS[command]), shown_options(command)
    if command.startswith("redrive dead "):  # what they share is shown once
        shown += [each for each in shown_options("redrive dead") if each in declared]
    assert sorted(shown) == sorted(declared)


@pytest.mark.parametrize("panel", ["Spark only", "Worker only"])
def test_options_of_one_engine_are_shown_as_such(panel):
    shown = {name for name, *_ in rows("reference/cli.md", "option", panel)}
    engine = panel.partition(" ")[0].lower()
    declared = {
        each.opts[0]
        for each in COMMANDS["redrive run"].params
        if engine in str(getattr(each, "rich_help_panel", "")).lower()
    }
    assert shown == declared


def test_exit_codes_of_all_commands_are_there():
    shown = [
        name for cell, *_ in rows("reference/exit-codes.md", "command") for name in cell.split(", ")
    ]
    assert sorted(shown) == sorted(COMMANDS)


def known_settings() -> set[str]:
    with pytest.raises(ConfigurationError) as mistakes:
        config.load_settings({"no such thing at all": 1}, environ={})
    return set(str(mistakes.value).partition("known settings: ")[2].split(", "))


def test_settings():
    shown = {
        name: variable for name, variable, _ in rows("reference/settings.md", "setting", "Settings")
    }
    tables = {"librdkafka": "", "spark": ""}
    variables = {name: "REDRIVE_" + name.upper().replace(".", "_") for name in known_settings()}
    assert shown == variables | tables


def test_mistakes_in_settings_are_reported_as_shown(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = '[security]\nprotocl = "SSL"\n[librdkafka]\nacks = 1\n'
    (tmp_path / "redrive.toml").write_text(text)
    with pytest.raises(ConfigurationError) as mistakes:
        config.load_settings(environ={"REDRIVE_DATABASE": ""})
    assert f"redrive: {mistakes.value}\n" in sections("reference/settings.md")["Errors"]


def is_refused(name: str) -> bool:
    try:
        config.load_settings({"librdkafka": {name: "1"}}, environ={})
    except ConfigurationError:
        return True
    return False


def test_settings_of_librdkafka_that_are_refused():
    text = sections("reference/settings.md")["librdkafka"].partition("redrive's own defaults")[0]
    cells = [line.split("|")[1] for line in text.splitlines() if line.startswith("| `")]
    shown = set(re.findall(r"`([\w.]+)`", "".join(cells)))
    settings = config.load_settings({"bootstrap": "kafka:9092"}, environ={})
    made = {*producer_config(settings), *consumer_config(settings, "shop")}
    assert shown >= {name for name in made if is_refused(name)}
    assert all(map(is_refused, shown))


def test_settings_of_librdkafka_and_their_defaults():
    settings = config.load_settings({"bootstrap": "kafka:9092"}, environ={})
    worker = worker_config(settings, "shop", "classic", None)
    of = {
        "producers": producer_config(settings),
        "consumers": consumer_config(settings, "shop"),
        "workers, classic protocol": worker,
        "administration": admin_config(settings),
    }
    text = sections("reference/settings.md")["librdkafka"].partition("redrive's own defaults")[2]
    lines = [line.strip("|").split("|") for line in text.splitlines() if line.startswith("| `")]
    assert len(lines) > 8
    for name, whose, default in lines:
        value = default.strip().partition(":")[0]
        assert str(of[whose.strip()][name.strip(" `")]) == value, name


def test_headers():
    assert [name for name, _ in rows("reference/headers.md", "header")] == list(HEADERS)
    sizes = dict(rows("reference/headers.md", "header"))
    assert f"{ERROR_MESSAGE_BYTES // 1024} KiB" in sizes["redrive-error-message"]
    assert f"{ERROR_TRACE_BYTES // 1024} KiB" in sizes["redrive-error-trace"]


def test_outcomes():
    shown = [name for name, *_ in rows("reference/outcomes.md", "outcome")]
    assert shown == ["done", *get_args(Kind)]


def test_reasons_why_records_are_dead():
    assert [reason for reason, *_ in rows("reference/outcomes.md", "reason")] == list(REASONS)


def fails(error: Exception) -> dict:
    def handler(record, ctx):
        raise error

    return {"handler": handler}


ENDINGS = {
    "exhausted": fails(OSError()),
    "expired": {**fails(OSError()), "retry": policy.RetryPolicy.every("1s", until="2s")},
    "rejected": fails(Bury("never")),
    "not-retryable": {**fails(OSError()), "retry": policy.RetryPolicy(bury_on=[OSError])},
    "undecodable": {"handler": print, "decode": json.loads},
    "no-id": {**fails(OSError()), "id": field("missing")},
    "conflict": {"handler": print, "id": lambda record: "always the same"},
}
"""How records come to these ends; the others take more than a handler."""


@pytest.mark.parametrize("reason", ENDINGS)
def test_whether_a_recovery_is_called(reason):
    how = dict(ENDINGS[reason])
    shop = App("shop", delivery="idempotent" if reason == "conflict" else "at-least-once")
    called = []
    shop.handler("orders", **{name: how[name] for name in how if name != "handler"})(how["handler"])
    shop.recover(lambda record, error, ctx: called.append(error))
    with Simulation(shop) as sim:
        for value in ("one", "two") if reason == "conflict" else ("one",):
            sim.send("orders", value)
        sim.run_until_empty()
        assert [dead.reason for dead in sim.dead] == [reason]
    shown = {name: answer for name, _, answer in rows("reference/outcomes.md", "reason")}
    assert shown[reason] == ("yes" if called else "no")


def test_deliveries():
    shown = {
        name: (store, how) for name, store, how, _ in rows("reference/delivery.md", "delivery=")
    }
    assert shown == {name: tuple(each) for name, each in GUARANTEES.items()}


def test_the_table_of_duplicates_is_what_prove_expects():
    shown = rows("explanation/guarantees.md", "delivery")
    assert shown == rows("prove/worker.md", "delivery") == rows("prove/spark.md", "delivery")
    expected = [[row.name, *(told(row.expected[each]) for each in MOMENTS)] for row in ROWS]
    assert shown == expected


def test_orderings():
    shown = {name for name, *_ in rows("explanation/order.md", "ordering")}
    assert shown == set(get_args(Ordering))


def test_options_of_the_source_of_due_records():
    with pytest.raises(ConfigurationError) as mistakes:
        due_options.read({"topics": "a.retry.5m", "no such thing at all": "1"})
    known = str(mistakes.value).partition("the options are ")[2].split(", ")
    assert [name for name, _ in rows("reference/frames.md", "option")] == known
    default = due_options.read({"topics": "a.retry.5m"})
    shown = dict(rows("reference/frames.md", "option"))
    assert shown["maxRecordsPerBatch"].startswith(f"{default.most:,} by default")


def test_outcomes_of_frames():
    shown = {name.partition("(")[0] for name, _ in rows("reference/frames.md", "outcome")}
    made = {"done", "send", "send_all", "park", "bury"}
    assert shown == made == made & set(redrive.spark.__all__)


def test_fixtures():
    shown = {name.partition("(")[0] for name, _ in rows("reference/local.md", "fixture")}
    brought = {name for name in vars(fixtures) if name.startswith("redrive_")}
    assert shown == brought


def test_tables_of_the_ledger():
    scripts = Path(migrating.__file__).parent
    text = "".join(
        path.read_text(encoding="utf-8")
        for path in (*scripts.glob("migrations/*.sql"), scripts / "migrating.py")
    )
    made = set(re.findall(r"create table (?:if not exists )?(\w+) \(", text))
    assert {name for name, _ in rows("reference/ledger.md", "table")} == made


def test_words_for_commits():
    shown = {name.split()[0].strip('"') for name, _ in rows("explanation/worker.md", "commit")}
    assert shown == set(get_args(Commit))


def test_settings_of_topics():
    topics = App("shop", retry=policy.RetryPolicy("5m"))
    topics.handler("orders")(print)
    plan = {each.role: each for each in plan_topics(topics, {}).topics}
    shown = {name for name, *_ in rows("reference/topics.md", "setting")}
    asked = {name for role in ("delay", "dead") for name in plan[role].problems[0].fix.config}
    assert shown - {"partitions", "replication"} == asked


def test_what_a_context_has():
    cells = " ".join(cell for cell, _ in rows("reference/handlers.md", "attribute"))
    public = {name for name in dir(Context) if not name.startswith("_")} - {"close"}
    assert set(re.findall(r"ctx\.(\w+)", cells)) == public
    text = sections("reference/handlers.md")["The context"]
    (line,) = re.findall(r"A batch handler's context has (.+?)\.\n", text, re.DOTALL)
    batch = {name for name in dir(BatchContext) if not name.startswith("_")}
    assert set(re.findall(r"`(\w+)", line)) == batch - {"close", "results", "failure_of"}


def test_what_a_simulation_has():
    cells = rows("reference/testing.md", "method") + rows("reference/testing.md", "attribute")
    shown = {name for cell, _ in cells for name in re.sub(r"\([^)]*\)", "", cell).split(", ")}
    shop = App("shop")
    shop.handler("orders")(print)
    with Simulation(shop) as sim:
        public = {name for name in dir(sim) if not name.startswith("_")}
    assert shown == public - {"app", "close"}


def test_fields_of_log_lines():
    documented = {
        name for names, *_ in rows("reference/logs.md", "field") for name in names.split(", ")
    }
    lines: list[str] = []

    class Kept(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(JsonLines().format(record))

    log, kept = logging.getLogger("redrive.causes"), Kept()
    log.addHandler(kept)
    cause = Cause("bury", "orders", Fingerprint("rejected", "ValueError"))
    CauseLog("shop").add([Seen(cause, 1, 0, 0, trace="Traceback")])
    log.removeHandler(kept)
    (line,) = lines
    assert documented - {"stack", "any other"} == json.loads(line).keys()
