"""The app that is simulated: what its handlers do, record by record, is in the plan."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from redrive import App, Backoff, Bury, GiveBack, Guard, InPlace, Outage, Retry, RetryPolicy
from redrive.record import Record
from simulation.history import Call, History
from simulation.plan import APP, Plan
from simulation.primitives import world
from simulation.scheduler import Process

SPOILT = b"spoilt-"


class Shop:
    """One process's app."""

    def __init__(
        self, plan: Plan, history: History, process: Process, *, is_new: bool = False
    ) -> None:
        self._plan = plan
        self._history = history
        self._process = process
        self._batches = 0
        self.app = self._make([*plan.sources] if is_new else ["in"])

    def _make(self, topics: list[str]) -> App:
        plan = self._plan
        app = App(
            APP,
            delivery=plan.delivery,  # type: ignore[arg-type]  # -- one of its words
            ordering=plan.ordering,  # type: ignore[arg-type]  # -- one of its words
            concurrency=plan.concurrency,
            retry=RetryPolicy(plan.delays, first=_first(plan)),
            on_data_loss="continue",
            guard=_guard(plan),
        )
        options: dict[str, Any] = {}
        if plan.timeout is not None:
            options["timeout"] = f"{plan.timeout:g}s"
        for topic in topics:
            if plan.form == "manual":
                app.handler(topic, ack="manual", **options)(self._manual)
            elif plan.form == "batch":
                app.handler(topic, batch=7, **options)(self._batch)
            else:
                app.handler(topic, **options)(self._plain)
        return app

    # Handlers

    def _plain(self, record: Record, ctx: Any) -> None:
        call = self._begin(record, ctx)
        self._settle(call, lambda: self._act(record, ctx))

    def _batch(self, records: list[Record], ctx: Any) -> None:
        self._batches += 1
        number = self._batches
        for record in records:
            each = ctx.of(record)
            call = self._begin(record, each, number)
            if self._word(record) == "text" and call.attempt == 1:
                self._history.ends(call, "fail")
                ctx.fail(record, "that did not work")
                continue
            try:
                self._settle(call, partial(self._act, record, each))
            except Exception as error:
                ctx.fail(record, error)

    def _manual(self, record: Record, ctx: Any) -> None:
        call = self._begin(record, ctx)
        word, _, number = self._word(record).partition(":")
        if word == "later":
            world().spawn(lambda: self._ack(call, record, ctx, float(number)), "acks")
        else:
            self._ack(call, record, ctx, 0.0)

    def _ack(self, call: Call, record: Record, ctx: Any, seconds: float) -> None:
        if seconds:
            world().sleep(seconds)
        word = self._word(record)
        if word == "text" and call.attempt == 1:
            self._history.ends(call, "fail")
            ctx.fail("that did not work")
            return
        try:
            how = self._how(record, ctx)
        except Exception as error:
            self._history.ends(call, _how(error))
            ctx.fail(error)
            return
        self._history.ends(call, how)
        ctx.ack()
        if word == "twice":
            ctx.ack()

    def _how(self, record: Record, ctx: Any) -> str:
        self._act(record, ctx)
        return "ok"

    def _settle(self, call: Call, act: Callable[[], None]) -> None:
        try:
            act()
        except BaseException as error:
            self._history.ends(call, _how(error))
            raise
        self._history.ends(call, "ok")

    # What they do

    def _begin(self, record: Record, ctx: Any, company: int = 0) -> Call:
        return self._history.begins(self._process, record, ctx.tries, ctx.attempt, company)

    def _word(self, record: Record) -> str:
        entry = self._history.entries.get(record.value or b"")
        return "done" if entry is None else entry.behaviour

    def _act(self, record: Record, ctx: Any) -> None:
        here = world()
        here.point()
        word, _, number = self._word(record).partition(":")
        uid = record.value or b""
        if here.now < self._history.away_until:
            raise _outage(self._plan)
        if word in ("slow", "send") and number:
            here.sleep(float(number))
        if word == "hang" and self._calls(uid) == 1:
            here.sleep((self._plan.timeout or 0) * 1.5 + 0.5)
        if word == "fail" and self._calls(uid) <= int(number):
            raise Retry("not yet") if int(number) % 2 else ValueError("not yet")
        if word == "bury":
            raise Bury("never")
        if word in ("send", "twins"):
            ctx.send("out", key=record.key, value=uid)
        if word == "twins":
            ctx.send("out", key=record.key, value=uid)
        if self._plan.has_database and word != "spoilt":
            ctx.db.insert(uid)
        if word == "spoilt":
            ctx.send("out", key=record.key, value=SPOILT + uid)
        here.point()

    def _calls(self, uid: bytes) -> int:
        return len(self._history.calls[uid])


def _how(error: BaseException) -> str:
    if isinstance(error, Bury):
        return "bury"
    return "outage" if isinstance(error, (ConnectionError, Outage)) else "fail"


def _outage(plan: Plan) -> Exception:
    return Outage("it is away") if plan.guard == "say" else ConnectionError("nobody answers")


def _guard(plan: Plan) -> Guard | None:
    """One failure is enough: a run has few records."""
    return Guard(failures=1, keys=1, outage_on=[ConnectionError]) if plan.guard else None


def _first(plan: Plan) -> InPlace | GiveBack | None:
    backoff = Backoff("50ms", factor=2, cap="500ms")
    if plan.first == "in place":
        return InPlace(plan.first_tries, backoff)
    if plan.first == "give back":
        return GiveBack(plan.first_tries)
    return None
