"""`redrive run --engine worker`: a worker in this process, shown until it ends."""

from __future__ import annotations

import os
import sys
from time import time
from typing import TYPE_CHECKING

from redrive.cli.output import console_for, say_error
from redrive.cli.stopping import Stopping
from redrive.cli.view import steps, summary, view
from redrive.config import SettingsArguments
from redrive.engines import preflight
from redrive.engines.worker.health import checks
from redrive.engines.worker.metrics import WorkerCollector
from redrive.engines.worker.options import Options
from redrive.engines.worker.worker import Worker, start_app
from redrive.errors import RedriveError
from redrive.logs import LogFormat
from redrive.serving import served

if TYPE_CHECKING:
    from rich.console import Console

_SHOW_EVERY = 0.25


def run_worker(
    target: str,
    options: Options,
    arguments: SettingsArguments,
    port: int | None,
    log_format: LogFormat,
) -> None:
    """Run it until it is stopped or has nothing left to do."""
    console = console_for(log_format)
    with Stopping() as stopping:
        with steps(console) as say:
            app, settings = preflight.load(target, "worker", arguments)
            say("checking Kafka")
            worker = start_app(app, settings, target, options)
        stopping.be_orderly()
        try:
            try:
                _follow(worker, console, stopping, port)
            finally:
                worker.stop(options.drain_seconds + 10)
        except RedriveError as error:
            if _has_lost_threads(worker):
                say_error(error)
                _end_at_once(1)
            raise
        for line in summary(worker, time()):
            console.print(line, markup=False, soft_wrap=True)
    if _has_lost_threads(worker):
        _end_at_once(0)


def _has_lost_threads(worker: Worker) -> bool:
    """Whether handlers are still running: at exit Python would wait for their threads forever."""
    return worker.left_behind or worker.counting.hung > 0


def _end_at_once(code: int) -> None:
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _follow(worker: Worker, console: Console, stopping: Stopping, port: int | None) -> None:
    with (
        served(port, WorkerCollector(worker), checks(worker)) as bound,
        view(console) as shown,
    ):
        if bound is not None:
            console.print(f"metrics: port {bound}, /metrics /live /ready")
        said = False
        while not worker.await_termination(_SHOW_EVERY):
            shown.show(worker)
            if stopping.wanted and not said:
                said = True
                console.print("stopping: running handlers may finish")
                worker.stop(0)
        shown.show(worker)
