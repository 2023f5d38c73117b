"""Lost tasks: how did they end? Only the death of a task's own Python worker is held against it.

A task runs in its first attempt only. Those after it run nothing: they tell the driver what was
lost with the first, and the driver asks Spark how that ended. An executor that was lost, a worker
that did not start and an error that was raised say nothing about a record.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Sequence
from threading import Event
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

from redrive.engines.spark.ranges import Range
from redrive.engines.spark.runtime import load
from redrive.engines.spark.spark_session import last_line
from redrive.engines.spark.spec import Spec
from redrive.errors import RedriveError
from redrive.kafka.progress import KafkaProgress
from redrive.ports import Position, Progress
from redrive.processing.progress.notes import BEGUN, noted
from redrive.tuning import LOST_EXECUTOR_PATIENCE, LOST_TASK_PATIENCE, LOST_TASK_PAUSE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log: Final = logging.getLogger("redrive.spark")

DEATH: Final = "org.apache.spark.SparkException: Python worker exited unexpectedly"
_RAISED: Final = "org.apache.spark.api.python.PythonException"
_DRIVER: Final = "driver"
"""What Spark calls the one executor of a session without a cluster."""
_BEGINNING: Final = '{"lost"'
_ALL: Final = 1_000_000
_LONGEST: Final = 300

HowItEnded = Callable[[int, int], str]
"""What Spark says of the first attempt of a task, by stage and partition; empty: nothing."""


def label(run: str, stage: int, task: int) -> str:
    """Names a task: numbers of stages are repeated by the next run."""
    return f"{run}.{stage}.{task}"


def tell(spec: Spec, ranges: Sequence[Range], stage: int, task: int) -> str:
    """What was lost with the first attempt of a task; this is called in a later one."""
    name = label(spec.run, stage, task)
    begun = is_begun(ranges, name, lambda: KafkaProgress(spec.settings, load(spec).name))
    return told(ranges, stage, task, begun=begun)


def told(ranges: Sequence[Range], stage: int, task: int, *, begun: bool) -> str:
    """The same, as it travels to the driver."""
    listed = [[each.topic, each.partition, each.start, each.end] for each in ranges]
    return json.dumps({"lost": [stage, task], "ranges": listed, "begun": begun})


def is_begun(ranges: Sequence[Range], task: str, progress: Callable[[], Progress]) -> bool:
    """Whether the first attempt had come as far as the one record that it had."""
    (first, *others) = ranges
    if others or not first.is_one_alone:
        return False
    try:
        at = progress().committed([first.place]).get(first.place, Position(-1))
    except RedriveError:
        return False  # not known: no proof
    return at.offset == first.start and noted(at, BEGUN) == task


def replaced(texts: Sequence[str], how_it_ended: HowItEnded) -> list[str]:
    """The reports of a batch, with one for each task that was lost."""
    kept = [text for text in texts if not text.startswith(_BEGINNING)]
    lost = [json.loads(text) for text in texts if text.startswith(_BEGINNING)]
    return kept + [_report(each, how_it_ended(*each["lost"])) for each in lost]


def _report(lost: dict[str, Any], end: str) -> str:
    """A report as other tasks give it, of a task that did nothing."""
    where = ", ".join(f"{topic}[{number}]@{start}" for topic, number, start, _ in lost["ranges"])
    report: dict[str, Any] = {"counts": {}, "lateness": [], "trouble": "", "fatal": ""}
    if end.startswith(DEATH):
        report["died"] = {"ranges": lost["ranges"], "begun": lost["begun"]}
        report["trouble"] = (
            f"a Python worker died with the records from {_shortened(where)} on: they are run"
            " again, in parts, until it is known which one kills it, if any does"
        )
    elif end.startswith(_RAISED):
        report["fatal"] = f"a task failed: {last_line(Exception(end))}"
    else:
        how = end.partition("\n")[0] or "Spark does not say how"
        report["trouble"] = (
            f"a task was lost with the records from {_shortened(where)} on ({_shortened(how)}):"
            " they run again, and no attempt is counted"
        )
    return json.dumps(report)


def _shortened(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."


def asked_of(spark: SparkSession) -> HowItEnded:
    """Ask this session's own record of its tasks, which it keeps with or without its web page."""
    watched: dict[str, int] = {}

    def how_it_ended(stage: int, task: int) -> str:
        try:
            store = spark.sparkContext._jsc.sc().statusStore()  # noqa: SLF001 -- Java's
            return _asked(store, stage, task, watched)
        except Exception:
            log.warning("Spark does not say how a task ended", exc_info=True)
            return ""

    return how_it_ended


def _asked(store: Any, stage: int, task: int, watched: dict[str, int]) -> str:
    """`watched` has the executors that were not lost after the end of a stage, by that stage."""
    end = monotonic() + LOST_TASK_PATIENCE
    while (found := _of_first_attempt(store, stage, task)) is None:
        if monotonic() >= end:
            return ""
        Event().wait(LOST_TASK_PAUSE)
    told, executor = found
    is_death = told.startswith(DEATH) and executor != _DRIVER
    if is_death and _is_lost(store, executor, stage, watched):
        return f"executor {executor} was lost together with its Python worker"
    return told


def _is_lost(store: Any, executor: str, stage: int, watched: dict[str, int]) -> bool:
    """Whether an executor is gone, or is within the time that the driver needs to notice.

    All tasks of a stage have ended when the first is asked about: one wait is enough for them. It
    says nothing about those of a later one: by then the executor may be about to end.
    """
    patience = 0.0 if watched.get(executor) == stage else LOST_EXECUTOR_PATIENCE
    end = monotonic() + patience
    while store.executorSummary(executor).isActive():
        if monotonic() >= end:
            watched[executor] = stage
            return False
        Event().wait(LOST_TASK_PAUSE)
    return True


def _of_first_attempt(store: Any, stage: int, task: int) -> tuple[str, str] | None:
    """How it ended, and on which executor."""
    tasks = store.taskList(stage, 0, _ALL)
    for number in range(tasks.size()):
        each = tasks.apply(number)
        if each.index() == task and each.attempt() == 0 and each.errorMessage().isDefined():
            return str(each.errorMessage().get()), str(each.executorId())
    return None
