"""What `redrive run` shows: a live view in a terminal, else a line per batch; then a summary."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from time import monotonic, time
from types import TracebackType
from typing import Any, Final, Protocol, Self

from rich.console import Console, Group
from rich.live import Live
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from redrive.durations import text
from redrive.engines.ahead import Ahead
from redrive.engines.figures import Batch, Figures, LaneFigures
from redrive.engines.metrics import Source
from redrive.engines.words import LaneName
from redrive.numbers import counted

WORDS: Final = {
    "done": "done",
    "park": "parked",
    "bury": "dead",
    "discard": "discarded",
    "hop": "moved on",
    "skip": "skipped",
    "duplicate": "duplicates",
}
"""Outcomes, in the order in which they are shown."""
_ONE: Final = {"duplicate": "duplicate"}
_ALWAYS: Final = ("done", "park", "bury")
_WINDOW: Final = 10.0
"""Seconds over which a rate is computed."""
_UNDONE: Final = ("trouble", "guard", "refused", "unfinished", "unseen")
"""Keys of a status that mean that there was something to do, or that nobody knows."""
Statuses = Mapping[LaneName, Mapping[str, Any]]


class View(Protocol):
    """How a run is shown while it runs."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...

    def show(self, run: Source) -> None:
        """Show how it is now."""
        ...


@contextmanager
def steps(console: Console) -> Iterator[Callable[[str], None]]:
    """Yield a function that shows the current step: in one changing line, or a line each."""
    if not console.is_terminal:
        yield lambda step: console.print(f"{step} ...", markup=False, soft_wrap=True)
        return
    with console.status("") as status:
        yield lambda step: status.update(f"{escape(step)} ...")


def view(console: Console) -> View:
    """The view that suits where the output goes."""
    return Picture(console) if console.is_terminal else Lines(console)


class Lines:
    """A line per batch: for logs and pipes."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def show(self, run: Source) -> None:
        """Print what has not been shown yet."""
        news = run.figures.news
        while news:
            batch = news.popleft()
            if batch.records or batch.trouble:
                self._console.print(line(batch), markup=False, soft_wrap=True)


def line(batch: Batch) -> str:
    """One batch in one line."""
    what = told(batch.counts) or "nothing done"
    trouble = f"; {batch.trouble}" if batch.trouble else ""
    which = "" if batch.number is None else f" batch {batch.number}"
    return f"{batch.lane:<5}{which}: {what} in {batch.seconds:.1f} s{trouble}"


def told(counts: Mapping[str, int]) -> str:
    """Outcomes in words: `4,900 done, 100 parked`."""
    return ", ".join(
        counted(counts[kind], _ONE.get(kind, word), word)
        for kind, word in WORDS.items()
        if counts.get(kind)
    )


class Picture:
    """A view that is redrawn: for terminals."""

    def __init__(self, console: Console) -> None:
        self._live = Live(console=console, refresh_per_second=4, transient=True)
        self._rates: dict[LaneName, Rate] = {"main": Rate(), "retry": Rate()}

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def show(self, run: Source) -> None:
        """Draw it as it is now."""
        run.figures.news.clear()
        statuses = {lane: run.status(lane) for lane in run.figures.lanes}
        rates = {
            lane: rate.of(sum(run.figures.counts(lane).values()), monotonic())
            for lane, rate in self._rates.items()
        }
        self._live.update(picture(run.figures, statuses, rates, time()))


class Rate:
    """Records per second over the last seconds, from a count that only grows."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, int]] = deque()

    def of(self, count: int, now: float) -> float:
        """The rate, given the current count."""
        self._seen.append((now, count))
        while self._seen[0][0] < now - _WINDOW:
            self._seen.popleft()
        began, before = self._seen[0]
        return (count - before) / (now - began) if now > began else 0.0


def picture(
    figures: Figures, statuses: Statuses, rates: Mapping[LaneName, float], now: float
) -> Group:
    """Lanes, delays, lateness and troubles."""
    parts: list[Table | Text] = [_lanes(figures, statuses, rates)]
    waiting = ahead(statuses.get("retry", {}))
    if waiting.lag:
        parts.append(_delays(waiting, now))
    parts.append(Text.from_markup(lateness(figures)))
    parts += [Text(each, "red") for each in troubles(statuses)]
    return Group(*parts)


