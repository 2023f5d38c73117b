"""`redrive parked`: what waits in an app's delay topics."""

from __future__ import annotations

import json
from time import time
from typing import Annotated

import typer
from rich.console import Console

from redrive.config import SettingsArguments, load_settings
from redrive.dead.parked import Parked
from redrive.dead.parked import parked as look
from redrive.dead.showing import printable
from redrive.durations import text
from redrive.loading import load_app


def parked(
    target: Annotated[str, typer.Argument(metavar="MODULE:APP", help="Such as shop:app.")],
    bootstrap: Annotated[str | None, typer.Option(help="Address of Kafka: host:port.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Show what waits for another attempt: per delay how many, when the next is due, and why."""
    from redrive.kafka.log import KafkaLog
    from redrive.kafka.progress import KafkaProgress

    app = load_app(target)
    given: SettingsArguments = {} if bootstrap is None else {"bootstrap": bootstrap}
    settings = load_settings(given, app.settings)
    log = KafkaLog(settings, app.name)
    found = [*look(app, log, KafkaProgress(settings, app.name, stable=False))]
    if as_json:
        typer.echo(json.dumps({"parked": [each.as_data() for each in found]}, indent=2))
        return
    console = Console(highlight=False)
    for each in found:
        for line in _lines(each, int(time() * 1000)):
            console.print(line, markup=False, soft_wrap=True)
    if not found:
        console.print("the app has no delay topics", markup=False)


def _lines(found: Parked, now: int) -> list[str]:
    if not found.count:
        return [f"{found.topic}: nothing"]
    seconds = ((found.next_due or 0) - now) // 1000
    due = f"in {text(seconds * 1000)}" if seconds > 0 else "now"
    return [
        f"{found.topic}: {found.count:,} waiting, next due {due}",
        *(
            f"  {count:,} x {printable(error)} (group {group})"
            for (group, error), count in found.groups.most_common(10)
        ),
    ]
