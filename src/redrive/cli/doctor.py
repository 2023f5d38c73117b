"""`redrive doctor`: whether everything is there that a run needs."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from typing import Annotated, Final

import typer
from rich.console import Console
from rich.markup import escape

from redrive.app import App
from redrive.cli.doctor_database import check_database
from redrive.cli.doctor_machine import check_machine
from redrive.cli.finding import Finding, not_checked, ok, wrong
from redrive.config import Settings, SettingsArguments, load_settings
from redrive.durations import milliseconds
from redrive.errors import RedriveError
from redrive.loading import load_app

_COLOURS: Final = {"ok": "green", "warning": "yellow", "wrong": "red", "not checked": "dim"}


def doctor(  # noqa: PLR0917 -- typer calls it by keyword; these are the command's options
    target: Annotated[
        str | None, typer.Argument(metavar="[MODULE:APP]", help="Such as shop:app.")
    ] = None,
    bootstrap: Annotated[str | None, typer.Option(help="Address of Kafka: host:port.")] = None,
    database: Annotated[str | None, typer.Option(help="Address of PostgreSQL.")] = None,
    outage: Annotated[
        str, typer.Option(help="The longest outage that parked records shall outlive.")
    ] = "7d",
    probe: Annotated[
        bool, typer.Option("--probe", help="Make, write and delete a topic: measures clocks.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Check Python, Java, jars, broker, database, topics, permissions and clocks.

    Each line says what to do where it is not right. Exit code 1 if anything would stop a run.
    """
    arguments: SettingsArguments = {}
    if bootstrap is not None:
        arguments["bootstrap"] = bootstrap
    if database is not None:
        arguments["database"] = database
    findings: list[Finding] = []
    for finding in examine(target, arguments, milliseconds(outage), probe=probe):
        findings.append(finding)
        if not as_json:
            _show(finding)
    healthy = not any(finding.verdict == "wrong" for finding in findings)
    if as_json:
        lines = [dataclasses.asdict(finding) for finding in findings]
        typer.echo(json.dumps({"ok": healthy, "findings": lines}, indent=2))
    raise typer.Exit(0 if healthy else 1)


def examine(
    target: str | None, arguments: SettingsArguments, outage: int, *, probe: bool = False
) -> Iterator[Finding]:
    """All findings, one by one: what was found is shown while the next is looked for."""
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
        yield wrong("broker", "no address is given", "--bootstrap host:port or REDRIVE_BOOTSTRAP")
    else:
        yield not_checked("broker", "no address is given (--bootstrap, REDRIVE_BOOTSTRAP)")


def _app(target: str | None) -> tuple[App | None, Finding]:
    if target is None:
        return None, not_checked("app", "none was named: redrive doctor module:app")
    try:
        app = load_app(target)
        app.check()
    except RedriveError as error:
        return None, wrong("app", str(error), "correct it, then ask again")
    return app, ok("app", f"{app.name}: handles {', '.join(app.handlers)}, {app.delivery}")


def _settings(arguments: SettingsArguments, app: App | None) -> tuple[Settings | None, Finding]:
    given = [arguments] if app is None else [arguments, app.settings]
    try:
        return load_settings(*given), ok("settings", "no mistakes")
    except RedriveError as error:
        return None, wrong("settings", str(error), "correct them: docs/configuration.md")


def _show(finding: Finding) -> None:
    console = Console(highlight=False)
    colour = _COLOURS[finding.verdict]
    console.print(
        f"[{colour}]{finding.verdict:<11}[/] {escape(finding.subject)}: {escape(finding.seen)}",
        soft_wrap=True,
    )
    if finding.todo:
        console.print(f"{'':<11} -> {escape(finding.todo)}", soft_wrap=True)
