"""What `redrive run` shows: a picture in a terminal, else a line per batch; then a summary."""

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
from redrive.engines.figures import Batch, Figures
from redrive.engines.metrics import Source
from redrive.engines.words import Lane

WORDS: Final = {
    "done": "done",
    "park": "parked",
    "bury": "dead",
    "discard": "discarded",
    "hop": "moved on",
    "skip": "skipped",
    "duplicate": "duplicates",
}
"""What became of records, in the order in which it is told."""
_ALWAYS: Final = ("done", "park", "bury")
_WINDOW: Final = 10.0
"""Seconds over which a rate is taken."""
Statuses = Mapping[Lane, Mapping[str, Any]]


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
    """Gives a function that says what is being done: in one moving line, or in a line each."""
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
        """Print what has not been told yet."""
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
    return ", ".join(f"{counts[kind]:,} {word}" for kind, word in WORDS.items() if counts.get(kind))


class Picture:
    """A picture that is drawn anew: for terminals."""

    def __init__(self, console: Console) -> None:
        self._live = Live(console=console, refresh_per_second=4, transient=True)
        self._rates: dict[Lane, Rate] = {"main": Rate(), "retry": Rate()}

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
        """The rate, now that the count is this."""
        self._seen.append((now, count))
        while self._seen[0][0] < now - _WINDOW:
            self._seen.popleft()
        began, before = self._seen[0]
        return (count - before) / (now - began) if now > began else 0.0


def picture(figures: Figures, statuses: Statuses, rates: Mapping[Lane, float], now: float) -> Group:
    """Lanes, delays, lateness and troubles."""
    parts: list[Table | Text] = [_lanes(figures, statuses, rates)]
    parked = statuses.get("retry", {}).get("parked", {})
    if parked:
        parts.append(_delays(statuses["retry"], now))
    parts.append(Text.from_markup(lateness(figures)))
    parts += [Text.from_markup(f"[red]{escape(each)}[/]") for each in troubles(statuses)]
    return Group(*parts)


def _lanes(figures: Figures, statuses: Statuses, rates: Mapping[Lane, float]) -> Table:
    shown = Table(box=None, pad_edge=False)
    shown.add_column("lane")
    kinds = [kind for kind in WORDS if kind in _ALWAYS or figures.total(kind)]
    for column in ("per s", "in flight", "ahead", *(WORDS[kind] for kind in kinds), "batches"):
        shown.add_column(column, justify="right")
    for lane, done in figures.lanes.items():
        status, counts = statuses.get(lane, {}), figures.counts(lane)
        shown.add_row(
            lane,
            f"{rates.get(lane, 0):,.0f}",
            f"{status.get('in_flight', 0):,}",
            f"{status.get('lag', 0):,}",
            *(f"{counts.get(kind, 0):,}" for kind in kinds),
            f"{done.batches:,}"
            + (f" ({done.failed_batches:,} failed)" * bool(done.failed_batches)),
        )
    return shown


def _delays(status: Mapping[str, Any], now: float) -> Table:
    shown = Table(box=None, pad_edge=False)
    shown.add_column("delay topic")
    shown.add_column("parked", justify="right")
    shown.add_column("next due")
    for topic, count in status["parked"].items():
        due = due_in(status.get("next_due", {}).get(topic), now) if count else ""
        shown.add_row(topic, f"{count:,}", due)
    return shown


def due_in(due: int | None, now: float) -> str:
    """When the next record is due: `in 4m10s`; what is due already has no time."""
    seconds = 0 if due is None else round(due / 1000 - now)
    return f"in {text(seconds * 1000)}" if seconds > 0 else "now"


def lateness(figures: Figures) -> str:
    """How late parked records were handled."""
    half, most = figures.lateness_percentile(0.5), figures.lateness_percentile(0.99)
    if half is None or most is None:
        return "[dim]lateness: no parked record was due yet[/]"
    early = f", [red]{figures.early:,} early[/]" if figures.early else ""
    return f"lateness: p50 {half:,} ms, p99 {most:,} ms{early}"


def troubles(statuses: Statuses) -> Iterator[str]:
    """What the planners cannot do, and what they found to be gone."""
    for lane, status in statuses.items():
        if status.get("trouble"):
            yield f"{lane} lane waits: {status['trouble']}"
        if status.get("lost"):
            yield f"{lane} lane: records were gone, {len(status['lost'])} time(s)"


def summary(run: Source, now: float) -> Iterator[str]:
    """What a run did, when it has ended."""
    for lane in run.figures.lanes:
        counts = run.figures.counts(lane)
        yield f"{lane:<5} lane: {told(counts) or 'nothing to do'}"
    if run.figures.lateness_percentile(0.5) is not None:
        yield Text.from_markup(lateness(run.figures)).plain
    status = run.status("retry")
    for topic, count in status.get("parked", {}).items():
        if count:
            due = due_in(status.get("next_due", {}).get(topic), now)
            yield f"{count:,} parked in {topic}, next due {due}"
    yield from troubles({lane: run.status(lane) for lane in run.figures.lanes})
