"""`redrive console`: the web page for operators."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from redrive.app import App
from redrive.cli import output
from redrive.cli.options import Bootstrap
from redrive.config import SettingsArguments, load_settings
from redrive.dead.operator import FIX
from redrive.durations import milliseconds
from redrive.errors import ConfigurationError
from redrive.loading import load_app, load_object

if TYPE_CHECKING:
    from redrive.console import Access, Watched

TOKEN = "REDRIVE_CONSOLE_TOKEN"  # noqa: S105 -- the name of a variable
READ_TOKEN = "REDRIVE_CONSOLE_READ_TOKEN"  # noqa: S105 -- likewise
_SECURITY = "Who may see it"


def console(  # noqa: PLR0917 -- typer calls it by keyword; these are the command's options
    targets: Annotated[
        list[str] | None,
        typer.Argument(metavar="[MODULE:APP]...", help="Such as shop:app."),
    ] = None,
    app_name: Annotated[
        list[str] | None,
        typer.Option(
            help="An app by its name, without its code: values are not decoded; repeatable."
        ),
    ] = None,
    masked: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="A field to hide, for apps given by --app-name; repeatable.",
            rich_help_panel=_SECURITY,
        ),
    ] = None,
    bootstrap: Bootstrap = None,
    host: Annotated[
        str, typer.Option(help="Address to listen on; by default only this machine can connect.")
    ] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(min=0, max=65_535, help="Port to listen on; 0 picks a free one.")
    ] = 8484,
    watch: Annotated[
        list[str] | None,
        typer.Option(metavar="URL", help="Where a run or relay serves its metrics; repeatable."),
    ] = None,
    prometheus: Annotated[
        str | None,
        typer.Option(
            metavar="URL", help="Address of Prometheus, for charts of the hours before the start."
        ),
    ] = None,
    warn_after: Annotated[
        str,
        typer.Option(
            metavar="DURATION",
            help="How long a dead letter may wait for a decision before the page warns of it.",
        ),
    ] = "7d",
    fix: Annotated[
        list[str] | None,
        typer.Option(
            metavar="MODULE:FUNCTION", help="A fix that can be chosen on the page; repeatable."
        ),
    ] = None,
    resources: Annotated[
        str | None,
        typer.Option(metavar="MODULE:NAME", help="A dict of stand-ins for the app's resources."),
    ] = None,
    allow_host: Annotated[
        list[str] | None,
        typer.Option(
            help="Another host name the page may be requested under; repeatable.",
            rich_help_panel=_SECURITY,
        ),
    ] = None,
    proxy_user_header: Annotated[
        str | None,
        typer.Option(
            help="The header in which a reverse proxy names the user.", rich_help_panel=_SECURITY
        ),
    ] = None,
    proxy_from: Annotated[
        list[str] | None,
        typer.Option(
            help="Address or network of that proxy; repeatable.", rich_help_panel=_SECURITY
        ),
    ] = None,
    proxy_may_change: Annotated[
        bool,
        typer.Option(
            "--proxy-may-change",
            help="Let the proxy's users make changes; by default they can only look.",
            rich_help_panel=_SECURITY,
        ),
    ] = False,
) -> None:
    """Serve a web page for operators: flow, dead letters, parked records, replays.

    It prints a link with a token. REDRIVE_CONSOLE_TOKEN and REDRIVE_CONSOLE_READ_TOKEN set the
    tokens for changing and for looking.
    """
    try:
        from redrive.console import open_console
        from redrive.console.serving import prepared
    except ModuleNotFoundError as error:
        raise ConfigurationError(
            f"{error.name} is missing, which the console needs: pip install 'redrive[console]'"
        ) from None
    access = _access(allow_host, proxy_user_header, proxy_from, may_change=proxy_may_change)
    if masked and not app_name:
        raise ConfigurationError(
            "--masked is for apps that --app-name names: those with code say it themselves, with"
            " App(masked=...)"
        )
    letters_wait = milliseconds(warn_after)
    shown = open_console(
        _watched(targets or [], app_name or [], bootstrap, masked or []),
        access,
        watch=watch or (),
        fixes=fix or (),
        resources=_resources(resources),
        prometheus=prometheus,
        warn_after=letters_wait,
    )
    for each in fix or ():
        load_object(each, FIX)
    _run(prepared(shown, host, port), access, host)


def serve_apps(targets: list[str]) -> None:
    """Show apps by the settings of the environment, on any free port, until a signal comes."""
    from redrive.console import new_access, open_console
    from redrive.console.serving import prepared

    access = new_access()
    shown = open_console(_watched(targets, [], None), access)
    _run(prepared(shown, "127.0.0.1", 0), access, "127.0.0.1")


def _watched(
    targets: list[str], names: list[str], bootstrap: str | None, masked: Sequence[str] = ()
) -> list[Watched]:
    from redrive.console import Watched

    given: SettingsArguments = {} if bootstrap is None else {"bootstrap": bootstrap}
    apps = [load_app(each) for each in targets]
    found = [Watched(app, load_settings(given, app.settings)) for app in apps]
    found += [
        Watched(App(name, masked=masked), load_settings(given), has_code=False) for name in names
    ]
    if not found:
        raise ConfigurationError("name an app (shop:app), or one without code with --app-name")
    twice = {each.name for each in found if sum(one.name == each.name for one in found) > 1}
    if twice:
        raise ConfigurationError(f"named more than once: {', '.join(sorted(twice))}")
    for each in found:
        each.settings.servers()
    return found


def _access(
    hosts: list[str] | None, header: str | None, addresses: list[str] | None, *, may_change: bool
) -> Access:
    from redrive.console import Proxy, new_access

    if addresses and header is None:
        raise ConfigurationError("--proxy-from does nothing without --proxy-user-header")
    proxy = None
    if header is not None:
        role: Any = "change" if may_change else "read"
        proxy = Proxy(header=header, addresses=tuple(addresses or ()), role=role)
    environ = os.environ
    return new_access(environ.get(TOKEN), environ.get(READ_TOKEN), hosts or (), proxy)


def _resources(name: str | None) -> dict[str, object] | None:
    if name is None:
        return None
    found = load_object(name, "resources")
    if not isinstance(found, dict):
        raise ConfigurationError(f"{name} is not a dict of resources")
    return found


def _run(server: Any, access: Access, host: str) -> None:
    """Serve until a signal comes; the link is printed as soon as it can be followed."""
    import asyncio

    shown = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 -- compared
    try:
        asyncio.run(server.serve_and_say(lambda port: print_links(access, shown, port)))
    except KeyboardInterrupt:
        pass
    except SystemExit as end:
        if not end.code:  # a signal has ended it, and not the server
            raise
        raise ConfigurationError(
            f"the console cannot listen on {host}: choose another --port, or --host"
        ) from None


def print_links(access: Access, host: str, port: int) -> None:
    """Print how to log in: to change things, and to look only."""
    terminal = output.terminal(soft_wrap=True)
    host = f"[{host}]" if ":" in host else host
    for what, token, name in (
        ("to change things", access.change, TOKEN),
        ("to look only", access.read, READ_TOKEN),
    ):
        if os.environ.get(name):
            terminal.print(f"{what}: http://{host}:{port}/login with the token of {name}")
        else:
            terminal.print(f"{what}: http://{host}:{port}/login?token={token.reveal()}")
