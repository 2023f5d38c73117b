"""Lifecycle: how a worker runs, in its poll thread, from joining the group to the end."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from time import monotonic
from typing import TYPE_CHECKING, Final

from redrive.engines.worker.fate import WorkerError
from redrive.engines.worker.loop import NameInUseError
from redrive.kafka.errors import NotAllowedError
from redrive.numbers import counted
from redrive.tuning import LEAVE_WAIT, NAME_LOOK_EVERY, NAME_WAIT

if TYPE_CHECKING:
    from redrive.engines.words import LaneName
    from redrive.engines.worker.assignment import Assignment
    from redrive.engines.worker.fate import Fate
    from redrive.engines.worker.group_member import GroupMember
    from redrive.engines.worker.lag import LagMonitor
    from redrive.engines.worker.upkeep import Upkeep
    from redrive.processing.dispatcher import Dispatcher

log: Final = logging.getLogger("redrive.worker")


class Lifecycle:
    """Joins, polls until it must end, drains, and has everything closed."""

    member: GroupMember
    """The one by now: where the group refuses its name, the next one is made."""

    def __init__(
        self,
        *,
        make_member: Callable[[], GroupMember],
        assignment: Assignment,
        dispatcher: Dispatcher,
        upkeep: Upkeep,
        lag: LagMonitor,
        fate: Fate,
        drain: float,
        left: Callable[[], str],
        close: Callable[[], None],
        lacking: Callable[[], str],
    ) -> None:
        """`drain`: for how many seconds what runs is waited for at the end.

        `left` says what was to be done by then and is not, `lacking` which permissions are missing;
        empty: nothing.
        """
        self._make_member = make_member
        self._assignment = assignment
        self._dispatcher = dispatcher
        self._upkeep = upkeep
        self._lag = lag
        self._fate = fate
        self._drain_seconds = drain
        self._left = left
        self._close = close
        self._lacking = lacking
        self._refusal = ""
        self._attending = threading.Lock()
        self.stopping = threading.Event()
        """Set by whoever wants it to end in order."""
        self.unfinished: dict[LaneName, int] = {}
        """How many records did not end in time, by lane."""

    def begin(self) -> None:
        """Make the first member, which has not joined yet."""
        self.member = self._make_member()

    def run(self) -> None:
        """All of it; whatever goes wrong is its fate, and it has ended then."""
        try:
            self.member.join()
            while not self.must_end():
                try:
                    self.member.loop.step()
                except NameInUseError as error:
                    self._rejoin(error)
                self._upkeep.look()
            if self._fate.error is None:
                self._drain()
            if self._lag.over.is_set() and (left := self._left()):  # it was to end with all done
                self._fate.note(WorkerError(left))
        except BaseException as error:
            self._fate.note(error)
            log.debug("the worker ended", exc_info=error)
        finally:
            try:
                self._close()
                self._name_what_is_missing()
            finally:
                self._fate.ended.set()  # whatever went wrong on the way: somebody waits for it

    def must_end(self) -> bool:
        """Whether it was stopped, has failed, or has done all that it was to do."""
        return self.stopping.is_set() or self._fate.error is not None or self._lag.over.is_set()

    def attend(self) -> None:
        """Do what does not wait for a poll, while one takes its time or nothing can be polled."""
        if self._attending.acquire(
            blocking=False
        ):  # else somebody does: who closes a consumer, say
            try:
                self.member.loop.note_alive()
                self._dispatcher.tick()
                self._upkeep.look()
            finally:
                self._attending.release()

    def attend_no_more(self) -> None:
        """For good: who is still about to leave must not go on with it."""
        self._attending.acquire()

    def leave(self) -> bool:
        """Leave the group, if it was joined; whether that was within the time."""
        if not hasattr(self, "member"):
            return True
        # One that was stopped may soon be back by its name, one that has ended by itself not.
        for_good = self._fate.error is None and self._lag.over.is_set()
        return self.member.close(self._assignment.revoke_wait + LEAVE_WAIT, for_good=for_good)

    def _name_what_is_missing(self) -> None:
        """Where a permission was missing: brokers do not always say which, and never what else."""
        if isinstance(self._fate.error, NotAllowedError) and (missing := self._lacking()):
            self._fate.error = NotAllowedError(missing)

    def _drain(self) -> None:
        began = monotonic()
        loop, polls = self.member.loop, not self.member.is_ending
        if not loop.drain(self._drain_seconds, self._upkeep.look, polls=polls):
            self.unfinished = self._lag.in_flight()
            log.warning(
                "%s not finished within %.1f s (--drain): they run again, and"
                " whatever their handlers still do here is discarded",
                counted(sum(self.unfinished.values()), "record was", "records were"),
                monotonic() - began,
            )
        self._assignment.revoke_wait = 0.0  # whatever had to be waited for was

    def _rejoin(self, error: NameInUseError) -> None:
        """By a client of its own, as the one that was refused is of no more use.

        The new protocol refuses a name until its last holder's session has timed out.
        """
        if str(error) != self._refusal:
            self._refusal = str(error)
            log.warning("%s", error)
        # However long that takes: its callbacks are about the partitions that are here. But who
        # wants an end does not wait for a coordinator that is silent.
        while not self.member.ended_within(NAME_LOOK_EVERY):
            if self.must_end():
                return  # what runs is still waited for
            self.attend()
        for each in list(self._assignment.partitions.values()):
            self._assignment.close(each)
        self.stopping.wait(NAME_WAIT)
        self.member = self._make_member()
        self.member.join()
