"""`redrive doctor`: checks that everything a run needs is there."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from typing import Annotated, Final

import typer
from rich.markup import escape

from redrive.app import App
from redrive.cli.doctor_database import check_database
from redrive.cli.doctor_machine import check_machine
from redrive.cli.finding import Finding, misconfigured, not_checked, ok
from redrive.cli.options import AsJson, Bootstrap, Database, Outage
from redrive.cli.output import terminal
from redrive.config import Settings, SettingsArguments, addresses, load_settings
from redrive.durations import milliseconds
from redrive.errors import RedriveError
from redrive.loading import load_app

_COLOURS: Final = {"ok": "green", "warning": "yellow", "wrong": "red", "not checked": "dim"}


def doctor(  # noqa: PLR0917 -- typer calls it by keyword; these are the command's options
    target: Annotated[
        str | None, typer.Argument(metavar="[MODULE:APP]", help="Such as shop:app.")
    ] = None,
    bootstrap: Bootstrap = None,
    database: Database = None,
    outage: Outage = "7d",
    probe: Annotated[
        bool,
        typer.Option("--probe", help="Create, write to and delete a topic, to measure clocks."),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Check Python, Java, jars, broker, database, topics, permissions and clocks.

    Each problem comes with what to do about it. Exit code 1 if anything would stop a run, 2 if the
    app or its settings are wrong.
    """
    arguments = addresses(bootstrap, database)
    findings: list[Finding] = []
    for finding in examine(target, arguments, milliseconds(outage), probe=probe):
        findings.append(finding)
        if not as_json:
            _show(finding)
    bad = [finding for finding in findings if finding.verdict == "wrong"]
    if as_json:
        lines = [dataclasses.asdict(finding) for finding in findings]
        typer.echo(json.dumps({"ok": not bad, "findings": lines}, indent=2))
    raise typer.Exit(_exit_code(bad))


def _exit_code(bad: list[Finding]) -> int:
    """As a run's would be: it looks at its configuration before it looks at the world."""
    if any(finding.is_configuration for finding in bad):
        return 2
    return 1 if bad else 0


def examine(
    target: str | None, arguments: SettingsArguments, outage: int, *, probe: bool = False
) -> Iterator[Finding]:
    """All findings, one by one: each is shown while the next check runs."""
    yield from check_machine()
    app, finding = _app(target)
    yield finding
    settings, finding = _settings(arguments, app)
    yield finding
    if settings is None:
        yield not_checked("broker", "the settings are wrong")
        yield not_checked("database", "the settings are wrong")
        return
    yield from _kafka(settings, app, outage, probe=probe)
    yield from check_database(settings.database, app, settings.ledger_schema)


def _kafka(settings: Settings, app: App | None, outage: int, *, probe: bool) -> Iterator[Finding]:
    from redrive.cli.doctor_kafka import check_kafka

    if settings.bootstrap is not None:
        yield from check_kafka(settings, app, outage, probe=probe)
    elif app is not None:
        todo = "--bootstrap host:port or REDRIVE_BOOTSTRAP"
        yield misconfigured("broker", "no address given", todo)
    else:
        yield not_checked("broker", "no address given (--bootstrap, REDRIVE_BOOTSTRAP)")


def _app(target: str | None) -> tuple[App | None, Finding]:
    if target is None:
        return None, not_checked("app", "no app given: run `redrive doctor module:app`")
    try:
        app = load_app(target)
        app.check()
    except RedriveError as error:
        return None, misconfigured("app", str(error), "fix it, then run `redrive doctor` again")
    return app, ok(
        "app",
        f"{app.name}: handles {', '.join(app.handlers)}, {app.delivery},"
        f" concurrency {app.concurrency}",
    )


def _settings(arguments: SettingsArguments, app: App | None) -> tuple[Settings | None, Finding]:
    given = [arguments] if app is None else [arguments, app.settings]
    try:
        return load_settings(*given), ok("settings", "no mistakes")
    except RedriveError as error:
        todo = "fix them: see docs/reference/settings.md"
        return None, misconfigured("settings", str(error), todo)


def _show(finding: Finding) -> None:
    console = terminal()
    colour = _COLOURS[finding.verdict]
    console.print(
        f"[{colour}]{finding.verdict:<11}[/] {escape(finding.subject)}: {escape(finding.seen)}",
        soft_wrap=True,
    )
    if finding.todo:
        console.print(f"{'':<11} -> {escape(finding.todo)}", soft_wrap=True)