def _lanes(figures: Figures, statuses: Statuses, rates: Mapping[LaneName, float]) -> Table:
    shown = Table(box=None, pad_edge=False)
    shown.add_column("lane")
    kinds = [kind for kind in WORDS if kind in _ALWAYS or figures.total(kind)]
    has_batches = any(map(figures.batches, figures.lanes))  # a worker never has any
    batches = ("batches",) if has_batches else ()
    for column in ("per s", "in flight", "ahead", *(WORDS[kind] for kind in kinds), *batches):
        shown.add_column(column, justify="right")
    for lane, done in figures.lanes.items():
        status, counts = statuses.get(lane, {}), figures.counts(lane)
        shown.add_row(
            lane,
            f"{rates.get(lane, 0):,.0f}",
            f"{status.get('in_flight', 0):,}",
            f"{sum(ahead(status).lag.values()):,}",
            *(f"{counts.get(kind, 0):,}" for kind in kinds),
            *(_batches(done) for _ in batches),
        )
    return shown


def _batches(done: LaneFigures) -> str:
    failed = f" ({done.failed_batches:,} failed)" if done.failed_batches else ""
    return f"{done.batches:,}{failed}"


def _delays(waiting: Ahead, now: float) -> Table:
    shown = Table(box=None, pad_edge=False)
    shown.add_column("delay topic")
    shown.add_column("parked", justify="right")
    shown.add_column("due", justify="right")
    shown.add_column("next due")
    for topic, count in waiting.lag.items():
        due = due_in(waiting, topic, now) if count else ""
        shown.add_row(topic, f"{count:,}", f"{waiting.due.get(topic, 0):,}", due)
    return shown


def ahead(status: Mapping[str, Any]) -> Ahead:
    """The lag according to a status; empty before the first look."""
    return Ahead(**status.get("ahead", {}))


def due_in(waiting: Ahead, topic: str, now: float) -> str:
    """When the next record of a delay topic is due: `in 4m10s`; `now` if one is due; or nothing.

    A worker knows this for its own partitions; once it has none left, for all.
    """
    if waiting.due.get(topic):
        return "now"
    if topic not in waiting.next_due:
        return ""
    seconds = round(waiting.next_due[topic] / 1000 - now)
    return f"in {text(seconds * 1000)}" if seconds > 0 else "now"


def lateness(figures: Figures) -> str:
    """How late parked records were handled."""
    half, most = figures.lateness_percentile(0.5), figures.lateness_percentile(0.99)
    if half is None or most is None:
        return "[dim]lateness: no parked record has been due yet[/]"
    early = f", [red]{figures.early:,} early[/]" if figures.early else ""
    return f"lateness: p50 {half:,} ms, p99 {most:,} ms{early}"


def troubles(statuses: Statuses) -> Iterator[str]:
    """What is in the way, and which data loss was found."""
    for lane, status in statuses.items():
        if status.get("trouble"):
            yield f"{lane} lane is waiting: {status['trouble']}"
        if status.get("guard"):
            yield f"{lane} lane: {status['guard']}"
        if refused := status.get("refused"):
            yield f"{lane} lane: {counted(refused, 'record')} waiting: {status['refusal']}"
        if unfinished := status.get("unfinished"):
            yield f"{lane} lane: {counted(unfinished, 'record')} did not finish and will run again"
        if status.get("lost"):
            yield f"{lane} lane: data loss detected {counted(len(status['lost']), 'time')}"


def summary(run: Source, now: float) -> Iterator[str]:
    """What a run did, after it has ended."""
    for lane in run.figures.lanes:
        counts, status = run.figures.counts(lane), run.status(lane)
        yield f"{lane:<5} lane: {told(counts) or _nothing_done(status, lane)}"
    if run.figures.lateness_percentile(0.5) is not None:
        yield Text.from_markup(lateness(run.figures)).plain
    waiting = ahead(run.status("retry"))
    for topic, count in waiting.lag.items():
        if count:
            due = due_in(waiting, topic, now)
            yield f"{count:,} parked in {topic}" + (f", next due {due}" if due else "")
    yield from troubles({lane: run.status(lane) for lane in run.figures.lanes})


def _nothing_done(status: Mapping[str, Any], lane: LaneName) -> str:
    """Whether there was nothing to do, or nothing was done."""
    waiting = ahead(status)
    if left := sum((waiting.due if lane == "retry" else waiting.lag).values()):
        return f"nothing done, {left:,} left"
    return "nothing done" if any(map(status.get, _UNDONE)) else "nothing to do"
